//! Services of a tenant with several networks: from where a VIP is seen, and to whom it leads.

use std::collections::BTreeMap;

use atoll_model::compile::{Followed, ServiceBook};
use atoll_plan::{ServiceKey, Side};
use serde_json::{Value, json};

use crate::stage::{News, by_hand, complaints, here, leads, pods, tcp, tell, web};

const FRONT: &str = "acme.front";
const BACK: &str = "acme.back";
const OTHER: &str = "globex.back";
const VIP: &str = "198.18.0.1";

/// The service `web` with a VIP.
fn with_vip() -> Value {
    let mut spec = web();
    spec["annotations"] = json!({"atoll.dev/vip": VIP});
    spec
}

/// A book for `node1` with two networks of acme and one of globex, some of which have pods here.
fn book(present: &[&str]) -> ServiceBook {
    let mut book = ServiceBook::new("node1");
    book.follow(&followed(present));
    book
}

fn followed(present: &[&str]) -> BTreeMap<String, Followed> {
    let networks = [(FRONT, 4), (BACK, 5), (OTHER, 6)];
    let followed = |(name, number): (&str, u32)| {
        (name.to_owned(), Followed { is_here: present.contains(&name), ..here(number) })
    };
    networks.map(followed).into()
}

/// The service of the back network, with pods there on both nodes.
fn back() -> [News; 4] {
    [
        News::Service(BACK, "web", with_vip()),
        News::Slice(BACK, "web-1", pods(&["web-0", "web-1"])),
        News::Port(BACK, "web-0", Some("node1"), "10.0.0.5"),
        News::Port(BACK, "web-1", Some("node2"), "10.0.0.6"),
    ]
}

/// A pod of the front network on another node.
fn client() -> News {
    News::Port(FRONT, "client", Some("node2"), "10.0.0.9")
}

fn told(present: &[&str], news: &[News]) -> ServiceBook {
    let mut book = book(present);
    news.iter().for_each(|it| tell(&mut book, it));
    book
}

fn texts(backends: &[&str]) -> Option<Vec<String>> {
    Some(backends.iter().map(|&it| it.to_owned()).collect())
}

fn taken(network: u32, ip: &str) -> ServiceKey {
    ServiceKey { side: Side::Backends, ..tcp(network, ip, 80) }
}

#[test]
fn a_vip_is_seen_from_every_network_of_its_tenant_and_from_no_other() {
    let book = told(&[FRONT, BACK, OTHER], &back());
    let all = texts(&["5/10.0.0.5:8080", "5/10.0.0.6:8080"]);
    assert_eq!(leads(&book, &tcp(5, VIP, 80)), all);
    assert_eq!(leads(&book, &tcp(4, VIP, 80)), all);
    assert_eq!(leads(&book, &tcp(6, VIP, 80)), None);
    assert_eq!(leads(&book, &tcp(5, "10.96.0.9", 80)), all);
    assert_eq!(leads(&book, &tcp(4, "10.96.0.9", 80)), None, "the core address stays at home");
}

#[test]
fn a_client_is_led_to_pods_of_its_own_vpc_first_and_then_to_others() {
    let mut book = told(&[FRONT, BACK], &back());
    tell(&mut book, &News::Port(FRONT, "web-1", Some("node2"), "10.0.0.6"));
    tell(&mut book, &News::NoPort(BACK, "web-1"));
    assert_eq!(leads(&book, &tcp(4, VIP, 80)), texts(&["4/10.0.0.6:8080"]));
    assert_eq!(leads(&book, &tcp(5, VIP, 80)), texts(&["5/10.0.0.5:8080"]));
    tell(&mut book, &News::NoPort(FRONT, "web-1"));
    assert_eq!(leads(&book, &tcp(4, VIP, 80)), texts(&["5/10.0.0.5:8080"]));
    tell(&mut book, &News::NoPort(BACK, "web-0"));
    assert_eq!(leads(&book, &tcp(4, VIP, 80)), texts(&[]), "and refused where nobody is left");
}

