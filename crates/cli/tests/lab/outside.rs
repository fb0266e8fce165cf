//! Pods and the outside, from `kubectl apply` to an answer: two tenants with the same addresses at
//! the same time, and one that has no egress. The outside is a machine on the nodes' wire that is no
//! node, and an address behind it. What leaves by an address of its network is with it.

use std::process::{Child, Stdio};

use serde_json::{Value, json};

use crate::asking;
use crate::fixture::{
    Lab, atoll_command, await_condition, await_some, kill_agent_and_await_the_next,
};

pub(crate) const WIRE: &str = "172.30.0.1";
const FAR: &str = "203.0.113.5";

/// The outside of a lab, where a server answers until this value goes.
struct World {
    server: Child,
}

impl World {
    fn of(lab: &Lab) -> World {
        let netns = lab.place("fabric").display().to_string();
        World::enter(&netns, &["ip", "address", "add", &format!("{FAR}/32"), "dev", "lo"]);
        World::enter(&netns, &["ip", "link", "set", "lo", "up"]);
        let serve = ["lab", "enter", "--netns", &netns, "--", env!("CARGO_BIN_EXE_atoll")];
        let mut server = atoll_command(&[&serve[..], &["toolbox", "serve"]].concat());
        server.env("POD_NAME", "world").env("POD_NAMESPACE", "outside");
        let server = server.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        World { server }
    }

    fn enter(netns: &str, command: &[&str]) {
        let enter = ["lab", "enter", "--netns", netns, "--"];
        assert!(atoll_command(&[&enter, command].concat()).status().unwrap().success());
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _gone = self.server.kill();
        let _reaped = self.server.wait();
    }
}

fn yaml(documents: &[Value]) -> String {
    documents.iter().map(|document| format!("---\n{document}\n")).collect()
}

/// A tenant whose one pod has the address of everybody else's.
fn tenant(name: &str) -> String {
    yaml(&[
        json!({"apiVersion": "atoll.dev/v1alpha1", "kind": "Tenant", "metadata": {"name": name},
               "spec": {"defaultNetwork": {"type": "vpc", "cidrs": ["10.0.0.0/16"]}}}),
        json!({"apiVersion": "v1", "kind": "Namespace",
               "metadata": {"name": name, "labels": {"atoll.dev/tenant": name}}}),
        json!({"apiVersion": "v1", "kind": "Pod",
               "metadata": {"name": "web", "namespace": name, "labels": {"app": "web"},
                            "annotations": {"atoll.dev/nics": r#"[{"ip":"10.0.0.5"}]"#}},
               "spec": {"nodeSelector": {"kubernetes.io/hostname": "node1"},
                        "terminationGracePeriodSeconds": 1,
                        "containers": [{"name": "toolbox", "image": "none",
                                        "command": ["atoll", "toolbox", "serve"]}]}}),
    ])
}

/// A pod on the other node, and a service by whose node port the outside reaches it.
fn shop(name: &str, port: u16, policy: &str) -> String {
    let server = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "far", "namespace": name, "labels": {"app": "shop"},
                     "annotations": {"atoll.dev/nics": r#"[{"ip":"10.0.0.6"}]"#}},
        "spec": {"nodeSelector": {"kubernetes.io/hostname": "node2"},
                 "terminationGracePeriodSeconds": 1,
                 "containers": [{"name": "toolbox", "image": "none",
                                 "command": ["atoll", "toolbox", "serve"],
                                 "env": [{"name": "POD_NAME", "value": "far"},
                                         {"name": "POD_NAMESPACE", "value": name}]}]}});
    let service = json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "shop", "namespace": name},
        "spec": {"type": "NodePort", "selector": {"app": "shop"}, "externalTrafficPolicy": policy,
                 "ports": [{"port": 80, "targetPort": 8080, "nodePort": port}]}});
    yaml(&[server, service])
}

/// Who answers somebody outside at an address and port, and as whom it sees the asker.
pub(crate) fn entered(lab: &Lab, node: &str, port: u16) -> Option<(String, String)> {
    let said = asking::outside(lab, &["connect", "tcp", &format!("{node}:{port}")]);
    let answer: Value = serde_json::from_str(&said.out).ok()?;
    let text = |field: &str| answer[field].as_str().map(ToOwned::to_owned);
    Some((text("pod")?, text("peer")?.rsplit_once(':')?.0.to_owned()))
}

/// Says how the pods of a tenant reach the outside.
pub(crate) fn set_egress(lab: &Lab, tenant: &str, mode: &str) {
    let patch = json!({"spec": {"egress": {"mode": mode, "addresses": null}}}).to_string();
    let network = format!("{tenant}.default");
    lab.kubectl(&["patch", "network", &network, "--type=merge", "-p", &patch]).good();
}

