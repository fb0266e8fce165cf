//! The real cnitool, with the real libcni inside it, and Debian's plugins beside ours. These need
//! Go and containernetworking-plugins: `make test-real` runs them.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::OnceLock;

use atoll_testkit::eventually;
use serde_json::{Value, json};

use crate::node::{NOBODYS, Node, Pod, TENANTS};

const DEBIAN_PLUGINS: &str = "/usr/lib/cni";

/// A program that is built of the real libcni: `cnitool`, or our small `runtime`. Tests that run at once
/// have it built once. Asked for outside of a node's namespace, from where nothing could be fetched.
fn real(program: &str) -> String {
    static FOLDER: OnceLock<String> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let build = concat!(env!("CARGO_MANIFEST_DIR"), "/../../real/cni/build");
        let built = Command::new(build).output().unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        String::from_utf8(built.stdout).unwrap().trim().to_owned()
    });
    format!("{folder}/{program}")
}

impl Node {
    /// Writes the network `atoll` with these plugins.
    fn network(&self, version: &str, plugins: &[Value]) {
        let list = json!({"cniVersion": version, "name": "atoll", "plugins": plugins});
        self.list(&list);
    }

    fn list(&self, list: &Value) {
        fs::write(self.path("conf/05-atoll.conflist"), list.to_string()).unwrap();
    }

    /// Runs cnitool in the node's namespace, with a cache of its own in the place of the machine's.
    fn cnitool(&self, command: &str, pod: &Pod) -> Output {
        let script = "mount --bind \"$1\" /var/lib && exec \"$2\" \"$3\" atoll \"$4\"";
        let tool = real("cnitool").into();
        let words = [self.path("var"), tool, command.into(), pod.namespace.path()];
        let run = || {
            Command::new("unshare")
                .args(["--mount", "sh", "-c", script, "sh"])
                .args(&words)
                .env("NETCONFPATH", self.path("conf"))
                .env("CNI_PATH", format!("{}:{DEBIAN_PLUGINS}", self.path("bin").display()))
                .env("CNI_ARGS", pod.arguments())
                .output()
                .unwrap()
        };
        self.namespace.run(run)
    }

    /// Runs the small runtime of libcni, which remembers nothing of what others made.
    fn runtime(&self, arguments: &[&str]) -> String {
        let program = real("runtime");
        let run = || {
            Command::new(&program)
                .args(arguments)
                .env("NETCONFPATH", self.path("conf"))
                .env("CNI_PATH", self.path("bin"))
                .env("CNI_CACHE", self.path("var"))
                .output()
                .unwrap()
        };
        let done = self.namespace.run(run);
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "runtime {arguments:?}: {said}");
        String::from_utf8(done.stdout).unwrap()
    }

    fn succeeds(&self, command: &str, pod: &Pod) -> Vec<u8> {
        let done = self.cnitool(command, pod);
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "cnitool {command}: {said}");
        done.stdout
    }

    fn added(&self, pod: &Pod) -> Value {
        serde_json::from_slice(&self.succeeds("add", pod)).unwrap()
    }

    fn fails(&self, command: &str, pod: &Pod) -> String {
        let done = self.cnitool(command, pod);
        assert!(!done.status.success(), "cnitool {command} succeeded");
        String::from_utf8(done.stderr).unwrap()
    }
}

fn tenants_pod(node: &Node, name: &str, number: u8) -> Pod {
    let pod = Pod::new(TENANTS, name);
    node.port(&pod, number);
    pod
}

#[test]
#[ignore = "needs Go: make test-real"]
fn the_real_cnitool_drives_every_command_in_every_version() {
    let node = Node::start();
    for (number, version) in (1..).zip(["0.3.1", "0.4.0", "1.0.0", "1.1.0"]) {
        let pod = tenants_pod(&node, &format!("web-{number}"), number);
        node.network(version, &[node.configuration(version, &json!({}))]);
        let result = node.added(&pod);
        assert_eq!(result["cniVersion"], version);
        assert_eq!(result["ips"][0]["address"], format!("10.0.0.{number}/32"));
        assert!(pod.is_attached());
        if version != "0.3.1" {
            node.succeeds("check", &pod);
        }
        if version == "1.1.0" {
            node.succeeds("status", &pod);
        }
        for _ in 0..2 {
            node.succeeds("del", &pod);
            assert!(!pod.is_attached());
        }
    }
}