#[test]
fn a_pod_of_the_same_name_of_another_tenant_is_no_backend() {
    let mut book = told(&[FRONT, BACK, OTHER], &back()[..2]);
    tell(&mut book, &News::Port(OTHER, "web-0", Some("node1"), "10.0.0.5"));
    assert_eq!(leads(&book, &tcp(4, VIP, 80)), texts(&[]));
    assert_eq!(leads(&book, &taken(4, VIP)), None);
    tell(&mut book, &News::Port(BACK, "web-0", Some("node1"), "10.0.0.5"));
    assert_eq!(leads(&book, &tcp(4, VIP, 80)), texts(&["5/10.0.0.5:8080"]));
}

#[test]
fn an_address_by_hand_is_one_of_the_services_own_network() {
    let slice = News::Slice(BACK, "web-1", by_hand(&["10.0.0.5"]));
    let mut book = told(&[FRONT, BACK], &[News::Service(BACK, "web", with_vip()), slice]);
    tell(&mut book, &News::Port(FRONT, "web-0", Some("node1"), "10.0.0.5"));
    assert_eq!(leads(&book, &tcp(4, VIP, 80)), texts(&[]), "not who has it in the client's");
    assert_eq!(complaints(&mut book).len(), 1);
    tell(&mut book, &News::Port(BACK, "web-0", Some("node1"), "10.0.0.5"));
    assert_eq!(leads(&book, &tcp(4, VIP, 80)), texts(&["5/10.0.0.5:8080"]));
}

#[test]
fn what_other_nodes_send_is_taken_by_pods_of_this_node_in_other_networks_alone() {
    let mut book = told(&[FRONT, BACK, OTHER], &back());
    tell(&mut book, &client());
    assert_eq!(leads(&book, &taken(4, VIP)), texts(&["5/10.0.0.5:8080"]));
    assert_eq!(leads(&book, &taken(5, VIP)), None, "its own network's clients come straight");
    assert_eq!(leads(&book, &taken(6, VIP)), None);
    tell(&mut book, &News::Port(FRONT, "web-1", Some("node1"), "10.0.0.7"));
    assert_eq!(leads(&book, &taken(5, VIP)), texts(&["4/10.0.0.7:8080"]));
    assert_eq!(leads(&book, &taken(5, "10.96.0.9")), texts(&["4/10.0.0.7:8080"]));
    tell(&mut book, &News::NoPort(BACK, "web-0"));
    assert_eq!(leads(&book, &taken(4, VIP)), None);
}

#[test]
fn a_node_serves_a_vip_to_the_networks_that_have_pods_on_it() {
    let mut book = told(&[FRONT], &back());
    tell(&mut book, &client());
    assert_eq!(leads(&book, &tcp(5, VIP, 80)), None, "nobody here could ask");
    assert!(leads(&book, &tcp(4, VIP, 80)).is_some());
    book.follow(&followed(&[BACK]));
    assert_eq!(leads(&book, &tcp(4, VIP, 80)), None);
    assert!(leads(&book, &tcp(5, VIP, 80)).is_some());
    assert!(leads(&book, &taken(4, VIP)).is_some(), "what other nodes send is taken still");
}

#[test]
fn a_vpc_counts_at_a_backends_node_while_it_has_a_pod_elsewhere_and_no_longer() {
    let mut book = told(&[BACK], &back());
    let alone = book.served().len();
    assert_eq!(leads(&book, &taken(4, VIP)), None, "nobody is there who could ask");
    tell(&mut book, &News::Port(FRONT, "client", Some("node1"), "10.0.0.9"));
    assert_eq!(leads(&book, &taken(4, VIP)), None, "who is here asks here");
    for node in [None, Some("node2")] {
        tell(&mut book, &News::Port(FRONT, "client", node, "10.0.0.9"));
        assert_eq!(leads(&book, &taken(4, VIP)), texts(&["5/10.0.0.5:8080"]), "{node:?}");
    }
    tell(&mut book, &News::NoPort(FRONT, "client"));
    assert_eq!(book.served().len(), alone);
}

