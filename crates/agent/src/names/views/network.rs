//! One network that has names here, and what of it was listed.
//!
//! The rule of this file: its names are first told once its ports, what its object says of them, and the
//! services and EndpointSlices of each of its namespaces have been listed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use atoll_api::DnsMode;
use atoll_dns::NetworkKey;
use atoll_model::compile::PlacedPort;
use atoll_types::{Label, NetworkId};
use atoll_zones::{Fact, Home, Service, ServiceKey, Slice, View};

use super::Update;
use super::kin::Neighbours;
use crate::seen::{Delta, NetworkDns, Outside, PortKey, Seen};

/// A network, and what of it was listed.
#[derive(Debug)]
pub(super) struct Network {
    pub(super) key: NetworkKey,
    pub(super) id: NetworkId,
    pub(super) name: String,
    pub(super) view: View,
    /// The resolver has its names.
    pub(super) is_published: bool,
    /// Its names may be others than the resolver has.
    pub(super) is_changed: bool,
    pub(super) ports: bool,
    /// What its object says, once it was seen.
    pub(super) dns: Option<NetworkDns>,
    /// What the resolver was told that it may ask outside.
    pub(super) told_outside: Outside,
    /// What was learned since followers were last told; none where nobody follows.
    pub(super) untold: Option<Vec<Fact>>,
    pub(super) namespaces: BTreeMap<String, Listed>,
    /// The cluster's own services that have a name here.
    pub(super) exported: BTreeMap<ServiceKey, Service>,
    pub(super) neighbours: Neighbours,
}

#[derive(Debug, Default)]
pub(super) struct Listed {
    services: bool,
    slices: bool,
}

impl Network {
    /// A network that begins with what was seen.
    pub(super) fn begin(
        key: NetworkKey,
        name: &str,
        id: NetworkId,
        view: View,
        seen: &Seen,
    ) -> Self {
        let mut fresh = Network {
            key,
            id,
            name: name.to_owned(),
            view,
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
        if let Some(ports) = seen.ports_of(id) {
            fresh.list_ports(ports);
        }
        fresh
    }

    /// What the resolver is to be told of it.
    pub(super) fn updates(&mut self, is_whole: bool) -> Vec<Update> {
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

    /// Who answers its pods.
    pub(super) fn mode(&self) -> DnsMode {
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

    /// Keeps exactly these namespaces.
    pub(super) fn follow(&mut self, namespaces: &BTreeSet<String>) {
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
    pub(super) fn learn(&mut self, fact: Fact) {
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

    pub(super) fn absorb_ports(&mut self, delta: &Delta<PortKey, PlacedPort>) {
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
    pub(super) fn absorb_dns(&mut self, delta: &Delta<String, NetworkDns>) {
        match delta {
            Delta::All(all) => self.dns = Some(all.get(&self.name).cloned().unwrap_or_default()),
            Delta::Put(_, dns) if self.dns.is_some() => self.dns = Some(dns.clone()),
            Delta::Gone(_) if self.dns.is_some() => self.dns = Some(NetworkDns::default()),
            Delta::Put(..) | Delta::Gone(_) => {}
        }
    }

    pub(super) fn absorb_services(&mut self, namespace: &str, delta: &Delta<String, Service>) {
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

    pub(super) fn absorb_slices(&mut self, namespace: &str, delta: &Delta<String, Slice>) {
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
pub(super) fn service_key(namespace: &str, name: &str) -> Option<ServiceKey> {
    let label = |text: &str| text.parse::<Label>().ok();
    Some(ServiceKey { namespace: label(namespace)?, name: label(name)? })
}
