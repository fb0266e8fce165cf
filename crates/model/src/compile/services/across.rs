//! Services across the networks of one tenant: a VIP is seen from all of them, and leads to pods of the
//! client's own VPC first, then to those of others.
//!
//! The rules: nobody but pods of the service's own tenant stands behind it, wherever they are; a network
//! whose number other tenants have, too, takes no part; what a network says of its own addresses
//! comes before what others of its tenant say; and a VPC costs a node nothing while nobody in it can be
//! a client that the node leads.

use std::collections::{BTreeMap, BTreeSet};

use atoll_plan::{Backend, Service, ServiceKey, Side};
use atoll_types::{NetAddr, NetworkId};

use super::choice::{Candidate, Vantage, choose};
use super::front::{FrontPort, ServiceFront};
use super::fronts::{Claim, Rank};
use super::homes::ObjectKey;
use super::network::{Addresses, Network, Outcome};
use super::slice::Who;

/// A network whose services concern this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Followed {
    /// Its number.
    pub id: NetworkId,
    /// Whether it has pods on this node, who may be clients.
    pub is_here: bool,
    /// Whether it has none, and the outside reaches it by this node.
    pub is_guest: bool,
    /// Whether pods of other tenants have the same number: then nothing leads into it or out of it.
    pub is_shared: bool,
}

/// The networks of a tenant beside the service's own.
pub(super) type Kin<'a> = [&'a Network];

/// One port of a service in one family, and all who are behind it.
pub(super) struct Behind<'a> {
    pub(super) front: &'a ServiceFront,
    pub(super) port: &'a FrontPort,
    pub(super) all: Vec<Candidate<'a, Backend>>,
}

impl Behind<'_> {
    /// Who takes connections of clients in this network: those of its own VPC, if any can.
    pub(super) fn nearest(&self, network: NetworkId, vantage: &Vantage) -> Service {
        let [own, others] = self.split(|it| it.at.addr.network == network);
        let chosen = choose(&own, self.front.local_only, vantage);
        if !chosen.is_empty() {
            return self.service(chosen);
        }
        self.service(choose(&others, self.front.local_only, vantage))
    }

    /// Who of this node takes what other nodes send for clients in this network.
    fn taken_here(&self, network: NetworkId, vantage: &Vantage) -> Option<Service> {
        let [here, _] = self.split(|it| it.is_here && it.at.addr.network != network);
        let chosen = choose(&here, true, vantage);
        (!chosen.is_empty()).then(|| self.service(chosen))
    }

    fn split(
        &self,
        is_first: impl Fn(&Candidate<'_, Backend>) -> bool,
    ) -> [Vec<Candidate<'_, Backend>>; 2] {
        let (first, rest) = self.all.iter().copied().partition(|it| is_first(it));
        [first, rest]
    }

    pub(super) fn service(&self, backends: Vec<Backend>) -> Service {
        let backends = backends.into_iter().collect();
        Service { backends, affinity: self.front.affinity, sources: BTreeSet::new() }
    }
}

impl Network {
    /// All who are behind a port of a service: pods wherever they are, addresses in its own network.
    pub(super) fn behind<'a>(
        &'a self,
        key: &ObjectKey,
        (front, port, v4): (&'a ServiceFront, &'a FrontPort, bool),
        vantage: &Vantage,
        kin: &Kin<'a>,
    ) -> Behind<'a> {
        let mut all = vec![];
        for group in self.groups_of(key).filter(|group| group.v4 == v4) {
            let number = group.ports.get(&(port.name.clone(), port.protocol));
            let Some(number) = number.copied() else { continue };
            for member in &group.members {
                let elsewhere = kin.iter().filter(|_| matches!(member.who, Who::Pod(_)));
                for network in elsewhere.copied().chain([self]) {
                    for (ip, node) in network.homes.find(&member.who, v4) {
                        let at = Backend { addr: NetAddr::new(network.id(), ip), port: number };
                        let is_here = node == Some(vantage.node.as_str());
                        all.push(Candidate { member, is_here, at });
                    }
                }
            }
        }
        Behind { front, port, all }
    }

    /// What a service claims in other networks of its tenant, and for clients of other nodes.
    pub(super) fn claim_across(
        &self,
        addresses: &Addresses,
        vips: &Addresses,
        behind: &Behind<'_>,
        vantage: &Vantage,
        kin: &Kin<'_>,
        outcome: &mut Outcome,
    ) {
        let own = kin.iter().copied().filter(|it| it.id() == self.id()).chain([self]);
        if have_clients_beyond(own, vantage) {
            self.claim_for_nodes(self.id(), addresses, behind, vantage, outcome);
        }
        let others: BTreeMap<NetworkId, Vec<&Network>> =
            kin.iter().filter(|it| it.id() != self.id()).fold(BTreeMap::new(), |mut all, it| {
                all.entry(it.id()).or_insert_with(Vec::new).push(*it);
                all
            });
        for (id, networks) in others {
            let is_free = |ip| !networks.iter().any(|network| network.homes.has_address(ip));
            let free: Addresses = vips.iter().filter(|(ip, _)| is_free(*ip)).copied().collect();
            if networks.iter().any(|network| network.is_here()) {
                let service = behind.nearest(id, vantage);
                for (ip, rank) in &free {
                    let key = ServiceKey { network: id, ..self.key(*ip, behind.port) };
                    outcome.claims.insert(key, Claim { rank: *rank, service: service.clone() });
                }
            }
            if have_clients_beyond(networks.iter().copied(), vantage) {
                self.claim_for_nodes(id, &free, behind, vantage, outcome);
            }
        }
    }

    fn claim_for_nodes(
        &self,
        network: NetworkId,
        addresses: &Addresses,
        behind: &Behind<'_>,
        vantage: &Vantage,
        outcome: &mut Outcome,
    ) {
        let Some(service) = behind.taken_here(network, vantage) else { return };
        for (ip, rank) in addresses {
            let key = self.key(*ip, behind.port);
            let key = ServiceKey { network, side: Side::Backends, ..key };
            outcome.claims.insert(key, Claim { rank: *rank, service: service.clone() });
        }
    }
}

/// Whether another node may send packets of pods of these networks, which are one VPC.
fn have_clients_beyond<'a>(
    networks: impl IntoIterator<Item = &'a Network>,
    vantage: &Vantage,
) -> bool {
    networks.into_iter().any(|network| network.homes.is_beyond(&vantage.node))
}

/// The addresses of a service that other networks of its tenant see, with the right it has there.
pub(super) fn vips(front: &ServiceFront, v4: bool) -> Addresses {
    let own = front.addresses.iter().filter(|(ip, _)| ip.is_ipv4() == v4);
    own.filter(|(_, rank)| **rank == Rank::Vip).map(|(ip, _)| (*ip, Rank::Elsewhere)).collect()
}

/// The beginning of the object names of all networks of the same tenant.
pub(super) fn tenant_prefix(network: &str) -> &str {
    network.find('.').map_or(network, |dot| &network[..=dot])
}

/// The tenants, by their prefix, whose networks are others than before.
pub(super) fn changed_tenants(
    before: &BTreeMap<String, Followed>,
    after: &BTreeMap<String, Followed>,
) -> BTreeSet<String> {
    let names = before.keys().chain(after.keys());
    let changed = names.filter(|name| before.get(*name) != after.get(*name));
    changed.map(|name| tenant_prefix(name).to_owned()).collect()
}
