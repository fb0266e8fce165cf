//! Which ranges a network has, and where its subnets may lie.
//!
//! The rule: a declared range belongs to the network that has a subnet for it; before there is one,
//! to the older network. A block belongs to the network that claimed it.

use atoll_types::Cidr;

use crate::ledger::Ledger;
use crate::names::Names;
use crate::networks::{Network, Space};
use crate::overlap::{Overlap, first_overlap};
use crate::subnets::Subnet;

/// The ranges of a network, by whether it can use them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sorted<N> {
    /// Those that are its own.
    pub accepted: Vec<Cidr>,
    /// Those that others of its VPC have.
    pub conflicts: Vec<Overlap<N>>,
}

/// Why a subnet cannot be where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Misplaced<S> {
    /// It lies in no range of its network, which has these.
    Outside(Vec<Cidr>),
    /// It lies in a range that another network has.
    Unusable,
    /// An older subnet has the very same range.
    Twin(S),
}

impl<N: Names> Ledger<N> {
    /// The ranges of a network that are its own, and those that another network has.
    pub fn sort_ranges(&self, name: &N::Network) -> Sorted<N::Network> {
        let mut sorted = Sorted { accepted: Vec::new(), conflicts: Vec::new() };
        let Some(network) = self.networks.get(name) else { return sorted };
        for range in self.ranges_of(name, network) {
            match self.conflict(name, network, range) {
                Some(conflict) => sorted.conflicts.push(conflict),
                None => sorted.accepted.push(range),
            }
        }
        sorted
    }

    /// The subnets that a network lacks for ranges of its own.
    pub fn missing_subnets(&self, network: &N::Network, own: &[Cidr]) -> Vec<(N::Subnet, Cidr)> {
        let subnets = own.iter().map(|range| (N::own_subnet(network, *range), *range));
        subnets.filter(|(name, _)| !self.subnets.has(name)).collect()
    }

    /// Why a subnet cannot be where it is, if it cannot.
    pub fn misplaced(&self, name: &N::Subnet) -> Option<Misplaced<N::Subnet>> {
        let subnet = self.subnets.get(name)?;
        let network = self.networks.get(&subnet.network)?;
        let lies_in = |ranges: &[Cidr]| ranges.iter().any(|it| it.contains_cidr(&subnet.cidr()));
        let ranges = self.ranges_of(&subnet.network, network);
        if !lies_in(&ranges) {
            return Some(Misplaced::Outside(ranges));
        }
        if !lies_in(&self.sort_ranges(&subnet.network).accepted) {
            return Some(Misplaced::Unusable);
        }
        self.older_twin(name, subnet).map(Misplaced::Twin)
    }

    /// The ranges of a network: those it declares, or the blocks it holds.
    fn ranges_of(&self, name: &N::Network, network: &Network<N>) -> Vec<Cidr> {
        match self.holder_of_blocks(name) {
            None => network.space.declared().to_vec(),
            Some(holder) => self.shares.held_by(&holder).copied().collect(),
        }
    }

    fn conflict(
        &self,
        name: &N::Network,
        network: &Network<N>,
        range: Cidr,
    ) -> Option<Overlap<N::Network>> {
        if matches!(network.space, Space::Blocks(_)) {
            return None;
        }
        let others = self.networks.of_vpc(&network.vpc).filter(|other| *other != name);
        let others = others
            .filter_map(|other| Some((other, self.networks.get(other)?)))
            .flat_map(|(other, it)| it.space.declared().iter().map(move |cidr| (other, it, *cidr)))
            .map(|(other, it, cidr)| (other, cidr, self.rank(other, it, cidr)));
        let overlap = first_overlap(range, &self.rank(name, network, range), others)?;
        let Overlap { range, other_range, other } = overlap;
        Some(Overlap { range, other_range, other: other.clone() })
    }

    fn rank<'a>(
        &self,
        name: &'a N::Network,
        network: &'a Network<N>,
        range: Cidr,
    ) -> (bool, &'a N::Age, &'a N::Network) {
        (!self.subnets.has(&N::own_subnet(name, range)), &network.age, name)
    }

    fn older_twin(&self, name: &N::Subnet, subnet: &Subnet<N>) -> Option<N::Subnet> {
        let mut siblings = self.subnets.within(&subnet.network);
        let twin = siblings.find(|(other, it)| {
            (&it.age, *other) < (&subnet.age, name) && it.cidr() == subnet.cidr()
        });
        twin.map(|(other, _)| other.clone())
    }
}
