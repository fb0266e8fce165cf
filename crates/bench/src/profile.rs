//! What the kernel counts of a path while traffic flows: the frames that each end sends, and how often
//! and how long our programs run. A cause of a missed goal is read here, and not guessed.
//!
//! The rule: nothing of this is compared with a goal. The kernel looks at its clock before and after
//! every run while it counts, which costs as much as a cheap run does.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use atoll_testkit::Namespace;
use aya::sys::{Stats, enable_stats};

use crate::datapath::{asked, start_servers};
use crate::paths::{Cluster, Ends};
use crate::rounds::Length;
use crate::table::Table;
use crate::traffic::{Answer, Kind};

pub(crate) const NOTES: &str = "\
*Counted by the kernel*: frames that leave the client and the server, as the network devices count \
them: one may hold up to 64 KiB of a stream. *Turns*: how often the client waited, and the server had \
the CPU. And how often and how long our programs ran, by name. \
The times are longer than they are in the tables above: the kernel looks at its clock around every \
run that it counts.";

/// A way to measure: what it is called, its ends, and the nodes whose programs it passes.
pub(crate) struct Way<'a> {
    pub(crate) name: &'static str,
    pub(crate) ends: Ends,
    pub(crate) cluster: Option<&'a Cluster>,
}

/// How often a program ran, and how long all of that took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ran {
    pub(crate) runs: u64,
    pub(crate) time: Duration,
}

/// Programs by name.
pub(crate) type Programs = BTreeMap<String, Ran>;

/// What was counted of one kind of traffic, and of how many units of it.
struct Counted {
    units: f64,
    turns: f64,
    frames: [u64; 2],
    programs: Programs,
}

/// A row for each way and kind.
pub(crate) fn table(ways: &[Way<'_>], kinds: &[Kind]) -> Result<Table> {
    let columns = [
        "path",
        "traffic",
        "frames there",
        "frames back",
        "turns",
        "programs, runs × ns",
        "ns in programs",
    ];
    let mut table = Table::new(columns);
    let _counting = enable_stats(Stats::RunTime).context("the kernel does not count programs")?;
    for kind in kinds {
        for way in ways {
            let counted = count(way, *kind).with_context(|| format!("on the path {}", way.name))?;
            let traffic = format!("{}, each {}", kind.name(), kind.unit());
            table.row([way.name.to_owned(), traffic].into_iter().chain(counted.cells()));
        }
    }
    Ok(table)
}

fn count(way: &Way<'_>, kind: Kind) -> Result<Counted> {
    let servers = start_servers([&way.ends].into_iter())?;
    let programs = || way.cluster.map_or_else(|| Ok(Programs::new()), Cluster::programs);
    let frames = || -> Result<[u64; 2]> { Ok([sent(&way.ends.client)?, sent(&way.ends.server)?]) };
    let (ran, left) = (programs()?, frames()?);
    let Answer { units, turns, .. } = asked(&way.ends, kind, Length::Whole)?;
    let (ran_after, left_after) = (programs()?, frames()?);
    drop(servers);
    let frames = [left_after[0] - left[0], left_after[1] - left[1]];
    Ok(Counted { units, turns, frames, programs: more(&ran, ran_after) })
}

/// What came after what was there before.
fn more(before: &Programs, after: Programs) -> Programs {
    let since = |(name, Ran { runs, time }): (String, Ran)| {
        let had = before.get(&name).copied().unwrap_or_default();
        let ran = Ran { runs: runs.saturating_sub(had.runs), time: time.saturating_sub(had.time) };
        (ran.runs > 0).then_some((name, ran))
    };
    after.into_iter().filter_map(since).collect()
}

/// The frames that the interface of a pod has sent.
fn sent(pod: &Namespace) -> Result<u64> {
    let devices = pod.run(|| std::fs::read_to_string("/proc/thread-self/net/dev"))?;
    sent_by_eth0(&devices).context("the kernel does not tell what eth0 has sent")
}

fn sent_by_eth0(devices: &str) -> Option<u64> {
    let line = devices.lines().find_map(|line| line.trim().strip_prefix("eth0:"))?;
    line.split_whitespace().nth(9)?.parse().ok()
}

impl Counted {
    fn cells(&self) -> [String; 5] {
        let each = |count: u64| format!("{:.1}", count as f64 / self.units);
        let program = |(name, ran): (&String, &Ran)| {
            let nanoseconds = ran.time.as_nanos() as f64 / ran.runs as f64;
            format!("{name} {} × {nanoseconds:.0}", each(ran.runs))
        };
        let all: Duration = self.programs.values().map(|ran| ran.time).sum();
        let programs: Vec<String> = self.programs.iter().map(program).collect();
        let spent = match programs.is_empty() {
            true => String::new(),
            false => format!("{:.0}", all.as_nanos() as f64 / self.units),
        };
        let turns = format!("{:.3}", self.turns / self.units);
        [each(self.frames[0]), each(self.frames[1]), turns, programs.join(", "), spent]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn programs(runs: u64, nanoseconds: u64) -> Programs {
        let ran = Ran { runs, time: Duration::from_nanos(nanoseconds) };
        [("from_pod".to_owned(), ran)].into()
    }

    #[test]
    fn what_ran_before_is_not_counted_and_what_did_not_run_is_not_told() {
        assert_eq!(more(&programs(5, 1_000), programs(25, 9_000)), programs(20, 8_000));
        assert_eq!(more(&programs(5, 1_000), programs(5, 1_000)), Programs::new());
        assert_eq!(more(&Programs::new(), programs(5, 1_000)), programs(5, 1_000));
    }

    #[test]
    fn everything_is_told_by_the_unit_of_its_traffic() {
        let (frames, programs) = ([20, 5], programs(20, 6_000));
        let counted = Counted { units: 10.0, turns: 4.0, frames, programs };
        assert_eq!(counted.cells(), ["2.0", "0.5", "0.400", "from_pod 2.0 × 300", "600"]);
        let bare = Counted { programs: Programs::new(), ..counted };
        assert_eq!(bare.cells(), ["2.0", "0.5", "0.400", "", ""]);
    }

    #[test]
    fn frames_are_read_where_the_kernel_tells_what_was_sent() {
        let devices = "Inter-|   Receive |  Transmit\n face |bytes packets\n    lo: 1 2 3 4 5 6 7 8 9 10\n  \
                       eth0: 1 2 3 4 5 6 7 8 900 77 0 0 0 0 0 0\n";
        assert_eq!(sent_by_eth0(devices), Some(77));
        assert_eq!(sent_by_eth0("lo: 1 2"), None);
    }
}
