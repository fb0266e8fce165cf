//! Services: what a packet to one costs, how soon ten thousand of them are in the kernel, how soon
//! a change is, and how evenly connections are spread.

mod crowd;
mod spread;

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use self::crowd::{Crowd, Facts, PODS_EACH, changed_group};
use self::spread::{BACKENDS, FLOWS, Spread};
use crate::datapath::{self, cell, measure_paths, round, start_servers};
use crate::document::{Judged, Section};
use crate::goal::Goal;
use crate::paths::{self, Cluster, Ends, Place, Setting, VIP};
use crate::plot::{Line, Plot};
use crate::profile::{self, Way};
use crate::rounds::{Length, Rounds};
use crate::sample::Sample;
use crate::table::Table;
use crate::traffic::Kind;

const NETWORK: u32 = 100;
const KINDS: [Kind; 2] = [Kind::RoundTrip, Kind::Connect];
/// What is measured as services grow; the first is judged.
const GROWING: [Kind; 2] = [Kind::RoundTrip, Kind::Bulk];
/// How many services there are beside the measured one, in a full run and in a quick one.
const SIZES: (&[u32], &[u32]) = (&[0, 100, 1_000, 10_000], &[0, 100, 1_000]);
/// How often the most services are put into kernels that have none.
const FROM_NOTHING: usize = 3;
/// How soon all of them must be there.
const FROM_NOTHING_LIMIT: Duration = Duration::from_secs(5);
/// How many endpoints are changed, one after the other.
const CHANGES: u32 = 1_000;
/// How soon a change must be in the kernel, for 99 of 100 changes.
const CHANGE_LIMIT_MS: f64 = 50.0;
/// Above this, one in a hundred even spreads over ten backends is by chance.
const MOST_UNEVEN: f64 = 21.67;

const NOTES: &str = "\
The client speaks to the address of a service that leads to a pod on its own node; the limit is a \
direct veth pair without a service. Both ends are on one CPU, as in the first table, and everything \
else of Atoll is on. *nft*: the same service among 500 in the shape of kube-proxy's rules.

*From nothing*: the services of one network, with ten pods behind each, from objects that were read \
to entries in the kernel, once, but for the most of them: that is the middle of three new kernels, and \
between which they are; the goal is 5 s for 10,000. *One endpoint*: an EndpointSlice in which one \
pod took another's place, until the kernel has it; the next packet finds it.

*Spread*: connections from as many ports of one client, over ten backends. The same \
connections are opened on nodes where one of the backends went before.";

/// One size: its cluster, and what was measured of it.
struct Sized {
    size: u32,
    cluster: Cluster,
    /// Seconds from facts to entries in a kernel that had none, and of these until they were compiled.
    from_nothing: Sample,
    compile: Sample,
    changes: Option<Sample>,
    /// For each kind of the growing ones, a value for each round.
    rounds: [Vec<f64>; GROWING.len()],
}

/// Measures all of it.
pub(crate) fn measure(rounds: Rounds, quick: bool) -> Result<Section> {
    let (packets, told) = measure_paths(&paths::services()?, &KINDS, rounds)?;
    let sizes = measure_sizes(if quick { SIZES.1 } else { SIZES.0 }, rounds)?;
    let spread = spread::measure(NETWORK)?;
    let mut judged = datapath::judge(&packets);
    judged.extend(judge_sizes(&sizes));
    judged.extend(judge_spread(&spread));
    Ok(Section {
        title: "Services",
        notes: format!("{NOTES}\n\n{told}"),
        tables: vec![
            ("A service on the same node".into(), datapath::table(&packets, Kind::heading)),
            (format!("As services of {PODS_EACH} pods grow"), growth(&sizes)),
            (format!("{FLOWS} connections over {BACKENDS} backends"), spread_table(&spread)),
            ("A service, counted by the kernel".into(), profiled()?),
        ],
        plots: vec![plot(&sizes)],
        judged,
    })
}

/// Our path through a service, counted by the kernel.
fn profiled() -> Result<Table> {
    let cluster = paths::cluster()?;
    let ends = cluster.ends(Place::SameNode).into_iter().next().context("a cluster has pods")?;
    let ends = Ends { target: VIP.into(), ..ends };
    let way = Way { name: "**Atoll**, service", ends, cluster: Some(&cluster) };
    profile::table(&[way], &KINDS)
}

