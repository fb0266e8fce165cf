//! What is seen of a network in any order leads to the same names, and each change to new ones.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::net::IpAddr;

use atoll_types::{Label, PodRef};
use atoll_zones::{
    Asked, Backing, DomainName, Endpoint, Fact, Home, Kind, NamedPort, Protocol, Service,
    ServiceKey, Settings, Slice, Told, View,
};

const DB: &str = "db.shop.svc.cluster.local";
const DB_0: &str = "db-0.db.shop.svc.cluster.local";
const POD: &str = "10-0-0-1.shop.pod.cluster.local";
const POINTER: &str = "1.0.0.10.in-addr.arpa";

fn label(text: &str) -> Label {
    text.parse().unwrap()
}

fn object(name: &str) -> (String, String) {
    ("shop".into(), name.into())
}

fn view() -> View {
    let zone = DomainName::parse("cluster.local").unwrap();
    View::new(Settings { zone, cidrs: vec![], resolver: vec![], ttl: 5 })
}

fn service_key(name: &str) -> ServiceKey {
    ServiceKey { namespace: label("shop"), name: label(name) }
}

fn headless(name: &str) -> Service {
    Service { key: service_key(name), backing: Backing::Headless { all: false } }
}

/// A slice of `service` with the pod db-0 behind it, at an address that it has elsewhere.
fn slice(service: &str) -> Slice {
    let endpoint = Endpoint {
        addresses: vec![[172, 16, 0, 1].into()],
        ready: true,
        hostname: Some(label("db-0")),
        pod: Some(PodRef::new("shop", "db-0")),
    };
    Slice { service: service_key(service), v4: true, ports: vec![], endpoints: vec![endpoint] }
}

fn home(last: u8) -> Home {
    Home { pod: PodRef::new("shop", "db-0"), ips: vec![[10, 0, 0, last].into()] }
}

fn find(view: &View, name: &str, kind: Kind) -> String {
    let wire = DomainName::parse(name).unwrap().wire().to_vec();
    let mut starts = vec![];
    let mut at = 0;
    while wire[at] != 0 {
        starts.push(at as u8);
        at += usize::from(wire[at]) + 1;
    }
    format!("{:?}", view.zones().find(&Asked::new(&wire, &starts), Some(kind)))
}

fn everything(view: &View) -> Vec<String> {
    let names = [(DB, Kind::A), (DB_0, Kind::A), (POD, Kind::A), (POINTER, Kind::Ptr)];
    names.map(|(name, kind)| find(view, name, kind)).into()
}

fn has(view: &View, name: &str, ip: [u8; 4]) -> bool {
    let rdata = format!("{}, {}, {}, {}", ip[0], ip[1], ip[2], ip[3]);
    let found = find(view, name, Kind::A);
    found.contains(&rdata) || found.contains(&IpAddr::from(ip).to_string())
}

type Step = fn(&mut View);

/// Everything that makes db-0 a name.
const STEPS: [Step; 3] = [
    |view| view.put_home(&object("port"), Some(home(1))),
    |view| view.put_service(&service_key("db"), Some(headless("db"))),
    |view| view.put_slice(&object("slice"), Some(slice("db"))),
];

fn complete() -> View {
    let mut view = view();
    STEPS.iter().for_each(|step| step(&mut view));
    view
}

