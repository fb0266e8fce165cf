//! A set of numbers, kept as runs, so that "the next number that is not in it" costs a few steps
//! however full the set is.

use std::collections::BTreeMap;

/// Numbers as runs: first number of the run to its last. Runs never touch each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spans {
    runs: BTreeMap<u128, u128>,
    count: u128,
}

impl Spans {
    /// Adds `first..=last`, whatever of it was there already.
    pub(crate) fn insert(&mut self, first: u128, last: u128) {
        let (mut first, mut last) = (first, last);
        while let Some((run_first, run_last)) = self.touching(first, last) {
            self.drop_run(run_first, run_last);
            first = first.min(run_first);
            last = last.max(run_last);
        }
        self.add_run(first, last);
    }

    /// Takes one number out; says whether it was there.
    pub(crate) fn remove(&mut self, number: u128) -> bool {
        let Some((first, last)) = self.run_of(number) else { return false };
        self.drop_run(first, last);
        if first < number {
            self.add_run(first, number - 1);
        }
        if number < last {
            self.add_run(number + 1, last);
        }
        true
    }

    /// Whether the number is in the set.
    pub(crate) fn contains(&self, number: u128) -> bool {
        self.run_of(number).is_some()
    }

    /// The smallest number in `from..=until` that is not in the set.
    pub(crate) fn gap(&self, from: u128, until: u128) -> Option<u128> {
        let gap = match self.run_of(from) {
            None => Some(from),
            Some((_, last)) => last.checked_add(1),
        };
        gap.filter(|number| *number <= until)
    }

    /// The runs of `0..=until` that are not in the set.
    pub(crate) fn gaps(&self, until: u128) -> impl Iterator<Item = (u128, u128)> {
        let starts =
            [Some(0)].into_iter().chain(self.runs.values().map(|last| last.checked_add(1)));
        let ends = self.runs.keys().map(|first| first.checked_sub(1)).chain([Some(until)]);
        starts.zip(ends).filter_map(|(start, end)| Some((start?, end?))).filter(|(a, b)| a <= b)
    }

    /// How many numbers are in the set; as many as can be counted where there are more.
    pub(crate) fn count(&self) -> u128 {
        self.count
    }

    fn add_run(&mut self, first: u128, last: u128) {
        self.runs.insert(first, last);
        self.count = self.count.saturating_add(last - first).saturating_add(1);
    }

    fn drop_run(&mut self, first: u128, last: u128) {
        self.runs.remove(&first);
        self.count = self.count.saturating_sub(last - first).saturating_sub(1);
    }

    fn run_of(&self, number: u128) -> Option<(u128, u128)> {
        self.run_before(number).filter(|(_, last)| *last >= number)
    }

    /// A run that overlaps `first..=last` or lies right beside it.
    fn touching(&self, first: u128, last: u128) -> Option<(u128, u128)> {
        self.run_before(last.saturating_add(1))
            .filter(|(_, run_last)| run_last.saturating_add(1) >= first)
    }

    fn run_before(&self, number: u128) -> Option<(u128, u128)> {
        self.runs.range(..=number).next_back().map(|(first, last)| (*first, *last))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn runs_hold_what_a_plain_set_would_hold(
            changes in prop::collection::vec((any::<bool>(), 0_u128..40, 0_u128..4), 0..60)
        ) {
            let (mut spans, mut plain) = (Spans::default(), BTreeSet::new());
            for (add, first, length) in changes {
                if add {
                    spans.insert(first, first + length);
                    plain.extend(first..=first + length);
                } else {
                    prop_assert_eq!(spans.remove(first), plain.remove(&first));
                }
            }
            for number in 0..50 {
                prop_assert_eq!(spans.contains(number), plain.contains(&number));
                let gap = (number..=45).find(|candidate| !plain.contains(candidate));
                prop_assert_eq!(spans.gap(number, 45), gap);
            }
            prop_assert_eq!(spans.count(), plain.len() as u128);
        }
    }

    #[test]
    fn gaps_are_what_the_runs_leave() {
        let gaps = |runs: &[(u128, u128)]| {
            let mut spans = Spans::default();
            runs.iter().for_each(|(first, last)| spans.insert(*first, *last));
            spans.gaps(9).collect::<Vec<_>>()
        };
        assert_eq!(gaps(&[]), [(0, 9)]);
        assert_eq!(gaps(&[(2, 3), (5, 5)]), [(0, 1), (4, 4), (6, 9)]);
        assert_eq!(gaps(&[(0, 4), (8, 9)]), [(5, 7)]);
        assert_eq!(gaps(&[(0, 9)]), []);
    }

    #[test]
    fn neighbours_become_one_run() {
        let mut spans = Spans::default();
        spans.insert(1, 1);
        spans.insert(3, 3);
        spans.insert(2, 2);
        assert_eq!(spans, Spans { runs: BTreeMap::from([(1, 3)]), count: 3 });
    }

    #[test]
    fn the_whole_range_of_numbers_leaves_no_gap() {
        let mut spans = Spans::default();
        spans.insert(0, u128::MAX);
        assert_eq!(spans.gap(0, u128::MAX), None);
        assert!(spans.remove(u128::MAX));
        assert_eq!(spans.gap(7, u128::MAX), Some(u128::MAX));
    }
}
