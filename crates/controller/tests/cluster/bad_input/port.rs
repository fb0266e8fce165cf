//! Ports.

use serde_json::{Value, json};

use super::{Table, Wrong};

fn right() -> Vec<Value> {
    let port = |name: &str, spec: Value| {
        json!({"apiVersion": "atoll.dev/v1alpha1", "kind": "Port",
               "metadata": {"name": name, "namespace": "default"}, "spec": spec})
    };
    vec![
        port(
            "web.net1",
            json!({"network": "acme.default", "networkID": 7, "subnet": "acme.default.web",
                   "ips": ["10.0.0.5", "fd00::5"], "mac": "0a:04:0a:00:00:05", "persistent": true,
                   "pod": "web", "podUID": "u-1", "interface": "net1", "node": "node1",
                   "interfaceType": "tap", "primary": false, "otherInterfaces": ["net2"],
                   "routes": ["10.1.0.0/16"]}),
        ),
        port("door", json!({"network": "acme.default", "ips": ["10.0.0.80"]})),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn each_field_of_a_port_that_is_wrong_is_refused_by_its_name() {
    let an_address = "each of ips must be an IP address like 10.0.0.5";
    let of_a_pod = "are of a port that a pod has";
    let wrong: Vec<Wrong> = vec![
        (0, "/spec/network", json!("default"), "<tenant>.<network>"),
        (0, "/spec/network", json!("acme.a.b"), "<tenant>.<network>"),
        (0, "/spec/network", json!("Acme.b"), "<tenant>.<network>"),
        (0, "/spec/networkID", Value::Null, "a port of a pod needs networkID and interface"),
        (0, "/spec/subnet", json!("A b"), "subnet is the name of a subnet"),
        (0, "/spec/subnet", Value::Null, "networkID needs subnet, ips and mac"),
        (0, "/spec/ips", json!(["ten"]), an_address),
        (0, "/spec/ips", json!(["10.0.0.5/16"]), an_address),
        (0, "/spec/ips", json!(["10.0.0.5", "10.0.0.6"]), "at most one address of IPv4 and one of"),
        (0, "/spec/ips", Value::Null, "networkID needs subnet, ips and mac"),
        (0, "/spec/mac", json!("10.0.0.5"), "a unicast MAC address like 02:00:0a:00:00:05"),
        (0, "/spec/mac", json!("ff:ff:ff:ff:ff:ff"), "a unicast MAC address like"),
        (0, "/spec/mac", json!("00:00:00:00:00:00"), "a unicast MAC address like"),
        (0, "/spec/mac", Value::Null, "networkID needs subnet, ips and mac"),
        (0, "/spec/pod", json!("shop/web"), "pod is the name of a pod in the port's namespace"),
        (0, "/spec/pod", Value::Null, "pod and podUID go together"),
        (0, "/spec/podUID", Value::Null, "pod and podUID go together"),
        (0, "/spec/interface", json!("lo"), "interface is a name like eth0"),
        (0, "/spec/interface", json!("eth_0"), "interface is a name like eth0"),
        (0, "/spec/interface", Value::Null, "a port of a pod needs networkID and interface"),
        (0, "/spec/otherInterfaces", json!(["lo"]), "each of otherInterfaces is a name like net1"),
        (0, "/spec/otherInterfaces", json!(["NET"]), "each of otherInterfaces is a name like net1"),
        (0, "/spec/routes", json!(["10.1.0.1/16"]), "each of routes must be a CIDR like"),
        (0, "/spec/routes", json!(["ten"]), "each of routes must be a CIDR like 10.0.0.0/16"),
        (1, "/spec/pod", json!("web"), "pod and podUID go together"),
        (1, "/spec/podUID", json!("u-1"), "pod and podUID go together"),
        (1, "/spec/networkID", json!(7), "networkID needs subnet, ips and mac"),
        (1, "/spec/node", json!("node1"), of_a_pod),
        (1, "/spec/interface", json!("eth0"), of_a_pod),
        (1, "/spec/primary", json!(true), of_a_pod),
        (1, "/spec/otherInterfaces", json!(["net1"]), of_a_pod),
        (1, "/spec/routes", json!(["10.1.0.0/16"]), of_a_pod),
        (0, "/spec", Value::Null, "spec"),
    ];
    let change: Vec<Wrong> = vec![
        (0, "/spec/network", json!("acme.other"), "a port cannot move to another network"),
        (0, "/spec/networkID", json!(8), "a port keeps its networkID, ips and mac"),
        (0, "/spec/ips", json!(["10.0.0.6"]), "a port keeps its networkID, ips and mac"),
        (0, "/spec/mac", json!("0a:04:0a:00:00:06"), "a port keeps its networkID, ips and mac"),
        (0, "/spec/persistent", Value::Null, "persistent cannot change while a pod has the port"),
        (1, "/spec/network", json!("acme.other"), "a port cannot move to another network"),
    ];
    let table = Table { kind: "Port", right: right(), wrong, change };
    table.check::<atoll_api::Port>().await;
}
