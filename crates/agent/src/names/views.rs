//! The names of each network on this node, as they follow from what was seen.
//!
//! The rules of this file: a network is known by its object name, since networks of one VPC, and
//! open networks of several tenants, share their number. A network's names are first told once its ports, and the services and
//! EndpointSlices of each of its namespaces, have been listed. What is not followed is passed over.

mod exports;
mod kin;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use atoll_api::DnsMode;
use atoll_dns::NetworkKey;
use atoll_model::compile::PlacedPort;
use atoll_model::resolver::dns_namespace;
use atoll_types::{Label, NetworkId};
use atoll_zones::{Fact, Home, Service, ServiceKey, Settings, Slice, View, ZoneSet};

use self::exports::Exports;
use self::kin::{Neighbours, Vips};
use crate::seen::{Change, Delta, NetworkDns, Outside, PortKey, Presence, Scope, Seen};

/// What the resolver is to be told.
#[derive(Debug)]
pub(super) enum Update {
    /// The names of a network that had none, and what it may ask outside.
    First(NetworkKey, String, Arc<ZoneSet>, Outside),
    /// The names of a network in place of those it had.
    Next(NetworkKey, Arc<ZoneSet>),
    /// What a network may ask outside in place of what it might.
    Outside(NetworkKey, Outside),
    /// What the names of a network are made from, for those who follow it: all of it where nobody
    /// did before.
    Facts(NetworkKey, Vec<Fact>),
    /// A network is followed no more.
    Unfollowed(NetworkKey),
    /// A network has left.
    Gone(NetworkKey),
}

/// All networks that have names here.
#[derive(Debug)]
pub(super) struct Views {
    settings: Settings,
    /// Whether it is known which namespaces there are.
    is_whole: bool,
    networks: BTreeMap<String, Network>,
    /// The networks that have a number.
    numbered: BTreeMap<NetworkId, BTreeSet<String>>,
    /// Networks of which there may be something to tell; nobody looks at the others.
    touched: BTreeSet<String>,
    /// Networks that have left since they were last told of.
    gone: Vec<NetworkKey>,
    /// How many networks have had a key.
    keys: u64,
    /// The cluster's own services that tenants may call; none before they were seen.
    exports: Option<Exports>,
    /// The services with a VIP, which other networks of their tenant see.
    vips: Vips,
}

/// A network, and what of it was listed.
#[derive(Debug)]
struct Network {
    key: NetworkKey,
    id: NetworkId,
    name: String,
    view: View,
    /// The resolver has its names.
    is_published: bool,
    /// Its names may be others than the resolver has.
    is_changed: bool,
    ports: bool,
    /// What its object says, once it was seen.
    dns: Option<NetworkDns>,
    /// What the resolver was told that it may ask outside.
    told_outside: Outside,
    /// What was learned since followers were last told; none where nobody follows.
    untold: Option<Vec<Fact>>,
    namespaces: BTreeMap<String, Listed>,
    /// The cluster's own services that have a name here.
    exported: BTreeMap<ServiceKey, Service>,
    neighbours: Neighbours,
}

#[derive(Debug, Default)]
struct Listed {
    services: bool,
    slices: bool,
}

impl Views {
    pub(super) fn new(settings: Settings) -> Self {
        Views {
            settings,
            is_whole: false,
            networks: BTreeMap::new(),
            numbered: BTreeMap::new(),
            touched: BTreeSet::new(),
            gone: Vec::new(),
            keys: 0,
            exports: None,
            vips: Vips::new(),
        }
    }

    /// The network of this name, where the resolver has its names.
    pub(super) fn published(&self, network: &str) -> Option<NetworkKey> {
        let known = self.networks.get(network).filter(|known| known.is_published);
        known.map(|known| known.key)
    }

    /// What the names of a network are made with beside its objects.
    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Whether the agent answers this pod. Where a network has DNS pods of its own, it answers
    /// those alone.
    pub(super) fn answers(&self, network: &str, namespace: &str) -> bool {
        self.networks.get(network).is_some_and(|known| {
            known.mode() != DnsMode::Dedicated || namespace == dns_namespace(known.id)
        })
    }

