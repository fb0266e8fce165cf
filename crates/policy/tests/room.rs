//! Room in the kernel's tables: what one tenant takes never keeps out another, and what has no room
//! is held without opening anything.

// What a test writes wrongly ends it.
#![allow(clippy::unwrap_used)]

mod stage;

use atoll_policy::{Compiler, Event, Instead, Interface, Pod, PolicyKey, Protocol, Reason, Room};
use atoll_types::{NetAddr, NetworkId, PodRef};
use serde_json::{Value, json};

use stage::{label, labels};

/// Enough for a few dozens of pods, and rows for no more than one of them each.
const ROOM: Room =
    Room { endpoints: 1000, outside: 1000, identities: 1000, peers: 250, ports: 10_000 };

/// A tenant's network, so that tenants have equal addresses.
fn network(tenant: &str) -> u32 {
    if tenant == "acme" { 7 } else { 8 }
}

fn at(tenant: &str, number: u8) -> NetAddr {
    NetAddr::new(NetworkId::try_from(network(tenant)).unwrap(), [10, 0, 0, number].into())
}

fn namespace(tenant: &str, pairs: &[(&str, &str)]) -> Event {
    Event::Namespace(label(tenant), "x".into(), Some(labels(pairs)))
}

/// A pod unlike every other.
fn pod(tenant: &str, number: u8) -> Event {
    let address = at(tenant, number);
    let interface =
        Interface { network: label("default"), id: address.network, ips: [address.ip].into() };
    let facts = Pod {
        labels: labels(&[("app", &format!("app-{number}"))]),
        interfaces: vec![interface],
        ..Pod::default()
    };
    Event::Pod(label(tenant), PodRef::new("x", format!("pod-{number}")), Some(facts))
}

fn policy(tenant: &str, number: u8, from: &Value) -> Event {
    let subject = json!({ "matchLabels": { "app": format!("app-{number}") } });
    let object = json!({ "metadata": { "name": format!("app-{number}"), "namespace": "x" },
        "spec": { "podSelector": subject, "ingress": [{ "from": [from] }] } });
    Event::network_policy(&label(tenant), &serde_json::from_value(object).unwrap())
}

/// A policy of one pod that costs a row for every pod of the tenant.
fn costly(tenant: &str, number: u8) -> Event {
    policy(
        tenant,
        number,
        &json!({ "podSelector": { "matchExpressions": [
        { "key": "app", "operator": "Exists" }, { "key": "no", "operator": "NotIn", "values": [number.to_string()] }] } }),
    )
}

/// One that costs a row for one of them.
fn modest(tenant: &str, number: u8, other: u8) -> Event {
    let one = json!({ "matchLabels": { "app": format!("app-{other}") } });
    policy(tenant, number, &json!({ "podSelector": one }))
}

fn key(tenant: &str, number: u8) -> PolicyKey {
    PolicyKey::namespaced(label(tenant), "x", &format!("app-{number}"))
}

const PODS: u8 = 20;

/// Two tenants with equal pods, of which the first has taken all the rows it may have.
fn crowded() -> Compiler {
    let mut compiler = Compiler::within(ROOM);
    for tenant in ["acme", "globex"] {
        compiler.apply(namespace(tenant, &[]));
        (1..=PODS).for_each(|number| drop(compiler.apply(pod(tenant, number))));
    }
    (1..=PODS).for_each(|number| drop(compiler.apply(costly("acme", number))));
    compiler
}

fn passes(compiler: &Compiler, tenant: &str, from: u8, to: u8) -> bool {
    compiler.explain(at(tenant, from), at(tenant, to), Protocol::Tcp, 80).accepts()
}

fn is_known(compiler: &Compiler, tenant: &str, number: u8) -> bool {
    compiler.tables().endpoints.get(&at(tenant, number)).is_some()
}

fn held(compiler: &Compiler) -> Vec<PolicyKey> {
    compiler.held_policies().map(|report| report.policy.clone()).collect()
}

#[test]
fn what_one_tenant_takes_keeps_no_change_of_another_out() {
    let mut compiler = crowded();
    assert!(!held(&compiler).is_empty());
    let rows = compiler.tables().peers.len();
    assert!(rows <= ROOM.peers / 2 + 2 * usize::from(PODS), "{rows}");
    assert!(passes(&compiler, "globex", 1, 2));
    assert!(!compiler.apply(modest("globex", 2, 3)).is_empty());
    assert!(!passes(&compiler, "globex", 1, 2) && passes(&compiler, "globex", 3, 2));
    assert!(compiler.held_policies().all(|report| report.policy.tenant == Some(label("acme"))));
}

#[test]
fn a_policy_that_has_no_room_closes_whom_it_is_about_and_nobody_else() {
    let compiler = crowded();
    let report = compiler.held_policies().next().unwrap();
    assert_eq!((report.reason, report.instead), (Reason::NoRoom, Instead::Closes));
    assert!(report.message.contains("rows on this node and may have"), "{report}");
    assert!(compiler.reports().any(|told| told == report));
    let last = PODS;
    assert!(held(&compiler).contains(&key("acme", last)));
    assert!(!passes(&compiler, "acme", 1, last), "nothing was in force for it");
    assert!(passes(&compiler, "acme", last, 1), "what it may open is another's matter");
    assert!(passes(&compiler, "globex", 1, last), "the same pod of another tenant");
}

