//! The resolver of a node, from what was seen to who is answered.

use atoll_cni::wire::NameQuestion;
use atoll_types::{Label, NetworkId, PodRef};
use atoll_zones::{Backing, DomainName, Service, ServiceKey};

use super::*;
use crate::seen::{Delta, Presence};

fn network(number: u32) -> NetworkId {
    number.try_into().unwrap()
}

fn config() -> NamesConfig {
    NamesConfig {
        cluster_dns: vec![[10, 96, 0, 10].into()],
        cluster_domain: DomainName::parse("cluster.local").unwrap(),
        dns_upstream: Vec::new(),
        limits: NamesLimits::default(),
    }
}

fn budget() -> Budget {
    Budget { calls: 8, dns_connections: 8, dns_forwards: 8, health_ports: 8 }
}

#[test]
fn the_resolver_opens_no_more_than_the_agent_can_have_open() {
    let usual = atoll_dns::Config::default();
    let opens = |dns_connections, dns_forwards| {
        let budget = Budget { dns_connections, dns_forwards, ..budget() };
        let config = server(vec![], NamesLimits::default(), budget);
        (config.tcp_connections, config.forwards)
    };
    assert_eq!(opens(3, 5), (3, 5));
    assert_eq!(opens(usize::MAX, usize::MAX), (usual.tcp_connections, usual.forwards));
}

async fn names() -> Names {
    let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut names = Names::start_at(&config(), vec![anywhere], budget()).await.unwrap();
    names.export(&BTreeMap::new());
    names
}

fn occupant(tenant: &str, pod: &str) -> Occupant {
    Occupant {
        network_name: format!("{tenant}.default"),
        pod: PodRef::new("shop", pod),
        pod_uid: pod.to_owned(),
    }
}

/// Two networks with one number, as open networks of two tenants have.
fn scope() -> Scope {
    let acme = Presence { id: network(1), namespaces: ["shop".to_owned()].into() };
    let globex = Presence { id: network(1), namespaces: [].into() };
    let networks = [("acme.default".to_owned(), acme), ("globex.default".to_owned(), globex)];
    Scope { networks: networks.into(), is_whole: true, ..Scope::default() }
}

fn shop() -> (String, String) {
    ("acme.default".into(), "shop".into())
}

fn see_ports_and_slices(names: &mut Names) {
    names.absorb(&Change::NetworkPorts(network(1), Delta::All(BTreeMap::new())));
    names.absorb(&Change::Slices(shop(), Delta::All(BTreeMap::new())));
    for network in ["acme.default", "globex.default"] {
        names.absorb(&Change::Network(network.into(), Delta::All(BTreeMap::new())));
    }
}

fn see_services(names: &mut Names) {
    let label = |text: &str| text.parse::<Label>().unwrap();
    let key = ServiceKey { namespace: label("shop"), name: label("web") };
    let backing = Backing::Vip { addresses: vec![[10, 96, 0, 9].into()], ports: vec![] };
    let services = [("web".to_owned(), Service { key, backing })];
    names.absorb(&Change::Services(shop(), Delta::All(services.into())));
}

#[tokio::test]
async fn a_pod_is_an_asker_once_the_names_of_its_network_were_seen_whole() {
    let mut names = names().await;
    let host_side = HostInterface::for_attachment("sandbox", "eth0");
    let interfaces = [(7, host_side.clone())].into();
    let occupants = [(host_side, occupant("acme", "web"))].into();
    names.follow(&scope(), &Seen::default());
    see_ports_and_slices(&mut names);
    names.publish();
    names.know(&interfaces, &occupants);
    assert!(names.known.load().is_empty(), "services are still to come");
    see_services(&mut names);
    names.publish();
    names.know(&interfaces, &occupants);
    let published = names.views.published("acme.default");
    assert_eq!(Some(names.known.load()[&7].network), published);
}

#[tokio::test]
async fn an_interface_that_is_nobodys_or_not_in_the_kernel_is_no_asker() {
    let mut names = names().await;
    names.follow(&scope(), &Seen::default());
    see_ports_and_slices(&mut names);
    see_services(&mut names);
    names.publish();
    let [one, other] = ["one", "other"].map(|it| HostInterface::for_attachment(it, "eth0"));
    let occupants = [(one.clone(), occupant("acme", "web"))].into();
    names.know(&[(7, other)].into(), &occupants);
    assert!(names.known.load().is_empty());
    names.know(&[(7, one)].into(), &occupants);
    assert_eq!(names.known.load().len(), 1);
}