    /// The names of a network, where the resolver has them.
    pub(super) fn zones(&self, network: &str) -> Option<&ZoneSet> {
        let known = self.networks.get(network).filter(|known| known.is_published);
        known.map(|known| known.view.zones())
    }

    /// Keeps exactly these networks and namespaces. One that is new begins with what was seen.
    pub(super) fn follow(&mut self, scope: &Scope, seen: &Seen) {
        self.is_whole = scope.is_whole;
        let stays = |name: &String, known: &mut Network| {
            scope.networks.get(name).is_some_and(|presence| presence.id == known.id)
        };
        let left = self.networks.extract_if(.., |name, known| !stays(name, known));
        for (name, known) in left {
            self.numbered.entry(known.id).or_default().remove(&name);
            self.gone.extend(known.is_published.then_some(known.key));
        }
        self.numbered.retain(|_, names| !names.is_empty());
        for (name, presence) in &scope.networks {
            if !self.networks.contains_key(name) {
                let fresh = self.begin(name, presence, seen);
                self.networks.insert(name.clone(), fresh);
                self.numbered.entry(presence.id).or_default().insert(name.clone());
            }
        }
        for (name, known) in &mut self.networks {
            scope.networks.get(name).into_iter().for_each(|it| known.follow(&it.namespaces));
            self.exports.iter().for_each(|exports| known.export(exports));
        }
        self.follow_kin(scope);
        self.touched = self.networks.keys().cloned().collect();
    }

    fn begin(&mut self, name: &str, presence: &Presence, seen: &Seen) -> Network {
        self.keys += 1;
        let mut fresh = Network {
            key: NetworkKey(self.keys),
            id: presence.id,
            name: name.to_owned(),
            view: View::new(self.settings.clone()),
            is_published: false,
            is_changed: true,
            ports: false,
            dns: seen.dns_of(name),
            told_outside: Outside::default(),
            untold: None,
            namespaces: BTreeMap::new(),
            exported: BTreeMap::new(),
            neighbours: Neighbours::default(),
        };
        if let Some(ports) = seen.ports_of(presence.id) {
            fresh.list_ports(ports);
        }
        fresh
    }

    /// Takes in what a change says of names.
    pub(super) fn absorb(&mut self, change: &Change) {
        match change {
            Change::NetworkPorts(id, delta) => {
                for name in self.numbered.get(id).cloned().unwrap_or_default() {
                    self.touch(&name, |known| known.absorb_ports(delta));
                }
            }
            Change::Network(name, delta) => self.touch(name, |known| known.absorb_dns(delta)),
            Change::Services((network, namespace), delta) => {
                self.touch(network, |known| known.absorb_services(namespace, delta));
            }
            Change::Slices((network, namespace), delta) => {
                self.touch(network, |known| known.absorb_slices(namespace, delta));
            }
            Change::Fronts(quarter, delta) => self.absorb_fronts(quarter, delta),
            Change::Nodes(_)
            | Change::Zones(_)
            | Change::OwnPorts(_)
            | Change::Outlet(..)
            | Change::Siblings(..)
            | Change::Namespaces(_)
            | Change::Groups(..)
            | Change::Api(_)
            | Change::Pools(_)
            | Change::Exports(_)
            | Change::Targets(..)
            | Change::Policy(_)
            | Change::Held(..)
            | Change::Answered(_)
            | Change::Exposed(..)
            | Change::Probed(_) => {}
        }
    }

    fn touch(&mut self, name: &str, change: impl FnOnce(&mut Network)) {
        if let Some(known) = self.networks.get_mut(name) {
            change(known);
            self.touched.insert(name.to_owned());
        }
    }

