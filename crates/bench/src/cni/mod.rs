//! CNI: how long ADD and DEL take, from the start of the plugin's process to its end, judged by the
//! faster of two peers.

mod contestant;
mod proof;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use atoll_testkit::Namespace;
use tempfile::TempDir;

use crate::document::{Judged, Section};
use crate::goal::Goal;
use crate::node::{AgentNode, PlannedPod};
use crate::sample::Sample;
use crate::table::Table;
use contestant::{Contestant, Verb};

pub(crate) use contestant::Pod;

/// How many calls are under way at once in each burst.
const BURSTS: [usize; 2] = [20, 100];
const PODS_ALONE: usize = 20;
const PODS_IN_BURST: usize = 100;

const NOTES: &str = "\
Wall time of a call, from the start of the plugin's process to its end, the pods' namespaces made \
beforehand. *Alone*: one call after the other. *20 at once*: always twenty under way, and how \
many are done in a second; *100 at once* likewise. *Atoll*: the atoll-cni program asks the real agent, which programs the \
real kernel; the pods' ports are in the embedded API beforehand, in two tenants' networks. Its \
ADD ends with anti-spoofing in force, the port's endpoint programmed, its tenant's policy applied and \
its names answered; that policies deny and names are answered is seen before the first call. Every \
pod has an address of each family, with every plugin; pods' namespaces detect no duplicate \
addresses, which the peers would wait a second for. *Process start* is `/bin/true` started the same \
way: no plugin can be faster. Judged is, round by round, against the faster of both peers; the p99 of \
twenty calls is their slowest.";

/// What was measured of one plugin.
#[derive(Default)]
struct Times {
    alone: [Calls; VERBS.len()],
    bursts: [[Calls; VERBS.len()]; BURSTS.len()],
}

/// Milliseconds of every call of one verb, and how many were done in a second, by round.
#[derive(Default)]
struct Calls {
    rounds: Vec<Sample>,
    per_second: Vec<f64>,
}

/// A container runtime of one node, as far as it calls our plugin.
pub(crate) struct Runtime<'a> {
    plugin: Contestant<'a>,
    _folder: TempDir,
}

impl<'a> Runtime<'a> {
    pub(crate) fn of(atoll: &Path, node: &'a AgentNode) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        Ok(Runtime { plugin: contestant::ours(atoll, node, folder.path())?, _folder: folder })
    }

    /// Attaches a pod in a namespace of its own.
    pub(crate) fn attach(&self, planned: &PlannedPod) -> Result<Arc<Namespace>> {
        let pod = Pod::new(planned);
        self.add(&pod)?;
        Ok(pod.namespace)
    }

    /// Attaches a pod whose namespace is there.
    pub(crate) fn add(&self, pod: &Pod) -> Result<Duration> {
        self.plugin.host.run(|| self.plugin.call(Verb::Add, pod))
    }

    /// Detaches a pod, before its namespace goes.
    pub(crate) fn del(&self, pod: &Pod) -> Result<Duration> {
        self.plugin.host.run(|| self.plugin.call(Verb::Del, pod))
    }
}

const VERBS: [Verb; 2] = [Verb::Add, Verb::Del];

/// Measures all plugins in turns.
pub(crate) fn measure(atoll: &Path, rounds: usize) -> Result<Section> {
    let planned: Vec<PlannedPod> = (0..PODS_IN_BURST).map(planned_pod).collect();
    let node = AgentNode::start(atoll, &planned)?;
    planned[..2].iter().try_for_each(|pod| proof::enforce(&node, &pod.tenant()))?;
    proof::hold(&Runtime::of(atoll, &node)?, [&planned[0], &planned[2]])
        .with_context(|| node.last_words())?;
    let pods: Vec<Pod> = planned.iter().map(Pod::new).collect();
    let folder = tempfile::tempdir()?;
    let host = Namespace::new();
    contestant::without_detection(&host);
    let contestants = contestant::all(atoll, &node, &host, folder.path())?;
    let mut times: Vec<Times> = contestants.iter().map(|_| Times::default()).collect();
    for round in 0..rounds {
        eprint!("\rcni: round {} of {rounds}", round + 1);
        for (contestant, times) in contestants.iter().zip(&mut times) {
            times.add(contestant, &pods)?;
        }
    }
    eprintln!();
    let alone = ("Alone, milliseconds".to_owned(), alone_table(&contestants, &times));
    let bursts = BURSTS.iter().enumerate().map(|(place, at_once)| {
        let title = format!("{at_once} at once, milliseconds");
        (title, burst_table(&contestants, times.iter().map(|times| &times.bursts[place])))
    });
    Ok(Section {
        title: "CNI",
        notes: format!("{NOTES}\n\n{rounds} rounds of {PODS_ALONE} and {PODS_IN_BURST} pods."),
        tables: std::iter::once(alone).chain(bursts).collect(),
        plots: vec![],
        judged: judge(&times),
    })
}

