//! What `ClusterNetworkPolicy`'s conformance tests try, in our words.

use serde_json::{Value, json};

use super::{egress, ingress, ns, pod};
use crate::scene::{Case, Scene};

/// The whole list: each as a policy of the cluster's administrators.
pub fn cluster_policy_cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for tier in ["Admin", "Baseline"] {
        for protocol in ["tcp", "udp", "sctp"] {
            cases.push(one_direction(tier, protocol, "ingress"));
            cases.push(one_direction(tier, protocol, "egress"));
        }
        cases.extend([combined(tier), ranges_of_ports(tier), blocks(tier), nodes(tier)]);
        cases.extend([named_ports(tier), by_pods(tier), alone(tier), same_priority(tier)]);
    }
    cases.extend([priority(), all_tiers(), pass_then_default(), hairpin()]);
    cases
}

/// A policy about namespace `x`.
fn about_x(tier: &str, priority: u32, direction: &str, rules: &Value) -> Value {
    let subject = json!({ "namespaces": ns("x") });
    json!({ "tier": tier, "priority": priority, "subject": subject, direction: rules })
}

fn peers_key(direction: &str) -> &'static str {
    if direction == "ingress" { "from" } else { "to" }
}

fn port(protocol: &str, number: u16) -> Value {
    json!([{ protocol: { "destinationPort": { "number": number } } }])
}

fn nine(name: String, policies: &[(&str, Value)]) -> Case {
    let scene = Scene::nine_pods();
    let with =
        |scene: Scene, (name, spec): &(&str, Value)| scene.cluster_policy(name, spec.clone());
    Case::new(name, policies.iter().fold(scene, with))
}

/// Rules for `y` by port and in order, and for `z` without ports.
fn one_direction(tier: &str, protocol: &str, direction: &str) -> Case {
    let key = peers_key(direction);
    let (y, z) = (json!([{ "namespaces": ns("y") }]), json!([{ "namespaces": ns("z") }]));
    let rules = json!([
        { "name": "accept-80", "action": "Accept", key: y, "protocols": port(protocol, 80) },
        { "name": "deny-y", "action": "Deny", key: y },
        { "name": "pass-z-81", "action": "Pass", key: z, "protocols": port(protocol, 81) },
        { "name": "deny-z", "action": "Deny", key: z },
        { "name": "too-late", "action": "Accept", key: y }
    ]);
    let name = format!("{tier}: {direction} by {protocol}, in the order of the rules");
    let seen = |a: &str, b: &str, number: u16| {
        let (from, to) = if direction == "ingress" { (b, a) } else { (a, b) };
        format!("{from} > {to} {} {number}", protocol.to_uppercase())
    };
    nine(name, &[("p", about_x(tier, 10, direction, &rules))])
        .passes(&[&seen("x/a", "y/a", 80), &seen("x/a", "z/a", 81), &seen("x/a", "x/b", 81)])
        .fails(&[&seen("x/a", "y/a", 81), &seen("x/a", "z/a", 80), &seen("x/b", "y/c", 82)])
}

fn combined(tier: &str) -> Case {
    let ports = json!([
        { "tcp": { "destinationPort": { "number": 80 } } },
        { "udp": { "destinationPort": { "number": 81 } } },
        { "sctp": { "destinationPort": { "number": 80 } } }
    ]);
    let rules = |key: &str| {
        json!([
            { "action": "Accept", key: [{ "namespaces": ns("y") }] },
            { "action": "Deny", key: [{ "namespaces": ns("y") }] },
            { "action": "Deny", key: [{ "namespaces": ns("z") }], "protocols": ports }
        ])
    };
    let mut spec = about_x(tier, 15, "ingress", &rules("from"));
    spec["egress"] = rules("to");
    nine(format!("{tier}: both directions and all protocols in one policy"), &[("p", spec)])
        .passes(&["x/a > y/a", "y/b > x/c SCTP 81", "z/a > x/a TCP 81", "x/a > z/a UDP 80"])
        .fails(&["z/a > x/a", "x/a > z/a UDP 81", "x/b > z/c SCTP 80"])
}