fn measure_sizes(sizes: &[u32], rounds: Rounds) -> Result<Vec<Sized>> {
    let most = sizes.iter().max().copied();
    let often = |size: u32| if Some(size) == most { FROM_NOTHING } else { 1 };
    let sizes = sizes.iter().map(|size| Sized::new(*size, often(*size)));
    let mut sizes = sizes.collect::<Result<Vec<_>>>()?;
    let ends: Vec<Ends> = sizes.iter().map(Sized::ends).collect::<Result<_>>()?;
    let servers = start_servers(ends.iter())?;
    let mut going = rounds.begin("services");
    while going.next(|| vec![flat(&sizes)]).is_some() {
        sizes.iter_mut().try_for_each(|sized| sized.add_round(rounds.length))?;
    }
    drop(servers);
    Ok(sizes)
}

/// The round trip with the most services, against the one with the least.
fn flat(sizes: &[Sized]) -> Sample {
    Sample::ratios(&sizes[sizes.len() - 1].rounds[0], &sizes[0].rounds[0])
}

impl Sized {
    fn new(size: u32, often: usize) -> Result<Self> {
        eprint!("\rservices: {size} services of {PODS_EACH} pods   ");
        let (mut compiled, mut whole, mut last) = (vec![], vec![], None);
        for _ in 0..often {
            let cluster =
                Cluster::new(&Setting { services: 0, ..Setting::everything(&[NETWORK]) })?;
            let facts = Facts::of(NETWORK, size)?;
            let begun = Instant::now();
            let crowd = Crowd::compile(NETWORK, facts)?;
            let compile = begun.elapsed();
            let load = cluster.serve(crowd.served())?;
            compiled.push(compile.as_secs_f64());
            whole.push((compile + load).as_secs_f64());
            last = Some((cluster, crowd));
        }
        let (cluster, mut crowd) = last.context("services are put somewhere at least once")?;
        let changes = (size > 1).then(|| change(&cluster, &mut crowd, size)).transpose()?;
        let (from_nothing, compile) = (Sample::new(whole), Sample::new(compiled));
        Ok(Sized { size, cluster, from_nothing, compile, changes, rounds: Default::default() })
    }

    fn add_round(&mut self, length: Length) -> Result<()> {
        let ends = self.ends()?;
        for (kind, values) in GROWING.into_iter().zip(&mut self.rounds) {
            values.push(round(&ends, kind, length)?);
        }
        Ok(())
    }

    fn ends(&self) -> Result<Ends> {
        let ends = self.cluster.ends(Place::SameNode).into_iter().next();
        Ok(Ends { target: VIP.into(), ..ends.context("a cluster has pods")? })
    }
}

/// Changes an endpoint of one service after the other; gives the milliseconds of each.
fn change(cluster: &Cluster, crowd: &mut Crowd, services: u32) -> Result<Sample> {
    let mut times = vec![];
    for number in 0..CHANGES {
        let (service, turn) = (number % services, number / services);
        let group = changed_group(NETWORK, service, (service + turn + 1) % services)?;
        let begun = Instant::now();
        let touched = crowd.put_slice(service, group);
        let mut took = begun.elapsed();
        for (key, service) in touched {
            took += cluster.change(key, service)?;
        }
        times.push(took.as_secs_f64() * 1000.0);
    }
    Ok(Sample::new(times))
}

fn growth(sizes: &[Sized]) -> Table {
    let mut table = Table::new([
        "services",
        "from nothing s",
        "of it compiled s",
        "one endpoint p50 ms",
        "p99 ms",
        GROWING[0].heading(),
        GROWING[1].heading(),
    ]);
    for sized in sizes {
        let quantile = |share| {
            let changes = sized.changes.as_ref();
            changes.map(|it| format!("{:.2}", it.quantile(share))).unwrap_or_default()
        };
        let packets = |kind: usize| {
            let values = &sized.rounds[kind];
            cell(values, &Sample::ratios(values, &sizes[0].rounds[kind]))
        };
        table.row([
            (sized.size + 1).to_string(),
            seconds(&sized.from_nothing),
            seconds(&sized.compile),
            quantile(0.5),
            quantile(0.99),
            packets(0),
            packets(1),
        ]);
    }
    table
}

