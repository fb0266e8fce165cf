//! What a change costs, counted and not timed.

use std::net::{IpAddr, Ipv4Addr};

use atoll_types::{Label, PodRef};

use crate::{
    Backing, DomainName, Endpoint, Fact, Home, NamedPort, Protocol, Service, ServiceKey, Settings,
    Slice, View, ZoneSet,
};

fn label(text: &str) -> Label {
    text.parse().unwrap()
}

fn ip(n: u32) -> IpAddr {
    Ipv4Addr::from_bits(0x0a00_0000 + n).into()
}

fn key(n: u32) -> ServiceKey {
    ServiceKey { namespace: label(&format!("n{}", n % 100)), name: label(&format!("s{n}")) }
}

fn service(n: u32, backing: Backing) -> Fact {
    Fact::Service(key(n), Some(Service { key: key(n), backing }))
}

fn vip(n: u32, address: u32) -> Fact {
    service(n, Backing::Vip { addresses: vec![ip(address)], ports: vec![] })
}

/// The one endpoint of a headless service, which is a pod.
fn slice(n: u32, ready: bool) -> Fact {
    let pod = Some(pod(n));
    let endpoint = Endpoint { addresses: vec![ip(n)], ready, hostname: None, pod };
    let port = NamedPort { name: label("http"), protocol: Protocol::Tcp, port: 80 };
    let slice = Slice { service: key(n), v4: true, ports: vec![port], endpoints: vec![endpoint] };
    Fact::Slice((format!("n{}", n % 100), format!("s{n}-1")), Some(slice))
}

fn pod(n: u32) -> PodRef {
    PodRef::new(format!("n{}", n % 100), format!("p{n}"))
}

fn home(n: u32, address: u32) -> Fact {
    let home = Home { pod: pod(n), ips: vec![ip(address)] };
    Fact::Home((format!("n{}", n % 100), format!("p{n}-eth0")), Some(home))
}

/// So many services, each other one headless with a pod behind it.
fn view(services: u32) -> View {
    let zone = DomainName::parse("cluster.local").unwrap();
    let mut view = View::new(Settings { zone, cidrs: vec![], resolver: vec![], ttl: 5 });
    for n in 0..services {
        if n % 2 == 0 {
            view.learn(vip(n, n));
        } else {
            view.learn(home(n, n));
            view.learn(slice(n, true));
            view.learn(service(n, Backing::Headless { all: false }));
        }
    }
    view
}

/// What one change copies of the names.
fn copied(view: &mut View, change: Fact) -> usize {
    let before: ZoneSet = view.zones().clone();
    view.learn(change);
    view.zones().branches_beside(&before)
}

#[test]
fn a_change_copies_as_much_among_ten_names_as_among_thousands() {
    for services in [10, 20_000] {
        let mut view = view(services);
        let mut tried = |what: &str, change: &dyn Fn(u32) -> Fact| {
            let all = (0..200).map(|n| copied(&mut view, change(n * 7_919 * 2 % services)));
            let all: usize = all.sum();
            assert!((1..=200 * 20).contains(&all), "200 times {what} among {services}: {all}");
        };
        tried("another address of a service", &|n| vip(n, 0x8_0000 + n));
        tried("an endpoint that is not ready", &|n| slice(n + 1, false));
        tried("an endpoint that is ready again", &|n| slice(n + 1, true));
        tried("a pod that moved", &|n| home(n + 1, 0x9_0000 + n));
        tried("a service that goes", &|n| Fact::Service(key(n), None));
        tried("a service that comes", &|n| vip(n, n));
    }
}

#[test]
fn the_objects_of_a_namespace_are_found_without_those_of_others() {
    let view = view(1_000);
    let services: Vec<_> = view.services_in("n7").cloned().collect();
    assert_eq!(services.len(), 10);
    assert!(services.iter().all(|key| key.namespace.as_str() == "n7"));
    let slices: Vec<_> = view.slices_in("n7").cloned().collect();
    assert_eq!(slices.len(), 10, "{slices:?}");
    assert!(slices.iter().all(|key| key.0 == "n7"));
    assert_eq!(view.services_in("n1000").count() + view.slices_in("n1000").count(), 0);
    assert_eq!(view.services_in("No Label").count(), 0);
}