#[test]
fn of_a_policy_that_grew_beyond_its_room_the_former_stays_in_force() {
    let mut compiler = crowded();
    let full = held(&compiler).len();
    let waiting = held(&compiler)[0].clone();
    let number: u8 = waiting.name.strip_prefix("app-").unwrap().parse().unwrap();
    assert!(!passes(&compiler, "acme", 2, number));
    compiler.apply(modest("acme", number, 2));
    assert!(passes(&compiler, "acme", 2, number), "one row is there");
    assert!(!passes(&compiler, "acme", 3, number));
    compiler.apply(costly("acme", number));
    assert_eq!(held(&compiler).len(), full);
    let report = compiler.held_policies().find(|report| report.policy == waiting).unwrap();
    assert_eq!(report.instead, Instead::FormerStays);
    assert!(passes(&compiler, "acme", 2, number) && !passes(&compiler, "acme", 3, number));
}

#[test]
fn what_has_no_room_is_tried_again_when_there_is_more() {
    let mut compiler = crowded();
    let before = held(&compiler);
    let first = (1..=PODS).find(|number| !before.contains(&key("acme", *number))).unwrap();
    compiler.apply(Event::Policy(key("acme", first), None));
    let after = held(&compiler);
    assert_eq!(after, before[1..].to_vec(), "one went, and the first that waited came");
    for number in 1..=PODS {
        compiler.apply(Event::Policy(key("acme", number), None));
    }
    assert_eq!(held(&compiler), []);
    assert!((1..PODS).all(|number| passes(&compiler, "acme", number, number + 1)));
}

#[test]
fn a_pod_that_has_no_room_is_not_known_until_there_is() {
    let few = Room { identities: 8, ..ROOM };
    let mut compiler = Compiler::within(few);
    compiler.apply(namespace("acme", &[]));
    (1..=6).for_each(|number| drop(compiler.apply(pod("acme", number))));
    let waiting = |compiler: &Compiler| compiler.held_pods().count();
    assert_eq!((waiting(&compiler), compiler.tables().identities.len()), (2, 4));
    assert!(is_known(&compiler, "acme", 4) && !is_known(&compiler, "acme", 5));
    compiler.apply(namespace("globex", &[]));
    compiler.apply(pod("globex", 6));
    assert!(is_known(&compiler, "globex", 6), "the other tenant's has room");
    let gone =
        |number: u8| Event::Pod(label("acme"), PodRef::new("x", format!("pod-{number}")), None);
    compiler.apply(gone(1));
    assert_eq!(waiting(&compiler), 2, "the other tenant has what became free");
    compiler.apply(gone(2));
    assert_eq!(waiting(&compiler), 1);
    assert!(is_known(&compiler, "acme", 5) && !is_known(&compiler, "acme", 6));
    compiler.apply(gone(6));
    assert_eq!(waiting(&compiler), 0);
}

#[test]
fn pods_that_a_new_label_of_their_namespace_leaves_no_room_for_are_turned_out() {
    let few = Room { peers: 12, ..ROOM };
    let mut compiler = Compiler::within(few);
    compiler.apply(namespace("acme", &[]));
    (1..=8).for_each(|number| drop(compiler.apply(pod("acme", number))));
    let marked = json!({ "namespaceSelector": { "matchLabels": { "team": "shop" } } });
    compiler.apply(policy("acme", 1, &marked));
    assert!(!passes(&compiler, "acme", 2, 1), "the namespace is not marked");
    compiler.apply(namespace("acme", &[("team", "shop")]));
    assert!(passes(&compiler, "acme", 2, 1));
    let turned_out: Vec<_> = compiler.held_pods().map(|(_, pod)| pod.name.clone()).collect();
    assert_eq!(turned_out, ["pod-6", "pod-7", "pod-8"]);
    compiler.apply(namespace("acme", &[]));
    assert_eq!(compiler.held_pods().count(), 0);
    assert!(passes(&compiler, "acme", 1, 8) && !passes(&compiler, "acme", 2, 1));
}

#[test]
fn the_clusters_administrators_are_not_refused() {
    let mut compiler = crowded();
    let deny = json!({ "metadata": { "name": "deny" }, "spec": {
        "tier": "Admin", "priority": 1, "subject": { "namespaces": {} },
        "ingress": [{ "action": "Deny", "from": [{ "namespaces": {} }] }] } });
    compiler.apply(Event::cluster_policy(&serde_json::from_value(deny).unwrap()));
    assert!(!passes(&compiler, "acme", 1, 2) && !passes(&compiler, "globex", 1, 2));
}

#[test]
fn when_everything_is_gone_nothing_waits_and_nothing_is_used() {
    let mut compiler = crowded();
    for tenant in ["acme", "globex"] {
        for number in 1..=PODS {
            let name = PodRef::new("x", format!("pod-{number}"));
            compiler.apply(Event::Pod(label(tenant), name, None));
            compiler.apply(Event::Policy(key(tenant, number), None));
        }
        compiler.apply(Event::Namespace(label(tenant), "x".into(), None));
    }
    assert!(compiler.tables().is_empty());
    assert_eq!((held(&compiler), compiler.held_pods().count()), (vec![], 0));
}