/// The middle, and between which all are where there are several.
fn seconds(sample: &Sample) -> String {
    match sample.len() {
        1 => format!("{:.2}", sample.median()),
        _ => format!(
            "{:.2} ({:.2}–{:.2})",
            sample.median(),
            sample.quantile(0.0),
            sample.quantile(1.0)
        ),
    }
}

fn plot(sizes: &[Sized]) -> Plot {
    let point = |sized: &Sized| {
        (f64::from(sized.size + 1), Sample::new(sized.rounds[0].iter().copied()).median())
    };
    Plot {
        file: "services.svg",
        title: "A round trip through a service, as services of ten pods grow".into(),
        across: "services",
        up: "µs",
        lines: vec![Line { name: "Atoll".into(), points: sizes.iter().map(point).collect() }],
    }
}

fn spread_table(spread: &Spread) -> Table {
    let mut table =
        Table::new(["what", "fewest", "most", "chi-square", "moved", "moved needlessly"]);
    let most = |counts: &[u32]| counts.iter().max().copied().unwrap_or(0).to_string();
    let fewest = |counts: &[u32]| counts.iter().min().copied().unwrap_or(0).to_string();
    table.row([
        "connections of a backend".to_owned(),
        fewest(&spread.counts),
        most(&spread.counts),
        format!("{:.1}", spread.chi_square()),
        format!("{:.1} %", spread.moved * 100.0),
        format!("{:.1} %", spread.moved_needlessly * 100.0),
    ]);
    table
}

fn judge_sizes(sizes: &[Sized]) -> Vec<Judged> {
    let Some(most) = sizes.last() else { return vec![] };
    let what = format!("round trip with {} services against 1", most.size + 1);
    let late = most.changes.as_ref().map(|changes| {
        let share = Sample::new([changes.quantile(0.99) / CHANGE_LIMIT_MS]);
        let what = format!("one endpoint changed among {}, p99 against 50 ms", most.size);
        judged(what, 1.0, &share)
    });
    let from_nothing = judge_from_nothing(most.size, &most.from_nothing);
    [judged(what, 1.02, &flat(sizes)), from_nothing].into_iter().chain(late).collect()
}

fn judge_from_nothing(size: u32, seconds: &Sample) -> Judged {
    let shares = seconds.values().map(|it| it / FROM_NOTHING_LIMIT.as_secs_f64());
    let what = format!("{size} services of {PODS_EACH} pods from nothing, against 5 s");
    judged(what, 1.0, &Sample::new(shares))
}

fn judge_spread(spread: &Spread) -> Vec<Judged> {
    let needless = Sample::new([spread.moved_needlessly]);
    vec![
        judged("spread, chi-square".into(), MOST_UNEVEN, &Sample::new([spread.chi_square()])),
        judged("connections moved though their backend stayed".into(), 0.0, &needless),
    ]
}

fn judged(what: String, bound: f64, measured: &Sample) -> Judged {
    Judged::new(what, Goal::AtMost(bound), measured)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goal::Verdict;

    #[test]
    fn a_heap_on_one_backend_and_needless_moves_are_missed_goals() {
        let verdicts = |counts: Vec<u32>, moved_needlessly| -> Vec<Verdict> {
            let spread = Spread { counts, moved: 0.1, moved_needlessly };
            judge_spread(&spread).iter().map(|judged| judged.verdict).collect()
        };
        assert_eq!(verdicts(vec![400; 10], 0.0), [Verdict::Met; 2]);
        assert_eq!(verdicts(vec![4000, 0, 0, 0], 0.01), [Verdict::Missed; 2]);
    }

    #[test]
    fn services_that_take_more_than_five_seconds_from_nothing_are_a_missed_goal() {
        let verdict = |seconds: [f64; 3]| judge_from_nothing(10_000, &Sample::new(seconds)).verdict;
        assert_eq!(verdict([0.9, 1.0, 4.9]), Verdict::Met);
        assert_eq!(verdict([5.1, 5.2, 6.0]), Verdict::Missed);
    }
}