/// Two tenants whose pods have the same addresses.
fn planned_pod(number: usize) -> PlannedPod {
    let pair = u8::try_from(number / 2).unwrap_or(u8::MAX);
    let network = if number.is_multiple_of(2) { 100 } else { 200 };
    PlannedPod { name: format!("pod-{number}"), network, ip: [10, 0, 0, pair + 1].into() }
}

impl Times {
    fn add(&mut self, contestant: &Contestant<'_>, pods: &[Pod]) -> Result<()> {
        for (verb, alone) in VERBS.into_iter().zip(&mut self.alone) {
            alone.add(contestant, verb, &pods[..PODS_ALONE], 1)?;
        }
        for (at_once, burst) in BURSTS.into_iter().zip(&mut self.bursts) {
            for (verb, calls) in VERBS.into_iter().zip(burst) {
                calls.add(contestant, verb, pods, at_once)?;
            }
        }
        Ok(())
    }
}

impl Calls {
    fn add(
        &mut self,
        contestant: &Contestant<'_>,
        verb: Verb,
        pods: &[Pod],
        at_once: usize,
    ) -> Result<()> {
        let (times, whole) = calls(contestant, verb, pods, at_once)?;
        self.rounds.push(Sample::new(times));
        self.per_second.push(pods.len() as f64 / whole.as_secs_f64());
        Ok(())
    }

    /// That share of the calls of each round took no longer.
    fn quantiles(&self, share: f64) -> Vec<f64> {
        self.rounds.iter().map(|round| round.quantile(share)).collect()
    }

    fn shown(&self) -> String {
        let all = Sample::new(self.rounds.iter().flat_map(Sample::values));
        format!("{:.1} / {:.1}", all.median(), all.quantile(0.99))
    }
}

/// Calls the plugin once for each pod, `at_once` at a time.
fn calls(
    contestant: &Contestant<'_>,
    verb: Verb,
    pods: &[Pod],
    at_once: usize,
) -> Result<(Vec<f64>, Duration)> {
    let queue = Mutex::new(pods.iter());
    let next = || queue.lock().map(|mut queue| queue.next()).unwrap_or_default();
    let caller = || -> Result<Vec<f64>> {
        let one = |pod| Ok(contestant.call(verb, pod)?.as_secs_f64() * 1e3);
        std::iter::from_fn(next).map(one).collect()
    };
    contestant.host.run(|| {
        let start = Instant::now();
        let times: Result<Vec<Vec<f64>>> = std::thread::scope(|scope| {
            let callers: Vec<_> = (0..at_once).map(|_| scope.spawn(caller)).collect();
            let joined = callers.into_iter().map(|caller| caller.join().expect("a caller"));
            joined.collect()
        });
        Ok((times?.concat(), start.elapsed()))
    })
}