#[test]
#[ignore = "needs Go: make test-real"]
fn a_check_of_what_was_broken_by_hand_fails_and_a_collection_without_a_list_is_refused() {
    let node = Node::start();
    let pod = tenants_pod(&node, "web", 1);
    node.network("1.1.0", &[node.configuration("1.1.0", &json!({}))]);
    let host_side = node.added(&pod)["interfaces"][1]["name"].as_str().unwrap().to_owned();
    node.succeeds("check", &pod);
    let complaint = eventually("a check comes before the repair", || {
        node.namespace.ip(&format!("link set {host_side} down"));
        let done = node.cnitool("check", &pod);
        (!done.status.success()).then(|| String::from_utf8(done.stderr).unwrap())
    });
    assert!(complaint.contains("is not as it was made"), "{complaint}");
    let refused = node.fails("gc", &pod);
    assert!(refused.contains("without it all would go"), "cnitool gives no list: {refused}");
    assert_eq!(node.links(), 0, "libcni takes away what it remembers before it asks");
}

#[test]
#[ignore = "needs Go: make test-real"]
fn libcni_collects_all_but_the_attachments_it_lists() {
    let node = Node::start();
    node.network("1.1.0", &[node.configuration("1.1.0", &json!({}))]);
    let pods = [1, 2, 3].map(|number| tenants_pod(&node, &format!("web-{number}"), number));
    for pod in &pods {
        assert!(node.call("ADD", pod).status.success());
    }
    let kept = pods[1].container() + "/eth0";
    node.runtime(&["gc", "atoll", &kept, "gone-long-ago/eth0"]);
    assert_eq!(pods.each_ref().map(Pod::is_attached), [false, true, false]);
    node.runtime(&["gc", "atoll"]);
    assert_eq!(node.links(), 0, "an empty list keeps nothing");
}

#[test]
#[ignore = "needs Go: make test-real"]
fn libcni_is_told_every_version() {
    let said = Node::start().runtime(&["versions", "atoll-cni"]);
    assert_eq!(said, "0.3.0 0.3.1 0.4.0 1.0.0 1.1.0\n");
}

#[test]
#[ignore = "needs Go: make test-real"]
fn a_plugin_after_ours_builds_on_our_result() {
    let node = Node::start();
    let pod = tenants_pod(&node, "web", 1);
    let tuning = json!({"type": "tuning", "dataDir": node.path("tuning"), "sysctl": {"net.core.somaxconn": "777"}});
    node.network("1.0.0", &[node.configuration("1.0.0", &json!({})), tuning]);
    let result = node.added(&pod);
    assert_eq!(result["ips"][0]["address"], "10.0.0.1/32");
    assert_eq!(result["interfaces"][0]["name"], "eth0");
    let said = pod.namespace.command("sysctl", &["-n", "net.core.somaxconn"]);
    assert_eq!(said.stdout, b"777\n");
    node.succeeds("check", &pod);
    node.succeeds("del", &pod);
    assert!(!pod.is_attached());
}

#[test]
#[ignore = "needs Go: make test-real"]
fn libcni_has_ours_build_on_a_plugin_before_it() {
    let node = Node::start();
    let pod = tenants_pod(&node, "web", 1);
    let version = "1.0.0";
    node.network(version, &[json!({"type": "loopback"}), node.configuration(version, &json!({}))]);
    let result = node.added(&pod);
    let names: Vec<&Value> =
        result["interfaces"].as_array().unwrap().iter().map(|it| &it["name"]).take(2).collect();
    assert_eq!(names, ["lo", "eth0"], "{result}");
    let ips = result["ips"].as_array().unwrap();
    let ours = ips.iter().find(|ip| ip["address"] == "10.0.0.1/32").unwrap();
    assert_eq!(ours["interface"], 1, "{result}");
    assert!(ips.iter().any(|ip| ip["address"] == "127.0.0.1/8"), "{result}");
    node.succeeds("check", &pod);
    node.succeeds("del", &pod);
    assert!(!pod.is_attached());
}

