//! Networks.

use serde_json::{Value, json};

use super::{Table, Wrong};

fn right() -> Vec<Value> {
    let dns = json!({"mode": "tenant", "service": {"namespace": "acme", "name": "dns"},
                     "upstreams": ["192.0.2.53", "192.0.2.54:5353", "[2001:db8::53]:53"],
                     "refusePrivate": true});
    let network = |name: &str, spec: Value| {
        json!({"apiVersion": "atoll.dev/v1alpha1", "kind": "Network", "metadata": {"name": name},
               "spec": spec})
    };
    let egress = json!({"mode": "address", "addresses": ["192.0.2.10", "2001:db8::10"]});
    vec![
        network(
            "acme.default",
            json!({"tenant": "acme", "type": "vpc", "vpcID": "vpc-1", "dns": dns,
                   "egress": egress, "cidrs": ["10.0.0.0/16", "fd00::/64"]}),
        ),
        network("acme.flat", json!({"tenant": "acme", "type": "flat", "isolation": "isolated"})),
        network("acme.own", json!({"tenant": "acme", "type": "vpc", "cidrs": ["10.0.0.0/16"]})),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn each_field_of_a_network_that_is_wrong_is_refused_by_its_name() {
    let of_labels = "of lower-case letters, digits and inner dashes";
    let one_address = "mode address needs at least one, and no other mode takes any";
    let wrong: Vec<Wrong> = vec![
        (0, "/metadata/name", json!("default"), "a network's name is <tenant>.<network>"),
        (0, "/metadata/name", json!("acme.a.b"), "a network's name is <tenant>.<network>"),
        (0, "/metadata/name", json!("globex.default"), "a network's name begins with its tenant"),
        (0, "/spec/tenant", json!("globex"), "a network's name begins with its tenant"),
        (0, "/spec/type", json!("No Type"), "type is vpc, flat or the name of a NetworkType"),
        (0, "/spec/type", json!("sdn.example"), of_labels),
        (0, "/spec/type", json!("flat"), "a network of type flat takes no cidrs and no vpcID"),
        (1, "/spec/cidrs", json!(["10.0.0.0/16"]), "a network of type flat takes no cidrs"),
        (1, "/spec/vpcID", json!("vpc-1"), "a network of type flat takes no cidrs and no vpcID"),
        (0, "/spec/vpcID", json!("A"), "vpcID must be of lower-case letters"),
        (0, "/spec/vpcID", json!("a.b"), "vpcID must be of lower-case letters"),
        (0, "/spec/cidrs", json!([]), "needs at least one range in cidrs"),
        (0, "/spec/cidrs", Value::Null, "needs at least one range in cidrs"),
        (0, "/spec/cidrs", json!(["10.0.0.0"]), "each range must be a CIDR like 10.0.0.0/16"),
        (0, "/spec/cidrs", json!(["10.0.0.0/33"]), "each range must be a CIDR like 10.0.0.0/16"),
        (0, "/spec/cidrs", json!(["10.0.0.1/16"]), "no bit set beyond its prefix"),
        (0, "/spec/cidrs", json!(["fd00::/129"]), "each range must be a CIDR like 10.0.0.0/16"),
        (0, "/spec/isolation", json!("open"), "isolation: only a network of type flat can be open"),
        (0, "/spec/dns/mode", json!("dedicated"), "mode tenant needs it, and no other mode"),
        (0, "/spec/dns/service", Value::Null, "mode tenant needs it, and no other mode"),
        (0, "/spec/dns/service/namespace", json!("A b"), of_labels),
        (0, "/spec/dns/service/name", json!("dns.acme"), of_labels),
        (0, "/spec/dns/upstreams", json!(["resolver"]), "each of upstreams must be an address"),
        (0, "/spec/dns/upstreams", json!(["192.0.2.53:port"]), "192.0.2.53:5353 or [2001:db8::53]"),
        (0, "/spec/egress/mode", json!("node"), one_address),
        (0, "/spec/egress/addresses", json!([]), one_address),
        (0, "/spec/egress/addresses", Value::Null, one_address),
        (0, "/spec/egress/addresses", json!(["ten"]), "must be an IP address like 192.0.2.10"),
        (0, "/spec/egress/addresses", json!(["192.0.2.0/28"]), "must be an IP address like"),
        (0, "/spec/egress/addresses", json!(["192.0.2.1", "192.0.2.2"]), "at most one of IPv4"),
        (0, "/spec", Value::Null, "spec"),
    ];
    let change: Vec<Wrong> = vec![
        (0, "/spec/tenant", json!("globex"), "a network cannot move to another tenant"),
        (0, "/spec/type", json!("sdn"), "a network cannot change its type"),
        (0, "/spec/vpcID", json!("vpc-2"), "a network cannot move to another VPC"),
        (0, "/spec/vpcID", Value::Null, "vpcID cannot be set or removed once the network exists"),
        (2, "/spec/vpcID", json!("vpc-2"), "vpcID cannot be set or removed"),
        (0, "/spec/cidrs", json!(["10.0.0.0/16"]), "a range cannot be taken away from a network"),
        (
            1,
            "/spec/isolation",
            json!("open"),
            "isolation cannot be changed once the network exists",
        ),
        (1, "/spec/isolation", Value::Null, "isolation cannot be set or removed"),
        (2, "/spec/isolation", json!("isolated"), "isolation cannot be set or removed"),
    ];
    let table = Table { kind: "Network", right: right(), wrong, change };
    table.check::<atoll_api::Network>().await;
}
