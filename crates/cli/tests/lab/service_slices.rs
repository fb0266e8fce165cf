//! What endpoint slices say of those behind a service: that one ends and still answers, and whose clients
//! each is meant for. In two tenants with the same addresses and VIPs at the same time.

use serde_json::{Value, json};

use crate::service_cases::Stage;

const VIP: &str = "198.18.0.10";

/// A service whose slices are written by hand.
fn service(tenant: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Service",
           "metadata": {"name": "hand", "namespace": tenant, "annotations": {"atoll.dev/vip": VIP}},
           "spec": {"ports": [{"name": "http", "port": 80, "targetPort": 8080}]}})
}

/// What a slice says of both pods, `near` on node1 and `far` on node2, beside who they are.
fn slice(tenant: &str, near: &Value, far: &Value) -> Value {
    let endpoint = |name: &str, ip: &str, node: &str, more: &Value| {
        let mut endpoint = json!({"addresses": [ip], "nodeName": node,
            "targetRef": {"kind": "Pod", "namespace": tenant, "name": name}});
        endpoint.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        endpoint
    };
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
           "metadata": {"name": "hand-1", "namespace": tenant,
                        "labels": {"kubernetes.io/service-name": "hand"}},
           "addressType": "IPv4",
           "ports": [{"name": "http", "protocol": "TCP", "port": 8080}],
           "endpoints": [endpoint("near", "10.0.0.6", "node1", near),
                         endpoint("far", "10.0.0.7", "node2", far)]})
}

/// Says so in both tenants, and waits until a pod of either is led to exactly these.
fn await_led(stage: &Stage, from: &str, (near, far): (&Value, &Value), pods: &[&str]) {
    stage.apply(|tenant| slice(tenant, near, far));
    stage.await_behind(from, VIP, 80, pods);
}

/// The conditions of an endpoint.
fn is(ready: bool, serving: bool, terminating: bool) -> Value {
    json!({"conditions": {"ready": ready, "serving": serving, "terminating": terminating}})
}

/// One that ends serves while it answers and nobody is ready.
fn endings_count(stage: &Stage) {
    let (ready, down) = (is(true, true, false), is(false, false, false));
    let (ending, over) = (is(false, true, true), is(false, false, true));
    await_led(stage, "web", (&ready, &ready), &["near", "far"]);
    await_led(stage, "web", (&ending, &ready), &["far"]);
    await_led(stage, "web", (&ending, &down), &["near"]);
    await_led(stage, "web", (&over, &down), &[]);
    await_led(stage, "web", (&over, &ready), &["far"]);
}

/// Hints keep clients on their node or in their zone, where all who are ready have them.
fn hints_count(stage: &Stage) {
    for (node, zone) in [("node1", "a"), ("node2", "b")] {
        let zone = format!("topology.kubernetes.io/zone={zone}");
        stage.0.kubectl(&["label", "node", node, &zone]).good();
    }
    let nodes = |name: &str| json!({"hints": {"forNodes": [{"name": name}]}});
    let zones = |name: &str| json!({"hints": {"forZones": [{"name": name}]}});
    let none = json!({});
    await_led(stage, "web", (&none, &none), &["near", "far"]);
    await_led(stage, "web", (&zones("a"), &zones("b")), &["near"]);
    stage.await_behind("far", VIP, 80, &["far"]);
    await_led(stage, "web", (&zones("b"), &zones("a")), &["far"]);
    stage.await_behind("far", VIP, 80, &["near"]);
    await_led(stage, "web", (&zones("a"), &none), &["near", "far"]);
    await_led(stage, "web", (&nodes("node2"), &nodes("node1")), &["far"]);
    stage.await_behind("far", VIP, 80, &["near"]);
    await_led(stage, "web", (&nodes("node9"), &nodes("node9")), &["near", "far"]);
}

#[test]
fn slices_say_who_still_answers_while_it_ends_and_whose_clients_each_is_meant_for() {
    let stage = Stage::new();
    stage.apply(service);
    endings_count(&stage);
    hints_count(&stage);
}
