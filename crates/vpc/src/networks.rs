//! The networks of VPCs, and what each has to cut subnets from.

use std::collections::HashMap;

use atoll_types::Cidr;

use crate::groups::{Each, Groups};
use crate::names::Names;

/// A network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network<N: Names> {
    /// The VPC that it is part of.
    pub vpc: N::Vpc,
    /// What it has.
    pub space: Space<N::Incarnation>,
    /// When it was made.
    pub age: N::Age,
}

/// What a network has to cut subnets from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Space<I> {
    /// Ranges that it declares. Others of its VPC may have them already.
    Declared(Vec<Cidr>),
    /// The blocks of shared ranges that this incarnation of it holds.
    Blocks(I),
}

impl<I> Space<I> {
    /// The ranges that are declared.
    pub(crate) fn declared(&self) -> &[Cidr] {
        match self {
            Space::Declared(ranges) => ranges,
            Space::Blocks(_) => &[],
        }
    }
}

/// All networks, by name and by VPC.
#[derive(Clone, Debug)]
pub struct Networks<N: Names> {
    all: HashMap<N::Network, Network<N>>,
    of_vpc: Groups<N::Vpc, N::Network>,
}

impl<N: Names> Default for Networks<N> {
    fn default() -> Self {
        Networks { all: HashMap::new(), of_vpc: Groups::default() }
    }
}

impl<N: Names> Networks<N> {
    /// A network is there, or is another than it was.
    pub fn put(&mut self, name: N::Network, network: Network<N>) {
        self.remove(&name);
        self.of_vpc.add(network.vpc.clone(), name.clone());
        self.all.insert(name, network);
    }

    /// A network is gone.
    pub fn remove(&mut self, name: &N::Network) {
        if let Some(network) = self.all.remove(name) {
            self.of_vpc.remove(&network.vpc, name);
        }
    }

    /// A network.
    pub fn get(&self, name: &N::Network) -> Option<&Network<N>> {
        self.all.get(name)
    }

    /// The ranges that networks of a VPC declare.
    pub fn declared_in(&self, vpc: &N::Vpc) -> impl Iterator<Item = Cidr> {
        let networks = self.of_vpc(vpc).filter_map(|name| self.get(name));
        networks.flat_map(|network| network.space.declared()).copied()
    }

    /// The networks of a VPC.
    pub fn of_vpc(&self, vpc: &N::Vpc) -> Each<'_, N::Network> {
        self.of_vpc.of(vpc)
    }
}
