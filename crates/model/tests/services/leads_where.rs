//! Where a service leads, case by case.

use atoll_model::compile::ServiceBook;
use atoll_plan::ServiceKey;
use atoll_types::Protocol;
use serde_json::json;

use crate::stage::{
    News, book, by_hand, complaints, guest, held, here, key, leads, outside, pods, tcp, tell, web,
};

const ACME: &str = "acme.default";
const GLOBEX: &str = "globex.default";

fn told(news: &[News]) -> ServiceBook {
    let mut book = book();
    news.iter().for_each(|it| tell(&mut book, it));
    book
}

fn two_pods(network: &'static str) -> [News; 2] {
    [
        News::Port(network, "web-0", Some("node1"), "10.0.0.5"),
        News::Port(network, "web-1", Some("node2"), "10.0.0.6"),
    ]
}

#[test]
fn equal_services_of_two_tenants_lead_each_to_its_own_pods() {
    let mut news = vec![];
    for network in [ACME, GLOBEX] {
        news.extend(two_pods(network));
        news.push(News::Service(network, "web", web()));
        news.push(News::Slice(network, "web-1", pods(&["web-0", "web-1"])));
    }
    let mut book = told(&news);
    let own = |number| vec![format!("{number}/10.0.0.5:8080"), format!("{number}/10.0.0.6:8080")];
    assert_eq!(leads(&book, &tcp(1, "10.96.0.9", 80)), Some(own(1)));
    assert_eq!(leads(&book, &tcp(2, "10.96.0.9", 80)), Some(own(2)));
    assert_eq!(complaints(&mut book), Vec::<String>::new());
}

#[test]
fn a_service_without_anybody_behind_it_is_there_and_leads_nowhere() {
    let book = told(&[News::Service(ACME, "web", web())]);
    assert_eq!(leads(&book, &tcp(1, "10.96.0.9", 80)), Some(vec![]));
    assert_eq!(leads(&book, &tcp(2, "10.96.0.9", 80)), None, "in its own network only");
}

#[test]
fn the_networks_own_address_and_the_clusters_lead_to_the_same() {
    let mut spec = web();
    spec["annotations"] = json!({"atoll.dev/vip": "198.18.0.1"});
    let [first, second] = two_pods(ACME);
    let slice = News::Slice(ACME, "web-1", pods(&["web-0", "web-1"]));
    let book = told(&[first, second, slice, News::Service(ACME, "web", spec)]);
    let by_vip = leads(&book, &tcp(1, "198.18.0.1", 80));
    assert_eq!(by_vip.as_ref().map(Vec::len), Some(2));
    assert_eq!(leads(&book, &tcp(1, "10.96.0.9", 80)), by_vip);
}

#[test]
fn the_address_of_a_load_balancer_leads_to_its_pods_in_its_own_network_while_it_is_claimed() {
    let [first, second] = two_pods(ACME);
    let slice = News::Slice(ACME, "web-1", pods(&["web-0", "web-1"]));
    let mut thief = web();
    thief["clusterIPs"] = json!(["10.96.0.10"]);
    thief["externalIPs"] = json!(["192.0.2.5"]);
    let mut book = told(&[
        first,
        second,
        slice,
        News::Service(ACME, "web", web()),
        News::Service(ACME, "thief", thief),
        News::Held(ACME, "192.0.2.5", "web"),
    ]);
    let inside = leads(&book, &tcp(1, "192.0.2.5", 80));
    assert_eq!(inside, leads(&book, &tcp(1, "10.96.0.9", 80)));
    assert_eq!(inside.map(|pods| pods.len()), Some(2));
    assert_eq!(leads(&book, &tcp(2, "192.0.2.5", 80)), None, "it is nobody's in other networks");
    assert!(complaints(&mut book).iter().any(|it| it.starts_with("thief: ")));
    let others = held(GLOBEX, "192.0.2.6", "web");
    book.put_held(ACME, "192.0.2.6", Some(&others));
    assert_eq!(leads(&book, &tcp(1, "192.0.2.6", 80)), None, "what is for another network");
    tell(&mut book, &News::NotHeld(ACME, "192.0.2.5"));
    tell(&mut book, &News::NoService(ACME, "thief"));
    assert_eq!(leads(&book, &tcp(1, "192.0.2.5", 80)), None);
    assert!(leads(&book, &tcp(1, "10.96.0.9", 80)).is_some());
}