    /// What is to be told since the last time. It costs what was touched, however many networks
    /// there are.
    pub(super) fn updates(&mut self) -> Vec<Update> {
        let mut told: Vec<Update> =
            std::mem::take(&mut self.gone).into_iter().map(Update::Gone).collect();
        let is_whole = self.is_whole && self.exports.is_some();
        for name in std::mem::take(&mut self.touched) {
            let Some(known) = self.networks.get_mut(&name) else { continue };
            let is_whole = is_whole && known.knows_neighbours(&self.vips);
            told.extend(known.updates(is_whole));
            if !known.is_published {
                self.touched.insert(name);
            }
        }
        told
    }
}

impl Network {
    fn updates(&mut self, is_whole: bool) -> Vec<Update> {
        let names = self.update(is_whole);
        if !self.is_published {
            return vec![];
        }
        let (outside, facts) = (self.outside(), self.facts());
        names.into_iter().chain(outside).chain(facts).collect()
    }

    fn outside(&mut self) -> Option<Update> {
        let outside = self.dns.as_ref().map(|dns| dns.outside.clone()).unwrap_or_default();
        (self.told_outside != outside).then(|| {
            self.told_outside = outside.clone();
            Update::Outside(self.key, outside)
        })
    }

    /// DNS pods of the network alone follow it; those of the tenant have ways of their own.
    fn facts(&mut self) -> Vec<Update> {
        let is_followed = self.mode() == DnsMode::Dedicated;
        match (&mut self.untold, is_followed) {
            (Some(untold), true) if untold.is_empty() => vec![],
            (Some(untold), true) => vec![Update::Facts(self.key, std::mem::take(untold))],
            (None, true) => {
                self.untold = Some(vec![]);
                let all = Update::Facts(self.key, self.view.facts().collect());
                vec![all, Update::Outside(self.key, self.told_outside.clone())]
            }
            (untold @ Some(_), false) => {
                *untold = None;
                vec![Update::Unfollowed(self.key)]
            }
            (None, false) => vec![],
        }
    }

    fn mode(&self) -> DnsMode {
        self.dns.as_ref().map(|dns| dns.mode).unwrap_or_default()
    }

    fn update(&mut self, is_whole: bool) -> Option<Update> {
        let is_due = self.is_changed && (self.is_published || is_whole && self.is_listed());
        if !is_due {
            return None;
        }
        self.is_changed = false;
        let zones = Arc::new(self.view.zones().clone());
        if std::mem::replace(&mut self.is_published, true) {
            return Some(Update::Next(self.key, zones));
        }
        self.told_outside = self.dns.clone().unwrap_or_default().outside;
        Some(Update::First(self.key, self.name.clone(), zones, self.told_outside.clone()))
    }

    fn is_listed(&self) -> bool {
        self.ports
            && self.dns.is_some()
            && self.namespaces.values().all(|listed| listed.services && listed.slices)
    }

    fn follow(&mut self, namespaces: &BTreeSet<String>) {
        let left = self.namespaces.extract_if(.., |namespace, _| !namespaces.contains(namespace));
        for (namespace, _) in left.collect::<Vec<_>>() {
            self.is_changed = true;
            self.replace_services(&namespace, &BTreeMap::new());
            self.replace_slices(&namespace, &BTreeMap::new());
        }
        for namespace in namespaces {
            self.namespaces.entry(namespace.clone()).or_default();
        }
    }

    /// Takes in a fact, and keeps it for those who follow.
    fn learn(&mut self, fact: Fact) {
        self.untold.iter_mut().for_each(|untold| untold.push(fact.clone()));
        self.view.learn(fact);
    }

    fn list_ports(&mut self, ports: &BTreeMap<PortKey, PlacedPort>) {
        let gone = self.view.homes().filter(|key| !ports.contains_key(key));
        for key in gone.cloned().collect::<Vec<_>>() {
            self.learn(Fact::Home(key, None));
        }
        for (key, port) in ports {
            self.learn(Fact::Home(key.clone(), self.home(port)));
        }
        self.ports = true;
    }

    /// A port of another network, or one that was made beforehand, is nobody's home here.
    fn home(&self, port: &PlacedPort) -> Option<Home> {
        let is_home = port.network_name == self.name && !port.pod.name.is_empty();
        is_home.then(|| Home { pod: port.pod.clone(), ips: port.ips.clone() })
    }

