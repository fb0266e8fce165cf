//! A namespace that is being deleted loses its policies and its pods in no order.

// What a test writes wrongly ends it.
#![allow(clippy::unwrap_used)]

mod stage;

use atoll_policy::{Compiler, Event, PolicyKey};
use atoll_types::PodRef;
use serde_json::json;

use stage::{a_reaches_b, label, two_pods};

fn closed() -> Compiler {
    let mut compiler = two_pods();
    let object =
        json!({ "metadata": { "name": "deny", "namespace": "x" }, "spec": { "podSelector": {} } });
    let object = serde_json::from_value(object).unwrap();
    compiler.apply(Event::network_policy(&label("acme"), &object));
    assert!(!a_reaches_b(&compiler));
    compiler
}

fn policy_gone() -> Event {
    Event::Policy(PolicyKey::namespaced(label("acme"), "x", "deny"), None)
}

fn ending() -> Event {
    Event::Ending(label("acme"), "x".to_owned())
}

#[test]
fn policies_of_a_namespace_that_is_being_deleted_stay_until_it_is_gone() {
    let mut other = closed();
    other.apply(policy_gone());
    assert!(a_reaches_b(&other), "without an end in sight, a deleted policy is gone");
    let mut compiler = closed();
    compiler.apply(ending());
    assert!(compiler.apply(policy_gone()).is_empty());
    assert!(!a_reaches_b(&compiler));
    for name in ["a", "b"] {
        compiler.apply(Event::Pod(label("acme"), PodRef::new("x", name), None));
    }
    compiler.apply(Event::Namespace(label("acme"), "x".to_owned(), None));
    assert!(compiler.tables().is_empty());
    assert_eq!(compiler.listing(), Vec::<String>::new());
    assert_eq!(compiler.counts().sets, 0);
}

#[test]
fn a_policy_made_anew_in_a_namespace_that_is_being_deleted_is_not_taken_for_gone() {
    let mut compiler = closed();
    compiler.apply(ending());
    compiler.apply(policy_gone());
    let open = json!({ "metadata": { "name": "deny", "namespace": "x" },
                       "spec": { "podSelector": {}, "ingress": [{}] } });
    let open = serde_json::from_value(open).unwrap();
    compiler.apply(Event::network_policy(&label("acme"), &open));
    assert!(a_reaches_b(&compiler));
    compiler.apply(policy_gone());
    assert!(a_reaches_b(&compiler), "and stays again when it is deleted");
    assert_eq!(compiler.counts().sets, 1);
}
