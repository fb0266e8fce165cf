//! Addresses of the outside that came to this node, and the neighbours who must hear of it.
//!
//! The rules: an address is announced whenever word comes that it is this node's, since it may have
//! been another's meanwhile; several times, since a neighbour may miss a word; and no longer than
//! it is here and a claim says so.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use atoll_plan::{Observed, Step};
use tokio::time::Instant;

use super::Reconciler;
use crate::kernel::Kernel;
use crate::seen::{Change, Delta};

/// How often an address that came is announced, and how long it is between.
const WORDS: u8 = 3;
const BETWEEN_WORDS: Duration = Duration::from_secs(1);

/// What is still to be announced, and how often.
#[derive(Debug, Default)]
pub(super) struct Untold {
    words: BTreeMap<IpAddr, u8>,
    next_at: Option<Instant>,
    /// Addresses that are said to be this node's, until the kernel was looked at for them.
    heard: BTreeSet<IpAddr>,
    /// What is due was put off once.
    is_put_off: bool,
}

impl Untold {
    /// Takes in what was said. An address that went and came back while nobody here listened is in
    /// the kernel as it was; only the neighbours were told otherwise.
    pub(super) fn hear(&mut self, change: &Change) {
        match change {
            Change::Answered(Delta::All(all)) => {
                self.heard.extend(all.values().map(|held| held.address));
            }
            Change::Answered(Delta::Put(_, held)) => _ = self.heard.insert(held.address),
            _ => {}
        }
    }

    /// Says no more of what is not this node's by any claim.
    pub(super) fn keep(&mut self, ours: &BTreeSet<IpAddr>) {
        self.words.retain(|ip, _| ours.contains(ip));
        self.heard.retain(|ip| ours.contains(ip));
    }

    /// Takes in what was done: an address came, or went.
    pub(super) fn note(&mut self, step: &Step, now: Instant) {
        match step {
            Step::Hold(ip, _) => self.begin(*ip, now),
            Step::Release(ip) => drop(self.words.remove(ip)),
            _ => {}
        }
    }

    /// What was heard of and is here, is announced. What is not comes by a step, or not at all.
    pub(super) fn look(&mut self, observed: &Observed, now: Instant) {
        let is_here = |ip: &IpAddr| observed.held.get(ip).is_some_and(Option::is_some);
        for ip in std::mem::take(&mut self.heard).into_iter().filter(is_here) {
            self.begin(ip, now);
        }
    }

    fn begin(&mut self, ip: IpAddr, now: Instant) {
        self.words.insert(ip, WORDS);
        (self.next_at, self.is_put_off) = (Some(now), false);
    }

    /// When something is to be announced.
    pub(super) fn next_at(&self) -> Option<Instant> {
        self.next_at.filter(|_| !self.words.is_empty())
    }

    /// What is to be announced now. An agent that stood still until long after it was due may have
    /// lost the address since: it waits once more, to hear of that first.
    fn due(&mut self, now: Instant) -> BTreeSet<IpAddr> {
        let Some(at) = self.next_at().filter(|at| *at <= now) else { return BTreeSet::new() };
        self.next_at = Some(now + BETWEEN_WORDS);
        self.is_put_off = !self.is_put_off && now > at + BETWEEN_WORDS;
        if self.is_put_off {
            return BTreeSet::new();
        }
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
    use atoll_model::outside::{Held, Purpose};

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

    fn said() -> Change {
        let purpose = Purpose::Egress { network: "acme.default".into() };
        let held = Held { address: ip(), node: "node1".into(), purpose };
        Change::Answered(Delta::Put("outside.192.0.2.5".into(), held))
    }

    fn seen(network: Option<u32>) -> Observed {
        let network = network.map(|number| number.try_into().unwrap());
        Observed { held: [(ip(), network)].into(), ..Observed::default() }
    }

    #[test]
    fn an_address_that_is_here_is_announced_when_a_claim_says_so_anew() {
        let (mut untold, start) = (Untold::default(), Instant::now());
        untold.hear(&said());
        untold.look(&seen(None), start);
        assert_eq!(untold.next_at(), None, "it is not as it should be, and comes by a step");
        untold.hear(&said());
        untold.look(&seen(Some(1)), start);
        assert_eq!(untold.due(start), [ip()].into());
        untold.look(&seen(Some(1)), start);
        assert!(untold.due(start).is_empty(), "nothing new was said");
    }

    #[test]
    fn what_a_claim_gives_to_another_is_announced_no_more_though_it_is_still_here() {
        let (mut untold, start) = (Untold::default(), Instant::now());
        untold.note(&held(), start);
        untold.hear(&said());
        untold.keep(&[ip()].into());
        assert_eq!(untold.next_at(), Some(start));
        untold.keep(&BTreeSet::new());
        untold.look(&seen(Some(1)), start);
        assert_eq!(untold.next_at(), None);
    }

    #[test]
    fn an_agent_that_stood_still_listens_before_it_goes_on_announcing() {
        let (mut untold, start) = (Untold::default(), Instant::now());
        untold.note(&held(), start);
        assert_eq!(untold.due(start), [ip()].into());
        let awake = start + Duration::from_secs(60);
        assert!(untold.due(awake).is_empty(), "it may be another's by now");
        assert_eq!(untold.next_at(), Some(awake + BETWEEN_WORDS));
        let late_again = awake + Duration::from_secs(60);
        assert_eq!(untold.due(late_again), [ip()].into(), "a slow agent is no silent one");
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