#[tokio::test]
async fn interfaces_of_one_pod_and_pods_of_one_tenant_share_their_limits() {
    let mut names = names().await;
    names.follow(&scope(), &Seen::default());
    see_ports_and_slices(&mut names);
    see_services(&mut names);
    names.publish();
    let asker = |occupant: Occupant| names.asker(&occupant).unwrap();
    let [web, db] = ["web", "db"].map(|pod| asker(occupant("acme", pod)));
    assert_eq!(web, asker(occupant("acme", "web")));
    assert_eq!(web.tenant, db.tenant);
    assert_ne!(web.pod, db.pod);
    let stranger = asker(occupant("globex", "web"));
    assert_ne!(web.tenant, stranger.tenant);
    assert_ne!(web.network, stranger.network, "one number, and names of their own");
}

#[tokio::test]
async fn people_see_each_name_of_the_search_list_until_one_answers() {
    let mut names = names().await;
    names.follow(&scope(), &Seen::default());
    let web = occupant("acme", "web");
    let question = |name: &str| NameQuestion {
        pod: web.pod.clone(),
        name: name.to_owned(),
        kind: "A".to_owned(),
    };
    let too_early = names.report(&web, &question("web")).unwrap_err().to_string();
    assert!(too_early.contains("acme.default"), "{too_early}");
    see_ports_and_slices(&mut names);
    see_services(&mut names);
    names.publish();
    let tried = |name: &str| {
        let report = names.report(&web, &question(name)).unwrap();
        let tries = report.tries.into_iter();
        tries.map(|it| (it.name, it.records.concat())).collect::<Vec<_>>()
    };
    let [first, second, third] =
        ["shop.svc.cluster.local.", "svc.cluster.local.", "cluster.local."];
    let hit = |name: String| (name, "A 10.96.0.9".to_owned());
    let miss = |name: String| (name, String::new());
    assert_eq!(tried("web"), [hit(format!("web.{first}"))]);
    let nested = [miss(format!("web.shop.{first}")), hit(format!("web.shop.{second}"))];
    assert_eq!(tried("web.shop"), nested);
    let nowhere = [first, second, third, ""].map(|zone| miss(format!("nobody.{zone}")));
    assert_eq!(tried("nobody"), nowhere);
    assert_eq!(tried("nobody."), [miss("nobody.".to_owned())]);
}

#[test]
fn the_families_that_pods_ask_and_those_of_networks_are_listened_on() {
    let texts = |ips: &[&str]| {
        let ips: Vec<IpAddr> = ips.iter().map(|ip| ip.parse().unwrap()).collect();
        listeners(&ips).iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let own = ["169.254.1.3:61053", "[fd61:746f:6c6c::3]:61053"];
    assert_eq!(texts(&["10.96.0.10"]), ["169.254.1.2:61053", own[0], own[1]]);
    let both = ["169.254.1.2:61053", "[fd61:746f:6c6c::2]:61053", own[0], own[1]];
    assert_eq!(texts(&["10.96.0.10", "fd96::a"]), both);
}

#[tokio::test]
async fn questions_are_told_by_network_and_by_what_became_of_them() {
    let mut names = names().await;
    names.follow(&scope(), &Seen::default());
    see_ports_and_slices(&mut names);
    see_services(&mut names);
    names.publish();
    let stranger = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    stranger.send_to(b"no alias of anybody", names.server.addresses()[0]).unwrap();
    let metrics = names.metrics();
    let text = || {
        let mut page = atoll_metrics::Page::default();
        metrics.write(&mut page);
        page.text()
    };
    while !text().contains("atoll_dns_strangers_total{why=\"unknown_asker\"} 1") {
        tokio::task::yield_now().await;
    }
    for line in [
        "atoll_dns_queries_total{network=\"acme.default\"} 0",
        "atoll_dns_answers_total{network=\"globex.default\",how=\"no_name\"} 0",
        "atoll_dns_refusals_total{network=\"acme.default\",why=\"tenant_rate\"} 0",
    ] {
        assert!(text().lines().any(|it| it == line), "{line} is not in {}", text());
    }
    names.follow(&Scope { is_whole: true, ..Scope::default() }, &Seen::default());
    names.publish();
    assert!(!text().contains("acme.default"), "a network that left is told no more");
}

#[tokio::test]
async fn without_a_resolver_to_be_nobody_listens() {
    let silent = NamesConfig { cluster_dns: Vec::new(), ..config() };
    assert!(Names::start(&silent, budget()).await.unwrap().is_none());
}
