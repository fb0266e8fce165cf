//! The names of networks, as they follow from what was seen.

use atoll_model::compile::PlacedPort;
use atoll_types::{MacAddr, PodRef};
use atoll_zones::{Asked, Backing, DomainName, Kind, Service};

use super::network::service_key;
use super::*;
use crate::seen::{Delta, NetworkDns, PortKey, Presence};

pub(super) fn views() -> Views {
    let zone = DomainName::parse("cluster.local").unwrap();
    let mut views = Views::new(Settings { zone, cidrs: vec![], resolver: vec![], ttl: 5 });
    views.export(&BTreeMap::new());
    views
}

fn id() -> NetworkId {
    1.try_into().unwrap()
}

/// These networks, all with one number, each with the namespace that bears its tenant's name.
fn scope(tenants: &[&str]) -> Scope {
    let presence = |tenant: &&str| {
        let namespaces = [(*tenant).to_owned()].into();
        (format!("{tenant}.open"), Presence { id: id(), namespaces })
    };
    let networks = tenants.iter().map(presence).collect();
    Scope { networks, is_whole: true, ..Scope::default() }
}

fn ports(tenants: &[&str]) -> BTreeMap<PortKey, PlacedPort> {
    let port = |(last, tenant): (u8, &&str)| {
        let ip = [10, 0, 0, last].into();
        let port = PlacedPort {
            network: id(),
            network_name: format!("{tenant}.open"),
            ips: vec![ip],
            mac: MacAddr::for_ip(ip),
            pod: PodRef::new(*tenant, "web"),
            pod_uid: format!("{tenant}-web"),
            interface: "eth0".into(),
            device: atoll_plan::Device::Veth,
            node: None,
            others: BTreeSet::new(),
            routes: BTreeSet::new(),
        };
        (((*tenant).to_owned(), "web".to_owned()), port)
    };
    (1..).zip(tenants).map(port).collect()
}

fn quarter(tenant: &str) -> (String, String) {
    (format!("{tenant}.open"), tenant.to_owned())
}

fn shop(tenant: &str) -> Service {
    let backing = Backing::Vip { addresses: vec![[10, 96, 0, 9].into()], ports: vec![] };
    Service { key: service_key(tenant, "shop").unwrap(), backing }
}

fn list_services(views: &mut Views, tenant: &str) {
    let network = format!("{tenant}.open");
    views.absorb(&Change::Network(network, Delta::All(BTreeMap::new())));
    let services = [("shop".to_owned(), shop(tenant))];
    views.absorb(&Change::Services(quarter(tenant), Delta::All(services.into())));
    views.absorb(&Change::Slices(quarter(tenant), Delta::All(BTreeMap::new())));
}

/// Both tenants' networks, with everything listed and told.
pub(super) fn both() -> Views {
    let mut views = views();
    views.follow(&scope(&["acme", "globex"]), &Seen::default());
    views.absorb(&Change::NetworkPorts(id(), Delta::All(ports(&["acme", "globex"]))));
    for tenant in ["acme", "globex"] {
        list_services(&mut views, tenant);
    }
    assert_eq!(views.updates().len(), 2);
    views
}

pub(super) fn has(views: &Views, network: &str, name: &str) -> bool {
    let wire = DomainName::parse(name).unwrap().wire().to_vec();
    let mut starts = vec![];
    let mut at = 0;
    while wire[at] != 0 {
        starts.push(at as u8);
        at += usize::from(wire[at]) + 1;
    }
    let zones = views.networks[network].view.zones();
    let found = format!("{:?}", zones.find(&Asked::new(&wire, &starts), Some(Kind::A)));
    !found.starts_with("NoName")
}

#[test]
fn networks_that_share_a_number_have_no_name_in_common() {
    let views = both();
    for (own, other) in [("acme", "globex"), ("globex", "acme")] {
        let network = format!("{own}.open");
        assert!(has(&views, &network, &format!("shop.{own}.svc.cluster.local")));
        assert!(!has(&views, &network, &format!("shop.{other}.svc.cluster.local")));
    }
    assert!(has(&views, "acme.open", "10-0-0-1.acme.pod.cluster.local"));
    assert!(!has(&views, "acme.open", "10-0-0-2.globex.pod.cluster.local"));
    assert!(has(&views, "globex.open", "10-0-0-2.globex.pod.cluster.local"));
}

