//! A flat network has blocks of the range that all flat networks share: one of each family, and
//! one more whenever those of a family are full. A block has one holder, so that no two flat
//! networks ever have the same address.

use atoll_api::{ClaimHolder, Reason};
use atoll_types::{Cidr, NetworkId};

use crate::action::Action;
use crate::conditions::Verdict;
use crate::intent::{
    Network, NetworkPlan, NetworkType, ObjectName, Thing, holder_of_block, subnet_name,
};
use crate::world::{Now, World};

/// What is to be done about the blocks of a network.
pub(super) enum Block {
    Enough,
    Claimable(Cidr),
    NoneFree(Verdict),
}

fn holder_of(network: &Network) -> ClaimHolder {
    holder_of_block(&network.meta.name, &network.meta.uid)
}

impl World {
    /// The ranges of a network: those it declares, or the blocks it holds.
    pub(super) fn ranges_of(&self, network: &Network, plan: &NetworkPlan) -> Vec<Cidr> {
        match plan.type_ {
            NetworkType::Flat => self.indexes.blocks_of.of(&holder_of(network)).copied().collect(),
            NetworkType::Vpc | NetworkType::Other(_) => plan.cidrs.clone(),
        }
    }

    /// The block that a flat network lacks.
    pub(super) fn next_block(
        &mut self,
        network: &Network,
        plan: &NetworkPlan,
        id: NetworkId,
        now: &Now,
    ) -> Block {
        if plan.type_ != NetworkType::Flat {
            return Block::Enough;
        }
        let held = self.ranges_of(network, plan);
        for ipv4 in [true, false] {
            let served = self.numbers.blocks.iter().any(|blocks| blocks.is_ipv4() == ipv4);
            let of_family = held.iter().filter(|block| block.is_ipv4() == ipv4);
            if served && of_family.clone().all(|block| self.is_full(plan, block, id)) {
                if let Some(block) = self.propose_block(network, ipv4, now) {
                    return Block::Claimable(block);
                }
                if of_family.count() == 0 {
                    return Block::NoneFree(none_free(ipv4));
                }
            }
        }
        if held.is_empty() { Block::NoneFree(none_free(true)) } else { Block::Enough }
    }

    fn is_full(&mut self, plan: &NetworkPlan, block: &Cidr, id: NetworkId) -> bool {
        let subnet = ObjectName::cluster(subnet_name(&plan.name, block));
        self.pool(&subnet, id).is_some_and(|pool| pool.available() == 0)
    }

    /// The block that was proposed to a network and that nobody else has, or another.
    fn propose_block(&mut self, network: &Network, ipv4: bool, now: &Now) -> Option<Cidr> {
        let holder = holder_of(network);
        let standing = self.numbers.block_proposals.get(&holder).copied();
        let unclaimed = |block: &Cidr| self.claim_on(&Thing::Block(*block)).is_none();
        let standing = standing.filter(|block| block.is_ipv4() == ipv4 && unclaimed(block));
        let block = standing.or_else(|| {
            self.forget_block_proposal(network, now);
            let blocks = self.numbers.blocks.iter_mut().filter(|it| it.is_ipv4() == ipv4);
            blocks.filter_map(|blocks| blocks.propose(now.moment)).next()
        })?;
        self.numbers.block_proposals.insert(holder, block);
        Some(block)
    }

    /// Takes back what was proposed to a network, if nobody claimed it.
    pub(super) fn forget_block_proposal(&mut self, network: &Network, now: &Now) {
        let Some(block) = self.numbers.block_proposals.remove(&holder_of(network)) else { return };
        if self.claim_on(&Thing::Block(block)).is_none() {
            self.numbers.blocks.iter_mut().for_each(|blocks| blocks.free(block, now.moment));
        }
    }

    /// A flat network that goes gives its blocks back.
    pub(super) fn blocks_to_return(&self, network: &Network) -> Vec<Action> {
        let holder = holder_of(network);
        let blocks = self.indexes.blocks_of.of(&holder);
        blocks.map(|block| self.give_back(Thing::Block(*block), &holder)).collect()
    }
}

fn none_free(ipv4: bool) -> Verdict {
    let family = if ipv4 { "IPv4" } else { "IPv6" };
    let message = format!(
        "no block of {family} addresses is free in the range that flat networks share; widen it \
         with the controller's --flat-cidrs"
    );
    Verdict::not_ready(Reason::NoFreeBlock, message)
}
