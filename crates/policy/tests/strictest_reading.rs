//! What cannot be enforced as written is reported by its field, and lets through no more than was
//! meant. Beside each wrong object stands the right one, which does let through.

// What a test writes wrongly ends it.
#![allow(clippy::unwrap_used)]

mod stage;

use atoll_policy::{ClusterNetworkPolicy, Compiler, Event, Instead, Reason, Report};
use serde_json::{Value, json};

use stage::{a_reaches_b, label, two_pods};

fn with_policy(spec: &Value, annotation: Option<&str>) -> Compiler {
    let mut compiler = two_pods();
    let annotations = annotation.map(|text| json!({ "atoll.dev/policy-networks": text }));
    let metadata = json!({ "name": "p", "namespace": "x", "annotations": annotations });
    let object = json!({ "metadata": metadata, "spec": spec });
    let object = serde_json::from_value(object).unwrap();
    compiler.apply(Event::network_policy(&label("acme"), &object));
    compiler
}

fn with_cluster_policy(spec: &Value) -> Compiler {
    let mut compiler = two_pods();
    let object = json!({ "metadata": { "name": "p" }, "spec": spec });
    let object: ClusterNetworkPolicy = serde_json::from_value(object).unwrap();
    compiler.apply(Event::cluster_policy(&object));
    compiler
}

fn only_report(compiler: &Compiler) -> Report {
    let reports: Vec<Report> = compiler.reports().cloned().collect();
    assert_eq!(reports.len(), 1, "{reports:?}");
    reports.into_iter().next().unwrap()
}

/// The right spec lets `a` reach `b`; the wrong one does not, and is reported at `field`.
fn closes(right: &Value, wrong: &Value, reason: Reason, field: &str) {
    let compiler = with_policy(right, None);
    assert!(a_reaches_b(&compiler), "the right one must let through: {right}");
    assert_eq!(compiler.reports().count(), 0);
    let compiler = with_policy(wrong, None);
    let report = only_report(&compiler);
    assert_eq!((report.reason, report.field.as_str()), (reason, field), "{report}");
    assert!(!a_reaches_b(&compiler), "{wrong}");
}

fn ingress(rule: Value) -> Value {
    let mut spec = json!({ "podSelector": {}, "policyTypes": ["Ingress"] });
    spec["ingress"] = Value::Array(vec![rule]);
    spec
}

#[test]
fn ports_that_cannot_be_allow_nothing() {
    let right = ingress(json!({ "ports": [{ "port": 80, "endPort": 90 }] }));
    for (wrong, reason, field) in [
        (json!({ "port": 80, "endPort": 79 }), Reason::Port, "port"),
        (json!({ "port": "web", "endPort": 90 }), Reason::Port, "port"),
        (json!({ "port": 0 }), Reason::Port, "port"),
        (json!({ "port": 70000 }), Reason::Port, "port"),
        (json!({ "port": 80, "protocol": "ICMP" }), Reason::Protocol, "protocol"),
    ] {
        let wrong = ingress(json!({ "ports": [wrong] }));
        closes(&right, &wrong, reason, &format!("spec.ingress[0].ports[0].{field}"));
    }
}

#[test]
fn peers_that_cannot_be_allow_nothing() {
    let right = ingress(json!({ "from": [{ "podSelector": {} }] }));
    let nonsense =
        json!({ "matchExpressions": [{ "key": "pod", "operator": "Like", "values": ["a"] }] });
    let block = json!({ "cidr": "10.0.0.0/24" });
    for (wrong, reason, field) in [
        (json!({}), Reason::Peer, ""),
        (json!({ "ipBlock": block, "podSelector": {} }), Reason::Peer, ""),
        (json!({ "podSelector": nonsense }), Reason::Selector, ".podSelector"),
        (json!({ "namespaceSelector": nonsense }), Reason::Selector, ".namespaceSelector"),
        (json!({ "ipBlock": { "cidr": "10.0.0.0" } }), Reason::Range, ".ipBlock.cidr"),
        (
            json!({ "ipBlock": { "cidr": "10.0.0.0/8", "except": ["10"] } }),
            Reason::Range,
            ".ipBlock.except[0]",
        ),
        (
            json!({ "ipBlock": { "cidr": "10.0.0.0/8", "except": ["0.0.0.0/0"] } }),
            Reason::Except,
            ".ipBlock.except[0]",
        ),
    ] {
        let wrong = ingress(json!({ "from": [wrong] }));
        closes(&right, &wrong, reason, &format!("spec.ingress[0].from[0]{field}"));
    }
}

#[test]
fn the_readable_rules_beside_an_unreadable_one_still_allow() {
    let mut spec = ingress(json!({ "ports": [{ "port": 0 }, { "port": 80 }] }));
    let compiler = with_policy(&spec, None);
    assert!(a_reaches_b(&compiler));
    assert_eq!(only_report(&compiler).field, "spec.ingress[0].ports[0].port");
    spec["ingress"][0]["ports"] = json!([{ "port": 0 }, { "port": 81 }]);
    assert!(!a_reaches_b(&with_policy(&spec, None)));
}

