//! The names of each network on this node, as they follow from what was seen.
//!
//! The rule of this file: a network's names are first told once its ports, and the services and
//! EndpointSlices of each of its namespaces, have been listed. What is not followed is passed over.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use atoll_model::compile::PlacedPort;
use atoll_types::{Label, NetworkId};
use atoll_zones::{Home, Service, ServiceKey, Settings, Slice, View, ZoneSet};

use crate::seen::{Change, Delta, PortKey, Scope};

/// What the resolver is to be told.
#[derive(Debug)]
pub(super) enum Update {
    /// The names of a network that had none.
    First(NetworkId, Arc<ZoneSet>),
    /// The names of a network in place of those it had.
    Next(NetworkId, Arc<ZoneSet>),
    /// A network has left.
    Gone(NetworkId),
}

/// All networks that have names here.
#[derive(Debug)]
pub(super) struct Views {
    settings: Settings,
    /// Whether it is known which namespaces there are.
    is_whole: bool,
    networks: BTreeMap<NetworkId, Network>,
    changed: BTreeSet<NetworkId>,
    published: BTreeSet<NetworkId>,
}

/// A network, and what of it was listed.
#[derive(Debug)]
struct Network {
    view: View,
    ports: bool,
    namespaces: BTreeMap<String, Listed>,
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
            changed: BTreeSet::new(),
            published: BTreeSet::new(),
        }
    }

    /// Whether the resolver has names of this network.
    pub(super) fn is_published(&self, network: NetworkId) -> bool {
        self.published.contains(&network)
    }

    /// Keeps exactly these networks and namespaces.
    pub(super) fn follow(&mut self, scope: &Scope) {
        self.is_whole = scope.is_whole;
        self.networks.retain(|network, _| scope.networks.contains_key(network));
        for (network, namespaces) in &scope.networks {
            let fresh = || Network::new(&self.settings);
            self.networks.entry(*network).or_insert_with(fresh).follow(namespaces);
            self.changed.insert(*network);
        }
    }

    /// Takes in what a change says of names.
    pub(super) fn absorb(&mut self, change: &Change) {
        let (Change::NetworkPorts(network, _)
        | Change::Services((network, _), _)
        | Change::Slices((network, _), _)) = change
        else {
            return;
        };
        if let Some(known) = self.networks.get_mut(network) {
            known.absorb(change);
            self.changed.insert(*network);
        }
    }

    /// What is to be told since the last time.
    pub(super) fn updates(&mut self) -> Vec<Update> {
        let left = self.published.extract_if(.., |network| !self.networks.contains_key(network));
        let mut updates: Vec<Update> = left.map(Update::Gone).collect();
        for network in std::mem::take(&mut self.changed) {
            updates.extend(self.update(network));
        }
        updates
    }

    fn update(&mut self, network: NetworkId) -> Option<Update> {
        let known = self.networks.get(&network)?;
        let zones = || Arc::new(known.view.zones().clone());
        if self.published.contains(&network) {
            return Some(Update::Next(network, zones()));
        }
        (self.is_whole && known.is_listed()).then(|| {
            self.published.insert(network);
            Update::First(network, zones())
        })
    }
}

impl Network {
    fn new(settings: &Settings) -> Self {
        let view = View::new(settings.clone());
        Network { view, ports: false, namespaces: BTreeMap::new() }
    }

    fn is_listed(&self) -> bool {
        self.ports && self.namespaces.values().all(|listed| listed.services && listed.slices)
    }

    fn follow(&mut self, namespaces: &BTreeSet<String>) {
        let view = &mut self.view;
        self.namespaces.retain(|namespace, _| {
            let stays = namespaces.contains(namespace);
            if !stays {
                replace_services(view, namespace, &BTreeMap::new());
                replace_slices(view, namespace, &BTreeMap::new());
            }
            stays
        });
        for namespace in namespaces {
            self.namespaces.entry(namespace.clone()).or_default();
        }
    }

    fn absorb(&mut self, change: &Change) {
        match change {
            Change::NetworkPorts(_, delta) => self.absorb_ports(delta),
            Change::Services((_, namespace), delta) => self.absorb_services(namespace, delta),
            Change::Slices((_, namespace), delta) => self.absorb_slices(namespace, delta),
            Change::Nodes(_) | Change::OwnPorts(_) | Change::Namespaces(_) => {}
        }
    }

    fn absorb_ports(&mut self, delta: &Delta<PortKey, PlacedPort>) {
        match delta {
            Delta::All(ports) => {
                replace_homes(&mut self.view, ports);
                self.ports = true;
            }
            Delta::Put(key, port) if self.ports => self.view.put_home(key, home(port)),
            Delta::Gone(key) if self.ports => self.view.put_home(key, None),
            Delta::Put(..) | Delta::Gone(_) => {}
        }
    }

    fn absorb_services(&mut self, namespace: &str, delta: &Delta<String, Service>) {
        let Some(listed) = self.namespaces.get_mut(namespace) else { return };
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

/// A port that was made beforehand is nobody's home yet.
fn home(port: &PlacedPort) -> Option<Home> {
    let has_pod = !port.pod.name.is_empty();
    has_pod.then(|| Home { pod: port.pod.clone(), ips: port.ips.clone() })
}

fn replace_homes(view: &mut View, ports: &BTreeMap<PortKey, PlacedPort>) {
    let gone = view.homes().filter(|key| !ports.contains_key(key));
    for key in gone.cloned().collect::<Vec<_>>() {
        view.put_home(&key, None);
    }
    for (key, port) in ports {
        view.put_home(key, home(port));
    }
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
