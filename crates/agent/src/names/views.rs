//! The names of each network on this node, as they follow from what was seen.
//!
//! The rules of this file: a network is known by its object name, since networks of one VPC, and
//! open networks of several tenants, share their number. A network's names are first told once its ports, and the services and
//! EndpointSlices of each of its namespaces, have been listed. What is not followed is passed over.

mod exports;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use atoll_dns::NetworkKey;
use atoll_model::compile::PlacedPort;
use atoll_types::{Label, NetworkId};
use atoll_zones::{Home, Service, ServiceKey, Settings, Slice, View, ZoneSet};

use self::exports::Exports;
use crate::seen::{Change, Delta, PortKey, Presence, Scope, Seen};

/// What the resolver is to be told.
#[derive(Debug)]
pub(super) enum Update {
    /// The names of a network that had none.
    First(NetworkKey, Arc<ZoneSet>),
    /// The names of a network in place of those it had.
    Next(NetworkKey, Arc<ZoneSet>),
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
    /// Networks that have left since they were last told of.
    gone: Vec<NetworkKey>,
    /// How many networks have had a key.
    keys: u64,
    /// The cluster's own services that tenants may call; none before they were seen.
    exports: Option<Exports>,
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
    namespaces: BTreeMap<String, Listed>,
    /// The cluster's own services that have a name here.
    exported: BTreeMap<ServiceKey, Service>,
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
            gone: Vec::new(),
            keys: 0,
            exports: None,
        }
    }

    /// The network of this name, where the resolver has its names.
    pub(super) fn published(&self, network: &str) -> Option<NetworkKey> {
        let known = self.networks.get(network).filter(|known| known.is_published);
        known.map(|known| known.key)
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
        self.gone
            .extend(left.map(|(_, known)| known).filter(|it| it.is_published).map(|it| it.key));
        for (name, presence) in &scope.networks {
            if !self.networks.contains_key(name) {
                let fresh = self.begin(name, presence, seen);
                self.networks.insert(name.clone(), fresh);
            }
        }
        for (name, known) in &mut self.networks {
            scope.networks.get(name).into_iter().for_each(|it| known.follow(&it.namespaces));
            self.exports.iter().for_each(|exports| known.export(exports));
        }
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
            namespaces: BTreeMap::new(),
            exported: BTreeMap::new(),
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
                let with_id = self.networks.values_mut().filter(|known| known.id == *id);
                with_id.for_each(|known| known.absorb_ports(delta));
            }
            Change::Services((network, namespace), delta) => {
                let known = self.networks.get_mut(network).into_iter();
                known.for_each(|known| known.absorb_services(namespace, delta));
            }
            Change::Slices((network, namespace), delta) => {
                let known = self.networks.get_mut(network).into_iter();
                known.for_each(|known| known.absorb_slices(namespace, delta));
            }
            Change::Nodes(_)
            | Change::Zones(_)
            | Change::OwnPorts(_)
            | Change::Namespaces(_)
            | Change::Fronts(..)
            | Change::Groups(..)
            | Change::Api(_)
            | Change::Exports(_)
            | Change::Targets(..)
            | Change::Policy(_)
            | Change::Probed(_) => {}
        }
    }

    /// What is to be told since the last time.
    pub(super) fn updates(&mut self) -> Vec<Update> {
        let gone = std::mem::take(&mut self.gone).into_iter().map(Update::Gone);
        let is_whole = self.is_whole && self.exports.is_some();
        let told = self.networks.values_mut().filter_map(|known| known.update(is_whole));
        gone.chain(told).collect()
    }
}

impl Network {
    fn update(&mut self, is_whole: bool) -> Option<Update> {
        let is_due = self.is_changed && (self.is_published || is_whole && self.is_listed());
        if !is_due {
            return None;
        }
        self.is_changed = false;
        let zones = Arc::new(self.view.zones().clone());
        Some(match std::mem::replace(&mut self.is_published, true) {
            true => Update::Next(self.key, zones),
            false => Update::First(self.key, zones),
        })
    }

