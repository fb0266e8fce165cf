//! Steps that failed, and when each is tried again.
//!
//! The rules: what failed waits, longer each time, whatever news come meanwhile; and it is told when it
//! begins to fail, when it fails otherwise than before, and when it is over, not at each attempt.

use std::collections::BTreeMap;

use atoll_plan::Step;
use tokio::time::Instant;

use super::pass::patience;

/// The steps that failed, by what they are about.
#[derive(Debug, Default)]
pub(super) struct Setbacks {
    steps: BTreeMap<String, Setback>,
    /// The number of the pass, so that what nobody wants any more is forgotten.
    pass: u64,
}

#[derive(Debug)]
struct Setback {
    failures: u32,
    /// None until it is known when the pass is over.
    due: Option<Instant>,
    error: String,
    wanted_in: u64,
}

impl Setbacks {
    /// Whether it is not the step's turn yet.
    pub(super) fn must_wait(&mut self, step: &Step, now: Instant) -> bool {
        if self.steps.is_empty() {
            return false;
        }
        let Some(setback) = self.steps.get_mut(&step.to_string()) else { return false };
        setback.wanted_in = self.pass;
        setback.due.is_some_and(|due| due > now)
    }

    /// The step failed; says whether that is news.
    pub(super) fn failed(&mut self, step: &Step, error: &str) -> bool {
        let (failures, wanted_in) = (0, self.pass);
        let fresh = || Setback { failures, due: None, error: String::new(), wanted_in };
        let setback = self.steps.entry(step.to_string()).or_insert_with(fresh);
        let is_news = setback.error != error;
        setback.failures = setback.failures.saturating_add(1);
        setback.due = None;
        error.clone_into(&mut setback.error);
        is_news
    }

    /// The step was done.
    pub(super) fn done(&mut self, step: &Step) {
        if !self.steps.is_empty() {
            self.steps.remove(&step.to_string());
        }
    }

    /// All steps that are wanted come now.
    pub(super) fn begin_pass(&mut self) {
        self.pass += 1;
    }

    /// They were all there: what was not among them is wanted no more.
    pub(super) fn end_pass(&mut self) {
        let pass = self.pass;
        self.steps.retain(|_, setback| setback.wanted_in == pass);
    }

    /// When the next of them is to be tried. Those that failed together are tried together.
    pub(super) fn next_due(&mut self, now: Instant) -> Option<Instant> {
        for setback in self.steps.values_mut() {
            setback.due.get_or_insert_with(|| now + patience(setback.failures.saturating_sub(1)));
        }
        self.steps.values().filter_map(|setback| setback.due).min()
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.steps.len()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use super::*;

    fn step(last: u8) -> Step {
        Step::AddPeer(Ipv4Addr::new(192, 0, 2, last).into())
    }

    #[test]
    fn a_step_that_fails_again_waits_longer_and_no_other_does() {
        let (mut setbacks, mut now) = (Setbacks::default(), Instant::now());
        let mut waits = vec![];
        for _ in 0..4 {
            assert!(!setbacks.must_wait(&step(1), now));
            setbacks.failed(&step(1), "full");
            let due = setbacks.next_due(now).unwrap();
            assert!(setbacks.must_wait(&step(1), now) && !setbacks.must_wait(&step(2), now));
            waits.push((due - now).as_secs());
            now = due;
        }
        assert_eq!(waits, [1, 2, 4, 8]);
        setbacks.done(&step(1));
        assert_eq!((setbacks.next_due(now), setbacks.len()), (None, 0));
    }

    #[test]
    fn a_failure_is_news_once_and_again_where_it_is_another() {
        let mut setbacks = Setbacks::default();
        assert!(setbacks.failed(&step(1), "full"));
        assert!(!setbacks.failed(&step(1), "full"));
        assert!(setbacks.failed(&step(1), "broken"));
        setbacks.done(&step(1));
        assert!(setbacks.failed(&step(1), "broken"));
    }

    #[test]
    fn what_nobody_wants_any_more_is_forgotten_and_what_waits_is_not() {
        let (mut setbacks, now) = (Setbacks::default(), Instant::now());
        setbacks.begin_pass();
        setbacks.failed(&step(1), "full");
        setbacks.failed(&step(2), "full");
        setbacks.end_pass();
        assert_eq!(setbacks.next_due(now), Some(now + Duration::from_secs(1)));
        setbacks.begin_pass();
        assert!(setbacks.must_wait(&step(2), now));
        setbacks.end_pass();
        assert_eq!(setbacks.len(), 1);
    }
}
