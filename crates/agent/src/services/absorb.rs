//! What changes say of services, written into the book.
//!
//! The rule of this file: a watch begins with a list. What comes before it is a late word of an earlier
//! watch, and is passed over.

use std::collections::BTreeMap;

use atoll_model::compile::{EndpointGroup, PlacedPort, ServiceFront};
use atoll_model::outside::Held;
use atoll_types::NetworkId;

use super::{Listed, Quarter, Services};
use crate::seen::{Change, Delta, PortKey};

impl Services {
    /// Takes in what a change says of services.
    pub(crate) fn absorb(&mut self, change: &Change) {
        match change {
            Change::Zones(delta) => self.absorb_zone(delta),
            Change::NetworkPorts(id, delta) => self.absorb_ports(*id, delta),
            Change::Fronts((network, namespace), delta) => {
                self.absorb_fronts(network, namespace, delta);
            }
            Change::Groups((network, namespace), delta) => {
                self.absorb_groups(network, namespace, delta);
            }
            Change::Held(network, delta) => self.absorb_held(network, delta),
            Change::Nodes(_)
            | Change::Answered(_)
            | Change::Exposed(..)
            | Change::OwnPorts(_)
            | Change::Namespaces(_)
            | Change::Network(..)
            | Change::Outlet(..)
            | Change::Siblings(..)
            | Change::Services(..)
            | Change::Slices(..)
            | Change::Api(_)
            | Change::Pools(_)
            | Change::Exports(_)
            | Change::Targets(..)
            | Change::Policy(_)
            | Change::Probed(_) => {}
        }
    }

    fn absorb_zone(&mut self, delta: &Delta<String, String>) {
        match delta {
            Delta::All(zones) => self.book.set_zone(zones.get(&self.node).cloned()),
            Delta::Put(node, zone) if *node == self.node => self.book.set_zone(Some(zone.clone())),
            Delta::Gone(node) if *node == self.node => self.book.set_zone(None),
            Delta::Put(..) | Delta::Gone(_) => {}
        }
    }

    fn absorb_ports(&mut self, id: NetworkId, delta: &Delta<PortKey, PlacedPort>) {
        for (network, listed) in self.networks.iter_mut().filter(|(_, listed)| listed.id == id) {
            let known = known_before(delta, self.book.ports_of(network).cloned());
            let put = |key: &PortKey, port: Option<&_>| self.book.put_port(network, key, port);
            write_down(delta, &mut listed.ports, &known, put);
        }
    }

    fn absorb_fronts(
        &mut self,
        network: &str,
        namespace: &str,
        delta: &Delta<String, ServiceFront>,
    ) {
        let Some(quarter) = quarter(&mut self.networks, network, namespace) else { return };
        let known = names_in(namespace, self.book.services_of(network));
        let known = known_before(delta, known);
        write_down(delta, &mut quarter.services, &known, |name, front| {
            let key = (namespace.to_owned(), name.clone());
            self.book.put_service(network, &key, front.cloned());
        });
    }

    fn absorb_groups(
        &mut self,
        network: &str,
        namespace: &str,
        delta: &Delta<String, EndpointGroup>,
    ) {
        let Some(quarter) = quarter(&mut self.networks, network, namespace) else { return };
        let known = names_in(namespace, self.book.slices_of(network));
        let known = known_before(delta, known);
        write_down(delta, &mut quarter.slices, &known, |name, group| {
            let key = (namespace.to_owned(), name.clone());
            self.book.put_slice(network, &key, group.cloned());
        });
    }

    fn absorb_held(&mut self, network: &str, delta: &Delta<String, Held>) {
        let Some(listed) = self.networks.get_mut(network) else { return };
        let known = known_before(delta, self.book.claims_of(network).cloned());
        let put = |claim: &String, held: Option<&_>| self.book.put_held(network, claim, held);
        write_down(delta, &mut listed.held, &known, put);
    }

    /// Takes a namespace that left the network out of the book.
    pub(super) fn forget(&mut self, network: &str, namespace: &str) {
        let key = |name: String| (namespace.to_owned(), name);
        let services: Vec<_> = names_in(namespace, self.book.services_of(network)).collect();
        for name in services {
            self.book.put_service(network, &key(name), None);
        }
        let slices: Vec<_> = names_in(namespace, self.book.slices_of(network)).collect();
        for name in slices {
            self.book.put_slice(network, &key(name), None);
        }
    }
}

fn quarter<'a>(
    networks: &'a mut BTreeMap<String, Listed>,
    network: &str,
    namespace: &str,
) -> Option<&'a mut Quarter> {
    networks.get_mut(network)?.namespaces.get_mut(namespace)
}

/// The names of those objects that are in the namespace.
fn names_in<'a>(
    namespace: &str,
    keys: impl Iterator<Item = &'a (String, String)>,
) -> impl Iterator<Item = String> {
    keys.filter(move |key| key.0 == namespace).map(|key| key.1.clone())
}

/// What was known before a list came. Where one thing changes, nobody asks for the others.
fn known_before<K, V>(delta: &Delta<K, V>, known: impl Iterator<Item = K>) -> Vec<K> {
    match delta {
        Delta::All(_) => known.collect(),
        Delta::Put(..) | Delta::Gone(_) => Vec::new(),
    }
}

/// Tells `put` what each thing is from now on: first of those that were `known` and are gone.
fn write_down<K: Ord, V>(
    delta: &Delta<K, V>,
    is_listed: &mut bool,
    known: &[K],
    mut put: impl FnMut(&K, Option<&V>),
) {
    match delta {
        Delta::All(all) => {
            *is_listed = true;
            known.iter().filter(|key| !all.contains_key(key)).for_each(|key| put(key, None));
            all.iter().for_each(|(key, value)| put(key, Some(value)));
        }
        Delta::Put(key, value) if *is_listed => put(key, Some(value)),
        Delta::Gone(key) if *is_listed => put(key, None),
        Delta::Put(..) | Delta::Gone(_) => {}
    }
}
