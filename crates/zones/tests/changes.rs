//! Whatever way a network's names came to be, they are the same; and a name that was taken away
//! leaves nothing behind.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeMap;
use std::net::IpAddr;

use atoll_types::{Label, PodRef};
use atoll_zones::{
    Asked, Backing, DomainName, Endpoint, Found, Homes, Kind, NamedPort, Names, Protocol, Service,
    ServiceKey, Settings, Slice, ZoneSet,
};
use proptest::prelude::*;

fn settings() -> Settings {
    let zone = DomainName::parse("cluster.local").unwrap();
    Settings { zone, cidrs: vec![], resolver: vec![], ttl: 5 }
}

fn label(text: &str) -> Label {
    text.parse().unwrap()
}

fn ip(last: u8) -> IpAddr {
    [10, 0, 0, last].into()
}

fn port() -> NamedPort {
    NamedPort { name: label("http"), protocol: Protocol::Tcp, port: 80 }
}

fn key(namespace: u8, name: u8) -> ServiceKey {
    ServiceKey { namespace: label(&format!("n{namespace}")), name: label(&format!("s{name}")) }
}

/// A service with an address of its own, or one that is its endpoints.
fn names(key: &ServiceKey, headless: bool, ips: &[u8]) -> Option<Names> {
    let addresses = ips.iter().map(|last| ip(*last)).collect();
    let endpoint = |last: &u8| Endpoint {
        addresses: vec![ip(*last)],
        ready: true,
        hostname: Some(label(&format!("h{}", last % 3))),
        pod: None,
    };
    let endpoints = ips.iter().map(endpoint).collect();
    let slice = Slice { service: key.clone(), v4: true, ports: vec![port()], endpoints };
    let backing = match headless {
        true => Backing::Headless { all: false },
        false => Backing::Vip { addresses, ports: vec![port()] },
    };
    let service = Service { key: key.clone(), backing };
    Names::compile(&service, &[slice], &Homes::default(), &settings())
}

fn find(set: &ZoneSet, name: &str, kind: Kind) -> String {
    let wire = DomainName::parse(name).unwrap().wire().to_vec();
    let mut starts = vec![];
    let mut at = 0;
    while wire[at] != 0 {
        starts.push(at as u8);
        at += usize::from(wire[at]) + 1;
    }
    format!("{:?}", set.find(&Asked::new(&wire, &starts), Some(kind)))
}

/// Every answer to every question that could differ.
fn everything(set: &ZoneSet) -> Vec<String> {
    let mut all = vec![];
    for namespace in 0..3 {
        let zone = format!("n{namespace}.svc.cluster.local");
        all.push(find(set, &zone, Kind::A));
        all.push(find(set, &format!("n{namespace}.pod.cluster.local"), Kind::A));
        for name in 0..3 {
            all.push(find(set, &format!("s{name}.{zone}"), Kind::Any));
            all.push(find(set, &format!("_http._tcp.s{name}.{zone}"), Kind::Srv));
            all.extend((0..3).map(|h| find(set, &format!("h{h}.s{name}.{zone}"), Kind::A)));
        }
        let pod = |last| format!("10-0-0-{last}.n{namespace}.pod.cluster.local");
        all.extend((0..6).map(|last| find(set, &pod(last), Kind::A)));
    }
    all.extend((0..6).map(|last| find(set, &format!("{last}.0.0.10.in-addr.arpa"), Kind::Ptr)));
    all
}

#[derive(Clone, Debug)]
enum Change {
    Service(u8, u8, bool, Vec<u8>),
    NoService(u8, u8),
    Pod(u8, u8),
    NoPod(u8, u8),
}

fn change() -> impl Strategy<Value = Change> {
    let small = || 0..3u8;
    let ips = prop::collection::vec(0..6u8, 0..4);
    prop_oneof![
        4 => (small(), small(), any::<bool>(), ips)
            .prop_map(|(namespace, name, headless, ips)| Change::Service(namespace, name, headless, ips)),
        2 => (small(), small()).prop_map(|(namespace, name)| Change::NoService(namespace, name)),
        2 => (small(), 0..6u8).prop_map(|(namespace, last)| Change::Pod(namespace, last)),
        1 => (small(), 0..6u8).prop_map(|(namespace, last)| Change::NoPod(namespace, last)),
    ]
}

