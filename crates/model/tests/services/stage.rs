//! A node with networks, pods, services and slices, in the words of their manifests.

use std::collections::BTreeMap;

use atoll_model::compile::{
    EndpointGroup, Followed, PlacedPort, ServiceBook, ServiceFront, ServiceName,
};
use atoll_model::outside::{Held, Purpose};
use atoll_plan::{Service, ServiceKey, Side};
use atoll_types::{MacAddr, NetworkId, PodRef, Protocol};
use serde_json::{Value, json};

/// What is seen of the API, one object at a time.
#[derive(Clone, Debug)]
pub(crate) enum News {
    Port(&'static str, &'static str, Option<&'static str>, &'static str),
    NoPort(&'static str, &'static str),
    Service(&'static str, &'static str, Value),
    NoService(&'static str, &'static str),
    Slice(&'static str, &'static str, Value),
    NoSlice(&'static str, &'static str),
    Held(&'static str, &'static str, &'static str),
    NotHeld(&'static str, &'static str),
}

pub(crate) fn id(number: u32) -> NetworkId {
    number.try_into().unwrap()
}

/// A book for `node1` in zone `a`, with two tenants' networks of their own, and two that share a
/// number.
pub(crate) fn book() -> ServiceBook {
    let mut book = ServiceBook::new("node1");
    book.set_zone(Some("a".into()));
    let networks = [
        ("acme.default", here(1)),
        ("globex.default", here(2)),
        ("acme.open", Followed { is_shared: true, ..here(3) }),
        ("globex.open", Followed { is_shared: true, ..here(3) }),
    ];
    book.follow(&BTreeMap::from(networks.map(|(name, it)| (name.to_owned(), it))));
    book
}

/// A network of one tenant that has pods on this node.
pub(crate) fn here(number: u32) -> Followed {
    Followed { id: id(number), is_here: true, is_guest: false, is_shared: false }
}

/// A network that has no pod here, and that the outside reaches by this node.
pub(crate) fn guest(number: u32) -> Followed {
    Followed { is_here: false, is_guest: true, ..here(number) }
}

pub(crate) fn number_of(network: &str) -> u32 {
    match network {
        "acme.default" => 1,
        "globex.default" => 2,
        "acme.front" => 4,
        "acme.back" => 5,
        "globex.back" => 6,
        _ => 3,
    }
}

/// The port of pod `shop/<pod>` at these addresses, with commas between.
pub(crate) fn port(network: &str, pod: &str, node: Option<&str>, ips: &str) -> PlacedPort {
    let ips: Vec<std::net::IpAddr> = ips.split(',').map(|ip| ip.parse().unwrap()).collect();
    PlacedPort {
        network: id(number_of(network)),
        network_name: network.into(),
        mac: MacAddr::for_ip(ips[0]),
        ips,
        pod: PodRef::new("shop", pod),
        pod_uid: format!("uid-of-{pod}"),
        interface: "eth0".into(),
        device: atoll_plan::Device::Veth,
        node: node.map(Into::into),
        others: [].into(),
        routes: [].into(),
    }
}

pub(crate) fn tell(book: &mut ServiceBook, news: &News) {
    let key = |name: &str| ("shop".to_owned(), name.to_owned());
    match news {
        News::Port(network, pod, node, ips) => {
            let port = port(network, pod, *node, ips);
            book.put_port(network, &key(pod), Some(&port));
        }
        News::NoPort(network, pod) => book.put_port(network, &key(pod), None),
        News::Service(network, name, spec) => {
            let metadata =
                json!({"name": name, "annotations": spec["annotations"], "labels": spec["labels"]});
            let object = json!({"metadata": metadata, "spec": spec});
            let front = ServiceFront::read(&serde_json::from_value(object).unwrap()).unwrap();
            book.put_service(network, &key(name), Some(front));
        }
        News::NoService(network, name) => book.put_service(network, &key(name), None),
        News::Slice(network, name, slice) => {
            book.put_slice(network, &key(name), group(slice));
        }
        News::NoSlice(network, name) => book.put_slice(network, &key(name), None),
        News::Held(network, ip, name) => {
            book.put_held(network, ip, Some(&held(network, ip, name)));
        }
        News::NotHeld(network, ip) => book.put_held(network, ip, None),
    }
}

/// The address of the outside that service `shop/<name>` of a network has.
pub(crate) fn held(network: &str, ip: &str, name: &str) -> Held {
    let service =
        ServiceName { network: network.into(), namespace: "shop".into(), name: name.into() };
    let purpose = Purpose::LoadBalancer { service };
    Held { address: ip.parse().unwrap(), node: "node2".into(), purpose }
}

fn group(slice: &Value) -> Option<EndpointGroup> {
    let mut object = slice.clone();
    let mut labels = json!({"kubernetes.io/service-name": slice["service"]});
    if let Some(more) = slice["labels"].as_object() {
        labels.as_object_mut().unwrap().extend(more.clone());
    }
    object["metadata"] = json!({"namespace": "shop", "labels": labels});
    if slice["addressType"].is_null() {
        object["addressType"] = json!("IPv4");
    }
    EndpointGroup::read(&serde_json::from_value(object).unwrap())
}

/// A service at 10.96.0.9 with one TCP port.
pub(crate) fn web() -> Value {
    json!({"clusterIPs": ["10.96.0.9"], "ports": [{"port": 80}]})
}

/// A slice of `web` with these pods, all listening on 8080.
pub(crate) fn pods(names: &[&str]) -> Value {
    let endpoint = |name: &&str| json!({"addresses": ["10.0.0.99"], "targetRef": {"kind": "Pod", "name": name}});
    let endpoints: Vec<_> = names.iter().map(endpoint).collect();
    json!({"service": "web", "ports": [{"port": 8080}], "endpoints": endpoints})
}

/// A slice of `web` that somebody wrote by hand.
pub(crate) fn by_hand(addresses: &[&str]) -> Value {
    let endpoints: Vec<_> = addresses.iter().map(|ip| json!({"addresses": [ip]})).collect();
    json!({"service": "web", "ports": [{"port": 8080}], "endpoints": endpoints})
}

pub(crate) fn key(network: u32, ip: &str, protocol: Protocol, port: u16) -> ServiceKey {
    ServiceKey {
        network: id(network),
        ip: ip.parse().unwrap(),
        protocol,
        port: port.try_into().unwrap(),
        side: Side::Clients,
    }
}

pub(crate) fn tcp(network: u32, ip: &str, port: u16) -> ServiceKey {
    key(network, ip, Protocol::Tcp, port)
}

/// A port that the outside reaches.
pub(crate) fn outside(network: u32, ip: &str, port: u16) -> ServiceKey {
    ServiceKey { side: Side::Outside, ..tcp(network, ip, port) }
}

/// Where a service leads, as text; none where the address is nobody's.
pub(crate) fn leads(book: &ServiceBook, key: &ServiceKey) -> Option<Vec<String>> {
    let text = |service: &Service| {
        let backends = service.backends.iter();
        backends.map(|backend| format!("{}:{}", backend.addr, backend.port)).collect()
    };
    book.served().get(key).map(text)
}

/// All that people have not been told yet.
pub(crate) fn complaints(book: &mut ServiceBook) -> Vec<String> {
    let untold = book.take_untold(|_| true).into_iter();
    untold.map(|(who, complaint)| format!("{}: {complaint}", who.name)).collect()
}
