//! Subnets, pools of addresses, and types of networks.

use serde_json::{Value, json};

use super::{Table, Wrong};

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "atoll.dev/v1alpha1", "kind": kind, "metadata": {"name": name},
           "spec": spec})
}

#[tokio::test(flavor = "multi_thread")]
async fn each_field_of_a_subnet_that_is_wrong_is_refused_by_its_name() {
    let whole = json!({"network": "acme.default", "cidr": "10.0.0.0/24", "gateway": "10.0.0.1",
                       "excluded": ["10.0.0.10-10.0.0.20", "10.0.0.99"],
                       "pools": ["10.0.0.2-10.0.0.200"]});
    let plain = json!({"network": "acme.default", "cidr": "10.0.1.0/24"});
    let right = vec![object("Subnet", "web", &whole), object("Subnet", "plain", &plain)];
    let like = "addresses like 10.0.0.9 or ranges like 10.0.0.10-10.0.0.20";
    let wrong: Vec<Wrong> = vec![
        (0, "/spec/network", json!("default"), "<tenant>.<network>"),
        (0, "/spec/network", json!("acme.a.b"), "<tenant>.<network>"),
        (0, "/spec/cidr", json!("10.0.0.0"), "cidr must be a range like 10.0.0.0/24"),
        (0, "/spec/cidr", json!("10.0.0.7/24"), "no bit set beyond its prefix"),
        (0, "/spec/gateway", json!("gw"), "the gateway must be an IP address"),
        (0, "/spec/gateway", json!("10.0.1.1"), "the gateway must lie in the subnet's range"),
        (0, "/spec/gateway", json!("fd00::1"), "the gateway must lie in the subnet's range"),
        (0, "/spec/excluded", json!(["ten"]), like),
        (0, "/spec/excluded", json!(["10.0.0.1-"]), like),
        (0, "/spec/excluded", json!(["10.0.0.0/28"]), like),
        (0, "/spec/excluded", json!(["10.0.0.1-10.0.0.2-10.0.0.3"]), like),
        (0, "/spec/excluded", json!(["10.0.1.1"]), "each of excluded must lie in the subnet's"),
        (0, "/spec/pools", json!(["ten-twelve"]), like),
        (0, "/spec/pools", json!(["10.0.0.9-10.0.1.9"]), "each of pools must lie in the subnet's"),
        (0, "/spec", Value::Null, "spec"),
    ];
    let change: Vec<Wrong> = vec![
        (0, "/spec/network", json!("acme.other"), "a subnet cannot move to another network"),
        (0, "/spec/cidr", json!("10.0.0.0/25"), "a subnet cannot change its range"),
        (0, "/spec/gateway", json!("10.0.0.2"), "a subnet cannot change its gateway"),
        (0, "/spec/gateway", Value::Null, "the gateway cannot be set or removed"),
        (1, "/spec/gateway", json!("10.0.1.1"), "the gateway cannot be set or removed"),
    ];
    let table = Table { kind: "Subnet", right, wrong, change };
    table.check::<atoll_api::Subnet>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_field_of_a_pool_that_is_wrong_is_refused_by_its_name() {
    let spec = json!({"cidrs": ["192.0.2.0/28", "2001:db8::/120"], "tenants": ["acme"]});
    let right = vec![object("AddressPool", "edge", &spec)];
    let like = "each of cidrs must be a CIDR like 192.0.2.0/28";
    let wrong: Vec<Wrong> = vec![
        (0, "/spec/cidrs", json!(["192.0.2.1"]), like),
        (0, "/spec/cidrs", json!(["192.0.2.0/28", "192.0.2.1/28"]), like),
        (0, "/spec/cidrs", json!(["192.0.2.0/40"]), like),
        (0, "/spec/tenants", json!(["acme", "Globex"]), "each of tenants is the name of a tenant"),
        (0, "/spec/tenants", json!(["acme.default"]), "each of tenants is the name of a tenant"),
        (0, "/spec", Value::Null, "spec"),
    ];
    let table = Table { kind: "AddressPool", right, wrong, change: Vec::new() };
    table.check::<atoll_api::AddressPool>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_field_of_a_type_that_is_wrong_is_refused_by_its_name() {
    let right = vec![object("NetworkType", "sdn", &json!({"provider": "sdn.example/provider"}))];
    let wrong: Vec<Wrong> = vec![
        (0, "/metadata/name", json!("vpc"), "a type's name is not vpc or flat"),
        (0, "/metadata/name", json!("flat"), "a type's name is not vpc or flat"),
        (0, "/metadata/name", json!("sdn.example"), "a type's name is at most 63 lower-case"),
        (0, "/metadata/name", json!("a".repeat(64)), "a type's name is at most 63 lower-case"),
        (0, "/spec/provider", json!("SDN"), "the name of a controller like sdn.example/provider"),
        (0, "/spec/provider", json!("a/b/c"), "the name of a controller like sdn.example/provider"),
        (0, "/spec", Value::Null, "spec"),
    ];
    let change: Vec<Wrong> =
        vec![(0, "/spec/provider", json!("other.example"), "a type cannot change its provider")];
    let table = Table { kind: "NetworkType", right, wrong, change };
    table.check::<atoll_api::NetworkType>().await;
}

/// People read claims and write none; what is wrong of one is a fault of a controller, and refused.
#[tokio::test(flavor = "multi_thread")]
async fn each_field_of_a_claim_that_is_wrong_is_refused_by_its_name() {
    let holder = json!({"kind": "Service", "namespace": "shop", "name": "web", "uid": "u-1"});
    let spec = json!({"holder": holder, "network": "acme.default", "node": "node1"});
    let right = vec![object("Claim", "outside.192.0.2.1", &spec)];
    let wrong: Vec<Wrong> = vec![
        (0, "/spec/holder", json!("shop/web"), "must be"),
        (0, "/spec/holder/name", json!(7), "must be"),
        (0, "/spec/node", json!(["node1"]), "must be"),
        (0, "/spec", Value::Null, "spec"),
    ];
    let table = Table { kind: "Claim", right, wrong, change: Vec::new() };
    table.check::<atoll_api::Claim>().await;
}