/// Two tenants with egress, one without, and the outside.
fn lab() -> (Lab, World) {
    lab_of(&["node1", "node2"])
}

fn lab_of(nodes: &[&str]) -> (Lab, World) {
    let lab = Lab::up(u8::try_from(nodes.len()).unwrap());
    let world = World::of(&lab);
    for node in nodes {
        lab.node(node, &["ip", "route", "add", "default", "via", WIRE]).good();
    }
    ["acme", "globex", "hooli"].iter().for_each(|name| drop(lab.apply(&tenant(name)).good()));
    lab.wait_for_pods();
    ["acme", "globex"].iter().for_each(|name| set_egress(&lab, name, "node"));
    (lab, world)
}

/// Whom the outside saw asking; none where nobody answered.
fn seen(lab: &Lab, tenant: &str, protocol: &str, to: &str) -> Option<String> {
    seen_by(lab, &format!("{tenant}/web"), protocol, to)
}

fn seen_by(lab: &Lab, pod: &str, protocol: &str, to: &str) -> Option<String> {
    let said = lab.connect(pod, protocol, &format!("{to}:8080"));
    let answer: Value = serde_json::from_str(&said.out).ok()?;
    Some(answer["peer"].as_str()?.rsplit_once(':')?.0.to_owned())
}

fn await_outside(lab: &Lab, tenant: &str) {
    await_condition(|| seen(lab, tenant, "tcp", FAR).is_some())
        .unwrap_or_else(|()| panic!("{tenant} never reached the outside"));
}

#[test]
fn pods_of_networks_with_egress_reach_the_outside_as_their_node_and_others_do_not() {
    let (lab, _world) = lab();
    for tenant in ["acme", "globex"] {
        await_outside(&lab, tenant);
        // A server of datagrams answers from the address nearest to its client.
        for (protocol, to) in [("tcp", WIRE), ("tcp", FAR), ("udp", WIRE)] {
            assert_eq!(await_some(|| seen(&lab, tenant, protocol, to)), "172.30.0.11");
        }
        lab.reach(&format!("{tenant}/web"), "icmp", FAR).good();
    }
    assert_eq!(seen(&lab, "hooli", "tcp", FAR), None);
    assert!(lab.drops(Some("hooli.default"), "no-endpoint") > 0);
    assert_eq!(lab.rules("node1"), "", "nothing of ours is in the node's firewalls");
}

#[test]
fn no_node_nor_the_clusters_own_is_reached_by_way_of_the_outside() {
    let (lab, _world) = lab();
    await_outside(&lab, "acme");
    let closed = ["172.30.0.11", "172.30.0.12", "10.96.0.200", "127.0.0.1", "169.254.169.254"];
    for to in closed {
        let before = lab.drops(Some("acme.default"), "outside-closed");
        for port in ["22", "4789", "9965", "10250"] {
            let said = lab.connect("acme/web", "tcp", &format!("{to}:{port}"));
            assert!(!said.ok, "{to}:{port} answered: {}", said.out);
        }
        let leaves_pod = to != "127.0.0.1";
        let after = lab.drops(Some("acme.default"), "outside-closed");
        assert_eq!(after > before, leaves_pod, "{to}");
    }
    await_outside(&lab, "acme");
}

#[test]
fn policy_decides_about_addresses_outside_and_egress_can_be_taken_away() {
    let (lab, _world) = lab();
    ["acme", "globex"].iter().for_each(|tenant| await_outside(&lab, tenant));
    let only_wire = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": "wire", "namespace": "acme"},
        "spec": {"podSelector": {}, "policyTypes": ["Egress"],
                 "egress": [{"to": [{"ipBlock": {"cidr": "172.30.0.0/24"}}]}]}});
    lab.apply(&yaml(&[only_wire])).good();
    await_condition(|| seen(&lab, "acme", "tcp", FAR).is_none()).expect("the policy holds");
    assert!(lab.drops(Some("acme.default"), "policy-denied-egress") > 0);
    await_some(|| seen(&lab, "acme", "tcp", WIRE));
    await_some(|| seen(&lab, "globex", "tcp", FAR));

    set_egress(&lab, "globex", "none");
    await_condition(|| seen(&lab, "globex", "tcp", FAR).is_none()).expect("egress is gone");
    await_some(|| seen(&lab, "acme", "tcp", WIRE));
}

#[test]
fn connections_to_the_outside_go_on_while_the_agent_is_killed() {
    let (lab, _world) = lab();
    await_outside(&lab, "acme");
    kill_agent_and_await_the_next(&lab, "node1");
    for tenant in ["acme", "globex"] {
        assert_eq!(await_some(|| seen(&lab, tenant, "tcp", FAR)), "172.30.0.11");
    }
}