fn ranges_of_ports(tier: &str) -> Case {
    let range = json!([{ "tcp": { "destinationPort": { "range": { "start": 80, "end": 90 } } } }]);
    let older = json!([{ "portRange": { "protocol": "UDP", "start": 79, "end": 80 } },
                       { "portNumber": { "port": 99 } }]);
    let rules = json!([
        { "action": "Deny", "to": [{ "namespaces": ns("y") }], "protocols": range },
        { "action": "Deny", "to": [{ "namespaces": ns("z") }], "ports": older }
    ]);
    nine(format!("{tier}: ranges of ports"), &[("p", about_x(tier, 3, "egress", &rules))])
        .passes(&["x/a > y/a TCP 79", "x/a > y/a TCP 91", "x/a > y/a UDP 85", "x/a > z/a UDP 81"])
        .fails(&["x/a > y/a TCP 80", "x/a > y/a TCP 90", "x/a > z/a UDP 80", "x/a > z/a TCP 99"])
}

fn blocks(tier: &str) -> Case {
    let rules = json!([
        { "action": "Accept", "to": [{ "networks": ["10.0.0.16/28"] }], "protocols": port("tcp", 80) },
        { "action": "Deny", "to": [{ "networks": ["10.0.0.0/24", "fd00::/8"] }] }
    ]);
    nine(
        format!("{tier}: blocks of addresses, which pods are in"),
        &[("p", about_x(tier, 3, "egress", &rules))],
    )
    .passes(&["x/a > y/a", "x/a > z/a", "y/a > x/a"])
    .fails(&["x/a > y/a TCP 81", "x/a > x/b", "x/a > x/b ICMP 0"])
}

fn nodes(tier: &str) -> Case {
    let rules = json!([
        { "action": "Accept", "to": [{ "nodes": { "matchLabels": { "disk": "fast" } } }] },
        { "action": "Deny", "to": [{ "nodes": {} }] }
    ]);
    nine(format!("{tier}: nodes by their labels"), &[("p", about_x(tier, 3, "egress", &rules))])
        .passes(&["x/a > 192.0.2.1", "x/a > y/a", "y/a > 192.0.2.2"])
        .fails(&["x/a > 192.0.2.2"])
}

fn named_ports(tier: &str) -> Case {
    let named = json!([{ "destinationNamedPort": "serve-81-udp" }]);
    let older = json!([{ "namedPort": "serve-80-tcp" }]);
    let rules = |key: &str| {
        json!([
            { "action": "Deny", key: [{ "namespaces": ns("y") }], "protocols": named },
            { "action": "Deny", key: [{ "namespaces": ns("z") }], "ports": older }
        ])
    };
    let mut spec = about_x(tier, 7, "ingress", &rules("from"));
    spec["egress"] = rules("to");
    nine(format!("{tier}: ports by name"), &[("p", spec)])
        .passes(&["y/a > x/a UDP 80", "y/a > x/a TCP 81", "x/a > z/a TCP 81", "z/a > x/a UDP 80"])
        .fails(&["y/a > x/a UDP 81", "x/a > y/a UDP 81", "x/a > z/a TCP 80", "z/a > x/a"])
}

fn by_pods(tier: &str) -> Case {
    let subject = json!({ "pods": { "namespaceSelector": ns("x"), "podSelector": pod("a") } });
    let peer = json!([{ "pods": { "podSelector": pod("b") } }]);
    let rules = json!([{ "action": "Deny", "from": peer }]);
    let spec = json!({ "tier": tier, "priority": 1, "subject": subject, "ingress": rules });
    nine(format!("{tier}: pods by label, of any namespace where none is named"), &[("p", spec)])
        .passes(&["x/c > x/a", "y/a > x/a", "x/b > x/c"])
        .fails(&["x/b > x/a", "y/b > x/a"])
}

