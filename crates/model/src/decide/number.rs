//! A VPC has one number, held by two claims: the id is the VPC's, and the VPC has this one id.
//!
//! The rule: a number that was given stays until the last network of its VPC goes, whoever forgets
//! what it told.

use atoll_api::Reason;
use atoll_types::NetworkId;

use super::let_go;
use crate::action::{Action, Decision};
use crate::intent::{Claim, Kind, Network, Thing, Vpc, holder_of_id, holder_of_vpc};
use crate::world::{Now, World};

/// A VPC's number, or what is to be done about it.
pub(super) enum Number {
    Held(NetworkId),
    Claimable(NetworkId),
    Stolen {
        id: NetworkId,
        holder: String,
    },
    /// The VPC was promised what is another's, and nobody has used it.
    Unfounded(NetworkId),
    NoneFree,
}

impl World {
    /// The number of a VPC: the one it was given, else one that its networks tell, else a new one.
    pub(super) fn number_of(&mut self, network: &Network, vpc: &Vpc, now: &Now) -> Number {
        let given = self.claim_on(&Thing::Vpc(vpc.clone())).and_then(Claim::given_id);
        let told = self.told_number(network, vpc);
        let Some(id) = given.or(told) else {
            return self.propose_number(vpc, now);
        };
        match self.claim_on(&Thing::NetworkId(id)) {
            Some(claim) if claim.holder == holder_of_vpc(vpc) && given.is_some() => {
                self.numbers.id_proposals.remove(vpc);
                Number::Held(id)
            }
            Some(claim) if claim.holder != holder_of_vpc(vpc) => {
                if told.is_none() && !self.has_ports(vpc) {
                    return Number::Unfounded(id);
                }
                Number::Stolen { id, holder: claim.holder.name.clone() }
            }
            Some(_) | None => Number::Claimable(id),
        }
    }

    fn told_number(&self, network: &Network, vpc: &Vpc) -> Option<NetworkId> {
        let siblings = self.indexes.networks_of_vpc.of(vpc);
        let told = siblings.filter_map(|name| self.networks.get(name)?.id());
        network.id().or_else(|| told.min())
    }

    fn has_ports(&self, vpc: &Vpc) -> bool {
        let networks = self.indexes.networks_of_vpc.of(vpc);
        let plans = networks.filter_map(|name| self.networks.get(name)?.plan.as_ref().ok());
        let mut ports = plans.map(|plan| self.indexes.ports_of_network.of(&plan.name).len());
        ports.any(|count| count > 0)
    }

    fn propose_number(&mut self, vpc: &Vpc, now: &Now) -> Number {
        let standing = self.numbers.id_proposals.get(vpc).copied().filter(|id| {
            let claim = self.claim_on(&Thing::NetworkId(*id));
            claim.is_none_or(|claim| claim.holder == holder_of_vpc(vpc))
        });
        let claimed = self.indexes.ids_claimed_by_vpc.of(vpc).next().copied();
        match claimed.or(standing).or_else(|| self.numbers.ids.propose(now.moment)) {
            Some(id) => {
                self.numbers.id_proposals.insert(vpc.clone(), id);
                Number::Claimable(id)
            }
            None => Number::NoneFree,
        }
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
        self.forget_number_proposal(vpc, now);
        let right = Thing::Vpc(vpc.clone());
        let Some(id) = self.claim_on(&right).and_then(Claim::given_id) else {
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

    fn forget_number_proposal(&mut self, vpc: &Vpc, now: &Now) {
        let Some(id) = self.numbers.id_proposals.remove(vpc) else { return };
        if self.claim_on(&Thing::NetworkId(id)).is_none() {
            self.numbers.ids.free(id, now.moment);
        }
    }
}

/// Both halves of a number: the id for the VPC, and the VPC's right to this one id.
pub(super) fn claim_number(vpc: &Vpc, id: NetworkId) -> Decision {
    Decision::act([
        Action::Claim(Thing::NetworkId(id), holder_of_vpc(vpc)),
        Action::Claim(Thing::Vpc(vpc.clone()), holder_of_id(id)),
    ])
}
