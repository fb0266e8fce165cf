//! What policy costs: work and entries are counted, never timed.

// What a test writes wrongly ends it.
#![allow(clippy::unwrap_used)]

mod stage;

use atoll_policy::{Compiler, Counts, Event};

use stage::crowd::{app_pod, app_policy, crowd, policy_key};

fn compiled(events: Vec<Event>) -> Compiler {
    let mut compiler = Compiler::new();
    for event in events {
        compiler.apply(event);
    }
    compiler
}

#[test]
fn a_thousand_policies_over_a_thousand_pods_cost_what_their_rules_name() {
    let compiler = compiled(crowd(1000, 1));
    let counts = compiler.counts();
    assert_eq!((counts.endpoints, counts.sets), (1000, 2000));
    let named_by_rules = 1000 * (50 + 5);
    assert!(counts.peers <= named_by_rules, "{counts:?}");
    assert!(counts.tests_done < 200 * 1000, "{counts:?}");
    assert!(counts.columns_made < 10 * 1000, "{counts:?}");
}

#[test]
fn the_cost_grows_with_distinct_label_sets_and_not_with_pods() {
    let (few, many) = (compiled(crowd(20, 1)).counts(), compiled(crowd(20, 50)).counts());
    assert_eq!((few.endpoints, many.endpoints), (20, 1000));
    assert_eq!(Counts { endpoints: 20, ..many }, few);
}

#[test]
fn a_pod_like_another_is_one_entry_and_no_work() {
    let mut compiler = compiled(crowd(200, 1));
    let before = compiler.counts();
    let changes = compiler.apply(app_pod(77, 1));
    assert_eq!((changes.len(), changes.endpoints.put.len()), (1, 1));
    assert_eq!(Counts { endpoints: before.endpoints, ..compiler.counts() }, before);
}

#[test]
fn a_changed_policy_costs_its_own_subjects_however_many_others_there_are() {
    let cost = |apps: usize| {
        let mut compiler = compiled(crowd(apps, 1));
        let before = compiler.counts();
        let changes = compiler.apply(app_policy(77, 8081));
        let after = compiler.counts();
        assert!(changes.endpoints.is_empty());
        let work = after.columns_made - before.columns_made + after.tests_done - before.tests_done;
        (changes.len(), work)
    };
    assert_eq!(cost(100), cost(400));
}

#[test]
fn a_policy_that_came_and_went_leaves_what_was_there() {
    let mut compiler = compiled(crowd(100, 1));
    let before = compiler.listing();
    compiler.apply(Event::Policy(policy_key(77), None));
    assert_ne!(compiler.listing(), before);
    compiler.apply(app_policy(77, 8080));
    assert_eq!(compiler.listing(), before);
}
