//! Services of networks, as they are listed piece by piece.

use atoll_model::compile::{EndpointGroup, PlacedPort, ServiceFront};
use atoll_model::outside::{Held, Purpose};
use atoll_plan::Side;
use atoll_types::{MacAddr, PodRef};
use serde_json::json;

use super::*;
use crate::seen::{Change, Delta};

fn id() -> NetworkId {
    1.try_into().unwrap()
}

fn scope(namespaces: &[&str]) -> Scope {
    let namespaces = namespaces.iter().map(|&name| name.to_owned()).collect();
    let presence = Presence { id: id(), namespaces };
    let networks = [("acme.default".to_owned(), presence)].into();
    Scope { networks, is_whole: true, ..Scope::default() }
}

fn quarter(namespace: &str) -> (String, String) {
    ("acme.default".into(), namespace.into())
}

fn front() -> ServiceFront {
    let spec = json!({"clusterIPs": ["10.96.0.9"], "ports": [{"port": 80}]});
    let service = json!({"metadata": {"uid": "u"}, "spec": spec});
    ServiceFront::read(&serde_json::from_value(service).unwrap()).unwrap()
}

fn group(ip: &str) -> EndpointGroup {
    let labels = json!({"kubernetes.io/service-name": "web"});
    let slice = json!({
        "metadata": {"namespace": "shop", "labels": labels}, "addressType": "IPv4",
        "endpoints": [{"addresses": [ip]}], "ports": [{"port": 8080}],
    });
    EndpointGroup::read(&serde_json::from_value(slice).unwrap()).unwrap()
}

fn port() -> PlacedPort {
    let ip = [10, 0, 0, 5].into();
    PlacedPort {
        network: id(),
        network_name: "acme.default".into(),
        ips: vec![ip],
        mac: MacAddr::for_ip(ip),
        pod: PodRef::new("shop", "web-0"),
        pod_uid: "uid".into(),
        interface: "eth0".into(),
        device: atoll_plan::Device::Veth,
        node: Some("node1".into()),
        others: [].into(),
        routes: [].into(),
    }
}

fn held() -> Held {
    let (namespace, name) = ("shop".to_owned(), "web".to_owned());
    let service = ServiceName { network: "acme.default".into(), namespace, name };
    let address = [192, 0, 2, 5].into();
    Held { address, node: "node2".into(), purpose: Purpose::LoadBalancer { service } }
}

fn all<V>(name: &str, value: V) -> Delta<String, V> {
    Delta::All([(name.to_owned(), value)].into())
}

/// All that must be listed before services are programmed, in any order.
fn lists() -> [Change; 4] {
    let ports = [(("shop".to_owned(), "web-0".to_owned()), port())];
    [
        Change::NetworkPorts(id(), Delta::All(ports.into())),
        Change::Fronts(quarter("shop"), all("web", front())),
        Change::Groups(quarter("shop"), all("web-1", group("10.0.0.5"))),
        Change::Held("acme.default".into(), all("outside.192.0.2.5", held())),
    ]
}

fn followed() -> Services {
    let mut services = Services::new("node1", Resolver::default());
    services.follow(&scope(&["shop"]), &Seen::default());
    services
}

#[test]
fn services_are_programmed_once_everything_of_their_network_was_listed() {
    for missing in 0..4 {
        let mut services = followed();
        let mut last = None;
        for (at, change) in lists().into_iter().enumerate() {
            if at == missing {
                last = Some(change);
            } else {
                services.absorb(&change);
            }
        }
        assert_eq!(services.due(), [], "list {missing} is still to come");
        let kept = lists_done();
        let observed = kept.served().clone();
        assert_eq!(services.lend(&observed).0, observed, "the kernel keeps what it has");
        services.absorb(&last.unwrap());
        assert_eq!(services.due().len(), 3, "at the cluster's address, and twice at the outside's");
        assert!(services.served().values().all(|service| service.backends.len() == 1));
    }
}

fn lists_done() -> Services {
    let mut services = followed();
    lists().iter().for_each(|change| services.absorb(change));
    services
}