#[test]
fn ports_are_matched_by_name_and_protocol_and_may_differ_from_pod_to_pod() {
    let ports = json!([
        {"name": "http", "port": 80},
        {"name": "dns", "port": 53, "protocol": "UDP"},
        {"name": "diameter", "port": 3868, "protocol": "SCTP"},
    ]);
    let spec = json!({"clusterIPs": ["10.96.0.9"], "ports": ports});
    let mut first = pods(&["web-0"]);
    first["ports"] = json!([
        {"name": "http", "port": 8080},
        {"name": "dns", "port": 5353, "protocol": "UDP"},
        {"name": "diameter", "port": 3868, "protocol": "SCTP"},
    ]);
    let mut second = pods(&["web-1"]);
    second["ports"] = json!([{"name": "http", "port": 9090}, {"name": "dns", "port": 1}]);
    let [one, other] = two_pods(ACME);
    let slices = [News::Slice(ACME, "a", first), News::Slice(ACME, "b", second)];
    let book = told(&[&[one, other, News::Service(ACME, "web", spec)], &slices[..]].concat());
    let expect = |protocol, port, backends: &[&str]| {
        let found = leads(&book, &key(1, "10.96.0.9", protocol, port));
        assert_eq!(found, Some(backends.iter().map(|&it| it.into()).collect()), "{protocol}");
    };
    expect(Protocol::Tcp, 80, &["1/10.0.0.5:8080", "1/10.0.0.6:9090"]);
    expect(Protocol::Udp, 53, &["1/10.0.0.5:5353"]);
    expect(Protocol::Sctp, 3868, &["1/10.0.0.5:3868"]);
}

#[test]
fn an_address_leads_to_backends_of_its_own_family() {
    let spec = json!({"clusterIPs": ["10.96.0.9", "fd00::9"], "ports": [{"port": 80}]});
    let mut six = pods(&["web-0"]);
    six["addressType"] = json!("IPv6");
    let book = told(&[
        News::Port(ACME, "web-0", Some("node1"), "10.0.0.5,fd01::5"),
        News::Service(ACME, "web", spec),
        News::Slice(ACME, "four", pods(&["web-0"])),
        News::Slice(ACME, "six", six),
    ]);
    let backends = |ip| leads(&book, &tcp(1, ip, 80));
    assert_eq!(backends("10.96.0.9"), Some(vec!["1/10.0.0.5:8080".into()]));
    assert_eq!(backends("fd00::9"), Some(vec!["1/fd01::5:8080".into()]));
}

#[test]
fn a_slice_by_hand_leads_to_pods_of_the_network_and_to_nobody_else() {
    let strangers = ["127.0.0.1", "169.254.169.254", "192.0.2.1", "10.0.0.77"];
    let addresses: Vec<&str> = ["10.0.0.5"].iter().chain(&strangers).copied().collect();
    let mut book = told(&[
        News::Port(ACME, "web-0", Some("node1"), "10.0.0.5"),
        News::Port(GLOBEX, "secret", Some("node1"), "10.0.0.77"),
        News::Service(ACME, "web", web()),
        News::Slice(ACME, "by-hand", by_hand(&addresses)),
    ]);
    let found = leads(&book, &tcp(1, "10.96.0.9", 80));
    assert_eq!(found, Some(vec!["1/10.0.0.5:8080".into()]));
    let mut said = complaints(&mut book);
    said.sort();
    let mut expected = strangers.map(|ip| {
        format!("web: endpoint {ip} is no pod of the service's network: no traffic goes there")
    });
    expected.sort();
    assert_eq!(said, expected);
    assert_eq!(complaints(&mut book), Vec::<String>::new(), "each is told once");
}

#[test]
fn a_pod_of_another_tenant_in_a_shared_open_network_is_no_backend() {
    let mut book = told(&[
        News::Port("globex.open", "secret", Some("node1"), "10.9.0.5"),
        News::Service("acme.open", "web", web()),
        News::Slice("acme.open", "by-hand", by_hand(&["10.9.0.5"])),
    ]);
    assert_eq!(leads(&book, &tcp(3, "10.96.0.9", 80)), Some(vec![]));
    assert_eq!(complaints(&mut book).len(), 1);
}

