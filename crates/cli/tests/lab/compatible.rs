//! Infra in the mode `compatible`: pods of two tenants with the same address reach the nodes, no node
//! reaches them, and a network whose addresses are the nodes' stays apart and hears why. A process on
//! each node stands for whatever a node has.

use std::process::{Child, Stdio};

use serde_json::{Value, json};

use crate::fixture::{Lab, atoll_command, await_condition, await_some};

const NODES: [(&str, &str); 2] = [("node1", "172.30.0.11"), ("node2", "172.30.0.12")];
const TENANTS: [&str; 2] = ["acme", "globex"];
/// The tenant whose addresses are the nodes', too.
const CONFLICTING: &str = "hooli";
const NODE_PORT: u16 = 30_300;

/// A server on a node, which answers until this value goes.
struct Server(Child);

impl Server {
    fn on(lab: &Lab, node: &str) -> Server {
        let netns = lab.place(node).display().to_string();
        let enter = ["lab", "enter", "--netns", &netns, "--", env!("CARGO_BIN_EXE_atoll")];
        let mut server = atoll_command(&[&enter[..], &["toolbox", "serve"]].concat());
        server.env("POD_NAME", node).env("POD_NAMESPACE", "infra");
        Server(server.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _reaped = self.0.wait();
    }
}

fn yaml(documents: &[Value]) -> String {
    documents.iter().map(|document| format!("---\n{document}\n")).collect()
}

/// A tenant with the pod `web` on node1.
fn tenant(name: &str, cidr: &str, ip: &str) -> String {
    let nics = json!([{ "ip": ip }]).to_string();
    yaml(&[
        json!({"apiVersion": "atoll.dev/v1alpha1", "kind": "Tenant", "metadata": {"name": name},
               "spec": {"defaultNetwork": {"type": "vpc", "cidrs": [cidr]}}}),
        json!({"apiVersion": "v1", "kind": "Namespace",
               "metadata": {"name": name, "labels": {"atoll.dev/tenant": name}}}),
        json!({"apiVersion": "v1", "kind": "Pod",
               "metadata": {"name": "web", "namespace": name, "labels": {"app": "web"},
                            "annotations": {"atoll.dev/nics": nics}},
               "spec": {"nodeSelector": {"kubernetes.io/hostname": "node1"},
                        "terminationGracePeriodSeconds": 1,
                        "containers": [{"name": "toolbox", "image": "none",
                                        "command": ["atoll", "toolbox", "serve"]}]}}),
    ])
}

fn lab() -> (Lab, [Server; 2]) {
    let lab = Lab::up_with(2, &["--infra-mode", "compatible"]);
    let servers = NODES.map(|(node, _)| Server::on(&lab, node));
    TENANTS
        .iter()
        .for_each(|name| drop(lab.apply(&tenant(name, "10.0.0.0/16", "10.0.0.5")).good()));
    lab.apply(&tenant(CONFLICTING, "172.30.0.0/24", "172.30.0.5")).good();
    lab.wait_for_pods();
    (lab, servers)
}

/// Who answers a tenant's pod, and as whom it sees the pod.
fn answer(lab: &Lab, tenant: &str, protocol: &str, to: &str) -> Option<(String, String)> {
    let said = lab.connect(&format!("{tenant}/web"), protocol, to);
    let answer: Value = serde_json::from_str(&said.out).ok()?;
    let text = |field: &str| answer[field].as_str().map(ToOwned::to_owned);
    Some((text("pod")?, text("peer")?.rsplit_once(':')?.0.to_owned()))
}

#[test]
fn pods_of_two_tenants_reach_every_node_and_no_node_reaches_them() {
    let (lab, _servers) = lab();
    let mut aliases = vec![];
    for (tenant, (node, ip)) in TENANTS.into_iter().flat_map(|it| NODES.map(|node| (it, node))) {
        for protocol in ["tcp", "udp"] {
            let to = format!("{ip}:8080");
            let (who, seen) = await_some(|| answer(&lab, tenant, protocol, &to));
            assert_eq!(who, format!("infra/{node}"), "{tenant} {protocol}");
            match node {
                "node1" => aliases.push(seen),
                _ => assert_eq!(seen, NODES[0].1, "{tenant} {protocol}"),
            }
        }
        lab.reach(&format!("{tenant}/web"), "icmp", ip).good();
    }
    assert!(aliases.iter().all(|seen| seen.starts_with("240.")), "{aliases:?}");
    for (node, to) in NODES.into_iter().flat_map(|(node, _)| {
        [aliases[0].as_str(), "10.0.0.5"].map(|to| (node, format!("{to}:8080")))
    }) {
        let program = env!("CARGO_BIN_EXE_atoll");
        let said = lab.node(node, &[program, "toolbox", "connect", "tcp", &to]);
        assert!(!said.ok, "{node} reached {to}: {}", said.out);
    }
    for port in ["4789", "30000"] {
        let before = lab.drops(Some("acme.default"), "outside-closed");
        lab.connect("acme/web", "udp", &format!("{}:{port}", NODES[1].1));
        let is_closed = || lab.drops(Some("acme.default"), "outside-closed") > before;
        await_condition(is_closed).unwrap_or_else(|()| panic!("{port} is not closed"));
    }
    assert_eq!(lab.rules("node1"), "", "nothing of ours is in the node's firewalls");
}

#[test]
fn a_network_that_has_addresses_of_nodes_stays_apart_and_an_event_says_so() {
    let (lab, _servers) = lab();
    let node = format!("{}:8080", NODES[1].1);
    await_some(|| answer(&lab, "acme", "tcp", &node));
    let events = ["get", "events", "-A", "-o", "json"];
    let told = lab.eventually(&events, |said| said.contains("InfraConflict"));
    let told: Value = serde_json::from_str(&told).unwrap();
    let mut told = told["items"].as_array().unwrap().iter();
    let event = told.find(|it| it["reason"] == "InfraConflict").unwrap();
    let object = event.get("involvedObject").or(event.get("regarding")).unwrap();
    assert_eq!(object["name"], format!("{CONFLICTING}.default"), "{event}");
    assert!(event.to_string().contains("172.30.0.0/24"), "{event}");
    let before = lab.drops(Some("hooli.default"), "no-endpoint");
    assert_eq!(answer(&lab, CONFLICTING, "tcp", &node), None);
    assert!(lab.drops(Some("hooli.default"), "no-endpoint") > before);
}

#[test]
fn policy_counts_towards_nodes_and_node_ports_lead_no_pod_into_another_network() {
    let (lab, _servers) = lab();
    let node = format!("{}:8080", NODES[1].1);
    let service = json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "shop", "namespace": "globex"},
        "spec": {"type": "NodePort", "selector": {"app": "web"},
                 "ports": [{"port": 80, "targetPort": 8080, "nodePort": NODE_PORT}]}});
    lab.apply(&yaml(&[service])).good();
    await_condition(|| crate::outside::entered(&lab, NODES[1].1, NODE_PORT).is_some())
        .expect("the outside reaches it");
    let before = lab.drops(Some("acme.default"), "outside-closed");
    assert_eq!(answer(&lab, "acme", "tcp", &format!("{}:{NODE_PORT}", NODES[1].1)), None);
    assert!(lab.drops(Some("acme.default"), "outside-closed") > before);

    TENANTS.iter().for_each(|tenant| drop(await_some(|| answer(&lab, tenant, "tcp", &node))));
    let nobody = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": "closed", "namespace": "acme"},
        "spec": {"podSelector": {}, "policyTypes": ["Egress"]}});
    lab.apply(&yaml(&[nobody])).good();
    await_condition(|| answer(&lab, "acme", "tcp", &node).is_none()).expect("the policy holds");
    assert!(lab.drops(Some("acme.default"), "policy-denied-egress") > 0);
    await_some(|| answer(&lab, "globex", "tcp", &node));
}
