//! What only Atoll has to answer: several networks of one pod, networks that are open to several
//! tenants, tiers inside a tenant, and pods that no selector may find.

use serde_json::json;

use super::{egress, ingress, ns, pod};
use crate::scene::{Case, OPEN, Scene};

/// The whole list.
pub fn own_cases() -> Vec<Case> {
    vec![
        aimed(),
        aimed_by_administrators(),
        tiers_of_a_tenant(),
        both_families(),
        host_network(),
        own_node(),
        one_address_of_two_pods(),
        blocks_inside_blocks(),
        a_named_port_has_another_number_in_each_pod(),
        no_types_named(),
        open_to_all(),
        open_to_blocks(),
    ]
}

/// Pods `x/a` and `x/b` in a second network, and `x/d` only there.
fn two_networks() -> Scene {
    Scene::nine_pods()
        .address("x", "a", "storage", 2, "10.9.0.1")
        .address("x", "b", "storage", 2, "10.9.0.2")
}

fn aimed() -> Case {
    let closed = ingress(json!({}), json!([]));
    Case::new("a policy aimed at one network leaves the others of its pods alone", two_networks())
        .then(|s| s.aimed_policy("x", "p", Some(r#"["storage"]"#), closed.clone()))
        .passes(&["x/b > x/a", "y/a > x/a"])
        .fails(&["10.9.0.2@2 > 10.9.0.1@2"])
        .then(|s| s.aimed_policy("x", "p", Some(r#"["default"]"#), closed.clone()))
        .passes(&["10.9.0.2@2 > 10.9.0.1@2"])
        .fails(&["x/b > x/a"])
        .then(|s| s.aimed_policy("x", "p", None, closed.clone()))
        .fails(&["10.9.0.2@2 > 10.9.0.1@2", "x/b > x/a"])
        .passes(&["x/a > y/a"])
        .then(|s| s.aimed_policy("x", "p", Some("[]"), closed.clone()))
        .passes(&["10.9.0.2@2 > 10.9.0.1@2", "x/b > x/a"])
}

fn aimed_by_administrators() -> Case {
    let rules = json!([{ "action": "Deny", "to": [{ "namespaces": {} }] }]);
    let subject = json!({ "namespaces": ns("x") });
    let spec = json!({ "tier": "Admin", "priority": 1, "subject": subject, "egress": rules });
    let annotations = json!({ "atoll.dev/policy-networks": r#"["storage"]"# });
    Case::new(
        "an administrators' policy aimed at one network",
        two_networks().cluster_policy("p", spec),
    )
    .fails(&["10.9.0.2@2 > 10.9.0.1@2", "x/b > x/a"])
    .then(|mut s| {
        if let Some(object) = s.cluster_policies.get_mut("p") {
            object["metadata"]["annotations"] = annotations;
        }
        s
    })
    .fails(&["10.9.0.2@2 > 10.9.0.1@2"])
    .passes(&["x/b > x/a"])
}

fn tiers_of_a_tenant() -> Case {
    let from_y = |tier: &str, action: &str| {
        let rules = json!([{ "action": action, "from": [{ "namespaces": ns("y") }] }]);
        let subject = json!({ "namespaces": ns("x") });
        json!({ "tier": tier, "priority": 10, "subject": subject, "ingress": rules })
    };
    Case::new("the tenant's tiers lie between the cluster's", Scene::nine_pods())
        .then(|s| s.cluster_policy("last", from_y("Baseline", "Deny")))
        .fails(&["y/a > x/a"])
        .then(|s| s.tenant_policy("fourth", from_y("Baseline", "Accept")))
        .passes(&["y/a > x/a"])
        .then(|s| s.policy("x", "third", ingress(json!({}), json!([]))))
        .fails(&["y/a > x/a"])
        .then(|s| s.tenant_policy("second", from_y("Admin", "Accept")))
        .passes(&["y/a > x/a"])
        .fails(&["z/a > x/a"])
        .then(|s| s.cluster_policy("first", from_y("Admin", "Deny")))
        .fails(&["y/a > x/a"])
        .then(|s| s.cluster_policy("first", from_y("Admin", "Pass")))
        .passes(&["y/a > x/a"])
}

fn both_families() -> Case {
    let scene = Scene::nine_pods()
        .address("x", "a", "default", 1, "fd00::1")
        .address("x", "b", "default", 1, "fd00::2")
        .address("y", "a", "default", 1, "fd00:1::1");
    let block =
        json!([{ "from": [{ "ipBlock": { "cidr": "fd00::/32", "except": ["fd00::2/128"] } }] }]);
    Case::new("a block of one family says nothing of the other", scene)
        .then(|s| s.policy("x", "p", ingress(pod("a"), block)))
        .fails(&["fd00::2@1 > fd00::1@1", "fd00:1::1@1 > fd00::1@1", "x/b > x/a"])
        .then(|s| {
            s.policy(
                "x",
                "q",
                ingress(pod("a"), json!([{ "from": [{ "namespaceSelector": ns("y") }] }])),
            )
        })
        .passes(&["fd00:1::1@1 > fd00::1@1", "y/a > x/a"])
        .fails(&["fd00::2@1 > fd00::1@1"])
}

fn host_network() -> Case {
    let to_b = json!([{ "to": [{ "podSelector": pod("b") }] }]);
    Case::new(
        "no selector finds a pod on its node's network",
        Scene::nine_pods().policy("x", "p", egress(pod("a"), to_b)),
    )
    .passes(&["x/a > x/b"])
    .fails(&["x/a > x/c"])
    .then(|mut s| {
        if let Some(pod) = s.pods.get_mut(&("x".to_owned(), "b".to_owned())) {
            pod.host_network = true;
        }
        s
    })
    .fails(&["x/a > 10.0.0.2@1", "x/a > x/c"])
}

fn own_node() -> Case {
    Case::new(
        "a node reaches its own pods and no others",
        Scene::nine_pods().policy("x", "deny", ingress(json!({}), json!([]))),
    )
    .passes(&["192.0.2.1 > x/a", "192.0.2.2 > x/b", "192.0.2.1 > y/c"])
    .fails(&["192.0.2.2 > x/a", "198.51.100.7 > x/a"])
}

fn one_address_of_two_pods() -> Case {
    Case::new("an address that two pods have is nobody's", Scene::nine_pods())
        .passes(&["x/b > x/a"])
        .then(|s| {
            s.pod("x", "thief", &[("pod", "a")], "10.0.0.1").policy(
                "x",
                "p",
                egress(pod("b"), json!([{ "to": [{ "podSelector": {} }] }])),
            )
        })
        .fails(&["x/b > x/a", "10.0.0.99@1 > x/a"])
        .passes(&["x/b > x/c"])
        .then(|s| s.without_pod("x", "thief"))
        .passes(&["x/b > x/a"])
}

fn blocks_inside_blocks() -> Case {
    let to = |cidr: &str, except: &[&str]| {
        egress(pod("a"), json!([{ "to": [{ "ipBlock": { "cidr": cidr, "except": except } }] }]))
    };
    Case::new("blocks inside blocks, added and taken away", Scene::nine_pods())
        .then(|s| s.policy("x", "1", to("0.0.0.0/0", &["10.0.0.0/24"])))
        .passes(&["x/a > z/a", "x/a > 198.51.100.7"])
        .fails(&["x/a > x/b", "x/a > y/a"])
        .then(|s| s.policy("x", "2", to("10.0.0.16/28", &["10.0.0.18/32"])))
        .passes(&["x/a > y/a", "x/a > y/c", "x/a > z/a"])
        .fails(&["x/a > x/b", "x/a > y/b"])
        .then(|s| s.without_policy("x", "1"))
        .passes(&["x/a > y/a"])
        .fails(&["x/a > z/a", "x/a > y/b", "x/a > 198.51.100.7"])
}

fn a_named_port_has_another_number_in_each_pod() -> Case {
    let mut scene = Scene::nine_pods();
    if let Some(pod) = scene.pods.get_mut(&("x".to_owned(), "b".to_owned())) {
        pod.ports = vec![("web".to_owned(), "TCP".to_owned(), 81)];
    }
    if let Some(pod) = scene.pods.get_mut(&("x".to_owned(), "c".to_owned())) {
        pod.ports = vec![("web".to_owned(), "TCP".to_owned(), 80)];
    }
    let web = json!([{ "ports": [{ "port": "web" }] }]);
    Case::new("a named port is the number that each pod gives it", scene)
        .then(|s| {
            s.policy("x", "in", ingress(json!({}), web.clone())).policy(
                "y",
                "out",
                egress(json!({}), web.clone()),
            )
        })
        .passes(&["y/a > x/b TCP 81", "y/a > x/c TCP 80", "z/a > x/c TCP 80"])
        .fails(&["y/a > x/b TCP 80", "y/a > x/c TCP 81", "y/a > x/a TCP 80", "y/a > z/a TCP 80"])
}

fn no_types_named() -> Case {
    let rules = json!([{ "to": [{ "podSelector": pod("b") }] }]);
    Case::new(
        "a policy that names no direction",
        Scene::nine_pods().policy("x", "p", json!({ "podSelector": pod("a") })),
    )
    .fails(&["x/b > x/a"])
    .passes(&["x/a > x/c"])
    .then(|s| s.policy("x", "p", json!({ "podSelector": pod("a"), "egress": rules })))
    .fails(&["x/b > x/a", "x/a > x/c"])
    .passes(&["x/a > x/b"])
}

/// Pods `x/a` and `x/b` also in a network that is open to every tenant.
fn open_network() -> Scene {
    Scene::nine_pods().address("x", "a", "open", OPEN, "10.200.0.1").address(
        "x",
        "b",
        "open",
        OPEN,
        "10.200.0.2",
    )
}

fn open_to_all() -> Case {
    let same = ingress(json!({}), json!([{ "from": [{ "podSelector": {} }] }]));
    let named = ingress(json!({}), json!([{ "ports": [{ "port": "serve-81-tcp" }] }]));
    Case::new("no selector finds pods of another tenant in an open network", open_network())
        .passes(&["10.200.1.1@1000 > 10.200.0.1@1000", "10.200.0.2@1000 > 10.200.0.1@1000"])
        .then(|s| s.policy("x", "p", same))
        .passes(&["10.200.0.2@1000 > 10.200.0.1@1000", "10.200.1.2@1000 > 10.200.1.1@1000"])
        .fails(&["10.200.1.2@1000 > 10.200.0.1@1000", "10.200.0.2@1000 > 10.200.1.1@1000"])
        .then(|s| s.policy("x", "p", named))
        .passes(&["10.200.1.1@1000 > 10.200.0.1@1000 TCP 81"])
        .fails(&["10.200.1.1@1000 > 10.200.0.1@1000"])
}

fn open_to_blocks() -> Case {
    let block = |cidr: &str| json!([{ "from": [{ "ipBlock": { "cidr": cidr } }] }]);
    let (theirs, one) = (block("10.200.1.0/24"), block("10.200.0.2/32"));
    Case::new("a block finds pods of another tenant in an open network", open_network())
        .then(|s| s.policy("x", "p", ingress(json!({}), theirs)))
        .passes(&["10.200.1.1@1000 > 10.200.0.1@1000", "10.200.1.2@1000 > 10.200.1.1@1000"])
        .fails(&["10.200.0.2@1000 > 10.200.0.1@1000", "10.200.0.1@1000 > 10.200.1.1@1000"])
        .then(|s| s.policy("x", "p", ingress(json!({}), one)))
        .passes(&["10.200.0.2@1000 > 10.200.0.1@1000", "10.200.0.2@1000 > 10.200.1.1@1000"])
        .fails(&["10.200.1.1@1000 > 10.200.0.1@1000"])
}
