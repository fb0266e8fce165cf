//! CNI: how long ADD and DEL take, from the start of the plugin's process to its end.

mod contestant;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Result;
use atoll_testkit::Namespace;
use tempfile::TempDir;

use crate::document::Section;
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
ADD ends with anti-spoofing in force and the port's endpoint programmed. *Process start* is \
`/bin/true` started the same way: no plugin can be faster.";

/// Milliseconds of every call, alone and in each burst, by verb.
#[derive(Default)]
struct Times {
    alone: [Vec<f64>; 2],
    bursts: [Burst; BURSTS.len()],
}

/// Milliseconds of every call in bursts of one size, and how many were done in a second.
#[derive(Default)]
struct Burst {
    calls: [Vec<f64>; 2],
    per_second: [Vec<f64>; 2],
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
    let pods: Vec<Pod> = planned.iter().map(Pod::new).collect();
    let folder = tempfile::tempdir()?;
    let host = Namespace::new();
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
        judged: vec![],
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
        for (place, verb) in VERBS.into_iter().enumerate() {
            let (times, _) = calls(contestant, verb, &pods[..PODS_ALONE], 1)?;
            self.alone[place].extend(times);
        }
        for (at_once, burst) in BURSTS.into_iter().zip(&mut self.bursts) {
            for (place, verb) in VERBS.into_iter().enumerate() {
                let (times, whole) = calls(contestant, verb, pods, at_once)?;
                burst.calls[place].extend(times);
                burst.per_second[place].push(pods.len() as f64 / whole.as_secs_f64());
            }
        }
        Ok(())
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

fn p50_p99(times: &[f64]) -> String {
    let sample = Sample::new(times.iter().copied());
    format!("{:.1} / {:.1}", sample.median(), sample.quantile(0.99))
}

fn alone_table(contestants: &[Contestant<'_>], times: &[Times]) -> Table {
    let mut table = Table::new(["plugin", "ADD p50 / p99", "DEL p50 / p99"]);
    for (contestant, times) in contestants.iter().zip(times) {
        let [add, del] = &times.alone;
        table.row([contestant.name.to_owned(), p50_p99(add), p50_p99(del)]);
    }
    table
}

fn burst_table<'a>(
    contestants: &[Contestant<'_>],
    bursts: impl Iterator<Item = &'a Burst>,
) -> Table {
    let columns = ["plugin", "ADD p50 / p99", "ADD/s", "DEL p50 / p99", "DEL/s"];
    let mut table = Table::new(columns);
    for (contestant, burst) in contestants.iter().zip(bursts) {
        let rate = |values: &Vec<f64>| {
            let sample = Sample::new(values.iter().copied());
            let (low, high) = sample.spread();
            format!("{:.0} ({low:.0}–{high:.0})", sample.median())
        };
        let ([add, del], [adds, dels]) = (&burst.calls, &burst.per_second);
        let cells = [p50_p99(add), rate(adds), p50_p99(del), rate(dels)];
        table.row([contestant.name.to_owned()].into_iter().chain(cells));
    }
    table
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn two_tenants_share_every_address_and_no_pod_shares_its_own() {
        let pods: Vec<_> = (0..PODS_IN_BURST).map(planned_pod).collect();
        let keys: BTreeSet<_> = pods.iter().map(|pod| (pod.network, pod.ip)).collect();
        let ips: BTreeSet<_> = pods.iter().map(|pod| pod.ip).collect();
        assert_eq!((keys.len(), ips.len()), (PODS_IN_BURST, PODS_IN_BURST / 2));
    }
}