fn apply(set: &mut ZoneSet, change: &Change) {
    match change {
        Change::Service(namespace, name, headless, ips) => {
            let key = key(*namespace, *name);
            set.put_service(&key, names(&key, *headless, ips));
        }
        Change::NoService(namespace, name) => set.put_service(&key(*namespace, *name), None),
        Change::Pod(namespace, last) => set.put_pod(&label(&format!("n{namespace}")), ip(*last)),
        Change::NoPod(namespace, last) => {
            set.remove_pod(&label(&format!("n{namespace}")), ip(*last));
        }
    }
}

/// What of the changes still matters at the end.
fn last_words(changes: &[Change]) -> Vec<Change> {
    let mut last = BTreeMap::new();
    for change in changes {
        let place = match change {
            Change::Service(a, b, ..) | Change::NoService(a, b) => (true, *a, *b),
            Change::Pod(a, b) | Change::NoPod(a, b) => (false, *a, *b),
        };
        last.insert(place, change.clone());
    }
    last.into_values().rev().collect()
}

proptest! {
    #[test]
    fn changes_one_by_one_lead_to_what_a_new_start_leads_to(
        changes in prop::collection::vec(change(), 1..60),
    ) {
        let (mut grown, mut fresh) = (ZoneSet::new(settings()), ZoneSet::new(settings()));
        changes.iter().for_each(|change| apply(&mut grown, change));
        last_words(&changes).iter().for_each(|change| apply(&mut fresh, change));
        prop_assert_eq!(everything(&grown), everything(&fresh));
    }

    #[test]
    fn everything_taken_away_leaves_nothing(changes in prop::collection::vec(change(), 1..40)) {
        let mut set = ZoneSet::new(settings());
        let before = everything(&set);
        changes.iter().for_each(|change| apply(&mut set, change));
        for namespace in 0..3 {
            (0..3).for_each(|name| apply(&mut set, &Change::NoService(namespace, name)));
            (0..6).for_each(|last| apply(&mut set, &Change::NoPod(namespace, last)));
        }
        prop_assert_eq!(everything(&set), before);
        prop_assert_eq!(set.services(), 0);
    }

    #[test]
    fn a_clone_that_is_being_asked_does_not_change(
        first in prop::collection::vec(change(), 1..20),
        later in prop::collection::vec(change(), 1..20),
    ) {
        let mut set = ZoneSet::new(settings());
        first.iter().for_each(|change| apply(&mut set, change));
        let (asked, before) = (set.clone(), everything(&set));
        later.iter().for_each(|change| apply(&mut set, change));
        prop_assert_eq!(everything(&asked), before);
    }
}

#[test]
fn an_address_with_several_names_loses_only_the_one_that_goes() {
    let mut set = ZoneSet::new(settings());
    let (one, two) = (key(0, 0), key(0, 1));
    set.put_service(&one, names(&one, false, &[1]));
    let alone = find(&set, "1.0.0.10.in-addr.arpa", Kind::Ptr);
    set.put_service(&two, names(&two, false, &[1]));
    assert!(find(&set, "1.0.0.10.in-addr.arpa", Kind::Ptr).contains("count: 2"));
    set.put_service(&two, None);
    assert_eq!(find(&set, "1.0.0.10.in-addr.arpa", Kind::Ptr), alone);
}

#[test]
fn a_pod_behind_a_service_has_its_address_in_the_network_that_asks() {
    let spec = |network_id, ip: &str| atoll_api::PortSpec {
        network_id,
        ips: vec![ip.to_owned()],
        pod: "db-0".to_owned(),
        ..Default::default()
    };
    let port = |network, ip: &str| {
        let mut port = atoll_api::Port::new("db-0", spec(network, ip));
        port.metadata.namespace = Some("shop".to_owned());
        port
    };
    let ports = [port(1, "10.0.0.1"), port(2, "192.168.0.1")];
    let pod = PodRef::new("shop", "db-0");
    for (network, ip) in [(1, "10.0.0.1"), (2, "192.168.0.1")] {
        let homes = Homes::of(network.try_into().unwrap(), &ports);
        assert_eq!(homes.addresses(&pod), [ip.parse::<IpAddr>().unwrap()]);
    }
    assert!(Homes::of(3.try_into().unwrap(), &ports).addresses(&pod).is_empty());
}

#[test]
fn a_name_outside_every_zone_is_for_others() {
    let set = ZoneSet::new(settings());
    assert_eq!(find(&set, "example.com", Kind::A), format!("{:?}", Found::Outside));
    assert_ne!(find(&set, "example.cluster.local", Kind::A), format!("{:?}", Found::Outside));
}
