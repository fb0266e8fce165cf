//! What Kubernetes' own end-to-end tests of network policy try, in our words.

use serde_json::{Value, json};

use super::{any_of, egress, ingress, ns, pod};
use crate::scene::{Case, Scene};

/// The whole list.
pub fn netpol_cases() -> Vec<Case> {
    [
        closed_or_open(),
        stacked_or_deleted(),
        by_one_selector(),
        by_both_selectors(),
        by_several_selectors(),
        by_namespace_label(),
        by_number(),
        by_name_or_range(),
        by_update(),
        by_direction(),
        by_address(),
        by_protocol(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn nine(name: &str, change: impl FnOnce(Scene) -> Scene) -> Case {
    Case::new(name, change(Scene::nine_pods()))
}

fn closed_or_open() -> Vec<Case> {
    let all = || json!({});
    vec![
        nine("default deny of ingress", |s| s.policy("x", "deny", ingress(all(), json!([]))))
            .fails(&["y/a > x/a", "x/b > x/a", "x/b > x/a UDP 81"])
            .passes(&["x/a > y/a", "y/a > z/a"]),
        nine("default deny of everything", |s| {
            let types = json!(["Ingress", "Egress"]);
            s.policy("x", "deny", json!({ "podSelector": {}, "policyTypes": types }))
        })
        .fails(&["y/a > x/a", "x/a > y/a", "x/a > x/b"])
        .passes(&["y/a > z/a", "x/a > x/a"]),
        nine("everything allowed", |s| s.policy("x", "allow", ingress(all(), json!([{}]))))
            .passes(&["y/a > x/a", "x/b > x/a SCTP 81"]),
    ]
}

fn stacked_or_deleted() -> Vec<Case> {
    let all = || json!({});
    vec![
        nine("everyone may enter although another policy lets nobody", |s| {
            s.policy("x", "deny", ingress(all(), json!([]))).policy(
                "x",
                "allow",
                ingress(all(), json!([{}])),
            )
        })
        .passes(&["y/a > x/a", "x/b > x/c"]),
        nine("everyone may leave although another policy lets nobody", |s| {
            s.policy("x", "deny", egress(all(), json!([]))).policy(
                "x",
                "allow",
                egress(all(), json!([{}])),
            )
        })
        .passes(&["x/a > y/a", "x/b > x/c"]),
        nine("a target may be entered although its namespace is closed", |s| {
            s.policy("x", "deny", ingress(all(), json!([]))).policy(
                "x",
                "to-a",
                ingress(pod("a"), json!([{}])),
            )
        })
        .passes(&["y/a > x/a"])
        .fails(&["y/a > x/b"]),
        nine("a deleted policy is no longer enforced", |s| {
            let types = json!(["Ingress", "Egress"]);
            s.policy("x", "deny", json!({ "podSelector": {}, "policyTypes": types }))
        })
        .fails(&["y/a > x/a", "x/a > y/a"])
        .then(|s| s.without_policy("x", "deny"))
        .passes(&["y/a > x/a", "x/a > y/a"]),
    ]
}

fn by_one_selector() -> Vec<Case> {
    let from = |peers| ingress(pod("a"), json!([{ "from": peers }]));
    vec![
        nine("only from pods of the server's own namespace, by label", |s| {
            s.policy("x", "p", from(json!([{ "podSelector": pod("b") }])))
        })
        .passes(&["x/b > x/a"])
        .fails(&["x/c > x/a", "y/b > x/a"]),
        nine("from pods of all namespaces", |s| {
            s.policy("x", "p", from(json!([{ "namespaceSelector": {} }])))
        })
        .passes(&["x/b > x/a", "z/c > x/a"]),
        nine("only from another namespace", |s| {
            s.policy("x", "p", from(json!([{ "namespaceSelector": ns("y") }])))
        })
        .passes(&["y/a > x/a", "y/c > x/a"])
        .fails(&["x/b > x/a", "z/a > x/a"]),
        nine("pods by an expression", |s| {
            let wanted = any_of("pod", "In", &["b"]);
            s.policy("x", "p", from(json!([{ "podSelector": wanted }])))
        })
        .passes(&["x/b > x/a"])
        .fails(&["x/c > x/a", "y/b > x/a"]),
        nine("namespaces by an expression", |s| {
            let wanted = any_of("ns", "In", &["y"]);
            s.policy("x", "p", from(json!([{ "namespaceSelector": wanted }])))
        })
        .passes(&["y/b > x/a"])
        .fails(&["x/c > x/a", "z/b > x/a"]),
    ]
}

fn by_both_selectors() -> Vec<Case> {
    let from = |peers| ingress(pod("a"), json!([{ "from": peers }]));
    vec![
        nine("pods or namespaces", |s| {
            let peers = json!([{ "namespaceSelector": ns("y") }, { "podSelector": pod("b") }]);
            s.policy("x", "p", from(peers))
        })
        .passes(&["y/c > x/a", "x/b > x/a"])
        .fails(&["x/c > x/a", "z/b > x/a"]),
        nine("pods and namespaces at once", |s| {
            let wanted = any_of("ns", "NotIn", &["x"]);
            let peers = json!([{ "namespaceSelector": wanted, "podSelector": pod("b") }]);
            s.policy("x", "p", from(peers))
        })
        .passes(&["y/b > x/a", "z/b > x/a"])
        .fails(&["x/b > x/a", "y/a > x/a"]),
        nine("several pods in several namespaces", |s| {
            let (namespaces, pods) =
                (any_of("ns", "NotIn", &["x"]), any_of("pod", "In", &["b", "c"]));
            s.policy(
                "x",
                "p",
                from(json!([{ "namespaceSelector": namespaces, "podSelector": pods }])),
            )
        })
        .passes(&["y/b > x/a", "z/c > x/a"])
        .fails(&["x/b > x/a", "y/a > x/a"]),
    ]
}

fn by_several_selectors() -> Vec<Case> {
    let from = |peers| ingress(pod("a"), json!([{ "from": peers }]));
    vec![
        nine("any of several pods", |s| {
            let peers = json!([{ "podSelector": pod("b") }, { "podSelector": pod("c") }]);
            s.policy("x", "p", from(peers))
        })
        .passes(&["x/b > x/a", "x/c > x/a"])
        .fails(&["y/b > x/a", "z/a > x/a"]),
        nine("one pod of one other namespace", |s| {
            let peers = json!([{ "namespaceSelector": ns("y"), "podSelector": pod("a") }]);
            s.policy("x", "p", from(peers))
        })
        .passes(&["y/a > x/a"])
        .fails(&["y/b > x/a", "x/c > x/a", "z/a > x/a"]),
    ]
}

fn by_namespace_label() -> Vec<Case> {
    let from = |peers| ingress(pod("a"), json!([{ "from": peers }]));
    vec![
        nine("a namespace by the label that Kubernetes gives it", |s| {
            let wanted = json!({ "matchLabels": { "kubernetes.io/metadata.name": "y" } });
            s.policy("x", "p", from(json!([{ "namespaceSelector": wanted }])))
        })
        .passes(&["y/a > x/a"])
        .fails(&["z/a > x/a"]),
        nine("all namespaces but one, by the label that Kubernetes gives them", |s| {
            let wanted = any_of("kubernetes.io/metadata.name", "NotIn", &["y"]);
            s.policy("x", "p", from(json!([{ "namespaceSelector": wanted }])))
        })
        .passes(&["z/a > x/a", "x/b > x/a"])
        .fails(&["y/a > x/a"]),
        nine("nobody from other namespaces", |s| {
            s.policy("x", "p", ingress(json!({}), json!([{ "from": [{ "podSelector": {} }] }])))
        })
        .passes(&["x/a > x/b"])
        .fails(&["y/a > x/b", "z/a > x/b"]),
    ]
}

fn by_number() -> Vec<Case> {
    let tcp = |port: i32| json!({ "port": port, "protocol": "TCP" });
    let from_y = json!([{ "namespaceSelector": ns("y") }]);
    let to_81 = json!([{ "from": from_y, "ports": [tcp(81)] }]);
    let to_80 = json!([{ "from": from_y, "ports": [tcp(80)] }]);
    vec![
        nine("one port", |s| s.policy("x", "p", ingress(pod("a"), to_81.clone())))
            .passes(&["y/a > x/a TCP 81"])
            .fails(&["y/a > x/a", "z/a > x/a TCP 81", "y/a > x/a UDP 81"]),
        nine("two ports of one rule", |s| {
            let ports = json!([{ "from": from_y, "ports": [tcp(80), tcp(81)] }]);
            s.policy("x", "p", ingress(pod("a"), ports))
        })
        .passes(&["y/a > x/a TCP 81", "y/a > x/a TCP 80"])
        .fails(&["z/a > x/a TCP 81", "y/a > x/a TCP 82"]),
        nine("stacked policies on the same pods", |s| {
            s.policy("x", "81", ingress(pod("a"), to_81.clone()))
        })
        .passes(&["y/a > x/a TCP 81"])
        .fails(&["y/a > x/a TCP 80"])
        .then(|s| s.policy("x", "80", ingress(pod("a"), to_80.clone())))
        .passes(&["y/a > x/a TCP 81", "y/a > x/a TCP 80"]),
    ]
}

fn by_name_or_range() -> Vec<Case> {
    let from_y = json!([{ "namespaceSelector": ns("y") }]);
    let named = json!([{ "ports": [{ "port": "serve-81-tcp" }] }]);
    vec![
        nine("one named port", |s| s.policy("x", "p", ingress(json!({}), named.clone())))
            .passes(&["y/a > x/a TCP 81"])
            .fails(&["y/a > x/a TCP 80", "y/a > x/a UDP 81"]),
        nine("one named port from one namespace", |s| {
            let rule = json!([{ "from": from_y, "ports": [{ "port": "serve-80-tcp" }] }]);
            s.policy("x", "p", ingress(pod("a"), rule))
        })
        .passes(&["y/a > x/a"])
        .fails(&["z/a > x/a", "y/a > x/a TCP 81"]),
        nine("one named port on the way out", |s| s.policy("x", "p", egress(pod("a"), named.clone())))
            .passes(&["x/a > y/a TCP 81", "x/a > x/b TCP 81"])
            .fails(&["x/a > y/a TCP 80", "x/a > y/a SCTP 81"]),
        nine("a range of ports", |s| {
            let ports = json!([{ "ports": [{ "port": 81, "endPort": 90 }] }]);
            s.policy("x", "p", egress(pod("a"), ports))
        })
        .passes(&["x/a > y/a TCP 81", "x/a > y/a TCP 90"])
        .fails(&["x/a > y/a TCP 80", "x/a > y/a TCP 91", "x/a > y/a UDP 85"]),
        nine("several ranges of ports", |s| {
            let ports = json!([{ "ports": [{ "port": 70, "endPort": 80 }, { "port": 443, "endPort": 1000 }] }]);
            s.policy("x", "p", egress(pod("a"), ports))
        })
        .passes(&["x/a > y/a TCP 80", "x/a > y/a TCP 500"])
        .fails(&["x/a > y/a TCP 81", "x/a > y/a TCP 1001"]),
    ]
}

fn by_update() -> Vec<Case> {
    let from = |peers| ingress(pod("a"), json!([{ "from": peers }]));
    let updated = json!({ "matchLabels": { "ns2": "updated" } });
    let renewed = json!({ "matchLabels": { "pod": "b", "pod2": "updated" } });
    let isolated = json!({ "matchLabels": { "target": "isolated" } });
    vec![
        nine("an updated policy", |s| s.policy("x", "p", ingress(json!({}), json!([{}]))))
            .passes(&["y/a > x/a"])
            .then(|s| s.policy("x", "p", ingress(json!({}), json!([]))))
            .fails(&["y/a > x/a"])
            .passes(&["x/a > y/a"]),
        nine("an updated namespace", |s| {
            s.policy("x", "p", from(json!([{ "namespaceSelector": updated }])))
        })
        .fails(&["y/a > x/a"])
        .then(|s| s.namespace("y", &[("ns", "y"), ("ns2", "updated")]))
        .passes(&["y/a > x/a"])
        .fails(&["z/a > x/a"]),
        nine("an updated pod may enter", |s| {
            s.policy("x", "p", from(json!([{ "podSelector": renewed }])))
        })
        .fails(&["x/b > x/a"])
        .then(|s| s.relabel("x", "b", &[("pod", "b"), ("pod2", "updated")]))
        .passes(&["x/b > x/a"])
        .fails(&["x/c > x/a"]),
        nine("an updated pod is closed", |s| s.policy("x", "p", ingress(isolated, json!([]))))
            .passes(&["x/b > x/a"])
            .then(|s| s.relabel("x", "a", &[("target", "isolated")]))
            .fails(&["x/b > x/a"])
            .passes(&["x/a > x/b"]),
    ]
}

fn by_direction() -> Vec<Case> {
    let to_ya = json!([{ "to": [{ "namespaceSelector": ns("y"), "podSelector": pod("a") }] }]);
    let from_xa = json!([{ "from": [{ "namespaceSelector": ns("x"), "podSelector": pod("a") }] }]);
    vec![
        nine("no way out for one pod", |s| s.policy("x", "p", egress(pod("a"), json!([]))))
            .fails(&["x/a > x/b", "x/a > y/a"])
            .passes(&["x/b > x/a", "y/a > x/a"]),
        nine("no way out for a namespace", |s| s.policy("x", "p", egress(json!({}), json!([]))))
            .fails(&["x/a > x/b", "x/b > y/a"])
            .passes(&["y/b > x/a"]),
        nine("both directions in one policy", |s| {
            let types = json!(["Ingress", "Egress"]);
            let rules = json!([{ "from": [{ "podSelector": pod("b") }] }]);
            let out = json!([{ "ports": [{ "port": 80 }, { "port": 53, "protocol": "UDP" }] }]);
            s.policy("x", "p", json!({ "podSelector": pod("a"), "policyTypes": types, "ingress": rules, "egress": out }))
        })
        .passes(&["x/b > x/a", "x/a > y/a", "x/a > y/a UDP 53"])
        .fails(&["x/c > x/a", "x/a > y/a TCP 81", "x/a > y/a UDP 80"]),
        nine("the sender's policy denies what the receiver's allows", |s| {
            s.policy("x", "out", egress(pod("a"), to_ya.clone()))
                .policy("y", "in-a", ingress(pod("a"), from_xa.clone()))
                .policy("y", "in-b", ingress(pod("b"), from_xa.clone()))
        })
        .passes(&["x/a > y/a"])
        .fails(&["x/a > y/b", "x/b > y/a"]),
        nine("only to one pod of another namespace", |s| s.policy("x", "p", egress(pod("a"), to_ya.clone())))
            .passes(&["x/a > y/a"])
            .fails(&["x/a > y/b", "x/a > z/a"]),
        nine("the two directions are independent", |s| {
            let b = json!([{ "podSelector": pod("b") }]);
            s.policy("x", "out", egress(pod("a"), json!([{ "to": b }])))
                .policy("x", "in", ingress(pod("a"), json!([{ "from": b }])))
        })
        .passes(&["x/a > x/b", "x/b > x/a"])
        .fails(&["x/a > x/c", "x/c > x/a"])
        .then(|s| s.policy("x", "in", ingress(pod("a"), json!([]))))
        .passes(&["x/a > x/b"])
        .fails(&["x/b > x/a"]),
    ]
}

fn by_address() -> Vec<Case> {
    let to = |block| egress(pod("a"), json!([{ "to": [{ "ipBlock": block }] }]));
    let except_b = json!({ "cidr": "10.0.0.0/24", "except": ["10.0.0.2/32"] });
    vec![
        nine("out to a block of addresses", |s| {
            s.policy("x", "p", to(json!({ "cidr": "10.0.0.0/28" })))
        })
        .passes(&["x/a > x/b", "x/a > x/c"])
        .fails(&["x/a > y/a", "x/a > z/a"]),
        nine("an exception of a block", |s| s.policy("x", "p", to(except_b.clone())))
            .passes(&["x/a > x/c", "x/a > y/a"])
            .fails(&["x/a > x/b", "x/a > z/a"]),
        nine("an exception that another block takes back", |s| {
            s.policy("x", "p", to(except_b.clone()))
        })
        .fails(&["x/a > x/b"])
        .then(|s| s.policy("x", "q", to(json!({ "cidr": "10.0.0.2/32" }))))
        .passes(&["x/a > x/b", "x/a > x/c"])
        .fails(&["x/a > z/a"]),
    ]
}

fn only(protocol: &str, port: u16) -> Value {
    json!([{ "ports": [{ "port": port, "protocol": protocol }] }])
}

fn by_protocol() -> Vec<Case> {
    let closed = |s: Scene| s.policy("x", "deny", ingress(json!({}), json!([])));
    let apart = [
        nine("SCTP is not TCP", |s| {
            closed(s).policy("x", "p", ingress(pod("a"), only("SCTP", 81)))
        })
        .passes(&["y/a > x/a SCTP 81"])
        .fails(&["y/a > x/a TCP 81"]),
        nine("a policy that allows SCTP closes the rest", |s| {
            s.policy("x", "p", ingress(pod("a"), only("SCTP", 80)))
        })
        .passes(&["y/a > x/a SCTP 80", "y/a > x/b"])
        .fails(&["y/a > x/a TCP 80", "y/a > x/a UDP 80"]),
        nine("UDP is not TCP", |s| s.policy("x", "p", ingress(pod("a"), only("UDP", 81))))
            .passes(&["y/a > x/a UDP 81"])
            .fails(&["y/a > x/a TCP 81"]),
        nine("every port of one protocol", |s| {
            let ports = json!([{ "ports": [{ "protocol": "UDP" }] }]);
            s.policy("x", "p", ingress(pod("a"), ports))
        })
        .passes(&["y/a > x/a UDP 80", "y/a > x/a UDP 81"])
        .fails(&["y/a > x/a TCP 80", "y/a > x/a ICMP 0"]),
    ];
    apart.into_iter().chain(seen_by("UDP")).chain(seen_by("SCTP")).collect()
}

fn seen_by(protocol: &str) -> [Case; 3] {
    let seen = |template: &str| template.replace("PROTOCOL", protocol);
    let peers = json!([{ "namespaceSelector": ns("y"), "podSelector": pod("a") }]);
    let rules = json!([{ "from": peers, "ports": [{ "protocol": protocol }] }]);
    [
        nine(&seen("default deny, seen by PROTOCOL"), |s| {
            s.policy("x", "deny", ingress(json!({}), json!([])))
        })
        .fails(&[&seen("y/a > x/a PROTOCOL 80")])
        .passes(&[&seen("x/a > y/a PROTOCOL 80")]),
        nine(&seen("one port of PROTOCOL"), |s| {
            s.policy("x", "p", ingress(pod("a"), only(protocol, 81)))
        })
        .passes(&[&seen("y/a > x/a PROTOCOL 81")])
        .fails(&[&seen("y/a > x/a PROTOCOL 80"), "y/a > x/a TCP 81"]),
        nine(&seen("one pod of another namespace by PROTOCOL"), |s| {
            s.policy("x", "p", ingress(pod("a"), rules))
        })
        .passes(&[&seen("y/a > x/a PROTOCOL 80")])
        .fails(&[&seen("y/b > x/a PROTOCOL 80"), "y/a > x/a TCP 80"]),
    ]
}
