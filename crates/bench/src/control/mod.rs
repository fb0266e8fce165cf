//! The control plane as clusters grow: how fast addresses are given, how soon a controller is
//! ready, what it holds in memory, and what one change costs.

mod delay;
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
use delay::Delay;
use plane::Size;

pub(crate) use plane::{Controller, Plane, Whose, resident};

/// Pods that are made at once in one network of a /16.
const BURST: usize = 5_000;

/// A small cluster: five networks.
const SMALL: Size = Size { tenants: 1, networks: 5, pods: 10 };

/// A large one: 5,000 networks with 50,000 ports.
const LARGE: Size = Size { tenants: 500, networks: 10, pods: 10 };

/// What stands for the large one in a quick run.
const QUICK: Size = Size { tenants: 10, networks: 10, pods: 10 };

/// How often a controller is started in a full run.
const STARTS: usize = 3;

/// How soon a controller must be ready, and how much it may hold.
const START_LIMIT: Duration = Duration::from_secs(10);
const MEMORY_LIMIT: u64 = 500 << 20;

const NOTES: &str = "\
The controller is the atoll program, with the embedded API or with kube-apiserver and etcd beside it \
on the same machine; requests, storing and watching are in the numbers. *Controllers at work*: two \
that ask nobody which of them works, and still no address is given twice. *Start*: from the start of \
the process until it has listed everything and has nothing left to do, the middle of three and \
between which they are; the API has come to rest before. *CPU*: what the controller took for a start, \
and what the API took meanwhile, of the cores that they share. *Work*: how often the controller looks \
at an object when one pod is made, by its own count. *Waits*: from the request for a pod until another \
client sees its port, while pods are made steadily. A quick run has the embedded \
API alone, and fewer starts.";

/// What was measured of a cluster of one size.
struct Measured {
    size: Size,
    start: Starts,
    resident: u64,
    work: f64,
}

/// What the starts of a controller took, each in seconds.
struct Starts {
    until_idle: Sample,
    /// CPU of the controller, and of the API meanwhile.
    cpu: [Sample; 2],
}

/// What was measured on one API.
struct Outcome {
    whose: Whose,
    /// Of one controller, and of two that work at once.
    bursts: [Duration; 2],
    delay: Delay,
    small: Measured,
    large: Measured,
}

/// How much is measured.
#[derive(Clone, Copy)]
struct Extent {
    burst: usize,
    steady: usize,
    large: Size,
    /// Whose APIs it is measured on.
    on: &'static [Whose],
    /// How often a controller is started.
    starts: usize,
}

impl Extent {
    fn new(quick: bool) -> Self {
        match quick {
            true => Extent {
                burst: 500,
                steady: 3 * delay::RATE,
                large: QUICK,
                on: &[Whose::Embedded],
                starts: 2,
            },
            false => Extent {
                burst: BURST,
                steady: 15 * delay::RATE,
                large: LARGE,
                on: &Whose::BOTH,
                starts: STARTS,
            },
        }
    }
}

/// Measures the control plane.
pub(crate) fn measure(atoll: &Path, quick: bool) -> Result<Section> {
    let extent = Extent::new(quick);
    let outcomes = extent.on.iter().map(|whose| measure_on(*whose, atoll, extent));
    let outcomes: Vec<Outcome> = outcomes.collect::<Result<_>>()?;
    Ok(Section {
        title: "Control plane",
        notes: NOTES.into(),
        tables: vec![
            ("Addresses of one /16, all distinct".into(), rates(&outcomes, extent)),
            (format!("How long a pod waits at {} pods a second", delay::RATE), waits(&outcomes)),
            ("As clusters grow".into(), growth(&outcomes)),
        ],
        plots: vec![],
        judged: outcomes.iter().flat_map(judge).collect(),
    })
}

fn measure_on(whose: Whose, atoll: &Path, extent: Extent) -> Result<Outcome> {
    let (bursts, delay) = in_one_network(whose, atoll, extent)?;
    let small = measure_size(whose, atoll, SMALL, extent.starts)?;
    let large = measure_size(whose, atoll, extent.large, extent.starts)?;
    Ok(Outcome { whose, bursts, delay, small, large })
}