fn alone(tier: &str) -> Case {
    let everyone = json!([{ "namespaces": {} }]);
    let rules = |key: &str| json!([{ "action": "Deny", key: everyone }]);
    let mut spec = about_x(tier, 1, "ingress", &rules("from"));
    spec["egress"] = rules("to");
    nine(format!("{tier}: a namespace for itself"), &[("p", spec)])
        .passes(&["y/a > z/a", "x/a > 198.51.100.7"])
        .fails(&["x/a > y/a", "y/a > x/a", "x/a > x/b"])
}

fn same_priority(tier: &str) -> Case {
    let to = |action: &str, name: &str| {
        about_x(
            tier,
            5,
            "egress",
            &json!([{ "action": action, "to": [{ "namespaces": ns(name) }] }]),
        )
    };
    let policies =
        [("one", to("Deny", "y")), ("two", to("Deny", "z")), ("zero", to("Accept", "y"))];
    nine(format!("{tier}: equal priorities go by name"), &policies)
        .passes(&["x/a > x/b", "y/a > z/a"])
        .fails(&["x/a > y/a", "x/a > z/a"])
}

fn priority() -> Case {
    let from = |priority, action: &str| {
        let rules = json!([{ "action": action, "from": [{ "namespaces": ns("y") }] }]);
        about_x("Admin", priority, "ingress", &rules)
    };
    nine(
        "Admin: the lower priority goes first".to_owned(),
        &[("early", from(50, "Deny")), ("late", from(60, "Accept"))],
    )
    .fails(&["y/a > x/a"])
    .passes(&["z/a > x/a"])
    .then(|s| s.cluster_policy("late", from(40, "Accept")))
    .passes(&["y/a > x/a"])
    .then(|s| s.cluster_policy("first", from(0, "Deny")))
    .fails(&["y/a > x/a"])
}

fn all_tiers() -> Case {
    let from = |tier: &str, action: &str| {
        let rules = json!([{ "action": action, "from": [{ "namespaces": ns("y") }] }]);
        about_x(tier, 10, "ingress", &rules)
    };
    let only_z = ingress(json!({}), json!([{ "from": [{ "namespaceSelector": ns("z") }] }]));
    nine(
        "all tiers: each has its say in its turn".to_owned(),
        &[("base", from("Baseline", "Deny"))],
    )
    .fails(&["y/a > x/a"])
    .passes(&["z/a > x/a"])
    .then(|s| s.policy("x", "open", ingress(json!({}), json!([{}]))))
    .passes(&["y/a > x/a"])
    .then(|s| s.policy("x", "open", only_z))
    .fails(&["y/a > x/a"])
    .then(|s| s.cluster_policy("admin", from("Admin", "Accept")))
    .passes(&["y/a > x/a", "z/a > x/a"])
    .fails(&["x/b > x/a"])
    .then(|s| s.cluster_policy("admin", from("Admin", "Pass")))
    .fails(&["y/a > x/a"])
}

fn pass_then_default() -> Case {
    let rules = json!([
        { "action": "Pass", "to": [{ "namespaces": ns("y") }] },
        { "action": "Deny", "to": [{ "networks": ["0.0.0.0/0"] }] }
    ]);
    nine(
        "all tiers: what is passed and decided by nobody passes".to_owned(),
        &[("p", about_x("Admin", 1, "egress", &rules))],
    )
    .passes(&["x/a > y/a", "y/a > z/a"])
    .fails(&["x/a > z/a", "x/a > 198.51.100.7"])
    .then(|s| s.policy("x", "out", egress(json!({}), json!([]))))
    .fails(&["x/a > y/a"])
}

fn hairpin() -> Case {
    let rules = json!([{ "action": "Deny", "from": [{ "namespaces": ns("x") }] }]);
    nine(
        "Admin: a pod that reaches itself through a service is not above administrators".to_owned(),
        &[],
    )
    .then(|s| s.policy("x", "deny", ingress(json!({}), json!([]))))
    .passes(&["x/a > x/a", "x/a > y/a"])
    .fails(&["x/a > x/b"])
    .then(|s| s.cluster_policy("p", about_x("Admin", 15, "ingress", &rules)))
    .fails(&["x/a > x/a", "x/a > x/b"])
}
