//! Ports of nodes at which machines outside ask whether the node has anybody behind a load balancer whose
//! connections stay on the node that they come in by. In two tenants with the same addresses at the same
//! time, on a node with a pod of the service, one with a pod of the network and one with neither.

use serde_json::{Value, json};

use crate::documents::{nics, pod, tenant, yaml};
use crate::fixture::{Lab, Said, await_condition, kill_agent_and_await_the_next};

const TENANTS: [&str; 2] = ["acme", "globex"];
const NODES: [&str; 3] = ["172.30.0.11", "172.30.0.12", "172.30.0.13"];

fn edge(tenant: &str, more: &Value) -> Value {
    let mut edge = json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "edge", "namespace": tenant},
        "spec": {"type": "LoadBalancer", "externalTrafficPolicy": "Local",
                 "selector": {"app": "edge"}, "ports": [{"port": 80, "targetPort": 8080}]}});
    let spec = edge["spec"].as_object_mut().unwrap();
    spec.extend(more.as_object().unwrap().clone());
    edge
}

/// A pod behind the service on node1, and one on node2 that is not.
fn stage() -> Lab {
    let lab = Lab::up(3);
    for name in TENANTS {
        let server = |pod_name: &str, node: &str, last: u8, app: &str| {
            let labels = json!({"app": app});
            pod(&format!("{name}/{pod_name}"), node, &labels, &nics("default", last))
        };
        let servers = [server("near", "node1", 5, "edge"), server("far", "node2", 6, "other")];
        lab.apply(&(tenant(name) + &yaml(&servers) + &yaml(&[edge(name, &json!({}))]))).good();
    }
    lab.wait_for_pods();
    lab
}

fn health_port(lab: &Lab, tenant: &str) -> String {
    let path = "jsonpath={.spec.healthCheckNodePort}";
    let get = ["get", "service", "edge", "-n", tenant, "-o", path];
    lab.eventually(&get, |said| said.starts_with('3'))
}

/// A question over HTTP, in words that every machine and pod has.
fn question(node: &str, port: &str) -> String {
    format!("exec 3<>/dev/tcp/{node}/{port} && printf 'GET / HTTP/1.1\\r\\n\\r\\n' >&3 && cat <&3")
}

fn ask(lab: &Lab, node: &str, port: &str) -> Said {
    lab.outside(&["timeout", "5", "bash", "-c", &question(node, port)])
}

/// The status, the weight and whose service it is, as a node says it; nothing where it says nothing.
fn told(lab: &Lab, node: &str, port: &str) -> Option<(u16, u16, String)> {
    let said = ask(lab, node, port).out.to_lowercase();
    let (head, body) = said.split_once("\r\n\r\n")?;
    let weight = head.lines().find_map(|it| it.strip_prefix("x-load-balancing-endpoint-weight: "));
    let body: Value = serde_json::from_str(body).ok()?;
    let weight: u16 = weight?.parse().ok()?;
    assert_eq!(body["localendpoints"], weight);
    let service = &body["service"];
    let whose = format!("{}/{}", service["namespace"].as_str()?, service["name"].as_str()?);
    Some((head.split(' ').nth(1)?.parse().ok()?, weight, whose))
}

/// Waits until the nodes say this of a tenant's service, in their order.
fn await_told(lab: &Lab, tenant: &str, statuses: [u16; 3]) {
    let port = health_port(lab, tenant);
    let whose = format!("{tenant}/edge");
    let wanted = statuses.map(|it| Some((it, u16::from(it == 200), whose.clone())));
    let mut last = Default::default();
    await_condition(|| {
        last = NODES.map(|node| told(lab, node, &port));
        last == wanted
    })
    .unwrap_or_else(|()| panic!("{tenant}: {last:?} and never {wanted:?}"));
}

fn label(lab: &Lab, tenant: &str, pod: &str, app: &str) {
    let app = format!("app={app}");
    lab.kubectl(&["label", "pod", pod, "-n", tenant, &app, "--overwrite"]).good();
}

