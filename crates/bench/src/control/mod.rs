//! The control plane as clusters grow: how fast addresses are given, how soon a controller is
//! ready, what it holds in memory, and what one change costs.

mod metrics;
mod plane;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::document::{Judged, Section};
use crate::goal::Goal;
use crate::sample::Sample;
use crate::table::Table;
use plane::{Plane, Size};

/// Pods that are made at once in one network of a /16.
const BURST: usize = 5_000;

/// A small cluster: five networks.
const SMALL: Size = Size { tenants: 1, networks: 5, pods: 10 };

/// A large one: 5,000 networks with 50,000 ports.
const LARGE: Size = Size { tenants: 500, networks: 10, pods: 10 };

/// What stands for the large one in a quick run.
const QUICK: Size = Size { tenants: 50, networks: 10, pods: 10 };

/// How soon a controller must be ready, and how much it may hold.
const START_LIMIT: Duration = Duration::from_secs(10);
const MEMORY_LIMIT: u64 = 500 << 20;

const NOTES: &str = "\
The controller is the atoll program with the embedded API beside it on the same machine; requests, \
storing and watching are in the numbers. *Start*: from the start of the process until it has listed \
everything and has nothing left to do. *Work*: how often the controller looks at an object when one \
pod is made, by its own count.";

/// What was measured of a cluster of one size.
struct Measured {
    size: Size,
    start: Duration,
    resident: u64,
    work: f64,
}

/// Measures the control plane.
pub(crate) fn measure(atoll: &Path, quick: bool) -> Result<Section> {
    let burst = burst(atoll)?;
    let small = measure_size(atoll, SMALL)?;
    let large = measure_size(atoll, if quick { QUICK } else { LARGE })?;
    let mut table = Table::new(["networks", "ports", "start s", "resident MiB", "work"]);
    for measured in [&small, &large] {
        table.row([
            measured.size.all_networks().to_string(),
            measured.size.all_pods().to_string(),
            format!("{:.2}", measured.start.as_secs_f64()),
            format!("{:.1}", measured.resident as f64 / f64::from(1 << 20)),
            format!("{:.0}", measured.work),
        ]);
    }
    let mut rate = Table::new(["pods made at once", "until all have ports, s", "ports a second"]);
    rate.row([
        BURST.to_string(),
        format!("{:.1}", burst.as_secs_f64()),
        format!("{:.0}", BURST as f64 / burst.as_secs_f64()),
    ]);
    Ok(Section {
        title: "Control plane",
        notes: NOTES.into(),
        tables: vec![
            ("Addresses of one /16, all distinct".into(), rate),
            ("As clusters grow".into(), table),
        ],
        judged: judge(&small, &large),
    })
}

/// Makes pods all at once; tells how long it took until each had an address of its own.
fn burst(atoll: &Path) -> Result<Duration> {
    let plane = Plane::start()?;
    plane.make(Size { tenants: 1, networks: 1, pods: 0 })?;
    let controller = plane.controller(atoll)?;
    controller.wait_for_networks(1)?;
    let start = Instant::now();
    plane.make_pods("t-0", "n-0", BURST)?;
    controller.wait_for_ports(BURST)?;
    let took = start.elapsed();
    let addresses: BTreeSet<String> = plane.addresses()?.into_iter().collect();
    ensure!(addresses.len() == BURST, "{} of {BURST} addresses are distinct", addresses.len());
    Ok(took)
}

fn measure_size(atoll: &Path, size: Size) -> Result<Measured> {
    eprintln!("control: {} networks with {} ports", size.all_networks(), size.all_pods());
    let plane = Plane::start()?;
    plane.make(size)?;
    let first = plane.controller(atoll)?;
    first.wait_until_idle(size.all_pods())?;
    drop(first);
    let start = Instant::now();
    let controller = plane.controller(atoll)?;
    controller.wait_until_idle(size.all_pods())?;
    let start = start.elapsed();
    let resident = controller.resident_bytes()?;
    controller.wait_until_quiet()?;
    let before = controller.decisions()?;
    plane.make_pods("t-0", "n-0", 1)?;
    controller.wait_for_ports(size.all_pods() + 1)?;
    controller.wait_until_quiet()?;
    let work = controller.decisions()? - before;
    Ok(Measured { size, start, resident, work })
}

fn judge(small: &Measured, large: &Measured) -> Vec<Judged> {
    let judged = |what: &str, bound: f64, ratio: f64| {
        let goal = Goal::AtMost(bound);
        let sample = Sample::new([ratio]);
        Judged { what: what.into(), goal, verdict: goal.judge(&sample), median: ratio }
    };
    vec![
        judged(
            "start of the controller, against 10 s",
            1.0,
            large.start.as_secs_f64() / START_LIMIT.as_secs_f64(),
        ),
        judged(
            "memory of the controller, against 500 MiB",
            1.0,
            large.resident as f64 / MEMORY_LIMIT as f64,
        ),
        judged("work of one change, against five networks", 1.5, large.work / small.work),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goal::Verdict;

    fn measured(start: u64, resident: u64, work: f64) -> Measured {
        Measured { size: SMALL, start: Duration::from_secs(start), resident: resident << 20, work }
    }

    #[test]
    fn a_late_start_too_much_memory_and_work_that_grows_are_missed_goals() {
        let small = measured(1, 20, 30.0);
        let verdicts = |large: &Measured| -> Vec<Verdict> {
            judge(&small, large).iter().map(|judged| judged.verdict).collect()
        };
        assert_eq!(verdicts(&measured(9, 499, 31.0)), [Verdict::Met; 3]);
        assert_eq!(verdicts(&measured(11, 501, 300.0)), [Verdict::Missed; 3]);
    }
}