#[test]
fn ports_services_and_slices_may_come_in_any_order() {
    let expected = everything(&complete());
    assert!(has(&complete(), DB_0, [10, 0, 0, 1]), "{expected:?}");
    for order in [[0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut view = view();
        order.iter().for_each(|at: &usize| STEPS[*at](&mut view));
        assert_eq!(everything(&view), expected, "{order:?}");
    }
}

#[test]
fn each_of_the_three_that_goes_takes_the_name_along_and_brings_it_back() {
    let expected = everything(&complete());
    let without: [Step; 3] = [
        |view| view.put_home(&object("port"), None),
        |view| view.put_service(&service_key("db"), None),
        |view| view.put_slice(&object("slice"), None),
    ];
    for (away, back) in without.iter().zip(STEPS) {
        let mut view = complete();
        away(&mut view);
        assert!(find(&view, DB_0, Kind::A).starts_with("NoName"));
        back(&mut view);
        assert_eq!(everything(&view), expected);
    }
}

#[test]
fn a_pod_that_moves_is_answered_at_its_new_address_alone() {
    let mut view = complete();
    view.put_home(&object("port"), Some(home(2)));
    for name in [DB, DB_0] {
        assert!(has(&view, name, [10, 0, 0, 2]), "{name}");
        assert!(!has(&view, name, [10, 0, 0, 1]), "{name}");
    }
    assert!(find(&view, POD, Kind::A).starts_with("NoName"));
    assert!(find(&view, POINTER, Kind::Ptr).starts_with("NoName"));
}

#[test]
fn a_slice_that_changes_hands_leaves_nothing_with_the_service_it_had() {
    let mut view = complete();
    view.put_service(&service_key("cache"), Some(headless("cache")));
    view.put_slice(&object("slice"), Some(slice("cache")));
    assert!(find(&view, DB, Kind::A).starts_with("NoName"));
    assert!(has(&view, "cache.shop.svc.cluster.local", [10, 0, 0, 1]));
    view.put_home(&object("port"), Some(home(2)));
    assert!(has(&view, "cache.shop.svc.cluster.local", [10, 0, 0, 2]));
}

#[test]
fn a_pod_with_two_interfaces_in_the_network_is_answered_at_both() {
    let mut view = complete();
    view.put_home(&object("second"), Some(home(2)));
    assert!(has(&view, DB_0, [10, 0, 0, 1]) && has(&view, DB_0, [10, 0, 0, 2]));
    view.put_home(&object("port"), None);
    assert!(!has(&view, DB_0, [10, 0, 0, 1]) && has(&view, DB_0, [10, 0, 0, 2]));
}

#[test]
fn people_are_told_in_words() {
    let mut view = complete();
    let port = NamedPort { name: label("sql"), protocol: Protocol::Tcp, port: 5432 };
    let with_port = Slice { ports: vec![port], ..slice("db") };
    view.put_slice(&object("slice"), Some(with_port));
    let tell = |name: &str, kind: &str| {
        view.zones().tell(&DomainName::parse(name).unwrap(), kind.parse().unwrap())
    };
    let answer = |text: &str| Told::Answer(vec![text.to_owned()]);
    assert_eq!(tell(DB_0, "a"), answer("A 10.0.0.1"));
    assert_eq!(tell(POD, "A"), answer("A 10.0.0.1"));
    assert_eq!(tell(POINTER, "PTR"), answer("PTR db-0.db.shop.svc.cluster.local."));
    let service = tell("_sql._tcp.db.shop.svc.cluster.local", "SRV");
    assert!(
        matches!(&service, Told::Answer(lines) if lines[0].ends_with("5432 db-0.db.shop.svc.cluster.local.")),
        "{service:?}"
    );
    assert_eq!(tell(DB_0, "AAAA"), Told::NoData);
    assert_eq!(tell("db-9.db.shop.svc.cluster.local", "A"), Told::NoName);
    assert_eq!(tell("example.com", "A"), Told::Outside);
    assert!("WKS".parse::<Kind>().is_err());
}

#[test]
fn a_view_made_from_the_facts_of_another_has_its_names_also_after_they_were_passed_on_as_text() {
    let mut first = view();
    first.learn(Fact::Home(object("db-0"), Some(home(1))));
    first.learn(Fact::Service(service_key("db"), Some(headless("db"))));
    first.learn(Fact::Slice(object("db-1"), Some(slice("db"))));
    let outside = Backing::External(DomainName::parse("example.com").unwrap());
    let outside = Service { key: service_key("outside"), backing: outside };
    first.learn(Fact::Service(service_key("outside"), Some(outside)));
    let mut second = view();
    for fact in first.facts() {
        let text = serde_json::to_string(&fact).unwrap();
        second.learn(serde_json::from_str(&text).unwrap());
    }
    for (name, kind) in [(DB, Kind::A), (DB_0, Kind::A), (POD, Kind::A), (POINTER, Kind::Ptr)] {
        assert_eq!(find(&first, name, kind), find(&second, name, kind), "{name}");
        assert!(find(&second, name, kind).starts_with("Records") || name == POD, "{name}");
    }
    let mut facts: Vec<String> = first.facts().map(|fact| fact.about()).collect();
    facts.sort();
    assert_eq!(
        facts,
        ["home shop/db-0", "service shop/db", "service shop/outside", "slice shop/db-1"]
    );
    for fact in first.facts() {
        let gone = Fact::gone(&fact.about()).unwrap();
        assert!(gone.is_gone() && !fact.is_gone() && gone.about() == fact.about());
    }
    assert_eq!(
        [Fact::gone("node a/b"), Fact::gone("home"), Fact::gone("service A/b")],
        [None, None, None]
    );
    first.learn(Fact::Home(object("db-0"), None));
    assert!(!first.facts().any(|fact| fact.about().starts_with("home")), "what is gone is no fact");
}