#[test]
fn every_node_says_at_the_health_port_whether_it_has_a_ready_pod_and_no_pod_reaches_it() {
    let lab = stage();
    TENANTS.iter().for_each(|tenant| await_told(&lab, tenant, [200, 503, 503]));
    for (asker, port) in TENANTS.iter().map(|tenant| (tenant, health_port(&lab, "acme"))) {
        for node in NODES {
            let command = ["timeout", "2", "bash", "-c", &question(node, &port)];
            let said = lab.exec(&format!("{asker}/near"), &command);
            assert!(!said.out.contains("HTTP"), "{asker} {node}: {}", said.out);
        }
    }
    label(&lab, "acme", "far", "edge");
    await_told(&lab, "acme", [200, 200, 503]);
    label(&lab, "acme", "near", "other");
    await_told(&lab, "acme", [503, 200, 503]);
    await_told(&lab, "globex", [200, 503, 503]);
    kill_agent_and_await_the_next(&lab, "node2");
    await_told(&lab, "acme", [503, 200, 503]);

    let port = health_port(&lab, "acme");
    lab.apply(&yaml(&[edge("acme", &json!({"externalTrafficPolicy": "Cluster"}))])).good();
    await_condition(|| NODES.iter().all(|node| ask(&lab, node, &port).err.contains("refused")))
        .expect("nobody is asked any more, and nobody answers");
    await_told(&lab, "globex", [200, 503, 503]);
    lab.kubectl(&["delete", "service", "edge", "-n", "globex"]).good();
    lab.apply(&yaml(&[edge("acme", &json!({"externalTrafficPolicy": "Local"}))])).good();
    await_told(&lab, "acme", [503, 200, 503]);
}

/// A program of node3 that has a port of the node.
fn program(port: &str) -> String {
    let command = ["atoll", "toolbox", "serve", "--port", port];
    yaml(&[
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "infra"}}),
        json!({"apiVersion": "v1", "kind": "Pod",
               "metadata": {"name": "program", "namespace": "infra"},
               "spec": {"hostNetwork": true, "nodeSelector": {"kubernetes.io/hostname": "node3"},
                        "terminationGracePeriodSeconds": 1,
                        "containers": [{"name": "toolbox", "image": "none", "command": command}]}}),
    ])
}

#[test]
fn a_health_port_that_a_nodes_program_has_is_told_in_an_event_and_other_nodes_answer() {
    let lab = stage();
    let asked = "31987";
    lab.apply(&program(asked)).good();
    lab.wait_for_pods();
    lab.kubectl(&["delete", "service", "edge", "-n", "acme"]).good();
    lab.apply(&yaml(&[edge("acme", &json!({"healthCheckNodePort": 31_987}))])).good();
    let events = ["get", "events", "-n", "acme", "-o", "jsonpath={.items[*].reason}"];
    lab.eventually(&events, |said| said.contains("HealthPortTaken"));
    await_condition(|| {
        let told = [NODES[0], NODES[1]].map(|node| told(&lab, node, asked).map(|it| it.0));
        told == [Some(200), Some(503)]
    })
    .expect("the others answer");
    assert_eq!(told(&lab, NODES[2], asked), None, "the program has it");
    lab.kubectl(&["delete", "pod", "program", "-n", "infra"]).good();
    await_told(&lab, "acme", [200, 503, 503]);
}

#[test]
fn a_node_answers_for_its_health_at_an_ipv6_address_that_it_gets() {
    let lab = stage();
    let port = health_port(&lab, "acme");
    await_told(&lab, "acme", [200, 503, 503]);
    lab.outside(&["ip", "address", "add", "fd30::1/64", "dev", "fabric0", "nodad"]).good();
    let nodes = [("node1", "fd30::11", 200), ("node2", "fd30::12", 503)];
    for (node, address, _) in nodes {
        let prefix = format!("{address}/64");
        lab.node(node, &["ip", "address", "add", &prefix, "dev", "eth0", "nodad"]).good();
    }
    for (node, address, status) in nodes {
        await_condition(|| told(&lab, address, &port).is_some_and(|it| it.0 == status))
            .unwrap_or_else(|()| panic!("{node} says {:?}", told(&lab, address, &port)));
    }
}
