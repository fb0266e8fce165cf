//! Services that answer at the resolvers of their network.

use atoll_model::compile::{ResolverFront, ServiceBook};
use atoll_types::Protocol;
use serde_json::{Value, json};

use crate::stage::{News, book, key, leads, tell};

const ACME: &str = "acme.default";
const GLOBEX: &str = "globex.default";

fn dns() -> Value {
    json!({"clusterIPs": ["10.96.0.50"], "ports": [{"port": 53, "protocol": "UDP"}]})
}

fn slice(pods: &[&str]) -> Value {
    let endpoint = |name: &&str| json!({"addresses": ["10.0.0.99"], "targetRef": {"kind": "Pod", "name": name}});
    let endpoints: Vec<_> = pods.iter().map(endpoint).collect();
    let ports = json!([{"port": 5353, "protocol": "UDP"}]);
    json!({"service": "dns", "ports": ports, "endpoints": endpoints})
}

fn resolver(falls_back: bool) -> ResolverFront {
    let addresses = ["10.96.0.10", "198.18.0.10"].map(|ip| ip.parse().unwrap());
    ResolverFront {
        service: ("shop".into(), "dns".into()),
        addresses: addresses.into(),
        falls_back,
    }
}

fn with_a_pod() -> ServiceBook {
    let mut book = book();
    for news in [
        News::Port(ACME, "dns-0", Some("node1"), "10.0.0.5"),
        News::Service(ACME, "dns", dns()),
        News::Slice(ACME, "dns-1", slice(&["dns-0"])),
        News::Service(GLOBEX, "dns", dns()),
    ] {
        tell(&mut book, &news);
    }
    book
}

fn at(book: &ServiceBook, network: u32, ip: &str) -> Option<Vec<String>> {
    leads(book, &key(network, ip, Protocol::Udp, 53))
}

#[test]
fn the_resolvers_of_a_network_lead_to_its_dns_and_those_of_another_do_not() {
    let mut book = with_a_pod();
    assert!(!book.leads_resolvers(ACME));
    book.lead_resolvers(ACME, Some(resolver(false)));
    assert!(book.leads_resolvers(ACME) && !book.leads_resolvers(GLOBEX));
    for ip in ["10.96.0.10", "198.18.0.10", "10.96.0.50"] {
        assert_eq!(at(&book, 1, ip), Some(vec!["1/10.0.0.5:5353".into()]), "{ip}");
    }
    assert_eq!(at(&book, 2, "10.96.0.10"), None);
    book.lead_resolvers(ACME, None);
    assert_eq!(at(&book, 1, "10.96.0.10"), None);
    assert!(at(&book, 1, "10.96.0.50").is_some(), "its own address stays");
}

#[test]
fn dns_that_nobody_is_behind_gives_way_where_somebody_else_answers_and_refuses_where_not() {
    let mut book = with_a_pod();
    for (falls_back, without) in [(true, None), (false, Some(vec![]))] {
        book.lead_resolvers(ACME, Some(resolver(falls_back)));
        assert!(book.leads_resolvers(ACME));
        tell(&mut book, &News::Slice(ACME, "dns-1", slice(&[])));
        assert_eq!(at(&book, 1, "10.96.0.10"), without);
        assert_eq!(book.leads_resolvers(ACME), without.is_some());
        assert_eq!(at(&book, 1, "10.96.0.50"), Some(vec![]), "its own address is its own");
        tell(&mut book, &News::Slice(ACME, "dns-1", slice(&["dns-0"])));
        assert!(book.leads_resolvers(ACME));
    }
}