fn alone_table(contestants: &[Contestant<'_>], times: &[Times]) -> Table {
    let mut table = Table::new(["plugin", "ADD p50 / p99", "DEL p50 / p99"]);
    for (contestant, times) in contestants.iter().zip(times) {
        let [add, del] = &times.alone;
        table.row([contestant.name.to_owned(), add.shown(), del.shown()]);
    }
    table
}

fn burst_table<'a>(
    contestants: &[Contestant<'_>],
    bursts: impl Iterator<Item = &'a [Calls; VERBS.len()]>,
) -> Table {
    let columns = ["plugin", "ADD p50 / p99", "ADD/s", "DEL p50 / p99", "DEL/s"];
    let mut table = Table::new(columns);
    for (contestant, burst) in contestants.iter().zip(bursts) {
        let rate = |calls: &Calls| {
            let sample = Sample::new(calls.per_second.iter().copied());
            let (low, high) = sample.spread();
            format!("{:.0} ({low:.0}–{high:.0})", sample.median())
        };
        let [add, del] = burst;
        let cells = [add.shown(), rate(add), del.shown(), rate(del)];
        table.row([contestant.name.to_owned()].into_iter().chain(cells));
    }
    table
}

/// We are the last, and our peers are all but the first, which does nothing.
fn judge(times: &[Times]) -> Vec<Judged> {
    let [_, peers @ .., ours] = times else { return vec![] };
    let peers: Vec<&Times> = peers.iter().collect();
    let mut judged = judge_calls("alone", ours, &peers, |times| &times.alone, false);
    for (place, at_once) in BURSTS.into_iter().enumerate() {
        let how = format!("{at_once} at once");
        judged.extend(judge_calls(&how, ours, &peers, |times| &times.bursts[place], true));
    }
    judged
}

fn judge_calls(
    how: &str,
    ours: &Times,
    peers: &[&Times],
    of: impl Fn(&Times) -> &[Calls; VERBS.len()],
    with_rate: bool,
) -> Vec<Judged> {
    let mut judged = vec![];
    for (place, verb) in VERBS.into_iter().enumerate() {
        let all = |value: &dyn Fn(&Calls) -> Vec<f64>| -> (Vec<f64>, Vec<Vec<f64>>) {
            (value(&of(ours)[place]), peers.iter().map(|peer| value(&of(peer)[place])).collect())
        };
        for (name, share) in [("p50", 0.5), ("p99", 0.99)] {
            let (own, others) = all(&|calls| calls.quantiles(share));
            let what = format!("CNI: {} {how}, {name}, to the faster peer", verb.name());
            let ratios = Sample::ratios(&own, &best(&others, f64::min));
            judged.push(Judged::new(what, Goal::AtMost(1.0), &ratios));
        }
        if with_rate {
            let (own, others) = all(&|calls| calls.per_second.clone());
            let what = format!("CNI: {} {how}, a second, to the faster peer", verb.name());
            let ratios = Sample::ratios(&own, &best(&others, f64::max));
            judged.push(Judged::new(what, Goal::AtLeast(1.0), &ratios));
        }
    }
    judged
}

/// The best of all, round by round.
fn best(all: &[Vec<f64>], better: fn(f64, f64) -> f64) -> Vec<f64> {
    let rounds = all.first().map_or(0, Vec::len);
    let of_round = |round: usize| all.iter().map(|values| values[round]).reduce(better);
    (0..rounds).filter_map(of_round).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::goal::Verdict;

    fn times(milliseconds: f64, rate: f64) -> Times {
        let calls = || Calls {
            rounds: vec![Sample::new([milliseconds; 20]); 3],
            per_second: vec![rate; 3],
        };
        let verbs = || std::array::from_fn(|_| calls());
        Times { alone: verbs(), bursts: std::array::from_fn(|_| verbs()) }
    }

    #[test]
    fn whoever_is_slower_than_one_of_both_peers_has_missed() {
        let verdicts = |ours: Times| -> BTreeSet<String> {
            let all = [times(0.1, 9e9), times(8.0, 200.0), times(9.0, 100.0), ours];
            judge(&all).iter().map(|it| it.verdict.to_string()).collect()
        };
        assert_eq!(verdicts(times(7.0, 250.0)), [Verdict::Met.to_string()].into());
        assert_eq!(verdicts(times(8.5, 150.0)), [Verdict::Missed.to_string()].into());
    }

    #[test]
    fn both_verbs_are_judged_alone_and_at_once_and_where_it_says_something_by_their_rate() {
        let judged = judge(&[times(1.0, 1.0), times(1.0, 1.0), times(1.0, 1.0)]);
        assert_eq!(judged.len(), VERBS.len() * (2 + 3 * BURSTS.len()));
        let what: BTreeSet<_> = judged.iter().map(|it| &it.what).collect();
        assert_eq!(what.len(), judged.len());
    }

    #[test]
    fn two_tenants_share_every_address_and_no_pod_shares_its_own() {
        let pods: Vec<_> = (0..PODS_IN_BURST).map(planned_pod).collect();
        let keys: BTreeSet<_> = pods.iter().map(|pod| (pod.network, pod.ip)).collect();
        let ips: BTreeSet<_> = pods.iter().map(|pod| pod.ip).collect();
        assert_eq!((keys.len(), ips.len()), (PODS_IN_BURST, PODS_IN_BURST / 2));
    }
}
