//! Who has which blocks of the ranges that all flat networks share.
//!
//! A flat network has one block of each family, and one more whenever those of a family are full.
//! The rule: a block has one holder, so that no two flat networks ever have the same address.

use std::collections::HashMap;
use std::hash::Hash;

use atoll_types::Cidr;

use crate::blocks::Blocks;
use crate::circle::Moment;
use crate::family::Family;
use crate::groups::{Each, Groups};
use crate::proposals::Proposals;

/// The blocks of all shared ranges, whose holders are named by `H`.
#[derive(Clone, Debug)]
pub struct Shares<H> {
    ranges: Vec<Blocks>,
    claims: HashMap<Cidr, Option<H>>,
    held_by: Groups<H, Cidr>,
    proposals: Proposals<H, Cidr>,
}

/// What a holder of blocks lacks.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextBlock {
    /// Nothing.
    Enough,
    /// A block, which it may claim.
    Claimable(Cidr),
    /// A block of this family, and none is free.
    NoneFree(Family),
}

impl<H> Default for Shares<H> {
    fn default() -> Self {
        Shares::of(&[])
    }
}

impl<H> Shares<H> {
    /// All blocks of these ranges, free.
    pub fn of(ranges: &[Cidr]) -> Self {
        Shares {
            ranges: ranges.iter().copied().map(Blocks::new).collect(),
            claims: HashMap::new(),
            held_by: Groups::default(),
            proposals: Proposals::default(),
        }
    }
}

impl<H: Clone + Ord + Hash> Shares<H> {
    /// A block was claimed: by a holder, or by somebody who can be none.
    pub fn claim(&mut self, block: Cidr, holder: Option<H>) {
        self.ranges.iter_mut().for_each(|range| range.take(block));
        self.proposals.remove(block);
        if let Some(Some(before)) = self.claims.insert(block, holder.clone()) {
            self.held_by.remove(&before, &block);
        }
        if let Some(holder) = holder {
            self.held_by.add(holder, block);
        }
    }

    /// The claim on a block is gone; no part of it is proposed before `until`.
    pub fn release(&mut self, block: Cidr, until: Moment) {
        let Some(holder) = self.claims.remove(&block) else { return };
        if let Some(holder) = holder {
            self.held_by.remove(&holder, &block);
        }
        self.free(block, until);
    }

