//! The services of namespaces of no tenant: who takes the connections of plain pods.

use std::collections::BTreeSet;

use atoll_model::compile::{PlainBook, PlainGroup, ServiceFront};
use serde_json::{Value, json};

fn key(name: &str) -> (String, String) {
    ("infra".to_owned(), name.to_owned())
}

/// The book of `node1` in zone `a` with a service `web` at 10.96.0.9:80, and what else it says.
fn book(more: &Value) -> PlainBook {
    let mut spec = json!({"clusterIPs": ["10.96.0.9"], "ports": [{"port": 80}]});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let mut book = PlainBook::new("node1", Some("a".to_owned()));
    book.put_service(&key("web"), Some(front(&spec)));
    book
}

fn front(spec: &Value) -> ServiceFront {
    let service = json!({"metadata": {"name": "web", "namespace": "infra"}, "spec": spec});
    ServiceFront::read(&serde_json::from_value(service).unwrap()).unwrap()
}

fn group(kind: &str, ports: &Value, endpoints: &Value) -> Option<PlainGroup> {
    let slice = json!({
        "metadata": {"namespace": "infra", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": kind, "ports": ports, "endpoints": endpoints,
    });
    PlainGroup::read(&serde_json::from_value(slice).unwrap())
}

fn web(endpoints: &Value) -> Option<PlainGroup> {
    group("IPv4", &json!([{"port": 8080}]), endpoints)
}

/// Those who come to the node ports, as the keys of places say, in words.
fn entered(book: &PlainBook) -> Vec<(String, Vec<String>)> {
    let told = |(key, service): (&atoll_plan::ServiceKey, &atoll_plan::Service)| {
        let backends = service.backends.iter().map(|it| it.addr.ip.to_string()).collect();
        (format!("{:?} {}:{}", key.side, key.ip, key.port), backends)
    };
    book.served().iter().filter(|(key, _)| key.port.get() >= 30_000).map(told).collect()
}

/// Who takes the connections of each address and port, in words.
fn served(book: &PlainBook) -> Vec<(String, Vec<String>)> {
    let told = |(key, service): (&atoll_plan::ServiceKey, &atoll_plan::Service)| {
        let backends = service.backends.iter().map(|it| format!("{}:{}", it.addr.ip, it.port));
        (format!("{}:{} {}", key.ip, key.port, key.protocol), backends.collect())
    };
    book.served().iter().map(told).collect()
}

fn only(book: &PlainBook) -> Vec<String> {
    let [(_, backends)] = &served(book)[..] else { panic!("one front: {:?}", served(book)) };
    backends.clone()
}

#[test]
fn connections_go_to_the_addresses_of_ready_endpoints_whoever_they_are() {
    let mut book = book(&json!({}));
    let pod = json!({"kind": "Pod", "name": "web-0"});
    let endpoints = json!([
        {"addresses": ["10.244.1.2"], "targetRef": pod},
        {"addresses": ["192.0.2.10"]},
        {"addresses": ["10.244.2.9"], "conditions": {"ready": false}},
    ]);
    book.put_slice(&key("web-1"), web(&endpoints));
    let wanted = vec!["10.244.1.2:8080".to_owned(), "192.0.2.10:8080".to_owned()];
    assert_eq!(served(&book), [("10.96.0.9:80 TCP".to_owned(), wanted)]);
}

#[test]
fn a_service_without_endpoints_is_there_and_has_nobody() {
    let mut book = book(&json!({}));
    assert_eq!(only(&book), Vec::<String>::new());
    book.put_slice(&key("web-1"), web(&json!([{"addresses": ["10.244.1.2"]}])));
    assert_eq!(only(&book), ["10.244.1.2:8080"]);
    book.put_slice(&key("web-1"), None);
    assert_eq!(only(&book), Vec::<String>::new());
}

#[test]
fn an_address_of_the_clients_own_node_or_link_is_nobodys() {
    let mut book = book(&json!({}));
    let near = ["127.0.0.1", "169.254.1.2", "0.0.0.0", "224.0.0.1"];
    let near: Vec<_> = near.iter().map(|ip| json!({"addresses": [ip]})).collect();
    book.put_slice(&key("web-1"), web(&json!(near)));
    assert_eq!(only(&book), Vec::<String>::new());
}

#[test]
fn each_port_leads_to_the_port_of_its_name_by_each_protocol() {
    let ports = json!([
        {"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53},
        {"name": "sctp", "port": 53, "protocol": "SCTP"},
    ]);
    let mut book = book(&json!({"ports": ports}));
    let ports = json!([
        {"name": "dns", "port": 5353, "protocol": "UDP"}, {"name": "dns-tcp", "port": 5354},
        {"name": "sctp", "port": 5355, "protocol": "SCTP"},
    ]);
    let group = group("IPv4", &ports, &json!([{"addresses": ["10.244.1.2"]}]));
    book.put_slice(&key("web-1"), group);
    let to = |port: u16| vec![format!("10.244.1.2:{port}")];
    let wanted = [("TCP", 5354), ("UDP", 5353), ("SCTP", 5355)];
    let wanted = wanted.map(|(protocol, port)| (format!("10.96.0.9:53 {protocol}"), to(port)));
    assert_eq!(served(&book), wanted);
}

#[test]
fn each_family_has_its_own_endpoints_and_external_addresses_are_not_served() {
    let both = json!({"clusterIPs": ["10.96.0.9", "fd96::9"], "externalIPs": ["203.0.113.9"]});
    let mut book = book(&both);
    let ports = json!([{"port": 8080}]);
    book.put_slice(&key("web-1"), web(&json!([{"addresses": ["10.244.1.2"]}])));
    let six = group("IPv6", &ports, &json!([{"addresses": ["fd00::2"]}]));
    book.put_slice(&key("web-2"), six);
    let wanted = [
        ("10.96.0.9:80 TCP".to_owned(), vec!["10.244.1.2:8080".to_owned()]),
        ("fd96::9:80 TCP".to_owned(), vec!["fd00::2:8080".to_owned()]),
    ];
    assert_eq!(served(&book), wanted);
}

#[test]
fn a_service_for_its_own_node_leads_nowhere_else_and_hints_count() {
    let endpoints = json!([
        {"addresses": ["10.244.1.2"], "nodeName": "node1", "hints": {"forZones": [{"name": "a"}]}},
        {"addresses": ["10.244.2.2"], "nodeName": "node2", "hints": {"forZones": [{"name": "a"}]}},
        {"addresses": ["10.244.3.2"], "nodeName": "node3", "hints": {"forZones": [{"name": "b"}]}},
    ]);
    let mut near = book(&json!({"internalTrafficPolicy": "Local"}));
    near.put_slice(&key("web-1"), web(&endpoints));
    assert_eq!(only(&near), ["10.244.1.2:8080"]);
    let mut zone = book(&json!({}));
    zone.put_slice(&key("web-1"), web(&endpoints));
    assert_eq!(only(&zone), ["10.244.1.2:8080", "10.244.2.2:8080"]);
}

/// Namespaces are watched apart: that somebody left a place may be seen after somebody else has it.
#[test]
fn a_place_that_went_to_another_service_is_its_own_in_whichever_order_that_is_seen() {
    let spec = json!({"clusterIPs": ["10.96.0.9"], "ports": [{"port": 80}]});
    let other = ("shop".to_owned(), "web".to_owned());
    let slice = ("shop".to_owned(), "web-1".to_owned());
    for goes_first in [true, false] {
        let mut book = book(&json!({}));
        book.put_slice(&key("web-1"), web(&json!([{"addresses": ["10.244.1.2"]}])));
        book.put_slice(&slice, web(&json!([{"addresses": ["10.244.1.3"]}])));
        if goes_first {
            book.put_service(&key("web"), None);
            assert_eq!(served(&book), []);
        }
        book.put_service(&other, Some(front(&spec)));
        assert_eq!(only(&book), ["10.244.1.3:8080"]);
        book.put_slice(&key("web-1"), web(&json!([{"addresses": ["10.244.1.4"]}])));
        book.take_touched();
        book.put_service(&key("web"), None);
        assert_eq!(only(&book), ["10.244.1.3:8080"], "{goes_first}");
        assert_eq!(book.take_touched().len(), usize::from(!goes_first), "{goes_first}");
        book.put_service(&other, None);
        assert_eq!(served(&book), []);
    }
}

#[test]
fn what_was_touched_is_told_once_and_what_did_not_change_is_not() {
    let mut book = book(&json!({}));
    let slice = || web(&json!([{"addresses": ["10.244.1.2"]}]));
    book.put_slice(&key("web-1"), slice());
    assert_eq!(book.take_touched().len(), 1);
    book.put_slice(&key("web-1"), slice());
    assert_eq!(book.take_touched(), BTreeSet::new());
    book.put_service(
        &key("web"),
        Some(front(&json!({"clusterIPs": ["10.96.0.8"], "ports": [{"port": 80}]}))),
    );
    assert_eq!(book.take_touched().len(), 2, "the old address and the new");
    assert_eq!(book.served().len(), 1);
}

#[test]
fn a_namespace_that_is_left_takes_its_services_and_slices_along() {
    let mut book = book(&json!({}));
    book.put_slice(&key("web-1"), web(&json!([{"addresses": ["10.244.1.2"]}])));
    let other = ("infra2".to_owned(), "db".to_owned());
    book.put_service(
        &other,
        Some(front(&json!({"clusterIPs": ["10.96.0.7"], "ports": [{"port": 80}]}))),
    );
    book.leave("infra");
    assert_eq!(served(&book), [("10.96.0.7:80 TCP".to_owned(), vec![])]);
    assert!(book.slices_of("infra").is_empty());
}

/// A book of a node with these addresses, and a service with a node port whose endpoints are on two nodes.
fn book_of_node(outside: &[&str], more: &Value) -> PlainBook {
    let ports = json!([{"port": 80, "nodePort": 30080}]);
    let mut spec = json!({"type": "NodePort", "clusterIPs": ["10.96.0.9"], "ports": ports});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let outside = outside.iter().map(|ip| ip.parse().unwrap()).collect();
    let mut book = PlainBook::new("node1", None);
    book.enter_at(outside);
    book.put_service(&key("web"), Some(front(&spec)));
    book.put_slice(
        &key("web-1"),
        web(&json!([
            {"addresses": ["10.244.1.2"], "nodeName": "node1"},
            {"addresses": ["10.244.2.2"], "nodeName": "node2"},
        ])),
    );
    book
}

fn all_of(ips: &[&str]) -> Vec<String> {
    ips.iter().map(|&ip| ip.to_owned()).collect()
}

#[test]
fn a_node_port_is_at_the_nodes_addresses_of_the_services_families_and_at_its_loopbacks() {
    let both = all_of(&["10.244.1.2", "10.244.2.2"]);
    let wanted = |places: &[&str]| {
        places.iter().map(|&place| (place.to_owned(), both.clone())).collect::<BTreeSet<_>>()
    };
    let seen = |outside: &[&str]| {
        let book = book_of_node(outside, &json!({}));
        entered(&book).into_iter().collect::<BTreeSet<_>>()
    };
    let places = ["Clients 127.0.0.1:30080", "Clients 192.0.2.1:30080", "Outside 192.0.2.1:30080"];
    assert_eq!(seen(&["192.0.2.1", "2001:db8::1"]), wanted(&places));
    assert_eq!(seen(&[]), wanted(&[]), "a node that nobody comes in by has none");
    let cluster = served(&book_of_node(&["192.0.2.1"], &json!({})));
    assert!(cluster.iter().any(|(place, _)| place == "10.96.0.9:80 TCP"), "{cluster:?}");
}

#[test]
fn who_comes_from_outside_to_a_local_service_meets_pods_of_the_node_and_who_is_here_all() {
    let local = json!({"externalTrafficPolicy": "Local", "internalTrafficPolicy": "Local"});
    let seen: std::collections::BTreeMap<_, _> =
        entered(&book_of_node(&["192.0.2.1"], &local)).into_iter().collect();
    assert_eq!(seen["Outside 192.0.2.1:30080"], ["10.244.1.2"]);
    for here in ["Clients 192.0.2.1:30080", "Clients 127.0.0.1:30080"] {
        assert_eq!(seen[here], ["10.244.1.2", "10.244.2.2"]);
    }
    let elsewhere = book_of_node(&["192.0.2.1"], &json!({"externalTrafficPolicy": "Cluster"}));
    let seen: std::collections::BTreeMap<_, _> = entered(&elsewhere).into_iter().collect();
    assert_eq!(seen["Outside 192.0.2.1:30080"], ["10.244.1.2", "10.244.2.2"]);
}

#[test]
fn a_plain_service_or_slice_that_is_left_to_others_is_led_nowhere() {
    for label in ["service.kubernetes.io/service-proxy-name", "service.kubernetes.io/headless"] {
        let labels = json!({"kubernetes.io/service-name": "web", label: "other"});
        let service = json!({"metadata": {"name": "web", "namespace": "infra", "labels": labels},
            "spec": {"clusterIPs": ["10.96.0.9"], "ports": [{"port": 80}]}});
        let front = ServiceFront::read(&serde_json::from_value(service).unwrap()).unwrap();
        let mut left = book(&json!({}));
        assert_eq!(served(&left).len(), 1);
        left.put_service(&key("web"), Some(front));
        assert!(served(&left).is_empty(), "{label}");
        let slice = json!({"metadata": {"namespace": "infra", "labels": labels},
            "addressType": "IPv4", "ports": [{"port": 8080}],
            "endpoints": [{"addresses": ["10.244.1.2"]}]});
        assert_eq!(PlainGroup::read(&serde_json::from_value(slice).unwrap()), None, "{label}");
    }
}
