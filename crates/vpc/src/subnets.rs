//! The subnets of networks.

use std::collections::HashMap;
use std::sync::Arc;

use atoll_types::Cidr;

use crate::family::Family;
use crate::groups::{Each, Groups};
use crate::layout::Layout;
use crate::names::Names;

/// A subnet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subnet<N: Names> {
    /// The network that it is part of.
    pub network: N::Network,
    /// Its range, and what of it can be given.
    pub layout: Arc<Layout>,
    /// Whether its network has it for one of its ranges, so that it comes before others.
    pub own: bool,
    /// How far it is.
    pub stage: Stage,
    /// When it was made.
    pub age: N::Age,
}

/// How far a subnet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It will give addresses: whoever wants one of its family waits for it.
    Coming,
    /// It gives addresses.
    Giving,
    /// It gives none, and nobody waits for it.
    Closed,
}

impl<N: Names> Subnet<N> {
    /// The range.
    pub fn cidr(&self) -> Cidr {
        self.layout.cidr()
    }

    /// The family of its addresses.
    pub(crate) fn family(&self) -> Family {
        self.cidr().into()
    }

    /// Whether it is the same range of the same network, whatever is kept back of it.
    pub(crate) fn has_the_place_of(&self, other: &Self) -> bool {
        (&self.network, self.cidr()) == (&other.network, other.cidr())
    }

    /// Whether the same can be given from it, now or later.
    pub(crate) fn is_laid_out_as(&self, other: &Self) -> bool {
        (&self.network, &self.layout) == (&other.network, &other.layout)
    }
}

/// All subnets, by name and by network. Of some no more is known than that they are there.
#[derive(Clone, Debug)]
pub struct Subnets<N: Names> {
    all: HashMap<N::Subnet, Option<Subnet<N>>>,
    of_network: Groups<N::Network, N::Subnet>,
}

impl<N: Names> Default for Subnets<N> {
    fn default() -> Self {
        Subnets { all: HashMap::new(), of_network: Groups::default() }
    }
}

impl<N: Names> Subnets<N> {
    /// Puts a subnet in its place; tells what was there before.
    pub(crate) fn put(&mut self, name: N::Subnet, subnet: Option<Subnet<N>>) -> Option<Subnet<N>> {
        let before = self.remove(&name);
        if let Some(subnet) = &subnet {
            self.of_network.add(subnet.network.clone(), name.clone());
        }
        self.all.insert(name, subnet);
        before
    }

    pub(crate) fn remove(&mut self, name: &N::Subnet) -> Option<Subnet<N>> {
        let before = self.all.remove(name)??;
        self.of_network.remove(&before.network, name);
        Some(before)
    }

    /// A subnet.
    pub fn get(&self, name: &N::Subnet) -> Option<&Subnet<N>> {
        self.all.get(name)?.as_ref()
    }

    /// Whether a subnet of that name is there, whatever is known of it.
    pub(crate) fn has(&self, name: &N::Subnet) -> bool {
        self.all.contains_key(name)
    }

    /// The names of the subnets of a network, in order.
    pub fn of_network(&self, network: &N::Network) -> Each<'_, N::Subnet> {
        self.of_network.of(network)
    }

    /// The subnets of a network, in the order of their names.
    pub(crate) fn within(
        &self,
        network: &N::Network,
    ) -> impl Iterator<Item = (&N::Subnet, &Subnet<N>)> {
        self.of_network(network).filter_map(|name| Some((name, self.get(name)?)))
    }

    /// The subnets of a network that give addresses.
    pub(crate) fn giving(
        &self,
        network: &N::Network,
    ) -> impl Iterator<Item = (&N::Subnet, &Subnet<N>)> {
        self.within(network).filter(|(_, subnet)| subnet.stage == Stage::Giving)
    }
}
