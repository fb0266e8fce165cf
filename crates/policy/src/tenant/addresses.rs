//! Addresses and the identities they have: those of pods, and ranges outside of them.
//!
//! The rule kept here: an address has one identity, and one that two pods have is nobody's.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use atoll_types::{Cidr, NetAddr, NetworkId, PodRef};

use super::{Shared, Tenant};
use crate::facts::{Interface, Node, Pod};
use crate::identity::{Identity, Profile, Who};
use crate::policy::Policy;
use crate::tables::OutsideKey;

impl Tenant {
    pub(super) fn disown(&mut self, address: NetAddr, pod: &PodRef) {
        let Some(owners) = self.owners.get_mut(&address) else { return };
        owners.remove(pod);
        if owners.is_empty() {
            self.owners.remove(&address);
            self.addresses.remove(&(address.ip, address.network));
        }
    }

    /// Gives an address of a pod the identity it has now.
    pub(super) fn refresh_endpoint(&mut self, shared: &mut Shared, address: NetAddr) {
        let before = shared.ink.tables.endpoints.get(&address).copied();
        match self.identity_of(address) {
            Some(identity) => {
                let number = self.hold(shared, &identity);
                shared.ink.tables.endpoints.put(address, number);
            }
            None => shared.ink.tables.endpoints.remove(&address),
        }
        if let Some(before) = before {
            self.release(shared, before);
        }
    }

    /// Who is at an address. An address with two owners is nobody's, and so is one of a pod whose
    /// namespace is not known.
    fn identity_of(&self, address: NetAddr) -> Option<Identity> {
        if self.guests.contains(&address) && !self.owners.contains_key(&address) {
            return Some(Identity { tenant: self.name.clone(), who: Who::Guest, range: None });
        }
        let mut owners = self.owners.get(&address)?.iter();
        let owner = owners.next().filter(|_| owners.next().is_none())?;
        let pod = self.pods.get(owner)?;
        let interface = pod.interfaces.iter().find(|interface| holds(interface, address))?;
        let profile = Profile {
            namespace: owner.namespace.clone(),
            namespace_labels: self.namespaces.get(&owner.namespace)?.clone(),
            labels: pod.labels.clone(),
            ports: pod.ports.clone(),
            network: interface.network.clone(),
        };
        Some(self.seen(Who::Pod(Arc::new(profile)), address.ip))
    }

    fn seen(&self, who: Who, ip: IpAddr) -> Identity {
        Identity { tenant: self.name.clone(), who, range: self.ranges.around(ip) }
    }

    /// Gives a range outside of pods the identity it has now.
    pub(super) fn refresh_outside(&mut self, shared: &mut Shared, range: Cidr) {
        let before = self.outside.remove(&range);
        let key = OutsideKey { tenant: self.number, range };
        match self.identity_outside(shared, range) {
            Some(identity) => {
                let number = self.hold(shared, &identity);
                self.outside.insert(range, number);
                shared.ink.tables.outside.put(key, number);
            }
            None => shared.ink.tables.outside.remove(&key),
        }
        if let Some(before) = before {
            self.release(shared, before);
        }
    }

    fn identity_outside(&self, shared: &Shared, range: Cidr) -> Option<Identity> {
        let ip = range.first();
        let node = shared.nodes.values().find(|node| node.ips.contains(&ip));
        match node.filter(|_| self.policies_on_nodes > 0 && range.size() == 1) {
            Some(node) => Some(self.seen(Who::Node(node.labels.clone()), ip)),
            None if self.named_ranges.contains(&range) => Some(self.outside_within(range)),
            None => None,
        }
    }

    fn outside_within(&self, range: Cidr) -> Identity {
        Identity { tenant: self.name.clone(), who: Who::Outside, range: Some(range) }
    }

    pub(super) fn hold_ranges(&mut self, shared: &mut Shared, policy: &Policy) {
        for range in policy.ranges() {
            if self.ranges.hold(range) {
                self.named_ranges.insert(range);
                self.range_changed(shared, range);
            }
        }
        if policy.names_nodes() {
            self.policies_on_nodes += 1;
            self.nodes_changed(shared, &all_addresses(&shared.nodes));
        }
    }

    pub(super) fn release_ranges(&mut self, shared: &mut Shared, policy: &Policy) {
        for range in policy.ranges() {
            if self.ranges.release(range) {
                self.named_ranges.remove(&range);
                self.range_changed(shared, range);
            }
        }
        if policy.names_nodes() {
            self.policies_on_nodes -= 1;
            self.nodes_changed(shared, &all_addresses(&shared.nodes));
        }
    }

    /// A range began or ceased to be told apart from what is around it.
    fn range_changed(&mut self, shared: &mut Shared, range: Cidr) {
        self.refresh_outside(shared, range);
        let (first, last) = ((range.first(), NetworkId::MIN), (range.last(), NetworkId::MAX));
        let pods: Vec<_> = self.addresses.range(first..=last).copied().collect();
        for (ip, network) in pods {
            self.refresh_endpoint(shared, NetAddr::new(network, ip));
        }
        let hosts = self.outside.keys().filter(|host| host.size() == 1 && **host != range);
        let hosts: Vec<Cidr> = hosts.filter(|host| range.contains_cidr(host)).copied().collect();
        for host in hosts {
            self.refresh_outside(shared, host);
        }
    }

    fn hold(&mut self, shared: &mut Shared, identity: &Identity) -> u32 {
        let (number, new) = shared.identities.hold(identity);
        if new {
            self.begin(shared, number, identity);
        }
        number
    }

    fn release(&mut self, shared: &mut Shared, number: u32) {
        if let Some(identity) = shared.identities.release(number) {
            self.end(shared, number, &identity);
        }
    }
}

pub(super) fn addresses_of(pod: &Pod) -> Vec<NetAddr> {
    let interfaces = pod.interfaces.iter().filter(|_| !pod.host_network);
    interfaces.flat_map(Interface::addresses).collect()
}

fn holds(interface: &Interface, address: NetAddr) -> bool {
    interface.id == address.network && interface.ips.contains(&address.ip)
}

pub(super) fn host(ip: IpAddr) -> Option<Cidr> {
    let length = if ip.is_ipv4() { 32 } else { 128 };
    format!("{ip}/{length}").parse().ok()
}

fn all_addresses(nodes: &BTreeMap<String, Node>) -> BTreeSet<IpAddr> {
    nodes.values().flat_map(|node| node.ips.iter().copied()).collect()
}