#[test]
fn a_subject_a_direction_or_networks_that_cannot_be_read_close_all_they_could_mean() {
    let right = ingress(json!({}));
    let nonsense = json!({ "matchExpressions": [{ "key": "pod", "operator": "In" }] });
    let mut wrong = right.clone();
    wrong["podSelector"] = nonsense;
    closes(&right, &wrong, Reason::Selector, "spec.podSelector");
    let mut wrong = right.clone();
    wrong["policyTypes"] = json!(["Ingress", "Sideways"]);
    closes(&right, &wrong, Reason::PolicyType, "spec.policyTypes");
    assert!(a_reaches_b(&with_policy(&right, Some(r#"["default"]"#))));
    let compiler = with_policy(&right, Some("default"));
    assert_eq!(only_report(&compiler).reason, Reason::Networks);
    assert!(!a_reaches_b(&compiler));
}

#[test]
fn an_exception_beside_its_block_is_left_out_and_said_so() {
    let block = json!({ "cidr": "10.0.0.0/24", "except": ["10.9.0.0/24"] });
    let compiler = with_policy(&ingress(json!({ "from": [{ "ipBlock": block }] })), None);
    assert!(a_reaches_b(&compiler));
    assert_eq!(only_report(&compiler).instead, Instead::LeftOut);
}

fn administrators(direction: &str, rules: Value) -> Value {
    let mut spec = json!({ "tier": "Admin", "priority": 5, "subject": { "namespaces": {} } });
    spec[direction] = rules;
    spec
}

/// Rules that accept `a`'s traffic by one that cannot be read, and deny what is left.
#[test]
fn an_accept_rule_that_cannot_be_read_accepts_nothing() {
    let rules = |accept: Value| json!([accept, { "action": "Deny", "to": [{ "namespaces": {} }] }]);
    let right = rules(json!({ "action": "Accept", "to": [{ "namespaces": {} }] }));
    let compiler = with_cluster_policy(&administrators("egress", right));
    assert!(a_reaches_b(&compiler));
    assert_eq!(compiler.reports().count(), 0);
    for (wrong, reason) in [
        (json!({ "action": "Accept", "to": [{}] }), Reason::Peer),
        (json!({ "action": "Accept", "to": [] }), Reason::Peer),
        (
            json!({ "action": "Accept", "to": [{ "domainNames": ["*.example.org"] }] }),
            Reason::DomainNames,
        ),
        (
            json!({ "action": "Accept", "to": [{ "namespaces": {} }], "protocols": [] }),
            Reason::Port,
        ),
        (
            json!({ "action": "Accept", "to": [{ "namespaces": {} }], "protocols": [{ "tcp": {} }] }),
            Reason::Port,
        ),
        (
            json!({ "action": "Accept", "to": [{ "namespaces": {} }], "colour": "blue" }),
            Reason::Shape,
        ),
        (json!({ "action": "Accept", "to": [{ "networks": ["10.0.0.0/33"] }] }), Reason::Range),
        (
            json!({ "action": "Accept", "to": [{ "networks": ["10.0.0.0/8"] }], "ports": [{ "namedPort": "web" }] }),
            Reason::Port,
        ),
    ] {
        let compiler = with_cluster_policy(&administrators("egress", rules(wrong.clone())));
        let report = only_report(&compiler);
        assert_eq!((report.reason, report.instead), (reason, Instead::AllowsNothing), "{report}");
        assert!(report.field.starts_with("spec.egress[0]"), "{report}");
        assert!(!a_reaches_b(&compiler), "{wrong}");
    }
}

#[test]
fn a_deny_or_pass_rule_that_cannot_be_read_denies_everything() {
    let nobody = json!([{ "namespaces": { "matchLabels": { "never": "so" } } }]);
    let no_list = with_cluster_policy(&administrators("ingress", json!("nobody")));
    assert!(!a_reaches_b(&no_list));
    assert_eq!(only_report(&no_list).field, "spec.ingress[0]");
    for action in ["Deny", "Pass", "Perhaps"] {
        let readable = json!([{ "action": "Deny", "from": nobody }]);
        assert!(a_reaches_b(&with_cluster_policy(&administrators("ingress", readable))));
        let wrong = json!([{ "action": action, "from": [{ "stars": {} }] }]);
        let compiler = with_cluster_policy(&administrators("ingress", wrong));
        assert_eq!(only_report(&compiler).instead, Instead::DeniesAll);
        assert!(!a_reaches_b(&compiler), "{action}");
    }
}

#[test]
fn a_cluster_policy_whose_place_cannot_be_read_denies_and_accepts_nothing() {
    let rules = json!([{ "action": "Accept", "from": [{ "namespaces": {} }] },
                       { "action": "Pass", "from": [{ "namespaces": {} }] }]);
    let right = administrators("ingress", rules);
    assert!(a_reaches_b(&with_cluster_policy(&right)));
    for (field, value) in [
        ("tier", json!("Middle")),
        ("priority", json!(1001)),
        ("priority", json!(null)),
        ("subject", json!({})),
        ("season", json!("winter")),
        ("subject", json!({ "namespaces": {}, "pods": { "podSelector": {} } })),
    ] {
        let mut wrong = right.clone();
        wrong[field] = value;
        let compiler = with_cluster_policy(&wrong);
        let report = only_report(&compiler);
        assert_eq!(report.instead, Instead::Strictest);
        assert_eq!(report.field, format!("spec.{field}"));
        assert!(!a_reaches_b(&compiler), "{wrong}");
    }
}
