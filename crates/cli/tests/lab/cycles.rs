//! A hundred pods come and go in every way, with a second controller that is killed in between:
//! no address is given twice, and nothing is left.

use std::collections::BTreeSet;
use std::process::{Child, Stdio};

use serde_json::{Value, json};

use crate::documents::yaml;
use crate::fixture::{Lab, atoll_command, await_condition};
use crate::tenants::{field, namespace};

const PODS: usize = 25;

/// A controller beside the lab's own, that ends without a warning.
struct Second(Child);

impl Second {
    fn start(lab: &Lab) -> Second {
        let mut command = atoll_command(&["controller"]);
        command.env("KUBECONFIG", lab.kubeconfig()).stdout(Stdio::null()).stderr(Stdio::null());
        Second(command.spawn().unwrap())
    }
}

impl Drop for Second {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn short_lived(home: &str, number: usize, command: &[&str]) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
           "metadata": {"name": format!("web-{number}"), "namespace": home},
           "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
                    "containers": [{"name": "main", "image": "none", "command": command}]}})
}

fn pods(home: &str, command: &[&str]) -> String {
    yaml(&(0..PODS).map(|number| short_lived(home, number, command)).collect::<Vec<_>>())
}

/// The ports of a namespace.
fn ports(lab: &Lab, home: &str) -> Vec<Value> {
    let listed = lab.kubectl(&["get", "ports", "-n", home, "-o", "json"]).json();
    listed["items"].as_array().unwrap().clone()
}

/// Waits until all pods have a port and an address of their own; gives the links of their nodes.
fn await_all(lab: &Lab, home: &str) -> BTreeSet<String> {
    await_condition(|| ports(lab, home).len() == PODS).expect("each pod gets a port");
    let addresses: BTreeSet<String> =
        ports(lab, home).iter().map(|port| port["spec"]["ips"][0].to_string()).collect();
    assert_eq!(addresses.len(), PODS, "each has an address of its own: {addresses:?}");
    let link = |port: &Value| Some(port["status"]["hostInterface"].as_str()?.to_owned());
    await_condition(|| ports(lab, home).iter().filter_map(link).count() == PODS)
        .expect("each pod is attached");
    ports(lab, home).iter().filter_map(link).collect()
}

/// Nothing of these pods is left, neither in the API nor on a node.
fn assert_nothing_is_left(lab: &Lab, home: &str, links: &BTreeSet<String>) {
    await_condition(|| ports(lab, home).is_empty()).expect("no port is left");
    let held = format!("{{.items[?(@.spec.holder.namespace=='{home}')].metadata.name}}");
    field(lab, &["claims"], &held, |claims| !claims.contains("address."));
    let subnet = format!("{home}.default.10-0-0-0-16");
    field(lab, &["subnet", &subnet], "{.status.used}", |used| used == "0");
    for node in ["node1", "node2"] {
        let is_left = || {
            let there = lab.node(node, &["ip", "-o", "link"]).good();
            links.iter().any(|link| there.contains(&format!(": {link}@")))
        };
        await_condition(|| !is_left()).expect("no link is left");
    }
}

#[test]
fn a_hundred_pods_that_come_and_go_in_every_way_leave_nothing_though_controllers_are_killed() {
    let lab = Lab::up(2);
    let home = "cycles";
    let tenant = json!({"apiVersion": "atoll.dev/v1alpha1", "kind": "Tenant",
        "metadata": {"name": home},
        "spec": {"defaultNetwork": {"type": "vpc", "cidrs": ["10.0.0.0/16"]}}});
    lab.apply(&yaml(&[tenant, namespace(home, home)])).good();
    let stay = ["sleep", "infinity"];
    let delete = |more: &[&str]| {
        lab.kubectl(&[&["delete", "pods", "--all", "-n", home, "--timeout=90s"], more].concat())
            .good();
    };

    let second = Second::start(&lab);
    lab.apply(&pods(home, &stay)).good();
    let links = await_all(&lab, home);
    drop(second);
    delete(&[]);
    assert_nothing_is_left(&lab, home, &links);

    let second = Second::start(&lab);
    lab.apply(&pods(home, &stay)).good();
    drop(second);
    let links = await_all(&lab, home);
    delete(&["--force", "--grace-period=0"]);
    assert_nothing_is_left(&lab, home, &links);

    lab.apply(&pods(home, &["sh", "-c", "exit 0"])).good();
    let finished = |phases: &str| {
        let ended = phases.split(' ').filter(|phase| ["Succeeded", "Failed"].contains(phase));
        ended.count() == PODS
    };
    field(&lab, &["pods", "-n", home], "{.items[*].status.phase}", finished);
    assert_nothing_is_left(&lab, home, &BTreeSet::new());
    delete(&[]);

    let _second = Second::start(&lab);
    lab.apply(&pods(home, &stay)).good();
    let links = await_all(&lab, home);
    lab.kubectl(&["delete", "namespace", home, "--timeout=90s"]).good();
    assert_nothing_is_left(&lab, home, &links);
}
