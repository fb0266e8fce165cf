//! Tenants.

use serde_json::{Value, json};

use super::{Table, Wrong};

fn right() -> Vec<Value> {
    let dns = json!({"mode": "tenant", "service": {"namespace": "acme", "name": "dns"},
                     "upstreams": ["192.0.2.53"], "refusePrivate": true});
    let tenant = |name: &str, spec: Value| {
        json!({"apiVersion": "atoll.dev/v1alpha1", "kind": "Tenant", "metadata": {"name": name},
               "spec": spec})
    };
    let vpc = json!({"type": "vpc", "cidrs": ["10.0.0.0/16"], "dns": dns});
    let quota = json!({"networks": 3, "ports": 100, "vips": 10, "outsideAddresses": 2});
    let ranges = json!(["10.96.0.0/16", "fd96::/112"]);
    let whole = json!({"defaultNetwork": vpc, "serviceCIDRs": ranges, "quota": quota});
    let flat = json!({"defaultNetwork": {"type": "flat", "isolation": "open"}});
    vec![tenant("acme", whole), tenant("globex", flat)]
}

#[tokio::test(flavor = "multi_thread")]
async fn each_field_of_a_tenant_that_is_wrong_is_refused_by_its_name() {
    let of_labels = "of lower-case letters, digits and inner dashes";
    let wrong: Vec<Wrong> = vec![
        (0, "/metadata/name", json!("a.b"), "a tenant's name is at most 63 lower-case letters"),
        (0, "/metadata/name", json!("a".repeat(64)), "a tenant's name is at most 63"),
        (0, "/spec/defaultNetwork/type", json!("No Type"), of_labels),
        (0, "/spec/defaultNetwork/type", json!("flat"), "a network of type flat takes no cidrs"),
        (0, "/spec/defaultNetwork/cidrs", json!(["10.0.0.0/99"]), "each range must be a CIDR like"),
        (0, "/spec/defaultNetwork/cidrs", json!(["10.0.0.5/16"]), "no bit set beyond its prefix"),
        (0, "/spec/defaultNetwork/cidrs", json!([]), "needs at least one range in cidrs"),
        (0, "/spec/defaultNetwork/cidrs", Value::Null, "needs at least one range in cidrs"),
        (1, "/spec/defaultNetwork/cidrs", json!(["10.0.0.0/16"]), "type flat takes no cidrs"),
        (0, "/spec/defaultNetwork/isolation", json!("open"), "only a network of type flat can be"),
        (0, "/spec/defaultNetwork/dns/mode", json!("shared"), "mode tenant needs it, and no other"),
        (0, "/spec/defaultNetwork/dns/service", Value::Null, "mode tenant needs it, and no other"),
        (0, "/spec/defaultNetwork/dns/service/namespace", json!("A b"), of_labels),
        (0, "/spec/defaultNetwork/dns/service/name", json!("dns.acme"), of_labels),
        (0, "/spec/defaultNetwork/dns/upstreams", json!(["ten"]), "each of upstreams must be an"),
        (0, "/spec/serviceCIDRs", json!(["10.96.0.0/99"]), "each of serviceCIDRs must be a CIDR"),
        (0, "/spec/serviceCIDRs", json!(["10.96.0.7/16"]), "no bit set beyond its prefix"),
        (0, "/spec/serviceCIDRs", json!(["10.96.0.0/16", "10.97.0.0/16"]), "at most one range of"),
        (0, "/spec/quota/ports", json!(1.5), "spec.quota.ports"),
        (0, "/spec/quota/vips", json!("1"), "spec.quota.vips"),
        (0, "/spec/quota", json!([]), "spec.quota"),
        (0, "/spec", Value::Null, "spec"),
    ];
    let change: Vec<Wrong> = vec![
        (
            0,
            "/spec/serviceCIDRs",
            json!(["10.96.0.0/16"]),
            "cannot be taken away from serviceCIDRs",
        ),
        (0, "/spec/serviceCIDRs", json!(["10.97.0.0/16", "fd96::/112"]), "cannot be taken away"),
    ];
    let table = Table { kind: "Tenant", right: right(), wrong, change };
    table.check::<atoll_api::Tenant>().await;
}