#[test]
fn a_network_that_comes_later_begins_with_the_ports_that_were_seen() {
    let mut seen = Seen::default();
    let own = crate::seen::Joined { network: id(), name: "acme.open".into() };
    let key = ("acme".to_owned(), "web".to_owned());
    seen.absorb(Change::OwnPorts(Delta::All([(key, own)].into())));
    seen.absorb(Change::NetworkPorts(id(), Delta::All(ports(&["acme", "globex"]))));
    let mut views = views();
    views.follow(&scope(&["globex"]), &seen);
    list_services(&mut views, "globex");
    assert!(matches!(views.updates()[..], [Update::First(..)]));
    assert!(has(&views, "globex.open", "10-0-0-2.globex.pod.cluster.local"));
}

#[test]
fn names_are_told_first_when_everything_was_listed_and_then_with_each_change() {
    let mut views = views();
    views.follow(&Scope { is_whole: false, ..scope(&["acme"]) }, &Seen::default());
    views.absorb(&Change::NetworkPorts(id(), Delta::All(ports(&["acme"]))));
    list_services(&mut views, "acme");
    assert_eq!(views.updates().len(), 0, "not all namespaces are known");
    views.follow(&scope(&["acme"]), &Seen::default());
    assert!(matches!(views.updates()[..], [Update::First(..)]));
    assert_eq!(views.updates().len(), 0, "nothing has changed since");
    views.absorb(&Change::Services(quarter("acme"), Delta::Gone("shop".into())));
    assert!(matches!(views.updates()[..], [Update::Next(..)]));
    assert!(!has(&views, "acme.open", "shop.acme.svc.cluster.local"));
}

#[test]
fn a_change_of_one_network_leads_to_no_look_at_another() {
    let mut views = both();
    assert!(views.touched.is_empty(), "all is told");
    views.absorb(&Change::Services(quarter("acme"), Delta::Gone("shop".into())));
    assert_eq!(views.touched, ["acme.open".to_owned()].into());
    assert!(matches!(views.updates()[..], [Update::Next(..)]));
    assert!(views.touched.is_empty());
    views.absorb(&Change::NetworkPorts(id(), Delta::Gone(("acme".into(), "web".into()))));
    assert_eq!(views.touched.len(), 2, "both have that number");
    let other = 2.try_into().unwrap();
    views.updates();
    views.absorb(&Change::NetworkPorts(other, Delta::Gone(("acme".into(), "web".into()))));
    assert!(views.touched.is_empty(), "nobody has that number");
}

#[test]
fn what_is_followed_no_more_is_forgotten_and_late_words_of_it_are_passed_over() {
    let mut views = both();
    let mut narrow = scope(&["acme"]);
    narrow.networks.values_mut().for_each(|presence| presence.namespaces.clear());
    views.follow(&narrow, &Seen::default());
    let updates = views.updates();
    assert!(matches!(updates[..], [Update::Gone(_), Update::Next(..)]), "{updates:?}");
    assert!(views.published("globex.open").is_none());
    assert!(!has(&views, "acme.open", "shop.acme.svc.cluster.local"));
    for tenant in ["acme", "globex"] {
        list_services(&mut views, tenant);
    }
    assert_eq!(views.updates().len(), 0);
    assert!(!has(&views, "acme.open", "shop.acme.svc.cluster.local"));
}

