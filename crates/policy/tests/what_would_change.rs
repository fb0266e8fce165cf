//! Truth tables and their differences, as they are printed.

// What a test writes wrongly ends it.
#![allow(clippy::unwrap_used)]

mod stage;

use atoll_policy::{Compiler, Event, Probe, Protocol, TruthTable, probes, what_if};
use serde_json::{Value, json};

use stage::{a_reaches_b, label, two_pods};

fn policy(name: &str, spec: &Value) -> Event {
    let object = json!({ "metadata": { "name": name, "namespace": "x" }, "spec": spec });
    Event::network_policy(&label("acme"), &serde_json::from_value(object).unwrap())
}

fn only_web_to_b() -> Event {
    let b = json!({ "matchLabels": { "pod": "b" } });
    policy("web", &json!({ "podSelector": b, "ingress": [{ "ports": [{ "port": 80 }] }] }))
}

#[test]
fn a_table_shows_who_reaches_whom_by_what() {
    let mut compiler = two_pods();
    compiler.apply(only_web_to_b());
    let probes = [80, 81].map(|port| Probe { protocol: Protocol::Tcp, port }).into();
    let table = TruthTable::of(&compiler, &label("acme"), &probes);
    let printed = "TCP 80\n  x/a ..\n  x/b ..\nTCP 81\n  x/a .X\n  x/b ..\n";
    assert_eq!(table.to_string(), printed);
}

#[test]
fn a_difference_names_each_change_and_who_decides_it() {
    let compiler = two_pods();
    let difference = what_if(&compiler, &label("acme"), &[only_web_to_b()]);
    let printed = difference.to_string();
    assert!(printed.contains("TCP 0\n  x/a  -\n  x/b   \n"), "{printed}");
    let why = "x/a > x/b TCP 81: denied by NetworkPolicy x/web: no ingress rule allows it \
               (now accepted: no policy is about it)";
    assert!(printed.contains(why), "{printed}");
    assert!(!printed.contains("TCP 80"), "{printed}");
    assert!(a_reaches_b(&compiler), "asking changes nothing");
}

#[test]
fn what_would_not_be_enforced_as_written_is_said_before_it_is_applied() {
    let wrong =
        policy("wrong", &json!({ "podSelector": {}, "ingress": [{ "ports": [{ "port": 0 }] }] }));
    let difference = what_if(&two_pods(), &label("acme"), &[wrong]);
    assert_eq!(difference.reports.len(), 1);
    assert!(
        difference.to_string().contains("not as written: x/wrong: spec.ingress[0].ports[0].port")
    );
}

#[test]
fn a_change_without_effect_says_so() {
    let everything = policy("open", &json!({ "podSelector": {}, "ingress": [{}] }));
    let difference = what_if(&two_pods(), &label("acme"), &[everything]);
    assert_eq!(difference.to_string(), "nothing changes\n");
}

#[test]
fn tables_ask_for_both_edges_of_every_range_of_ports() {
    let mut compiler = two_pods();
    compiler.apply(policy(
        "p",
        &json!({ "podSelector": {}, "ingress": [{ "ports": [{ "port": 80, "endPort": 90 }] }] }),
    ));
    let asked = |compiler: &Compiler, port| {
        probes(compiler).contains(&Probe { protocol: Protocol::Tcp, port })
    };
    assert!(asked(&compiler, 80) && asked(&compiler, 91));
    assert!(!asked(&two_pods(), 80));
}