    /// The blocks that somebody holds.
    pub fn held_by(&self, holder: &H) -> Each<'_, Cidr> {
        self.held_by.of(holder)
    }

    /// The block that a holder lacks: the first of each family that is shared, or one more where
    /// every one it holds `is_full`. One more is no need as long as none is free.
    pub fn next_of(
        &mut self,
        holder: &H,
        mut is_full: impl FnMut(Cidr) -> bool,
        now: Moment,
    ) -> NextBlock {
        let held: Vec<Cidr> = self.held_by(holder).copied().collect();
        for family in Family::BOTH {
            let mut own = held.iter().filter(|block| Family::from(**block) == family).peekable();
            let has_none = own.peek().is_none();
            if !self.shares(family) || !own.all(|block| is_full(*block)) {
                continue;
            }
            match self.propose(holder, family, now) {
                Some(block) => return NextBlock::Claimable(block),
                None if has_none => return NextBlock::NoneFree(family),
                None => {}
            }
        }
        if held.is_empty() { NextBlock::NoneFree(Family::V4) } else { NextBlock::Enough }
    }

    /// Takes back what was proposed to a holder; it can be proposed again at `until`.
    pub fn drop_proposal(&mut self, holder: &H, until: Moment) {
        let dropped: Vec<Cidr> = self.proposals.of(holder).copied().collect();
        for block in dropped {
            self.proposals.remove(block);
            self.free(block, until);
        }
    }

    fn shares(&self, family: Family) -> bool {
        self.ranges.iter().any(|range| range.family() == family)
    }

    /// The block that is on the way to a holder, or another.
    fn propose(&mut self, holder: &H, family: Family, now: Moment) -> Option<Cidr> {
        let mut standing = self.proposals.of(holder).copied();
        if let Some(block) = standing.find(|block| Family::from(*block) == family) {
            return Some(block);
        }
        self.drop_proposal(holder, now);
        let ranges = self.ranges.iter_mut().filter(|range| range.family() == family);
        let block = ranges.filter_map(|range| range.propose(now)).next()?;
        self.proposals.add(holder.clone(), block);
        Some(block)
    }

    fn free(&mut self, block: Cidr, until: Moment) {
        self.ranges.iter_mut().for_each(|range| range.free(block, until));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const START: Moment = Moment::ZERO;

    fn cidr(text: &str) -> Cidr {
        text.parse().unwrap()
    }

    fn next(shares: &mut Shares<&'static str>, holder: &'static str) -> NextBlock {
        shares.next_of(&holder, |_| false, START)
    }

    #[test]
    fn a_holder_gets_one_block_of_each_family_and_one_more_when_they_are_full() {
        let mut shares = Shares::of(&[cidr("100.64.0.0/23"), cidr("fd64::/63")]);
        let first = cidr("100.64.0.0/24");
        assert_eq!(next(&mut shares, "red"), NextBlock::Claimable(first));
        assert_eq!(next(&mut shares, "red"), NextBlock::Claimable(first), "it stands");
        shares.claim(first, Some("red"));
        assert_eq!(next(&mut shares, "red"), NextBlock::Claimable(cidr("fd64::/64")));
        shares.claim(cidr("fd64::/64"), Some("red"));
        assert_eq!(next(&mut shares, "red"), NextBlock::Enough);
        let more = shares.next_of(&"red", |block| block == first, START);
        assert_eq!(more, NextBlock::Claimable(cidr("100.64.1.0/24")));
    }

    #[test]
    fn none_is_free_is_said_to_whoever_has_none() {
        let mut shares = Shares::of(&[cidr("100.64.0.0/24")]);
        assert_eq!(next(&mut shares, "red"), NextBlock::Claimable(cidr("100.64.0.0/24")));
        assert_eq!(next(&mut shares, "blue"), NextBlock::NoneFree(Family::V4));
        shares.claim(cidr("100.64.0.0/24"), Some("red"));
        assert_eq!(shares.next_of(&"red", |_| true, START), NextBlock::Enough);
        shares.release(cidr("100.64.0.0/24"), START);
        assert_eq!(next(&mut shares, "blue"), NextBlock::Claimable(cidr("100.64.0.0/24")));
        assert_eq!(next(&mut Shares::of(&[]), "red"), NextBlock::NoneFree(Family::V4));
    }

    #[test]
    fn whoever_was_not_first_is_proposed_another_and_what_is_dropped_is_free() {
        let mut shares = Shares::of(&[cidr("100.64.0.0/23")]);
        assert_eq!(next(&mut shares, "red"), NextBlock::Claimable(cidr("100.64.0.0/24")));
        shares.claim(cidr("100.64.0.0/24"), None);
        assert_eq!(next(&mut shares, "red"), NextBlock::Claimable(cidr("100.64.1.0/24")));
        shares.drop_proposal(&"red", START);
        assert_eq!(next(&mut shares, "blue"), NextBlock::Claimable(cidr("100.64.1.0/24")));
    }

    proptest! {
        #[test]
        fn no_block_is_on_the_way_twice_and_none_is_lost(
            steps in prop::collection::vec((0..5_u8, 0..3_u8, 0..4_u8), 0..60)
        ) {
            let mut shares = Shares::<u8>::of(&[cidr("100.64.0.0/22")]);
            for (step, holder, third) in steps {
                let block = cidr(&format!("100.64.{third}.0/24"));
                match step {
                    0 => shares.claim(block, Some(holder)),
                    1 => shares.claim(block, None),
                    2 => shares.release(block, START),
                    3 => shares.drop_proposal(&holder, START),
                    _ => if let NextBlock::Claimable(block) = shares.next_of(&holder, |_| true, START) {
                        prop_assert!(!shares.claims.contains_key(&block));
                    },
                }
                let coming = (0..3).flat_map(|it| shares.proposals.of(&it)).count();
                let mut rest = shares.ranges[0].clone();
                let free = std::iter::from_fn(|| rest.propose(START)).count();
                prop_assert_eq!(shares.claims.len() + coming + free, 4);
            }
        }
    }
}