    fn absorb_ports(&mut self, delta: &Delta<PortKey, PlacedPort>) {
        self.is_changed = true;
        match delta {
            Delta::All(ports) => self.list_ports(ports),
            Delta::Put(key, port) if self.ports => {
                self.learn(Fact::Home(key.clone(), self.home(port)));
            }
            Delta::Gone(key) if self.ports => self.learn(Fact::Home(key.clone(), None)),
            Delta::Put(..) | Delta::Gone(_) => {}
        }
    }

    /// A word before the list is a late word of an earlier watch.
    fn absorb_dns(&mut self, delta: &Delta<String, NetworkDns>) {
        match delta {
            Delta::All(all) => self.dns = Some(all.get(&self.name).cloned().unwrap_or_default()),
            Delta::Put(_, dns) if self.dns.is_some() => self.dns = Some(dns.clone()),
            Delta::Gone(_) if self.dns.is_some() => self.dns = Some(NetworkDns::default()),
            Delta::Put(..) | Delta::Gone(_) => {}
        }
    }

    fn absorb_services(&mut self, namespace: &str, delta: &Delta<String, Service>) {
        let Some(listed) = self.namespaces.get_mut(namespace) else { return };
        self.is_changed = true;
        match delta {
            Delta::All(services) => {
                listed.services = true;
                self.replace_services(namespace, services);
            }
            Delta::Put(_, service) if listed.services => {
                self.learn(Fact::Service(service.key.clone(), Some(service.clone())));
            }
            Delta::Gone(name) if listed.services => {
                let key = service_key(namespace, name);
                key.into_iter().for_each(|key| self.learn(Fact::Service(key, None)));
            }
            Delta::Put(..) | Delta::Gone(_) => {}
        }
    }

    fn absorb_slices(&mut self, namespace: &str, delta: &Delta<String, Slice>) {
        let Some(listed) = self.namespaces.get_mut(namespace) else { return };
        self.is_changed = true;
        let key = |name: &String| (namespace.to_owned(), name.clone());
        match delta {
            Delta::All(slices) => {
                listed.slices = true;
                self.replace_slices(namespace, slices);
            }
            Delta::Put(name, slice) if listed.slices => {
                self.learn(Fact::Slice(key(name), Some(slice.clone())));
            }
            Delta::Gone(name) if listed.slices => self.learn(Fact::Slice(key(name), None)),
            Delta::Put(..) | Delta::Gone(_) => {}
        }
    }

    fn replace_services(&mut self, namespace: &str, services: &BTreeMap<String, Service>) {
        let known = self.view.services_in(namespace);
        let gone = known.filter(|key| !services.contains_key(key.name.as_str()));
        for key in gone.cloned().collect::<Vec<_>>() {
            self.learn(Fact::Service(key, None));
        }
        for service in services.values() {
            self.learn(Fact::Service(service.key.clone(), Some(service.clone())));
        }
    }

    fn replace_slices(&mut self, namespace: &str, slices: &BTreeMap<String, Slice>) {
        let gone = self.view.slices_in(namespace).filter(|key| !slices.contains_key(&key.1));
        for key in gone.cloned().collect::<Vec<_>>() {
            self.learn(Fact::Slice(key, None));
        }
        for (name, slice) in slices {
            self.learn(Fact::Slice((namespace.to_owned(), name.clone()), Some(slice.clone())));
        }
    }
}

/// A service whose name is no label was never read.
fn service_key(namespace: &str, name: &str) -> Option<ServiceKey> {
    let label = |text: &str| text.parse::<Label>().ok();
    Some(ServiceKey { namespace: label(namespace)?, name: label(name)? })
}

#[cfg(test)]
mod tests {
    use atoll_types::{MacAddr, PodRef};
    use atoll_zones::{Asked, Backing, DomainName, Kind};

    use super::*;

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
        assert!(
            matches!(&updates[..], [Update::Outside(_, told)] if *told == outside),
            "{updates:?}"
        );
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
}