#[test]
fn a_pod_that_comes_later_is_found_and_the_complaint_is_over() {
    let mut book = told(&[
        News::Service(ACME, "web", web()),
        News::Slice(ACME, "by-hand", by_hand(&["10.0.0.5"])),
    ]);
    assert_eq!(complaints(&mut book).len(), 1);
    tell(&mut book, &News::Port(ACME, "web-0", Some("node1"), "10.0.0.5"));
    assert_eq!(leads(&book, &tcp(1, "10.96.0.9", 80)).unwrap().len(), 1);
    tell(&mut book, &News::NoPort(ACME, "web-0"));
    assert_eq!(leads(&book, &tcp(1, "10.96.0.9", 80)), Some(vec![]));
    assert_eq!(complaints(&mut book).len(), 1, "it is so again");
}

#[test]
fn an_address_that_two_pods_have_is_nobodys() {
    let mut book = told(&[
        News::Port(ACME, "one", Some("node1"), "10.0.0.5"),
        News::Port(ACME, "other", Some("node2"), "10.0.0.5"),
        News::Service(ACME, "web", web()),
        News::Slice(ACME, "web-1", pods(&["one"])),
    ]);
    assert_eq!(leads(&book, &tcp(1, "10.96.0.9", 80)), Some(vec![]));
    tell(&mut book, &News::NoPort(ACME, "other"));
    assert_eq!(leads(&book, &tcp(1, "10.96.0.9", 80)).unwrap().len(), 1);
}

#[test]
fn a_service_cannot_take_the_address_of_a_pod_of_a_node_or_of_everybody() {
    let external = ["10.0.0.5", "127.0.0.1", "169.254.1.1", "224.0.0.1", "203.0.113.9"];
    let spec =
        json!({"clusterIPs": ["10.96.0.9"], "externalIPs": external, "ports": [{"port": 80}]});
    let mut book = told(&[
        News::Port(ACME, "victim", Some("node1"), "10.0.0.5"),
        News::Service(ACME, "web", spec),
    ]);
    for ip in &external[..4] {
        assert_eq!(leads(&book, &tcp(1, ip, 80)), None, "{ip}");
    }
    assert!(leads(&book, &tcp(1, "203.0.113.9", 80)).is_some());
    assert!(leads(&book, &tcp(2, "203.0.113.9", 80)).is_none(), "not in another network");
    assert_eq!(complaints(&mut book).len(), 4);
    tell(&mut book, &News::NoPort(ACME, "victim"));
    assert!(leads(&book, &tcp(1, "10.0.0.5", 80)).is_some(), "nobody's any more");
}

#[test]
fn an_external_address_gives_way_and_of_two_neither_is_served() {
    let of = |fields| News::Service(ACME, "web", fields);
    let cluster = of(json!({"clusterIPs": ["10.96.0.9"], "ports": [{"port": 80}]}));
    let thief =
        json!({"clusterIPs": ["10.96.0.8"], "externalIPs": ["10.96.0.9"], "ports": [{"port": 80}]});
    let [first, _] = two_pods(ACME);
    let mut book = told(&[
        first,
        cluster,
        News::Slice(ACME, "web-1", pods(&["web-0"])),
        News::Service(ACME, "thief", thief),
    ]);
    assert_eq!(leads(&book, &tcp(1, "10.96.0.9", 80)).unwrap().len(), 1, "still the owner's");
    let said = "thief: 1/10.96.0.9:80 TCP is also another service's: it is not served for this one";
    assert_eq!(complaints(&mut book), [said]);
    let twin = |name| {
        let spec = json!({"externalIPs": ["203.0.113.9"], "ports": [{"port": 80}]});
        News::Service(ACME, name, spec)
    };
    tell(&mut book, &twin("one"));
    assert!(leads(&book, &tcp(1, "203.0.113.9", 80)).is_some());
    tell(&mut book, &twin("other"));
    assert_eq!(leads(&book, &tcp(1, "203.0.113.9", 80)), None);
    assert_eq!(complaints(&mut book).len(), 2, "both are told");
    tell(&mut book, &News::NoService(ACME, "one"));
    assert!(leads(&book, &tcp(1, "203.0.113.9", 80)).is_some());
}

