//! The pools of the world: what is proposed, to whom, and what is free.
//!
//! A pool of addresses is built when it is first needed, from the claims that were seen.

use std::collections::HashMap;
use std::net::IpAddr;

use atoll_types::{Cidr, Label, NetAddr, NetworkId, NetworkName};
use atoll_vpc::{self as vpc, AddressPool, Moment, Pools, Shares};

use super::touched::pod_key;
use super::{Settings, World};
use crate::action::Key;
use crate::intent::{BlockHolder, Kind, ObjectName, Pod, Port, SubnetPlan, Thing, Vpc};

/// Pools and proposals.
#[derive(Clone, Debug, Default)]
pub(crate) struct Numbers {
    pub(crate) vpcs: vpc::Numbers<Vpc>,
    pub(crate) blocks: Shares<BlockHolder>,
    pub(crate) pools: Pools<ObjectName>,
    pub(crate) proposals: HashMap<ObjectName, Vec<NetAddr>>,
    pub(crate) proposed: HashMap<NetAddr, ObjectName>,
    pub(crate) seats: HashMap<ObjectName, Label>,
}

impl Numbers {
    /// Everything free, as far as it can be set.
    pub(crate) fn new(settings: &Settings) -> Self {
        Numbers { blocks: Shares::of(&settings.flat), ..Numbers::default() }
    }

    /// Remembers that an address was proposed to a port.
    pub(crate) fn propose(&mut self, port: &ObjectName, address: NetAddr) {
        self.proposals.entry(port.clone()).or_default().push(address);
        self.proposed.insert(address, port.clone());
    }
}

impl World {
    /// The claim on a thing.
    pub(crate) fn claim_on(&self, thing: &Thing) -> Option<&crate::intent::Claim> {
        self.claims.get(&ObjectName::cluster(thing.to_string()))
    }

    /// The subnets whose range holds an address, by the VPC that has its number.
    pub(crate) fn subnets_that_hold(&self, address: NetAddr) -> Vec<ObjectName> {
        let vpcs = self.numbers.vpcs.rightful(address.network);
        let networks = vpcs.flat_map(|vpc| self.indexes.networks_of_vpc.of(vpc));
        let plans = networks.filter_map(|name| self.networks.get(name)?.plan.as_ref().ok());
        plans
            .flat_map(|plan| self.indexes.subnets_of_network.of(&plan.name))
            .filter(|name| {
                self.subnet_plan(name).is_some_and(|plan| plan.cidr.contains(address.ip))
            })
            .cloned()
            .collect()
    }

    /// What a subnet shall be.
    pub(crate) fn subnet_plan(&self, name: &ObjectName) -> Option<&SubnetPlan> {
        self.subnets.get(name)?.plan.as_ref().ok()
    }

    /// The pool of a subnet whose network has the number `id`.
    pub(crate) fn pool(&mut self, subnet: &ObjectName, id: NetworkId) -> Option<&mut AddressPool> {
        if self.numbers.pools.get(subnet).is_none() {
            self.build_pool(subnet, id);
        }
        self.numbers.pools.get(subnet)
    }

    pub(super) fn take_address(&mut self, address: NetAddr) {
        let subnets = self.subnets_that_hold(address);
        self.numbers.pools.take(&subnets, address.ip);
    }

    pub(super) fn free_address(&mut self, address: NetAddr, until: Moment) {
        let subnets = self.subnets_that_hold(address);
        self.numbers.pools.free(&subnets, address.ip, until);
    }

    /// The subnets of a network are others than they were: what is carved out of them changed.
    pub(super) fn rebuild_pools(&mut self, network: &NetworkName) {
        let subnets: Vec<ObjectName> =
            self.indexes.subnets_of_network.of(network).cloned().collect();
        for subnet in subnets {
            if let Some(id) = self.numbers.pools.vpc_of(&subnet) {
                self.build_pool(&subnet, id);
            }
        }
    }

    /// A pod is gone: it waits for nothing, and what was proposed to it and not claimed is free.
    pub(super) fn forget_pod(&mut self, pod: &Pod, now: Moment) {
        self.stop_waiting(&pod_key(&pod.meta.name));
        for port in pod.port_names() {
            self.drop_proposals(&port, now);
        }
    }

    /// A port is gone: it waits for nothing, and nobody waits for it to be used again.
    pub(super) fn forget_port(&mut self, port: &Port, now: Moment) {
        self.stop_waiting(&Key::new(Kind::Port, port.meta.name.clone()));
        self.idle_since.remove(&port.meta.name);
        if port.is_kept() {
            self.drop_proposals(&port.meta.name, now);
        }
    }

    /// Takes back what was proposed to a port of one family.
    pub(crate) fn drop_proposals_of_family(
        &mut self,
        port: &ObjectName,
        is_ipv4: bool,
        until: Moment,
    ) {
        let proposals = self.numbers.proposals.remove(port).unwrap_or_default();
        let (dropped, left): (Vec<_>, Vec<_>) =
            proposals.into_iter().partition(|address| address.ip.is_ipv4() == is_ipv4);
        if !left.is_empty() {
            self.numbers.proposals.insert(port.clone(), left);
        }
        dropped.into_iter().for_each(|address| self.drop_proposal(address, until));
    }

    fn drop_proposal(&mut self, address: NetAddr, until: Moment) {
        self.numbers.proposed.remove(&address);
        if self.claim_on(&Thing::Address(address)).is_none() {
            self.free_address(address, until);
        }
    }

    /// Takes back what was proposed to a port.
    pub(crate) fn drop_proposals(&mut self, port: &ObjectName, now: Moment) {
        if let Some(tenant) = self.numbers.seats.remove(port)
            && self.ports.get(port).is_none_or(|port| port.network().is_none())
        {
            self.indexes.seats_of_tenant.remove(tenant.as_str(), port);
        }
        let proposals = self.numbers.proposals.remove(port).unwrap_or_default();
        proposals.into_iter().for_each(|address| self.drop_proposal(address, now));
    }

    fn build_pool(&mut self, subnet: &ObjectName, id: NetworkId) {
        let Some(plan) = self.subnet_plan(subnet) else { return };
        let siblings: Vec<Cidr> = self.siblings(subnet, plan).collect();
        let taken: Vec<IpAddr> = self.taken_in(id, &plan.cidr).collect();
        let layout = plan.layout.clone();
        self.numbers.pools.build(subnet.clone(), id, &layout, siblings, taken);
    }

    /// The ranges of the other subnets of a subnet's network.
    fn siblings(&self, name: &ObjectName, plan: &SubnetPlan) -> impl Iterator<Item = Cidr> {
        let subnets = self.indexes.subnets_of_network.of(&plan.network);
        let others = subnets.filter(move |other| *other != name);
        others.filter_map(|other| self.subnet_plan(other)).map(|plan| plan.cidr)
    }

    /// Addresses in a range that somebody claimed or was proposed.
    fn taken_in(&self, id: NetworkId, cidr: &Cidr) -> impl Iterator<Item = IpAddr> {
        let range = cidr.first()..=cidr.last();
        let claimed = self.indexes.addresses.get(&id).into_iter();
        let claimed = claimed.flat_map(move |held| held.range(range.clone()).map(|(ip, _)| *ip));
        let proposed = self.numbers.proposed.keys().filter(move |address| address.network == id);
        claimed.chain(proposed.map(|address| address.ip))
    }
}