#[test]
fn networks_without_pods_cost_a_backends_node_nothing() {
    let networks = |count: u32| {
        let empty = (0..count).map(|number| (format!("acme.n{number}"), 100 + number));
        let empty = empty.map(|(name, id)| (name, Followed { is_here: false, ..here(id) }));
        empty.chain([(BACK.to_owned(), here(5))]).collect::<BTreeMap<_, _>>()
    };
    let served_among = |count| {
        let mut book = ServiceBook::new("node1");
        book.follow(&networks(count));
        back().iter().for_each(|it| tell(&mut book, it));
        book.served().len()
    };
    assert_eq!(served_among(50), served_among(0));
}

#[test]
fn a_network_that_is_shared_with_other_tenants_takes_no_part() {
    for shared in [FRONT, BACK] {
        let mut book = ServiceBook::new("node1");
        let mut networks = followed(&[FRONT, BACK, OTHER]);
        networks.get_mut(shared).unwrap().is_shared = true;
        book.follow(&networks);
        back().iter().for_each(|it| tell(&mut book, it));
        assert_eq!(leads(&book, &tcp(4, VIP, 80)), None, "{shared}");
        assert_eq!(leads(&book, &taken(4, VIP)), None, "{shared}");
        assert!(leads(&book, &tcp(5, VIP, 80)).is_some());
    }
}

#[test]
fn networks_that_come_and_go_are_led_to_and_forgotten() {
    let mut book = ServiceBook::new("node1");
    let mut networks = followed(&[FRONT, BACK, OTHER]);
    let front = networks.remove(FRONT).unwrap();
    book.follow(&networks);
    back().iter().for_each(|it| tell(&mut book, it));
    assert_eq!(leads(&book, &tcp(4, VIP, 80)), None);
    networks.insert(FRONT.to_owned(), front);
    book.follow(&networks);
    assert!(leads(&book, &tcp(4, VIP, 80)).is_some());
    networks.remove(BACK);
    book.follow(&networks);
    assert_eq!(leads(&book, &tcp(4, VIP, 80)), None);
    assert_eq!(leads(&book, &taken(4, VIP)), None);
}

#[test]
fn an_address_of_the_networks_own_comes_before_one_of_another_network() {
    let mut own = with_vip();
    own["clusterIPs"] = json!(["10.96.0.10"]);
    let mut book = told(&[FRONT, BACK], &back());
    tell(&mut book, &News::Service(FRONT, "own", own));
    assert_eq!(leads(&book, &tcp(4, VIP, 80)), texts(&[]), "its own service, which has nobody");
    assert!(leads(&book, &tcp(5, VIP, 80)).is_some_and(|backends| !backends.is_empty()));
    tell(&mut book, &News::NoService(FRONT, "own"));
    assert!(leads(&book, &tcp(4, VIP, 80)).is_some_and(|backends| !backends.is_empty()));
    tell(&mut book, &News::Port(FRONT, "thief", Some("node1"), VIP));
    assert_eq!(leads(&book, &tcp(4, VIP, 80)), None, "an address that a pod has is no service's");
}

#[test]
fn two_networks_of_one_vpc_are_one_to_their_services() {
    let mut book = ServiceBook::new("node1");
    let networks = [(FRONT, here(4)), ("acme.side", Followed { is_here: false, ..here(4) })];
    book.follow(&networks.map(|(name, it)| (name.to_owned(), it)).into());
    tell(&mut book, &News::Service("acme.side", "web", with_vip()));
    tell(&mut book, &News::Slice("acme.side", "web-1", pods(&["web-0"])));
    tell(&mut book, &News::Port(FRONT, "web-0", Some("node1"), "10.0.0.5"));
    for ip in [VIP, "10.96.0.9"] {
        assert_eq!(leads(&book, &tcp(4, ip, 80)), texts(&["4/10.0.0.5:8080"]), "{ip}");
    }
    assert_eq!(leads(&book, &taken(4, VIP)), None);
}