#[test]
#[ignore = "needs Go: make test-real"]
fn libcni_speaks_the_newest_version_that_it_is_offered() {
    let node = Node::start();
    let pod = tenants_pod(&node, "web", 1);
    let plugin = node.configuration("1.0.0", &json!({}));
    node.list(&json!({"cniVersion": "1.0.0", "cniVersions": ["1.0.0", "1.1.0"], "name": "atoll",
                      "plugins": [plugin]}));
    assert_eq!(node.added(&pod)["cniVersion"], "1.1.0");
    node.succeeds("check", &pod);
    node.succeeds("status", &pod);
    node.runtime(&["gc", "atoll"]);
    assert!(!pod.is_attached(), "it was asked to collect");
}

fn bridge(folder: &Path) -> Value {
    let ipam = json!({
        "type": "host-local", "dataDir": folder, "ranges": [[{"subnet": "10.9.0.0/24"}]],
    });
    json!({"cniVersion": "1.0.0", "name": "before", "type": "bridge", "bridge": "cni0", "isGateway": true, "ipam": ipam})
}

#[test]
#[ignore = "needs Go: make test-real"]
fn a_pod_of_no_tenant_gets_what_the_network_before_gives_and_a_tenants_pod_does_not() {
    let node = Node::start();
    let leases = node.path("leases");
    let door = json!({"delegate": bridge(&leases)});
    node.network("1.0.0", &[node.configuration("1.0.0", &door)]);
    let (stranger, tenants) = (Pod::new(NOBODYS, "stranger"), tenants_pod(&node, "web", 1));
    let result = node.added(&stranger);
    assert_eq!(result["ips"][0]["address"], "10.9.0.2/24");
    assert!(stranger.namespace.ip("-4 -o address show eth0").contains("10.9.0.2/24"));
    assert_eq!(node.added(&tenants)["ips"][0]["address"], "10.0.0.1/32");
    node.succeeds("check", &stranger);
    assert!(node.fails("add", &stranger).contains("eth0"), "the other network's own error");
    node.succeeds("del", &stranger);
    assert!(!stranger.is_attached() && tenants.is_attached());
    assert!(!leases.join("before/10.9.0.2").exists(), "the address was given back");
    let unknown = Pod::new("unknown", "stranger");
    assert!(node.fails("add", &unknown).contains("does not have all its ports yet"));
    assert!(!unknown.is_attached());
}

#[test]
#[ignore = "needs Go: make test-real"]
fn a_pod_of_no_tenant_goes_through_a_list_of_an_older_version_and_back() {
    let node = Node::start();
    let leases = node.path("leases");
    let portmap = json!({"type": "portmap", "capabilities": {"portMappings": true}});
    for (number, version) in (2..).zip(["1.0.0", "1.1.0"]) {
        let before = json!({"cniVersion": "0.3.1", "name": "before",
                            "plugins": [bridge(&leases), portmap]});
        node.network(version, &[node.configuration(version, &json!({"delegate": before}))]);
        let stranger = Pod::new(NOBODYS, format!("stranger-{number}"));
        let result = node.added(&stranger);
        assert_eq!(result["ips"][0]["address"], format!("10.9.0.{number}/24"), "{version}");
        if version == "1.1.0" {
            node.succeeds("status", &stranger);
        }
        for _ in 0..2 {
            node.succeeds("del", &stranger);
            assert!(!stranger.is_attached(), "{version}");
        }
        assert!(!leases.join(format!("before/10.9.0.{number}")).exists(), "{version}");
    }
}

#[test]
#[ignore = "needs Go: make test-real"]
fn without_a_door_a_pod_of_no_tenant_is_told_what_is_missing() {
    let node = Node::start();
    node.network("1.1.0", &[node.configuration("1.1.0", &json!({}))]);
    let said = node.fails("add", &Pod::new(NOBODYS, "stranger"));
    assert!(said.contains("has no delegate"), "{said}");
}