#[test]
fn a_service_for_its_own_node_leads_to_the_pods_of_this_node() {
    let mut spec = web();
    spec["internalTrafficPolicy"] = json!("Local");
    let [first, second] = two_pods(ACME);
    let slice = News::Slice(ACME, "web-1", pods(&["web-0", "web-1"]));
    let mut book = told(&[first, second, slice, News::Service(ACME, "web", spec)]);
    assert_eq!(leads(&book, &tcp(1, "10.96.0.9", 80)), Some(vec!["1/10.0.0.5:8080".into()]));
    tell(&mut book, &News::NoPort(ACME, "web-0"));
    assert_eq!(leads(&book, &tcp(1, "10.96.0.9", 80)), Some(vec![]));
}

#[test]
fn hints_are_followed_into_the_zone_of_this_node() {
    let mut slice = pods(&["web-0", "web-1"]);
    for (at, zone) in ["b", "a"].iter().enumerate() {
        slice["endpoints"][at]["hints"] = json!({"forZones": [{"name": zone}]});
    }
    let [first, second] = two_pods(ACME);
    let news = [first, second, News::Slice(ACME, "s", slice), News::Service(ACME, "web", web())];
    let mut book = told(&news);
    assert_eq!(leads(&book, &tcp(1, "10.96.0.9", 80)), Some(vec!["1/10.0.0.6:8080".into()]));
    book.set_zone(None);
    assert_eq!(leads(&book, &tcp(1, "10.96.0.9", 80)).unwrap().len(), 2);
}

#[test]
fn a_change_touches_the_services_it_concerns_and_no_others() {
    let mut book = book();
    for number in 0..100 {
        let name: &'static str = format!("web-{number}").leak();
        let ip: &'static str = format!("10.0.0.{number}").leak();
        tell(&mut book, &News::Port(ACME, name, Some("node1"), ip));
        let spec = json!({"clusterIPs": [format!("10.96.0.{number}")], "ports": [{"port": 80}]});
        tell(&mut book, &News::Service(ACME, name, spec));
        let mut slice = pods(&[name]);
        slice["service"] = json!(name);
        tell(&mut book, &News::Slice(ACME, name, slice));
    }
    assert_eq!(book.take_touched(|_| true).len(), 100);
    tell(&mut book, &News::NoPort(ACME, "web-7"));
    assert_eq!(book.take_touched(|_| true), [tcp(1, "10.96.0.7", 80)]);
    tell(&mut book, &News::Port(ACME, "web-8", Some("node1"), "10.0.0.8"));
    assert_eq!(book.take_touched(|_| true), [], "nothing is new");
}

#[test]
fn a_network_that_leaves_takes_its_services_along() {
    let mut book = told(&[News::Service(ACME, "web", web()), News::Service(GLOBEX, "web", web())]);
    book.follow(&[(GLOBEX.to_owned(), here(2))].into());
    assert_eq!(leads(&book, &tcp(1, "10.96.0.9", 80)), None);
    assert!(leads(&book, &tcp(2, "10.96.0.9", 80)).is_some());
    tell(&mut book, &News::Service(ACME, "web", web()));
    assert_eq!(leads(&book, &tcp(1, "10.96.0.9", 80)), None, "a late word");
}

#[test]
fn a_node_port_leads_to_whom_the_external_policy_allows_and_nobody_else_can_claim_its_place() {
    let slice = || News::Slice(ACME, "web-1", pods(&["web-0", "web-1"]));
    let spec = |policy: &str| {
        json!({"type": "NodePort", "clusterIPs": ["10.96.0.9"], "externalTrafficPolicy": policy,
               "internalTrafficPolicy": "Cluster", "ports": [{"port": 80, "nodePort": 30080}]})
    };
    let at = |policy| {
        let [first, second] = two_pods(ACME);
        let book = told(&[first, second, slice(), News::Service(ACME, "web", spec(policy))]);
        assert_eq!(leads(&book, &tcp(1, "10.96.0.9", 80)).map(|all| all.len()), Some(2));
        assert_eq!(leads(&book, &outside(1, "::", 30080)), None, "the service has no such family");
        leads(&book, &outside(1, "0.0.0.0", 30080))
    };
    assert_eq!(at("Cluster").map(|all| all.len()), Some(2));
    assert_eq!(at("Local"), Some(vec!["1/10.0.0.5:8080".to_owned()]));
    let mut thief = web();
    thief["externalIPs"] = json!(["0.0.0.0"]);
    let book = told(&[News::Service(ACME, "web", thief)]);
    assert_eq!(leads(&book, &tcp(1, "0.0.0.0", 80)), None);
    assert_eq!(leads(&book, &outside(1, "0.0.0.0", 80)), None);
}

