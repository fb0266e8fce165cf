//! What a pod reaches through which of its interfaces.
//!
//! The first interface has the default route. Every other one has the ranges of its network's VPC,
//! without those that an earlier interface reaches: a destination must not have two ways.

use atoll_types::{Cidr, NetworkName};

use crate::intent::Vpc;
use crate::world::World;

/// The ways of a pod, as far as its interfaces were looked at.
#[derive(Default)]
pub(super) struct Ways {
    taken: Vec<(Vpc, Cidr)>,
    hidden: Vec<String>,
}

impl Ways {
    /// The ranges that are reached through the next interface, which is in `network`.
    pub(super) fn through(&mut self, world: &World, network: &NetworkName) -> Vec<String> {
        let Some((vpc, ranges)) = world.ranges_of_vpc(network) else { return Vec::new() };
        let (free, hidden): (Vec<Cidr>, Vec<Cidr>) =
            ranges.into_iter().partition(|range| self.earlier(range).is_none());
        for range in hidden {
            self.note_hidden(network, &vpc, &range);
        }
        self.taken.extend(free.iter().map(|range| (vpc.clone(), *range)));
        free.iter().map(Cidr::to_string).collect()
    }

    fn earlier(&self, range: &Cidr) -> Option<&(Vpc, Cidr)> {
        self.taken.iter().find(|(_, taken)| taken.overlaps(range))
    }

    /// A second interface in the same VPC hides nothing: it is the same place.
    fn note_hidden(&mut self, network: &NetworkName, vpc: &Vpc, range: &Cidr) {
        if let Some((other, taken)) = self.earlier(range).filter(|(other, _)| other != vpc) {
            let words = format!("{range} of network {network} overlaps {taken} of VPC {other}");
            self.hidden.push(words);
        }
    }

    /// What people should know: ranges that the pod does not reach, if there are any.
    pub(super) fn warning(&self) -> Option<String> {
        let why = "an earlier interface of the pod reaches those addresses";
        (!self.hidden.is_empty()).then(|| format!("{}: {why}", self.hidden.join("; ")))
    }
}

impl World {
    /// The VPC of a network, and all of its ranges.
    fn ranges_of_vpc(&self, network: &NetworkName) -> Option<(Vpc, Vec<Cidr>)> {
        let vpc = self.network_named(network)?.vpc()?;
        let mut ranges = match vpc {
            Vpc::Named { .. } => self.vpcs.networks.declared_in(vpc).collect(),
            Vpc::Flat(network) => self.blocks_of_flat(network),
            Vpc::Open => self.settings.flat.clone(),
        };
        ranges.sort();
        ranges.dedup();
        Some((vpc.clone(), ranges))
    }

    fn blocks_of_flat(&self, network: &NetworkName) -> Vec<Cidr> {
        let subnets = self.vpcs.subnets().of_network(network);
        subnets.filter_map(|name| Some(self.vpcs.subnets().get(name)?.cidr())).collect()
    }
}
