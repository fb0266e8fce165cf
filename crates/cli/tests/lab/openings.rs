//! An owner opens the doors of its service to the pods of another tenant, and closes them again. Three
//! tenants with the same addresses on three nodes: the owner, one that is invited, one that never is.

use serde_json::{Value, json};

use crate::documents::{self, yaml};
use crate::fixture::{Lab, await_condition, await_some};
use crate::outside::{entered, set_egress};

const NODES: [(&str, &str); 3] =
    [("node1", "172.30.0.11"), ("node2", "172.30.0.12"), ("node3", "172.30.0.13")];
const NODE_PORT: u16 = 30180;
const EXIT: &str = "172.30.0.214";

fn tenant(name: &str) -> String {
    yaml(&[
        json!({"apiVersion": "atoll.dev/v1alpha1", "kind": "Tenant", "metadata": {"name": name},
               "spec": {"defaultNetwork": {"type": "vpc", "cidrs": ["10.0.0.0/16"]}}}),
        json!({"apiVersion": "v1", "kind": "Namespace",
               "metadata": {"name": name, "labels": {"atoll.dev/tenant": name}}}),
    ])
}

/// A pod at a node, under the node's name; in every tenant it has the same address.
fn pod(tenant: &str, place: usize) -> Value {
    let (node, nics) = (NODES[place].0, format!(r#"[{{"ip":"10.0.0.{}"}}]"#, 5 + place));
    let (labels, annotations) = (json!({"app": node}), json!({"atoll.dev/nics": nics}));
    documents::pod(&format!("{tenant}/{node}"), node, &labels, &annotations)
}

/// A load balancer of a tenant, with a port of every node, before its pod of the second node.
fn edge(tenant: &str, node_port: u16) -> Value {
    let port = |protocol: &str| {
        json!({"name": protocol.to_lowercase(), "protocol": protocol, "port": 80,
               "targetPort": 8080, "nodePort": node_port})
    };
    json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "edge", "namespace": tenant},
        "spec": {"type": "LoadBalancer", "selector": {"app": "node2"},
                 "ports": [port("TCP"), port("UDP")]}})
}

/// Three tenants, of which two reach the outside, and the load balancer of the first.
fn lab() -> (Lab, String) {
    let lab = Lab::up(3);
    ["acme", "globex", "hooli"].iter().for_each(|name| drop(lab.apply(&tenant(name)).good()));
    let clients = ["globex", "hooli"].into_iter().flat_map(|it| [0, 1, 2].map(|at| pod(it, at)));
    let pool = json!({"apiVersion": "atoll.dev/v1alpha1", "kind": "AddressPool",
        "metadata": {"name": "edge"}, "spec": {"cidrs": ["172.30.0.212/30"]}});
    let all: Vec<Value> = clients.chain([pod("acme", 1), pool, edge("acme", NODE_PORT)]).collect();
    lab.apply(&yaml(&all)).good();
    lab.wait_for_pods();
    ["globex", "hooli"].iter().for_each(|name| set_egress(&lab, name, "node"));
    let ip = lab.outside_address("acme");
    assert_eq!(await_some(|| entered(&lab, &ip, 80)).0, "acme/node2");
    (lab, ip)
}

/// Who answers a pod, and as whom it sees the pod.
fn asked(lab: &Lab, pod: &str, protocol: &str, at: &str) -> Option<(String, String)> {
    let answer: Value = serde_json::from_str(&lab.connect(pod, protocol, at).out).ok()?;
    let text = |field: &str| answer[field].as_str().map(ToOwned::to_owned);
    Some((text("pod")?, text("peer")?.rsplit_once(':')?.0.to_owned()))
}

/// Waits until the service answers a pod at `at`, which it sees as `seen`.
fn await_answer(lab: &Lab, pod: &str, (protocol, at): (&str, &str), seen: &str) {
    let expected = Some(("acme/node2".to_owned(), seen.to_owned()));
    let mut last = None;
    await_condition(|| {
        last = asked(lab, pod, protocol, at);
        last == expected
    })
    .unwrap_or_else(|()| panic!("{pod} at {protocol} {at}: {last:?} and not {expected:?}"));
}

/// Waits until a pod of a tenant is not answered at `at`, because that is closed to it.
fn await_closed(lab: &Lab, tenant: &str, at: &str) {
    let closed = || lab.drops(Some(&format!("{tenant}.default")), "outside-closed");
    await_condition(|| {
        let before = closed();
        asked(lab, &format!("{tenant}/node1"), "tcp", at).is_none() && closed() > before
    })
    .unwrap_or_else(|()| panic!("{at} is not closed to {tenant}"));
}

/// Opens the load balancer of a tenant to these.
fn open(lab: &Lab, tenant: &str, to: &str) {
    let marks = json!({"metadata": {"labels": {"atoll.dev/open": "listed"},
                                    "annotations": {"atoll.dev/open-to": to}}});
    patch(lab, tenant, &marks, &[]);
}

