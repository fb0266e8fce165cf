//! What networks have to do with the outside, and what of the cluster is never outside.

use std::collections::{BTreeMap, BTreeSet};

use atoll_model::compile::{OutletOf, never_outside, only};
use atoll_model::outside::Held;
use atoll_plan::Infra;
use atoll_types::{Cidr, NetworkId};

use super::{Seen, SeenNode};

impl Seen {
    /// The addresses of the outside that are for a network, once they were listed.
    pub(crate) fn held_of(&self, network: &str) -> Option<&BTreeMap<String, Held>> {
        self.held.get(network)?.as_ref()
    }

    /// What the networks that are here say of the outside.
    pub(super) fn outlets(&self) -> Vec<OutletOf<'_>> {
        let outlet = |(name, network): (&str, NetworkId)| {
            let held = self.held.get(name)?.iter().flat_map(BTreeMap::values).collect();
            let (name, outlet) = self.outlets.get(name)?.as_ref()?.get_key_value(name)?;
            Some(OutletOf { name, network, outlet, held })
        };
        self.with_pods().into_iter().chain(self.guests()).filter_map(outlet).collect()
    }

    /// What nobody reaches by way of the outside, once it was seen whole.
    pub(crate) fn closed(&self) -> Option<BTreeSet<Cidr>> {
        let is_whole = self.nodes.is_some() && self.pools.is_some();
        is_whole.then(|| never_outside().chain(self.own_of_cluster()).collect())
    }

    /// What of infra is where, as seen from a node: the nodes by the addresses that they have
    /// themselves, and their pods of no tenant.
    pub(crate) fn infra(&self, own: &str) -> BTreeMap<Cidr, Infra> {
        let nodes = self.nodes.iter().flatten();
        let ranges = |(name, node): (&String, &SeenNode)| {
            let (itself, pods) = match name == own {
                true => (Infra::ThisNode, Infra::PodsHere),
                false => (Infra::OtherNode, Infra::PodsThere),
            };
            let itself = node.internal.iter().copied().filter_map(only).map(move |ip| (ip, itself));
            let pods = node.pod_ranges.iter().map(move |range| (*range, pods));
            itself.chain(pods).collect::<Vec<_>>()
        };
        nodes.flat_map(ranges).collect()
    }

    /// The ranges of the pools of addresses.
    pub(crate) fn pool_ranges(&self) -> impl Iterator<Item = Cidr> {
        self.pools.iter().flat_map(BTreeMap::values).flatten().copied()
    }

    /// What of the cluster nobody reaches by way of the outside: its nodes, also by the addresses of
    /// pools that they answer for, and the pods that are of no tenant.
    pub(super) fn own_of_cluster(&self) -> BTreeSet<Cidr> {
        let nodes = self.nodes.iter().flat_map(BTreeMap::values);
        let ranges = |node: &SeenNode| {
            let ips = node.facts.ips.iter().copied().chain([node.underlay]);
            ips.filter_map(only).chain(node.pod_ranges.iter().copied()).collect::<Vec<_>>()
        };
        nodes.flat_map(ranges).chain(self.pool_ranges()).collect()
    }
}
