//! Addresses of the outside that came to this node, and the neighbours who must hear of it.
//!
//! The rule: an address is announced several times, since a neighbour may miss a word, and no longer
//! than it is here.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use atoll_plan::Step;
use tokio::time::Instant;

use super::Reconciler;
use crate::kernel::Kernel;

/// How often an address that came is announced, and how long it is between.
const WORDS: u8 = 3;
const BETWEEN_WORDS: Duration = Duration::from_secs(1);

/// What is still to be announced, and how often.
#[derive(Debug, Default)]
pub(super) struct Untold {
    words: BTreeMap<IpAddr, u8>,
    next_at: Option<Instant>,
}

impl Untold {
    /// Takes in what was done: an address came, or went.
    pub(super) fn note(&mut self, step: &Step, now: Instant) {
        match step {
            Step::Hold(ip, _) => {
                self.words.insert(*ip, WORDS);
                self.next_at = Some(now);
            }
            Step::Release(ip) => drop(self.words.remove(ip)),
            _ => {}
        }
    }

    /// When something is to be announced.
    pub(super) fn next_at(&self) -> Option<Instant> {
        self.next_at.filter(|_| !self.words.is_empty())
    }

    /// What is to be announced now.
    fn due(&mut self, now: Instant) -> BTreeSet<IpAddr> {
        if self.next_at().is_none_or(|at| at > now) {
            return BTreeSet::new();
        }
        self.next_at = Some(now + BETWEEN_WORDS);
        let due = self.words.keys().copied().collect();
        self.words.values_mut().for_each(|words| *words -= 1);
        self.words.retain(|_, words| *words > 0);
        due
    }
}

impl<K: Kernel, F> Reconciler<K, F> {
    /// Tells the neighbours what is due.
    pub(super) fn announce(&mut self) {
        let due = self.untold.due(Instant::now());
        if due.is_empty() {
            return;
        }
        if let Err(error) = self.kernel.announce(&due) {
            tracing::warn!(error = format!("{error:#}"), "neighbours were not told of addresses");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip() -> IpAddr {
        [192, 0, 2, 5].into()
    }

    fn held() -> Step {
        Step::Hold(ip(), 1.try_into().unwrap())
    }

    #[test]
    fn an_address_that_comes_is_announced_three_times_a_second_apart() {
        let (mut untold, start) = (Untold::default(), Instant::now());
        assert_eq!(untold.next_at(), None);
        untold.note(&held(), start);
        for second in 0..3 {
            let at = start + Duration::from_secs(second);
            assert_eq!(untold.next_at(), Some(at));
            assert!(untold.due(at - Duration::from_millis(1)).is_empty());
            assert_eq!(untold.due(at), [ip()].into());
        }
        assert_eq!(untold.next_at(), None);
    }

    #[test]
    fn an_address_that_went_is_announced_no_more() {
        let (mut untold, start) = (Untold::default(), Instant::now());
        untold.note(&held(), start);
        assert_eq!(untold.due(start), [ip()].into());
        untold.note(&Step::Release(ip()), start);
        assert!(untold.due(start + BETWEEN_WORDS).is_empty());
        assert_eq!(untold.next_at(), None);
    }
}
