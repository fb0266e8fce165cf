//! How long a run took, part by part and whole, against what it may take.
//!
//! The rule: a run that is longer than it may be says so, on the terminal and on the page. It fails
//! nothing: a busy machine is no fault of what is measured.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::table::Table;

/// What a whole run may take, and a quick one, building included.
const LIMIT: Duration = Duration::from_secs(45 * 60);
const QUICK_LIMIT: Duration = Duration::from_secs(5 * 60);

/// The time of one run.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    begun: Instant,
    /// What had passed before: the build, where somebody said when that began.
    before: Option<Duration>,
    /// What all of it may take, where it is a whole run.
    limit: Option<Duration>,
    parts: Vec<Lap>,
}

/// A part that was measured, or that failed.
#[derive(Clone, Debug)]
struct Lap {
    part: String,
    took: Duration,
    budget: Duration,
}

/// What a run is held to: the building of programs counts for a whole one. A quick one begins with
/// programs that are built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    Whole,
    Quick,
    /// Some parts only.
    Some,
}

impl Clock {
    /// Begins now; `since` is when a build before it began, in seconds of the epoch.
    pub(crate) fn start(extent: Extent, since: Option<u64>) -> Self {
        let since = since.map(|seconds| UNIX_EPOCH + Duration::from_secs(seconds));
        let passed = since.and_then(|since| SystemTime::now().duration_since(since).ok());
        let (limit, before) = match extent {
            Extent::Whole => (Some(LIMIT), passed),
            Extent::Quick => (Some(QUICK_LIMIT), None),
            Extent::Some => (None, None),
        };
        Clock { begun: Instant::now(), before, limit, parts: vec![] }
    }

    /// Notes what a part took.
    pub(crate) fn note(&mut self, part: String, took: Duration, budget: Duration) {
        self.parts.push(Lap { part, took, budget });
    }

    fn whole(&self) -> Duration {
        self.begun.elapsed() + self.before.unwrap_or_default()
    }

    /// What the terminal shows in the end.
    pub(crate) fn table(&self) -> Table {
        let mut table = Table::new(["part", "took s", "may take s", "verdict"]);
        let seconds = |time: Duration| time.as_secs().to_string();
        for lap in &self.parts {
            let cells = [lap.part.clone(), seconds(lap.took), seconds(lap.budget), lap.verdict()];
            table.row(cells);
        }
        if let Some(before) = self.before {
            table.row(["before".into(), seconds(before), String::new(), String::new()]);
        }
        let (limit, verdict) = match self.limit {
            Some(limit) => (seconds(limit), verdict(self.whole(), limit)),
            None => (String::new(), String::new()),
        };
        table.row(["all".into(), seconds(self.whole()), limit, verdict]);
        table
    }

    /// What the page says of it.
    pub(crate) fn told(&self, command: &str) -> String {
        let build = if self.before.is_some() { ", building included" } else { "" };
        let mut text = format!("The last run, `{command}`, took {}{build}.", minutes(self.whole()));
        if let Some(limit) = self.limit.filter(|limit| self.whole() > *limit) {
            text += &format!(" **That is longer than the {} that it may take.**", minutes(limit));
        }
        let late = self.parts.iter().filter(|lap| lap.took > lap.budget);
        let late: Vec<String> = late.map(Lap::told).collect();
        if !late.is_empty() {
            text += &format!(" Longer than planned: {}.", late.join(", "));
        }
        text
    }
}

impl Lap {
    fn verdict(&self) -> String {
        verdict(self.took, self.budget)
    }

    fn told(&self) -> String {
        format!("{} ({} s of {})", self.part, self.took.as_secs(), self.budget.as_secs())
    }
}

fn verdict(took: Duration, limit: Duration) -> String {
    if took > limit { "longer".into() } else { "in time".into() }
}

fn minutes(time: Duration) -> String {
    format!("{:.0} minutes", time.as_secs_f64() / 60.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(limit: Option<Duration>, before: u64) -> Clock {
        let before = Some(Duration::from_secs(before));
        let mut clock = Clock { begun: Instant::now(), before, limit, parts: vec![] };
        clock.note("dns".into(), Duration::from_secs(70), Duration::from_secs(60));
        clock.note("api".into(), Duration::from_secs(50), Duration::from_secs(60));
        clock
    }

    #[test]
    fn a_run_that_is_longer_than_it_may_be_says_so_with_its_build() {
        let late = clock(Some(LIMIT), 46 * 60);
        let told = late.told("make bench");
        assert!(told.contains("`make bench`, took 46 minutes, building included."), "{told}");
        assert!(told.contains("longer than the 45 minutes"), "{told}");
        assert!(late.table().to_string().lines().last().unwrap().contains("longer"));
        assert!(!clock(Some(LIMIT), 44 * 60).told("make bench").contains("that it may take"));
        assert!(!clock(None, 46 * 60).told("bench run").contains("that it may take"));
    }

    #[test]
    fn a_part_that_is_longer_than_planned_is_named_and_others_are_not() {
        let told = clock(None, 0).told("bench run");
        assert!(told.contains("Longer than planned: dns (70 s of 60)."), "{told}");
    }

    #[test]
    fn a_build_counts_for_a_whole_run_and_for_no_other() {
        let since = Some(0);
        assert!(Clock::start(Extent::Whole, since).before.is_some());
        assert!(Clock::start(Extent::Whole, None).before.is_none());
        assert_eq!(Clock::start(Extent::Quick, since).before, None);
        assert_eq!(Clock::start(Extent::Some, since).limit, None);
    }
}
