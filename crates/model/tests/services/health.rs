//! How many of a node are ready behind a service, as the outside is told.

use std::collections::BTreeMap;

use atoll_model::compile::{PlainBook, PlainGroup, ServiceBook, ServiceFront, ServiceName};
use serde_json::{Value, json};

use crate::stage::{News, book, by_hand, pods, tell, web};

const ACME: &str = "acme.default";
const GLOBEX: &str = "globex.default";

fn shop_web(network: &str) -> ServiceName {
    ServiceName { network: network.into(), namespace: "shop".into(), name: "web".into() }
}

/// `web` of acme with one pod here, one elsewhere, and this slice.
fn told(slice: Value) -> ServiceBook {
    let mut book = book();
    let mut spec = web();
    spec["type"] = json!("LoadBalancer");
    spec["externalTrafficPolicy"] = json!("Local");
    spec["clusterIPs"] = json!(["10.96.0.9", "fd96::9"]);
    spec["ports"] = json!([{"port": 80, "nodePort": 30_080}]);
    let news = [
        News::Port(ACME, "web-0", Some("node1"), "10.0.0.5,fd00::5"),
        News::Port(ACME, "web-1", Some("node2"), "10.0.0.6"),
        News::Port(GLOBEX, "web-0", Some("node1"), "10.0.0.6"),
        News::Service(ACME, "web", spec),
        News::Slice(ACME, "web-1", slice),
    ];
    news.iter().for_each(|it| tell(&mut book, it));
    book
}

#[test]
fn pods_of_this_node_count_once_for_both_families_and_those_of_others_do_not() {
    let mut book = told(pods(&["web-0", "web-1"]));
    assert_eq!(book.ready_here(&shop_web(ACME)), 1);
    let mut of_ipv6 = pods(&["web-0"]);
    of_ipv6["addressType"] = json!("IPv6");
    tell(&mut book, &News::Slice(ACME, "web-2", of_ipv6));
    assert_eq!(book.ready_here(&shop_web(ACME)), 1);
    assert_eq!(book.ready_here(&shop_web(GLOBEX)), 0, "it has no such service");
    assert_eq!(told(pods(&["web-1"])).ready_here(&shop_web(ACME)), 0);
}

#[test]
fn who_is_not_ready_or_ends_is_not_counted() {
    for conditions in [json!({"ready": false}), json!({"ready": false, "terminating": true})] {
        let mut slice = pods(&["web-0"]);
        slice["endpoints"][0]["conditions"] = conditions;
        assert_eq!(told(slice).ready_here(&shop_web(ACME)), 0);
    }
}

#[test]
fn a_slice_by_hand_counts_pods_of_the_network_here_and_nobody_elses() {
    let mut slice = by_hand(&["10.0.0.6", "192.0.2.1"]);
    slice["endpoints"][0]["nodeName"] = json!("node1");
    assert_eq!(told(slice).ready_here(&shop_web(ACME)), 0, "wherever it says that they are");
    assert_eq!(told(by_hand(&["10.0.0.5"])).ready_here(&shop_web(ACME)), 1);
}

#[test]
fn a_service_is_led_once_what_the_outside_needs_of_it_is_there() {
    let book = told(pods(&["web-0"]));
    assert!(!book.is_led_from_outside(&shop_web(ACME), &BTreeMap::new()));
    assert!(book.is_led_from_outside(&shop_web(ACME), book.served()));
    let mut less = book.served().clone();
    less.retain(|key, _| !key.is_node_port());
    assert!(!book.is_led_from_outside(&shop_web(ACME), &less));
    assert!(book.is_led_from_outside(&shop_web(GLOBEX), &BTreeMap::new()), "nothing is needed");
}

#[test]
fn plain_pods_count_by_the_node_that_their_slices_name() {
    let mut book = PlainBook::new("node1", None);
    let spec = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local",
        "healthCheckNodePort": 30_900, "clusterIPs": ["10.96.0.9"], "ports": [{"port": 80}]});
    let service = json!({"metadata": {"name": "web", "uid": "uid-of-web"}, "spec": spec});
    let front = ServiceFront::read(&serde_json::from_value(service).unwrap()).unwrap();
    let web = ("infra".to_owned(), "web".to_owned());
    book.put_service(&web, Some(front));
    for (kind, ips) in [("IPv4", ["10.244.1.2", "10.244.2.2"]), ("IPv6", ["fd44::2", "fd44::3"])] {
        let slice = json!({
            "metadata": {"namespace": "infra", "labels": {"kubernetes.io/service-name": "web"}},
            "addressType": kind, "ports": [{"port": 8080}],
            "endpoints": [{"addresses": [ips[0]], "nodeName": "node1"},
                          {"addresses": [ips[1]], "nodeName": "node2"}]});
        let group = PlainGroup::read(&serde_json::from_value(slice).unwrap());
        book.put_slice(&("infra".to_owned(), kind.to_owned()), group);
    }
    let told: Vec<_> = book.health().collect();
    let [told] = told[..] else { panic!("one service is asked about: {told:?}") };
    assert_eq!((told.service, told.uid, told.port.get()), (&web, "uid-of-web", 30_900));
    assert_eq!(told.ready, 1);
}
