//! How often a part goes round: until what is judged is known well enough, or its time is over.
//!
//! The rule: rounds never end because of what they showed, only because of how sure they made it.

use std::time::{Duration, Instant};

use crate::sample::Sample;

/// Below this, more rounds would not change what is printed.
const SURE: f64 = 0.002;

/// How many rounds there are at least and at most, for how long, and how long each is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rounds {
    pub(crate) least: usize,
    pub(crate) most: usize,
    pub(crate) time: Duration,
    pub(crate) length: Length,
}

/// How long one kind of traffic is measured in one round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    /// As long as its kind says.
    Whole,
    /// A third of it.
    Brief,
}

impl Rounds {
    /// So many, whatever they show and however long they take.
    pub(crate) fn exactly(count: usize, length: Length) -> Self {
        Rounds { least: count, most: count, time: Duration::MAX, length }
    }

    /// Begins; `what` is told to whoever watches.
    pub(crate) fn begin(self, what: &'static str) -> Going {
        Going { rounds: self, what, begun: Instant::now(), done: 0 }
    }
}

/// Rounds under way.
#[derive(Debug)]
pub(crate) struct Going {
    rounds: Rounds,
    what: &'static str,
    begun: Instant,
    done: usize,
}

impl Going {
    /// The number of the next round, if there is one; `judged` gives the ratios so far.
    pub(crate) fn next(&mut self, judged: impl FnOnce() -> Vec<Sample>) -> Option<usize> {
        let Rounds { least, most, time, .. } = self.rounds;
        let is_over = || self.begun.elapsed() >= time || is_sure(&judged());
        if self.done >= most || self.done >= least && is_over() {
            eprintln!();
            return None;
        }
        eprint!("\r{}: round {} of at most {most}", self.what, self.done + 1);
        self.done += 1;
        Some(self.done - 1)
    }

    /// What a document says of them.
    pub(crate) fn told(&self) -> String {
        format!("{} rounds.", self.done)
    }
}

fn is_sure(judged: &[Sample]) -> bool {
    !judged.is_empty() && judged.iter().all(|sample| sample.uncertainty() <= SURE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDED: Rounds =
        Rounds { least: 3, most: 9, time: Duration::from_secs(3600), length: Length::Whole };

    fn count(rounds: Rounds, judged: impl Fn() -> Vec<Sample>) -> usize {
        let mut going = rounds.begin("test");
        let numbers: Vec<usize> = std::iter::from_fn(|| going.next(&judged)).collect();
        assert_eq!(numbers, (0..numbers.len()).collect::<Vec<_>>());
        assert_eq!(going.told(), format!("{} rounds.", numbers.len()));
        numbers.len()
    }

    #[test]
    fn rounds_end_when_everything_that_is_judged_is_known_well() {
        let [sure, unsure] = [[1.08, 1.08, 1.08], [0.9, 1.08, 1.3]].map(Sample::new);
        assert_eq!(count(BOUNDED, || vec![sure.clone(), sure.clone()]), 3);
        assert_eq!(count(BOUNDED, || vec![sure.clone(), unsure.clone()]), 9);
    }

    #[test]
    fn rounds_end_with_their_time_but_not_before_the_least_number() {
        let late = Rounds { time: Duration::ZERO, ..BOUNDED };
        assert_eq!(count(late, || vec![Sample::new([0.9, 1.3])]), 3);
    }

    #[test]
    fn where_nothing_is_judged_all_rounds_are_made() {
        assert_eq!(count(BOUNDED, Vec::new), 9);
        assert_eq!(count(Rounds::exactly(2, Length::Brief), || vec![Sample::new([1.0])]), 2);
    }
}