fn rates(outcomes: &[Outcome], extent: Extent) -> Table {
    let columns = [
        "API",
        "controllers at work",
        "pods made at once",
        "until all have ports, s",
        "ports a second",
    ];
    let mut table = Table::new(columns);
    for Outcome { whose, bursts, .. } in outcomes {
        for (controllers, burst) in (1..).zip(bursts) {
            table.row([
                whose.name().to_owned(),
                controllers.to_string(),
                extent.burst.to_string(),
                format!("{:.1}", burst.as_secs_f64()),
                format!("{:.0}", extent.burst as f64 / burst.as_secs_f64()),
            ]);
        }
    }
    table
}

fn waits(outcomes: &[Outcome]) -> Table {
    let mut table = Table::new(["API", "pods made a second", "p50 ms", "p99 ms"]);
    for Outcome { whose, delay, .. } in outcomes {
        table.row([
            whose.name().to_owned(),
            format!("{:.0}", delay.rate),
            format!("{:.1}", delay.milliseconds.quantile(0.5)),
            format!("{:.1}", delay.milliseconds.quantile(0.99)),
        ]);
    }
    table
}

fn growth(outcomes: &[Outcome]) -> Table {
    let columns = [
        "API",
        "networks",
        "ports",
        "start s",
        "its CPU s",
        "the API's CPU s",
        "resident MiB",
        "work",
    ];
    let mut table = Table::new(columns);
    for Outcome { whose, small, large, .. } in outcomes {
        for measured in [small, large] {
            table.row([
                whose.name().to_owned(),
                measured.size.all_networks().to_string(),
                measured.size.all_pods().to_string(),
                start_cell(&measured.start.until_idle),
                format!("{:.2}", measured.start.cpu[0].median()),
                format!("{:.2}", measured.start.cpu[1].median()),
                format!("{:.1}", measured.resident as f64 / f64::from(1 << 20)),
                format!("{:.0}", measured.work),
            ]);
        }
    }
    table
}

/// The middle start, and between which the others are.
fn start_cell(start: &Sample) -> String {
    format!("{:.2} ({:.2}–{:.2})", start.median(), start.quantile(0.0), start.quantile(1.0))
}

/// Makes pods all at once in one network; tells how long it took until each had an address of its
/// own. Then in another, with a second controller that works at the same time. Then makes more,
/// steadily, with the first alone.
fn in_one_network(whose: Whose, atoll: &Path, extent: Extent) -> Result<([Duration; 2], Delay)> {
    eprintln!("control: {} pods at once, {}", extent.burst, whose.name());
    let plane = Plane::start(whose)?;
    plane.make(Size { tenants: 3, networks: 1, pods: 0 })?;
    let controller = plane.controller(atoll)?;
    controller.wait_for_networks(3)?;
    let alone = burst(&plane, &controller, "t-0", extent.burst, extent.burst)?;
    let second = plane.controller(atoll)?;
    second.wait_until_idle(extent.burst)?;
    let together = burst(&plane, &controller, "t-1", extent.burst, 2 * extent.burst)?;
    drop(second);
    controller.wait_until_quiet()?;
    let delay = delay::measure(&plane, "t-2", "n-0", extent.steady)?;
    Ok(([alone, together], delay))
}

/// Makes pods at once until there are `all` ports, no two of which have one address.
fn burst(
    plane: &Plane,
    controller: &Controller,
    tenant: &str,
    pods: usize,
    all: usize,
) -> Result<Duration> {
    controller.wait_until_quiet()?;
    let start = Instant::now();
    plane.make_pods(tenant, "n-0", pods)?;
    controller.wait_for_ports(all)?;
    let took = start.elapsed();
    let addresses = plane.addresses()?;
    let distinct: BTreeSet<&(String, String)> = addresses.iter().collect();
    ensure!(
        distinct.len() == all && addresses.len() == all,
        "{} addresses of {} ports are distinct, of {all} pods",
        distinct.len(),
        addresses.len()
    );
    Ok(took)
}

