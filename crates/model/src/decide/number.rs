//! A VPC has one number, held by two claims: the id is the VPC's, and the VPC has this one id.
//!
//! The rule: a number that was given stays until the last network of its VPC goes, whoever forgets
//! what it told.

use atoll_api::Reason;
use atoll_types::NetworkId;
use atoll_vpc::Number;

use super::let_go;
use crate::action::{Action, Decision};
use crate::intent::{Kind, Network, Thing, Vpc, holder_of_id, holder_of_vpc};
use crate::world::{Indexes, Now, Shelf, World};

impl World {
    /// The number of a VPC, as one of its networks asks for it.
    pub(super) fn number_of(&mut self, network: &Network, vpc: &Vpc, now: &Now) -> Number {
        let told = self.told_number(network, vpc);
        let World { numbers, indexes, networks, .. } = self;
        let uses = || has_ports(vpc, indexes, networks);
        numbers.vpcs.number_of(vpc, told, uses, now.moment)
    }

    fn told_number(&self, network: &Network, vpc: &Vpc) -> Option<NetworkId> {
        let siblings = self.indexes.networks_of_vpc.of(vpc);
        let told = siblings.filter_map(|name| self.networks.get(name)?.id());
        network.id().or_else(|| told.min())
    }

    /// Gives back the right to a number that is another VPC's. A controller that was slow may have
    /// claimed it after its VPC had given the number up.
    pub(super) fn give_up_right(&self, vpc: &Vpc, id: NetworkId) -> Decision {
        self.give_back(Thing::Vpc(vpc.clone()), &holder_of_id(id)).into()
    }

    /// The last network of a VPC gives its number back before it goes.
    pub(super) fn give_up_number(&mut self, network: &Network, vpc: &Vpc, now: &Now) -> Decision {
        let farewell = let_go(Kind::Network, &network.meta);
        if self.indexes.networks_of_vpc.of(vpc).len() > 1 {
            return farewell.into();
        }
        self.numbers.vpcs.drop_proposal(vpc, now.moment);
        let right = Thing::Vpc(vpc.clone());
        let Some(id) = self.numbers.vpcs.right_of(vpc) else {
            return farewell.into();
        };
        if let Some(held) = self.indexes.addresses.get(&id) {
            let message = format!("waits for {} addresses to be given back", held.len());
            return self.terminating(network, Reason::InUse, message, now);
        }
        Decision::act([
            self.give_back(right, &holder_of_id(id)),
            self.give_back(Thing::NetworkId(id), &holder_of_vpc(vpc)),
            farewell,
        ])
    }
}

fn has_ports(vpc: &Vpc, indexes: &Indexes, networks: &Shelf<Network>) -> bool {
    let networks = indexes.networks_of_vpc.of(vpc).filter_map(|name| networks.get(name));
    let mut plans = networks.filter_map(|network| network.plan.as_ref().ok());
    plans.any(|plan| indexes.ports_of_network.of(&plan.name).len() > 0)
}

/// Both halves of a number: the id for the VPC, and the VPC's right to this one id.
pub(super) fn claim_number(vpc: &Vpc, id: NetworkId) -> Decision {
    Decision::act([
        Action::Claim(Thing::NetworkId(id), holder_of_vpc(vpc)),
        Action::Claim(Thing::Vpc(vpc.clone()), holder_of_id(id)),
    ])
}