/// Beside the network that is here, one of its tenant that is not.
fn scope_with_kin(unlisted: &[&str]) -> Scope {
    let kin = Presence { id: 2.try_into().unwrap(), namespaces: ["store".to_owned()].into() };
    Scope {
        kin: [("acme.back".to_owned(), kin)].into(),
        own: ["acme.default".to_owned(), "acme.back".to_owned()].into(),
        unlisted: unlisted.iter().map(|tenant| tenant.parse().unwrap()).collect(),
        ..scope(&["shop"])
    }
}

#[test]
fn services_wait_for_the_other_networks_of_their_tenant_and_for_no_other_tenants() {
    let mut services = lists_done();
    services.follow(&scope_with_kin(&["globex"]), &Seen::default());
    assert_eq!(services.due(), [], "another network of the tenant was not listed");
    let store = ("acme.back".to_owned(), "store".to_owned());
    services.absorb(&Change::NetworkPorts(2.try_into().unwrap(), Delta::All([].into())));
    services.absorb(&Change::Fronts(store.clone(), Delta::All([].into())));
    assert_eq!(services.due(), []);
    services.absorb(&Change::Groups(store, Delta::All([].into())));
    assert_eq!(services.due().len(), 3, "nobody waits for what is held by a network elsewhere");
    services.follow(&scope_with_kin(&["acme"]), &Seen::default());
    let observed = services.served().clone();
    services.absorb(&Change::Fronts(quarter("shop"), Delta::Gone("web".into())));
    assert_eq!(services.lend(&observed).0, observed, "there may be networks to come");
}

#[test]
fn an_address_of_the_outside_is_served_on_both_sides_for_as_long_as_it_is_claimed() {
    let mut services = lists_done();
    assert_eq!(services.served().len(), 3);
    services.absorb(&Change::Held("globex.default".into(), all("outside.192.0.2.6", held())));
    assert_eq!(services.served().len(), 3, "of a network that is not here");
    let gone = Delta::Gone("outside.192.0.2.5".to_owned());
    services.absorb(&Change::Held("acme.default".into(), gone));
    assert_eq!(services.served().len(), 1);
}

#[test]
fn of_a_network_that_is_a_guest_here_only_the_outside_is_served() {
    let mut services = lists_done();
    let Scope { networks, is_whole, .. } = scope(&["shop"]);
    let guest = Scope { guests: networks, is_whole, ..Scope::default() };
    services.follow(&guest, &Seen::default());
    let sides: Vec<Side> = services.served().keys().map(|key| key.side).collect();
    assert_eq!(sides, [Side::Outside]);
    services.follow(&scope(&["shop"]), &Seen::default());
    assert_eq!(services.served().len(), 3, "its first pod came");
}

#[test]
fn what_was_lent_comes_back() {
    let mut services = lists_done();
    let before = services.served().clone();
    let (plan, lent) = services.lend(&BTreeMap::new());
    assert_eq!(plan, before);
    services.give_back(plan, &lent);
    assert_eq!(*services.served(), before);
}

#[test]
fn a_namespace_that_leaves_takes_its_services_along() {
    let mut services = lists_done();
    assert_eq!(services.due().len(), 3);
    services.follow(&scope(&[]), &Seen::default());
    assert_eq!(services.due().len(), 3);
    assert!(services.served().is_empty());
    lists().iter().for_each(|change| services.absorb(change));
    assert!(services.served().is_empty(), "late words of an earlier watch");
}

#[test]
fn people_are_told_once_everything_was_listed() {
    let mut services = followed();
    let [ports, fronts, _, held] = lists();
    services.absorb(&fronts);
    services.absorb(&held);
    let stranger = all("web-1", group("10.0.0.77"));
    services.absorb(&Change::Groups(quarter("shop"), stranger));
    assert_eq!(services.untold().len(), 0, "the ports may still come");
    services.absorb(&ports);
    let untold = services.untold();
    let [(who, uid, complaint)] = &untold[..] else { panic!("{untold:?}") };
    assert_eq!((who.name.as_str(), uid.as_str()), ("web", "u"));
    assert_eq!(*complaint, ServiceComplaint::ForeignEndpoint([10, 0, 0, 77].into()));
    assert_eq!(services.untold().len(), 0);
}