fn measure_size(whose: Whose, atoll: &Path, size: Size, starts: usize) -> Result<Measured> {
    let (networks, pods) = (size.all_networks(), size.all_pods());
    eprintln!("control: {networks} networks with {pods} ports, {}", whose.name());
    let plane = Plane::start(whose)?;
    let first = plane.controller(atoll)?;
    plane.make(size)?;
    first.wait_until_idle(pods)?;
    drop(first);
    let (controller, start) = start_often(&plane, atoll, pods, starts)?;
    let resident = controller.resident_bytes()?;
    controller.wait_until_quiet()?;
    let before = controller.decisions()?;
    plane.make_pods("t-0", "n-0", 1)?;
    controller.wait_for_ports(pods + 1)?;
    controller.wait_until_quiet()?;
    let work = controller.decisions()? - before;
    Ok(Measured { size, start, resident, work })
}

/// Starts a controller some times; gives the last, and what each took until it had nothing left to do.
fn start_often(
    plane: &Plane,
    atoll: &Path,
    pods: usize,
    starts: usize,
) -> Result<(Controller, Starts)> {
    let once = || -> Result<(Controller, [f64; 3])> {
        plane.await_rest()?;
        let (begun, before) = (Instant::now(), plane.cpu_seconds()?);
        let controller = plane.controller(atoll)?;
        controller.wait_until_idle(pods)?;
        let took = begun.elapsed().as_secs_f64();
        let cpu = [controller.cpu_seconds()?, plane.cpu_seconds()? - before];
        Ok((controller, [took, cpu[0], cpu[1]]))
    };
    let mut seen = vec![];
    for _ in 1..starts {
        seen.push(once()?.1);
    }
    let (last, took) = once()?;
    seen.push(took);
    let [until_idle, own, of_the_api] =
        [0, 1, 2].map(|place| Sample::new(seen.iter().map(|took| took[place])));
    Ok((last, Starts { until_idle, cpu: [own, of_the_api] }))
}

fn judge(outcome: &Outcome) -> Vec<Judged> {
    let Outcome { whose, small, large, .. } = outcome;
    let judged = |what: &str, bound: f64, measured: Sample| {
        Judged::new(format!("{what}, {}", whose.name()), Goal::AtMost(bound), &measured)
    };
    let starts = large.start.until_idle.values().map(|seconds| seconds / START_LIMIT.as_secs_f64());
    let memory = large.resident as f64 / MEMORY_LIMIT as f64;
    let work = large.work / small.work;
    vec![
        judged("start of the controller, against 10 s", 1.0, Sample::new(starts)),
        judged("memory of the controller, against 500 MiB", 1.0, Sample::new([memory])),
        judged("work of one change, against five networks", 1.5, Sample::new([work])),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goal::Verdict;

    fn measured(start: f64, resident: u64, work: f64) -> Measured {
        let all = || Sample::new([start; 3]);
        let start = Starts { until_idle: all(), cpu: [all(), all()] };
        Measured { size: SMALL, start, resident: resident << 20, work }
    }

    #[test]
    fn a_late_start_too_much_memory_and_work_that_grows_are_missed_goals() {
        let verdicts = |large: Measured| -> Vec<Verdict> {
            let outcome = Outcome {
                whose: Whose::Real,
                bursts: [Duration::ZERO; 2],
                delay: Delay { rate: 200.0, milliseconds: Sample::new([1.0]) },
                small: measured(1.0, 20, 30.0),
                large,
            };
            judge(&outcome).iter().map(|judged| judged.verdict).collect()
        };
        assert_eq!(verdicts(measured(9.0, 499, 31.0)), [Verdict::Met; 3]);
        assert_eq!(verdicts(measured(11.0, 501, 300.0)), [Verdict::Missed; 3]);
    }
}
