//! Ranges of one VPC do not overlap.

use atoll_types::Cidr;

/// A range that another of the same VPC stands in the way of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlap<N> {
    /// The range.
    pub range: Cidr,
    /// The one in its way.
    pub other_range: Cidr,
    /// Whose that is.
    pub other: N,
}

/// The first of the `others` that overlaps `range` and comes before it: the smaller rank has the
/// right to its addresses.
pub(crate) fn first_overlap<N, R: Ord>(
    range: Cidr,
    rank: &R,
    others: impl IntoIterator<Item = (N, Cidr, R)>,
) -> Option<Overlap<N>> {
    let mut others = others.into_iter();
    others
        .find(|(_, cidr, other_rank)| cidr.overlaps(&range) && other_rank < rank)
        .map(|(other, other_range, _)| Overlap { range, other_range, other })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cidr(text: &str) -> Cidr {
        text.parse().unwrap()
    }

    #[test]
    fn the_range_of_smaller_rank_stands_in_the_way_and_one_beside_it_does_not() {
        let others = || [("a", cidr("10.0.0.0/16"), 1), ("b", cidr("10.1.0.0/16"), 3)].into_iter();
        let overlap = first_overlap(cidr("10.0.9.0/24"), &2, others()).unwrap();
        assert_eq!((overlap.other, overlap.other_range), ("a", cidr("10.0.0.0/16")));
        assert_eq!(first_overlap(cidr("10.1.9.0/24"), &2, others()), None, "it was first");
        assert_eq!(first_overlap(cidr("10.2.0.0/16"), &2, others()), None);
        assert_eq!(first_overlap(cidr("fd00::/64"), &9, others()), None);
    }

    proptest! {
        #[test]
        fn what_is_accepted_never_overlaps(
            wanted in prop::collection::vec((0_u8..8, 24_u8..30), 0..12)
        ) {
            let all: Vec<(usize, Cidr, usize)> = wanted
                .iter()
                .map(|(third, length)| cidr(&format!("10.0.{}.0/{length}", third / 2 * 2)))
                .enumerate()
                .map(|(rank, cidr)| (rank, cidr, rank))
                .collect();
            let accepted: Vec<Cidr> = all
                .iter()
                .filter(|(_, cidr, rank)| first_overlap(*cidr, rank, all.iter().copied()).is_none())
                .map(|(_, cidr, _)| *cidr)
                .collect();
            for (position, range) in accepted.iter().enumerate() {
                prop_assert!(accepted[position + 1..].iter().all(|other| !other.overlaps(range)));
            }
        }
    }
}