#[test]
fn what_a_network_may_ask_outside_is_told_when_it_changes_and_only_then() {
    let mut views = both();
    let outside = Outside { refuse_private: true, ..Outside::default() };
    let dns = NetworkDns { outside: outside.clone(), ..NetworkDns::default() };
    let word = Change::Network("acme.open".into(), Delta::Put("acme.open".into(), dns));
    views.absorb(&word);
    let updates = views.updates();
    assert!(matches!(&updates[..], [Update::Outside(_, told)] if *told == outside), "{updates:?}");
    views.absorb(&word);
    assert_eq!(views.updates().len(), 0, "nothing new");
    views.absorb(&Change::Network("acme.open".into(), Delta::Gone("acme.open".into())));
    let updates = views.updates();
    assert!(matches!(&updates[..], [Update::Outside(_, told)] if *told == Outside::default()));
}

#[test]
fn dns_pods_of_a_network_are_told_all_its_facts_once_and_then_each_change() {
    let mut views = both();
    let with = |mode| {
        let dns = NetworkDns { mode, ..NetworkDns::default() };
        Change::Network("acme.open".into(), Delta::Put("acme.open".into(), dns))
    };
    let told = |views: &mut Views| {
        let updates = views.updates().into_iter();
        updates
            .map(|update| match update {
                Update::Facts(_, facts) => {
                    facts.iter().map(|fact| (fact.about(), fact.is_gone())).collect()
                }
                Update::Unfollowed(_) => vec![("unfollowed".to_owned(), true)],
                Update::Next(..) | Update::Outside(..) => vec![],
                other => panic!("{other:?}"),
            })
            .collect::<Vec<Vec<_>>>()
            .concat()
    };
    views.absorb(&with(DnsMode::Dedicated));
    let all = ["home acme/web", "service acme/shop"].map(|it| (it.to_owned(), false));
    assert_eq!(told(&mut views), all);
    assert!(told(&mut views).is_empty(), "nothing has changed since");
    views.absorb(&Change::Services(quarter("acme"), Delta::Gone("shop".into())));
    views.absorb(&Change::Services(quarter("globex"), Delta::Gone("shop".into())));
    assert_eq!(told(&mut views), [("service acme/shop".to_owned(), true)]);
    views.absorb(&with(DnsMode::Shared));
    assert_eq!(told(&mut views), [("unfollowed".to_owned(), true)]);
}

#[test]
fn of_a_network_with_dns_pods_the_agent_answers_those_alone() {
    let mut views = both();
    assert!(views.answers("acme.open", "acme"));
    let dns = NetworkDns { mode: DnsMode::Dedicated, ..NetworkDns::default() };
    views.absorb(&Change::Network("acme.open".into(), Delta::Put("acme.open".into(), dns)));
    assert!(!views.answers("acme.open", "acme"));
    assert!(views.answers("acme.open", "atoll-dns-1"));
    assert!(views.answers("globex.open", "globex"));
    assert!(!views.answers("nobody.open", "atoll-dns-1"));
}

#[test]
fn a_network_is_not_told_of_before_its_object_was_seen() {
    let mut views = views();
    views.follow(&scope(&["acme"]), &Seen::default());
    views.absorb(&Change::NetworkPorts(id(), Delta::All(ports(&["acme"]))));
    views.absorb(&Change::Services(quarter("acme"), Delta::All(BTreeMap::new())));
    views.absorb(&Change::Slices(quarter("acme"), Delta::All(BTreeMap::new())));
    let late = Delta::Put("acme.open".into(), NetworkDns::default());
    views.absorb(&Change::Network("acme.open".into(), late));
    assert_eq!(views.updates().len(), 0, "a word before the list");
    views.absorb(&Change::Network("acme.open".into(), Delta::All(BTreeMap::new())));
    assert_eq!(views.updates().len(), 1);
}

#[test]
fn a_word_before_the_list_is_a_late_word_of_an_earlier_watch() {
    let mut views = views();
    views.follow(&scope(&["acme"]), &Seen::default());
    views.absorb(&Change::Services(quarter("acme"), Delta::Put("shop".into(), shop("acme"))));
    assert!(!has(&views, "acme.open", "shop.acme.svc.cluster.local"));
    list_services(&mut views, "acme");
    assert!(has(&views, "acme.open", "shop.acme.svc.cluster.local"));
}