    fn is_listed(&self) -> bool {
        self.ports && self.namespaces.values().all(|listed| listed.services && listed.slices)
    }

    fn follow(&mut self, namespaces: &BTreeSet<String>) {
        let view = &mut self.view;
        self.namespaces.retain(|namespace, _| {
            let stays = namespaces.contains(namespace);
            if !stays {
                self.is_changed = true;
                replace_services(view, namespace, &BTreeMap::new());
                replace_slices(view, namespace, &BTreeMap::new());
            }
            stays
        });
        for namespace in namespaces {
            self.namespaces.entry(namespace.clone()).or_default();
        }
    }

    fn list_ports(&mut self, ports: &BTreeMap<PortKey, PlacedPort>) {
        let gone = self.view.homes().filter(|key| !ports.contains_key(key));
        for key in gone.cloned().collect::<Vec<_>>() {
            self.view.put_home(&key, None);
        }
        for (key, port) in ports {
            self.view.put_home(key, self.home(port));
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
            Delta::Put(key, port) if self.ports => self.view.put_home(key, self.home(port)),
            Delta::Gone(key) if self.ports => self.view.put_home(key, None),
            Delta::Put(..) | Delta::Gone(_) => {}
        }
    }

    fn absorb_services(&mut self, namespace: &str, delta: &Delta<String, Service>) {
        let Some(listed) = self.namespaces.get_mut(namespace) else { return };
        self.is_changed = true;
        match delta {
            Delta::All(services) => {
                replace_services(&mut self.view, namespace, services);
                listed.services = true;
            }
            Delta::Put(_, service) if listed.services => {
                self.view.put_service(&service.key, Some(service.clone()));
            }
            Delta::Gone(name) if listed.services => {
                let key = service_key(namespace, name);
                key.into_iter().for_each(|key| self.view.put_service(&key, None));
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
                replace_slices(&mut self.view, namespace, slices);
                listed.slices = true;
            }
            Delta::Put(name, slice) if listed.slices => {
                self.view.put_slice(&key(name), Some(slice.clone()));
            }
            Delta::Gone(name) if listed.slices => self.view.put_slice(&key(name), None),
            Delta::Put(..) | Delta::Gone(_) => {}
        }
    }
}

/// A service whose name is no label was never read.
fn service_key(namespace: &str, name: &str) -> Option<ServiceKey> {
    let label = |text: &str| text.parse::<Label>().ok();
    Some(ServiceKey { namespace: label(namespace)?, name: label(name)? })
}

fn replace_services(view: &mut View, namespace: &str, services: &BTreeMap<String, Service>) {
    let known = view.services_in(namespace);
    let gone = known.filter(|key| !services.contains_key(key.name.as_str()));
    for key in gone.cloned().collect::<Vec<_>>() {
        view.put_service(&key, None);
    }
    for service in services.values() {
        view.put_service(&service.key, Some(service.clone()));
    }
}

fn replace_slices(view: &mut View, namespace: &str, slices: &BTreeMap<String, Slice>) {
    let gone = view.slices_in(namespace).filter(|key| !slices.contains_key(&key.1));
    for key in gone.cloned().collect::<Vec<_>>() {
        view.put_slice(&key, None);
    }
    for (name, slice) in slices {
        view.put_slice(&(namespace.to_owned(), name.clone()), Some(slice.clone()));
    }
}

#[cfg(test)]
mod tests {
    use atoll_types::{MacAddr, PodRef};
    use atoll_zones::{Asked, Backing, DomainName, Kind};

    use super::*;

    fn views() -> Views {
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
    fn a_word_before_the_list_is_a_late_word_of_an_earlier_watch() {
        let mut views = views();
        views.follow(&scope(&["acme"]), &Seen::default());
        views.absorb(&Change::Services(quarter("acme"), Delta::Put("shop".into(), shop("acme"))));
        assert!(!has(&views, "acme.open", "shop.acme.svc.cluster.local"));
        list_services(&mut views, "acme");
        assert!(has(&views, "acme.open", "shop.acme.svc.cluster.local"));
    }
}
