//! A flat network has blocks of the range that all flat networks share: which, how it gives them
//! back, and what is said where none is free.

use atoll_api::Reason;
use atoll_types::Cidr;
use atoll_vpc::Family;

use crate::action::Action;
use crate::conditions::Verdict;
use crate::intent::{Network, Thing, holder_of_block};
use crate::world::{Now, World};

impl World {
    /// Takes back what was proposed to a network, if nobody claimed it.
    pub(super) fn forget_block_proposal(&mut self, network: &Network, now: &Now) {
        if let Some(holder) = network.block_holder() {
            self.vpcs.shares.drop_proposal(&holder, now.moment);
        }
    }

    /// A flat network that goes gives its blocks back.
    pub(super) fn blocks_to_return(&self, network: &Network) -> Vec<Action> {
        let holder = holder_of_block(&network.meta.name, &network.meta.uid);
        let blocks = self.blocks_of(network);
        blocks.map(|block| self.give_back(Thing::Block(block), &holder)).collect()
    }

    /// The blocks that a network holds.
    pub(crate) fn blocks_of(&self, network: &Network) -> impl Iterator<Item = Cidr> {
        let holder = network.block_holder().into_iter();
        holder.flat_map(|holder| self.vpcs.shares.held_by(&holder)).copied()
    }
}

pub(super) fn none_free(family: Family) -> Verdict {
    let message = format!(
        "no block of {family} addresses is free in the range that flat networks share; widen it \
         with the controller's --flat-cidrs"
    );
    Verdict::not_ready(Reason::NoFreeBlock, message)
}