#[test]
fn a_service_or_slice_that_is_left_to_others_is_led_nowhere_and_the_others_are() {
    for label in ["service.kubernetes.io/service-proxy-name", "service.kubernetes.io/headless"] {
        let spec = |labels: &serde_json::Value| {
            json!({"type": "NodePort", "clusterIPs": ["10.96.0.9"], "labels": labels,
                   "annotations": {"atoll.dev/vip": "198.18.0.9"},
                   "ports": [{"port": 80, "nodePort": 30080}]})
        };
        let places =
            [tcp(1, "10.96.0.9", 80), tcp(1, "198.18.0.9", 80), outside(1, "0.0.0.0", 30080)];
        let slice = |labels: &serde_json::Value| {
            let mut slice = pods(&["web-0", "web-1"]);
            slice["labels"] = labels.clone();
            News::Slice(ACME, "web-1", slice)
        };
        let (ours, theirs) = (json!({}), json!({label: ""}));
        let [first, second] = two_pods(ACME);
        let mut book = told(&[first, second, slice(&ours)]);
        for (labels, behind) in [(&ours, Some(2)), (&theirs, None), (&ours, Some(2))] {
            tell(&mut book, &News::Service(ACME, "web", spec(labels)));
            for place in &places {
                assert_eq!(leads(&book, place).map(|all| all.len()), behind, "{label} {place:?}");
            }
        }
        tell(&mut book, &slice(&theirs));
        assert_eq!(leads(&book, &places[0]), Some(vec![]), "{label}: the slice says so itself");
    }
}

/// A load balancer with a pod here and one elsewhere.
fn balanced(policy: &str, sources: &serde_json::Value) -> ServiceBook {
    let spec = json!({"type": "LoadBalancer", "clusterIPs": ["10.96.0.9"], "ports": [{"port": 80}],
                      "externalTrafficPolicy": policy, "loadBalancerSourceRanges": sources});
    let [first, second] = two_pods(ACME);
    let slice = News::Slice(ACME, "web-1", pods(&["web-0", "web-1"]));
    let held = News::Held(ACME, "192.0.2.5", "web");
    told(&[first, second, slice, News::Service(ACME, "web", spec), held])
}

#[test]
fn the_outside_is_led_to_whom_the_external_policy_allows_and_pods_to_everybody() {
    for (policy, behind) in [("Cluster", 2), ("Local", 1)] {
        let book = balanced(policy, &json!([]));
        let at = |key: &ServiceKey| leads(&book, key).map(|all| all.len());
        assert_eq!(at(&outside(1, "192.0.2.5", 80)), Some(behind), "{policy}");
        assert_eq!(at(&tcp(1, "192.0.2.5", 80)), Some(2), "{policy}");
        assert_eq!(at(&outside(1, "10.96.0.9", 80)), None, "that one is inside alone");
        assert_eq!(at(&outside(2, "192.0.2.5", 80)), None);
    }
}

#[test]
fn a_load_balancer_lets_in_clients_of_its_ranges_and_of_its_own_family() {
    let sources = |ranges| {
        let book = balanced("Cluster", &ranges);
        let at = &book.served()[&outside(1, "192.0.2.5", 80)];
        at.sources.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(sources(json!([])), ["0.0.0.0/0"]);
    assert_eq!(sources(json!(["203.0.113.0/24", "2001:db8::/32"])), ["203.0.113.0/24"]);
    assert_eq!(sources(json!(["2001:db8::/32"])), Vec::<String>::new(), "nobody of this family");
}

#[test]
fn of_a_network_that_has_no_pod_here_the_outside_alone_is_served() {
    let mut book = balanced("Cluster", &json!([]));
    let (inside, edge) = (tcp(1, "10.96.0.9", 80), outside(1, "192.0.2.5", 80));
    assert!(book.served().contains_key(&inside));
    book.follow(&[("acme.default".to_owned(), guest(1))].into());
    assert!(!book.served().contains_key(&inside) && book.served().contains_key(&edge));
    book.follow(&[("acme.default".to_owned(), here(1))].into());
    assert!(book.served().contains_key(&inside) && book.served().contains_key(&edge));
}
