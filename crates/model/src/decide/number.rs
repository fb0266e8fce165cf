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
use crate::world::{Now, World};

impl World {
    /// The number of a VPC, as one of its networks asks for it.
    pub(super) fn number_of(&mut self, network: &Network, vpc: &Vpc, now: &Now) -> Number {
        let told = self.told_number(network, vpc);
        let ports = &self.indexes.ports_of_network;
        self.vpcs.number_of(vpc, told, |network| ports.of(network).len() > 0, now.moment)
    }

    fn told_number(&self, network: &Network, vpc: &Vpc) -> Option<NetworkId> {
        let siblings = self.vpcs.networks.of_vpc(vpc);
        let told = siblings.filter_map(|name| self.network_named(name)?.id());
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
        if self.vpcs.networks.of_vpc(vpc).len() > 1 {
            return farewell.into();
        }
        self.vpcs.numbers.drop_proposal(vpc, now.moment);
        let right = Thing::Vpc(vpc.clone());
        let Some(id) = self.vpcs.numbers.right_of(vpc) else {
            return farewell.into();
        };
        let held = self.vpcs.holdings().count(id);
        if held > 0 {
            let message = format!("waits for {held} addresses to be given back");
            return self.terminating(network, Reason::InUse, message, now);
        }
        Decision::act([
            self.give_back(right, &holder_of_id(id)),
            self.give_back(Thing::NetworkId(id), &holder_of_vpc(vpc)),
            farewell,
        ])
    }
}

/// Both halves of a number: the id for the VPC, and the VPC's right to this one id.
pub(super) fn claim_number(vpc: &Vpc, id: NetworkId) -> Decision {
    Decision::act([
        Action::Claim(Thing::NetworkId(id), holder_of_vpc(vpc)),
        Action::Claim(Thing::Vpc(vpc.clone()), holder_of_id(id)),
    ])
}