fn patch(lab: &Lab, tenant: &str, change: &Value, more: &[&str]) {
    let change = change.to_string();
    let patch = ["patch", "service", "edge", "-n", tenant, "--type=merge", "-p", &change];
    lab.kubectl(&[&patch[..], more].concat()).good();
}

/// A policy of a tenant that lets its pods speak with some machine further away, and with nobody else.
fn only_far(tenant: &str, direction: &str) -> Value {
    let peer = if direction == "ingress" { "from" } else { "to" };
    let kind = if direction == "ingress" { "Ingress" } else { "Egress" };
    json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": "far", "namespace": tenant},
        "spec": {"podSelector": {}, "policyTypes": [kind],
                 direction: [{peer: [{"ipBlock": {"cidr": "203.0.113.0/24"}}]}]}})
}

#[test]
fn an_owner_opens_its_service_to_another_tenant_and_closes_it_and_a_third_never_reaches_it() {
    let (lab, ip) = lab();
    let at_edge = format!("{ip}:80");
    let at_nodes = NODES.map(|(_, node)| format!("{node}:{NODE_PORT}"));
    let doors: Vec<&str> = at_nodes.iter().chain([&at_edge]).map(String::as_str).collect();
    for tenant in ["globex", "hooli"] {
        doors.iter().for_each(|at| await_closed(&lab, tenant, at));
    }
    open(&lab, "acme", "globex");
    for (node, address) in NODES {
        let client = format!("globex/{node}");
        doors.iter().for_each(|at| await_answer(&lab, &client, ("tcp", at), address));
        await_answer(&lab, &client, ("udp", &at_edge), address);
    }
    doors.iter().for_each(|at| await_closed(&lab, "hooli", at));
    for port in [22, 81, 10_250] {
        await_closed(&lab, "globex", &format!("{ip}:{port}"));
        await_closed(&lab, "globex", &format!("{}:{port}", NODES[1].1));
    }

    let egress = json!({"spec": {"egress": {"mode": "address", "addresses": [EXIT]}}}).to_string();
    lab.kubectl(&["patch", "network", "globex.default", "--type=merge", "-p", &egress]).good();
    for (node, _) in NODES {
        let client = format!("globex/{node}");
        doors.iter().for_each(|at| await_answer(&lab, &client, ("tcp", at), EXIT));
    }

    for (tenant, direction) in [("acme", "ingress"), ("globex", "egress")] {
        lab.apply(&only_far(tenant, direction).to_string()).good();
        await_condition(|| asked(&lab, "globex/node1", "tcp", &at_edge).is_none())
            .unwrap_or_else(|()| panic!("the policy of {tenant} does not count"));
        let reason = format!("policy-denied-{direction}");
        assert!(lab.drops(Some(&format!("{tenant}.default")), &reason) > 0, "{reason}");
        lab.kubectl(&["delete", "networkpolicy", "far", "-n", tenant]).good();
        await_answer(&lab, "globex/node1", ("tcp", &at_edge), EXIT);
    }

    lab.kubectl(&["label", "service", "edge", "-n", "acme", "atoll.dev/open-"]).good();
    doors.iter().for_each(|at| await_closed(&lab, "globex", at));
    assert_eq!(await_some(|| entered(&lab, &ip, 80)).0, "acme/node2", "to the outside it is open");
}

#[test]
fn nobody_opens_what_is_not_its_own_and_a_mark_that_cannot_be_read_is_told() {
    let (lab, ip) = lab();
    let at_edge = format!("{ip}:80");
    let mut thief = edge("globex", NODE_PORT + 1);
    thief["spec"]["loadBalancerClass"] = json!("example.org/other");
    let mut plain = edge("default", NODE_PORT + 2);
    plain["spec"]["type"] = json!("NodePort");
    plain["metadata"]["labels"] = json!({"atoll.dev/open": "all"});
    lab.apply(&yaml(&[thief, plain])).good();
    open(&lab, "globex", "hooli");
    let stolen = json!({"status": {"loadBalancer": {"ingress": [{"ip": ip}]}}});
    patch(&lab, "globex", &stolen, &["--subresource=status"]);
    let own = format!("{}:{}", NODES[0].1, NODE_PORT + 1);
    await_some(|| asked(&lab, "hooli/node1", "tcp", &own));
    for at in [&at_edge, &format!("{}:{}", NODES[1].1, NODE_PORT + 2)] {
        await_closed(&lab, "hooli", at);
    }

    open(&lab, "acme", "hooli,Not/One");
    let events = ["get", "events", "-n", "acme", "-o", "jsonpath={.items[*].message}"];
    lab.eventually(&events, |said| said.contains(r#""Not/One" is neither a tenant"#));
    await_closed(&lab, "hooli", &at_edge);
    open(&lab, "acme", "hooli.default");
    await_answer(&lab, "hooli/node1", ("tcp", &at_edge), NODES[0].1);
    await_closed(&lab, "globex", &at_edge);

    lab.kubectl(&["delete", "service", "edge", "-n", "default"]).good();
}