const POOL: &str = "
apiVersion: atoll.dev/v1alpha1
kind: AddressPool
metadata: {name: exits}
spec: {cidrs: [172.30.0.208/30]}
";
/// The tenants, and the address that the outside is to know each by.
const EXITS: [(&str, &str); 2] = [("acme", "172.30.0.208"), ("globex", "172.30.0.209")];

/// Waits until the outside sees a pod of each tenant as its network's address.
fn await_exits(lab: &Lab, pod: &str) {
    for (tenant, address) in EXITS {
        let mut last = None;
        await_condition(|| {
            last = seen_by(lab, &format!("{tenant}/{pod}"), "tcp", FAR);
            last.as_deref() == Some(address)
        })
        .unwrap_or_else(|()| panic!("{tenant}/{pod} is seen as {last:?}"));
    }
}

#[test]
fn pods_of_every_node_leave_by_the_address_of_their_network_also_when_its_node_fails() {
    let (lab, _world) = lab_of(&["node1", "node2", "node3"]);
    lab.apply(POOL).good();
    for ((name, address), (_, port)) in EXITS.into_iter().zip(SHOPS) {
        lab.apply(&shop(name, port, "Local")).good();
        let egress = json!({"mode": "address", "addresses": [address]});
        let patch = json!({"spec": {"egress": egress}}).to_string();
        let network = format!("{name}.default");
        lab.kubectl(&["patch", "network", &network, "--type=merge", "-p", &patch]).good();
    }
    lab.wait_for_pods();
    ["web", "far"].iter().for_each(|pod| await_exits(&lab, pod));
    let first = lab.holder(EXITS[0].1, |_| true);
    lab.signal_node(&first, "-STOP");
    lab.holder(EXITS[0].1, |node| node != first);
    await_exits(&lab, if first == "node1" { "far" } else { "web" });
    lab.signal_node(&first, "-CONT");
    ["web", "far"].iter().for_each(|pod| await_exits(&lab, pod));
    set_egress(&lab, "globex", "none");
    await_condition(|| seen(&lab, "globex", "tcp", FAR).is_none()).expect("egress is gone");
    assert_eq!(await_some(|| seen(&lab, "acme", "tcp", FAR)), EXITS[0].1);
}

/// The third has no pod of anybody.
const NODES: [&str; 3] = ["172.30.0.11", "172.30.0.12", "172.30.0.13"];
const SHOPS: [(&str, u16); 2] = [("acme", 30100), ("globex", 30200)];

/// Whom the outside finds at a port of each node.
fn found(lab: &Lab, port: u16) -> [Option<(String, String)>; 3] {
    NODES.map(|node| entered(lab, node, port))
}

#[test]
fn the_outside_reaches_a_service_by_its_port_of_every_node_also_without_a_pod_of_its_network() {
    let (lab, _world) = lab_of(&["node1", "node2", "node3"]);
    for (tenant, port) in SHOPS {
        lab.apply(&shop(tenant, port, "Cluster")).good();
    }
    lab.wait_for_pods();
    for (tenant, port) in SHOPS {
        let shop = Some((format!("{tenant}/far"), WIRE.to_owned()));
        let mut last = found(&lab, port);
        await_condition(|| {
            last = found(&lab, port);
            last.iter().all(|found| *found == shop)
        })
        .unwrap_or_else(|()| panic!("{tenant}: {last:?}"));
    }
    for (node, (_, port)) in NODES.iter().flat_map(|node| SHOPS.map(|shop| (node, shop))) {
        let said = lab.connect("acme/web", "tcp", &format!("{node}:{port}"));
        assert!(!said.ok, "a pod reaches no port of a node: {}", said.out);
    }

    let nobody = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": "closed", "namespace": "acme"},
        "spec": {"podSelector": {"matchLabels": {"app": "shop"}}, "policyTypes": ["Ingress"],
                 "ingress": [{"from": [{"ipBlock": {"cidr": "203.0.113.0/24"}}]}]}});
    lab.apply(&yaml(&[nobody])).good();
    await_condition(|| found(&lab, 30100) == [None, None, None]).expect("the policy holds");
    assert!(lab.drops(Some("acme.default"), "policy-denied-ingress") > 0);
    assert_eq!(await_some(|| entered(&lab, NODES[0], 30200)).0, "globex/far");

    let local = r#"{"spec":{"externalTrafficPolicy":"Local"}}"#;
    lab.kubectl(&["patch", "service", "shop", "-n", "globex", "-p", local]).good();
    await_condition(|| found(&lab, 30200)[0].is_none()).expect("node1 has no pod of it");
    await_condition(|| found(&lab, 30200)[2].is_none()).expect("nor has node3");
    assert_eq!(await_some(|| entered(&lab, NODES[1], 30200)).0, "globex/far");
}
