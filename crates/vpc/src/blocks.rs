//! A range cut into blocks of one size, for networks that share it and never overlap.

use std::collections::BTreeSet;

use atoll_types::Cidr;

use crate::circle::{Circle, Moment};
use crate::family::Family;
use crate::range::Range;
use crate::spans::Spans;

/// The length of a block of IPv4 addresses: 256 of them.
const LENGTH_V4: u8 = 24;

/// The length of a block of IPv6 addresses.
const LENGTH_V6: u8 = 64;

/// The blocks of one range. A range that is smaller than a block is one block.
#[derive(Clone, Debug)]
pub(crate) struct Blocks {
    range: Cidr,
    length: u8,
    circle: Circle,
    held: BTreeSet<Cidr>,
}

impl Blocks {
    /// All blocks of `range`, which is as large as people like.
    pub(crate) fn new(range: Cidr) -> Self {
        let wanted = if range.is_ipv4() { LENGTH_V4 } else { LENGTH_V6 };
        let length = wanted.max(range.prefix_len());
        let last = (1_u128 << (length - range.prefix_len())) - 1;
        let circle = Circle::new(0, last, Spans::default());
        Blocks { range, length, circle, held: BTreeSet::new() }
    }

    /// The family of their addresses.
    pub(crate) fn family(&self) -> Family {
        self.range.into()
    }

    /// Takes a block that is probably free, if there is one.
    pub(crate) fn propose(&mut self, now: Moment) -> Option<Cidr> {
        let number = self.circle.next(now).ok()?;
        let block = self.range.part(self.length, number)?;
        self.held.insert(block);
        Some(block)
    }

    /// Marks a block as taken, whatever its size was.
    pub(crate) fn take(&mut self, block: Cidr) {
        self.held.insert(block);
        self.numbers_of(block).for_each(|number| self.circle.take(number));
    }

    /// Marks a block as free again; no part of it is proposed before `until`.
    pub(crate) fn free(&mut self, block: Cidr, until: Moment) {
        self.held.remove(&block);
        for number in self.numbers_of(block) {
            let part = self.range.part(self.length, number);
            if !part.is_some_and(|part| self.held.iter().any(|held| held.overlaps(&part))) {
                self.circle.free(number, until);
            }
        }
    }

    /// The numbers of the blocks that share addresses with `block`.
    fn numbers_of(&self, block: Cidr) -> impl Iterator<Item = u128> + use<> {
        let bits = if self.range.is_ipv4() { 32 } else { 128 };
        let number = move |offset: u128, length: u8| offset >> (bits - u32::from(length));
        let offsets = Range::from(block).offsets_in(&self.range);
        let length = self.length;
        offsets
            .into_iter()
            .flat_map(move |(first, last)| number(first, length)..=number(last, length))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cidr(text: &str) -> Cidr {
        text.parse().unwrap()
    }

    fn proposed(blocks: &mut Blocks) -> Option<String> {
        blocks.propose(Moment::ZERO).map(|block| block.to_string())
    }

    #[test]
    fn blocks_come_one_after_the_other_until_there_is_none() {
        let mut blocks = Blocks::new(cidr("100.64.0.0/23"));
        assert_eq!(proposed(&mut blocks).as_deref(), Some("100.64.0.0/24"));
        assert_eq!(proposed(&mut blocks).as_deref(), Some("100.64.1.0/24"));
        assert_eq!(proposed(&mut blocks), None);
        blocks.free(cidr("100.64.0.0/24"), Moment::from_secs(30));
        assert_eq!(proposed(&mut blocks), None, "it rests");
        let later = blocks.propose(Moment::from_secs(30));
        assert_eq!(later, Some(cidr("100.64.0.0/24")));
    }

    #[test]
    fn a_small_range_is_one_block_and_ipv6_has_blocks_of_64_bits() {
        let mut small = Blocks::new(cidr("100.64.0.0/28"));
        assert_eq!(proposed(&mut small).as_deref(), Some("100.64.0.0/28"));
        assert_eq!(proposed(&mut small), None);
        let mut six = Blocks::new(cidr("fd64::/48"));
        assert_eq!(proposed(&mut six).as_deref(), Some("fd64::/64"));
        assert_eq!(proposed(&mut six).as_deref(), Some("fd64:0:0:1::/64"));
    }

    #[test]
    fn blocks_of_another_size_stand_in_the_way_as_long_as_they_are_held() {
        let mut blocks = Blocks::new(cidr("100.64.0.0/22"));
        blocks.take(cidr("100.64.0.0/23"));
        blocks.take(cidr("100.64.1.128/28"));
        blocks.take(cidr("10.0.0.0/24"));
        blocks.free(cidr("100.64.0.0/23"), Moment::ZERO);
        let given: Vec<_> = std::iter::from_fn(|| proposed(&mut blocks)).collect();
        assert_eq!(given, ["100.64.0.0/24", "100.64.2.0/24", "100.64.3.0/24"]);
    }

    proptest! {
        #[test]
        fn blocks_that_are_out_never_overlap(
            steps in prop::collection::vec(prop::option::of(0_usize..8), 1..60)
        ) {
            let (mut blocks, mut out) = (Blocks::new(cidr("100.64.0.0/21")), Vec::<Cidr>::new());
            for step in steps {
                match step.filter(|position| *position < out.len()) {
                    Some(position) => blocks.free(out.remove(position), Moment::ZERO),
                    None => if let Some(block) = blocks.propose(Moment::ZERO) {
                        prop_assert!(out.iter().all(|other| !other.overlaps(&block)));
                        out.push(block);
                    }
                }
                prop_assert!(out.len() <= 8);
            }
        }
    }
}
