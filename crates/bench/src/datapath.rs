//! Packets: every kind of traffic over every path, in interleaved rounds.

use std::io::{BufRead, BufReader};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use atoll_testkit::Namespace;
use serde::{Deserialize, Serialize};

use crate::document::{Judged, Section};
use crate::goal::Goal;
use crate::paths::{self, ATOLL, ATOLL_SERVICE, Ends, Path, Place};
use crate::pinned::{Ended, start_self};
use crate::profile::{self, Way};
use crate::rounds::{Length, Rounds};
use crate::sample::Sample;
use crate::table::Table;
use crate::traffic::{Answer, Ask, Kind};

/// What was measured on one path: for each kind, a value for each round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Measured {
    name: String,
    place: Place,
    kinds: Vec<Kind>,
    rounds: Vec<Vec<f64>>,
}

/// What is counted by the kernel, too.
const PROFILED: [Kind; 4] = [Kind::RoundTrip, Kind::Connect, Kind::Bulk, Kind::Stream];

const NOTES: &str = "\
Both ends of a path run on one CPU, ahead of everything else, so that time is CPU time: what a \
packet's way costs. Only *two CPUs* has an end on each of two. A value is the median of all \
rounds; the number after it is the median of the ratios to the limit in the same round, and in \
brackets between which ratios the middle half of the rounds lies. Costs: lower is better; rates: \
higher is better.

*Blocks*: 256 KiB are sent and confirmed before the next, so that every path has as much under \
way; the rate of the middle block, which stalls of single blocks do not move. *Stream*: one TCP \
connection as fast as it goes, everything counted; how much is under way then differs between \
paths. *Streams*: eight connections at once, likewise. All three are judged.

OVN is counted in instructions, with its kernel datapath, and not measured here: where a kernel has no \
`openvswitch`, OVN has only its slow switch in a process, which says nothing of what its users have, and \
which in Debian 12 aborts under short connections.

*Once more*: the limit of one node stands there twice, first and last. What differs between both is \
chance, and no path can be told from the limit by less.

*Atoll*: everything is on: anti-spoofing of MAC and address on every frame, connection tracking and \
counters, policies that deny by default and allow what is measured, 500 services, two tenants with \
the very same addresses on the same nodes, measured in turns while both are up. *nft*: the rules of \
a kube-proxy with 500 services, with connection tracking, without policies. Pods behind VXLAN have an MTU of 1450, \
the others of 1500.";

/// Measures all paths.
pub(crate) fn measure(rounds: Rounds) -> Result<Section> {
    let (measured, told) = measure_paths(&paths::all()?, &Kind::ALL, rounds)?;
    let (same, across): (Vec<_>, Vec<_>) =
        measured.into_iter().partition(|path| path.place == Place::SameNode);
    Ok(Section {
        title: "Datapath",
        notes: format!("{NOTES}\n\n{}\n\n{told}", profile::NOTES),
        tables: [&same, &across]
            .map(|paths| (paths[0].place.to_string(), table(paths, Kind::heading)))
            .into_iter()
            .chain([("Counted by the kernel".into(), profiled()?)])
            .collect(),
        plots: vec![],
        judged: [same, across].iter().flat_map(|paths| judge(paths)).collect(),
    })
}

/// Our own paths and their limits, counted by the kernel.
fn profiled() -> Result<Table> {
    let limits = paths::limits()?;
    let cluster = paths::cluster()?;
    let mut ways = vec![];
    for limit in &limits {
        let ours = cluster.ends(limit.place).into_iter().next().context("a cluster has pods")?;
        let (bare, name) = match limit.place {
            Place::SameNode => ("veth pair", "**Atoll**, same node"),
            Place::AcrossNodes => ("routing", "**Atoll**, across nodes"),
        };
        ways.push(Way { name: bare, ends: limit.ends[0].clone(), cluster: None });
        ways.push(Way { name, ends: ours, cluster: Some(&cluster) });
    }
    profile::table(&ways, &PROFILED)
}

/// Measures these kinds of traffic on these paths, in turns; says how many there were.
pub(crate) fn measure_paths(
    paths: &[Path],
    kinds: &[Kind],
    rounds: Rounds,
) -> Result<(Vec<Measured>, String)> {
    let servers = start_servers(paths.iter().flat_map(|path| &path.ends))?;
    let mut measured: Vec<_> = paths.iter().map(|path| Measured::nothing(path, kinds)).collect();
    let mut going = rounds.begin("datapath");
    while let Some(number) = going.next(|| judged_ratios(&measured)) {
        for (path, measured) in paths.iter().zip(&mut measured) {
            measured.add(path, number, rounds.length)?;
        }
    }
    drop(servers);
    Ok((measured, going.told()))
}

/// The ratios of our own paths, of what has a goal.
fn judged_ratios(measured: &[Measured]) -> Vec<Sample> {
    let ours = measured.iter().filter(|path| path.name == ATOLL || path.name == ATOLL_SERVICE);
    let ratios = ours.filter_map(|path| {
        let limit = measured.iter().find(|limit| limit.place == path.place)?;
        let all = path.kinds.iter().zip(path.ratios(limit));
        Some(all.filter(move |(kind, _)| kind.goal(path.place).is_some()).map(|(_, ratios)| ratios))
    });
    ratios.flatten().collect()
}

/// Starts an answering process in every server's namespace.
pub(crate) fn start_servers<'a>(ends: impl Iterator<Item = &'a Ends>) -> Result<Vec<Ended>> {
    let mut seen: Vec<&Arc<Namespace>> = vec![];
    for Ends { server, .. } in ends {
        if !seen.iter().any(|known| Arc::ptr_eq(known, server)) {
            seen.push(server);
        }
    }
    seen.into_iter().map(|namespace| start_server(namespace)).collect()
}

fn start_server(namespace: &Namespace) -> Result<Ended> {
    let mut server = Ended(start_self(namespace, &["answer".to_owned()])?);
    let output = server.0.stdout.take().context("the server has no output")?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    ensure!(line.trim() == "ready", "an answering process ended before it was ready");
    Ok(server)
}

/// One round of one kind between two ends.
pub(crate) fn round(ends: &Ends, kind: Kind, length: Length) -> Result<f64> {
    Ok(asked(ends, kind, length)?.value)
}

/// The same, with how much was carried.
pub(crate) fn asked(ends: &Ends, kind: Kind, length: Length) -> Result<Answer> {
    let asked = start_self(&ends.client, &Ask::arguments(kind, ends.target, length))?;
    let output = asked.wait_with_output()?;
    let answer = String::from_utf8(output.stdout)?;
    let reached = format!("{kind:?} to {} was not answered; the reason is above", ends.target);
    Answer::read(&answer).context(reached)
}

impl Measured {
    fn nothing(path: &Path, kinds: &[Kind]) -> Self {
        let rounds = vec![vec![]; kinds.len()];
        Measured { name: path.name.to_owned(), place: path.place, kinds: kinds.into(), rounds }
    }

    /// Where its ends are.
    pub(crate) fn place(&self) -> Place {
        self.place
    }

    fn add(&mut self, path: &Path, round_number: usize, length: Length) -> Result<()> {
        let ends = &path.ends[round_number % path.ends.len()];
        for (kind, values) in self.kinds.iter().zip(&mut self.rounds) {
            let value = round(ends, *kind, length);
            values.push(value.with_context(|| format!("on the path {}", self.name))?);
        }
        Ok(())
    }

    fn ratios(&self, limit: &Measured) -> Vec<Sample> {
        let pairs = self.rounds.iter().zip(&limit.rounds);
        pairs.map(|(values, limits)| Sample::ratios(values, limits)).collect()
    }
}

/// Values and ratios to the first path.
pub(crate) fn table(paths: &[Measured], heading: impl Fn(Kind) -> &'static str) -> Table {
    let headings = paths[0].kinds.iter().copied().map(heading);
    let mut table = Table::new(["path"].into_iter().chain(headings));
    for path in paths {
        let ratios = path.ratios(&paths[0]);
        let cells = path.rounds.iter().zip(&ratios).map(|(values, ratios)| cell(values, ratios));
        table.row([path.name.clone()].into_iter().chain(cells));
    }
    table
}

/// A value, its ratio and the ratio's spread.
pub(crate) fn cell(values: &[f64], ratios: &Sample) -> String {
    let value = Sample::new(values.iter().copied()).median();
    let (low, high) = ratios.spread();
    let digits = if value < 100.0 { 1 } else { 0 };
    format!("{value:.digits$} · {:.2} ({low:.2}–{high:.2})", ratios.median())
}

/// Our own paths by their goals.
pub(crate) fn judge(paths: &[Measured]) -> Vec<Judged> {
    judge_ours(paths, [Kind::goal, Kind::goal_through_service])
}

/// Our own paths by what they cost before.
pub(crate) fn judge_kept(paths: &[Measured]) -> Vec<Judged> {
    judge_ours(paths, [Kind::kept, Kind::kept_through_service])
}

/// What is asked of a kind of traffic in a place.
type Asked = fn(Kind, Place) -> Option<Goal>;

fn judge_ours(paths: &[Measured], [straight, through_service]: [Asked; 2]) -> Vec<Judged> {
    let mut judged = judge_path(paths, ATOLL, "", straight);
    judged.extend(judge_path(paths, ATOLL_SERVICE, " through a service", through_service));
    judged
}

fn judge_path(paths: &[Measured], name: &str, way: &str, goal_of: Asked) -> Vec<Judged> {
    let ours = paths.iter().find(|path| path.name == name);
    let ratios = ours.map(|ours| ours.ratios(&paths[0])).unwrap_or_default();
    let judged = paths[0].kinds.iter().zip(ratios).filter_map(|(kind, ratios)| {
        let goal = goal_of(*kind, paths[0].place)?;
        let what = format!("{}, {}{way}", paths[0].place, kind.name());
        Some(Judged::new(what, goal, &ratios))
    });
    judged.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goal::Verdict;

    #[test]
    fn a_cell_has_the_value_the_ratio_and_its_spread() {
        let ratios = Sample::ratios(&[11.0, 12.0, 13.0], &[10.0, 10.0, 10.0]);
        assert_eq!(cell(&[11.0, 12.0, 13.0], &ratios), "12.0 · 1.20 (1.10–1.30)");
        assert_eq!(cell(&[1234.5], &Sample::new([0.5])), "1234 · 0.50 (0.50–0.50)");
    }

    #[test]
    fn only_our_own_path_is_judged_and_by_the_goals_of_its_place() {
        let path = |name: &str, factor: f64| Measured {
            name: name.to_owned(),
            place: Place::SameNode,
            kinds: Kind::ALL.into(),
            rounds: Kind::ALL.map(|_| vec![factor; 3]).into(),
        };
        let judged = judge(&[path("limit", 1.0), path("bridge", 1.5), path(ATOLL, 1.05)]);
        let verdicts: Vec<_> = judged.iter().map(|it| it.verdict.to_string()).collect();
        assert_eq!(verdicts, ["met"; 5]);
        assert!(judge(&[path("limit", 1.0)]).is_empty());
    }

    #[test]
    fn rounds_go_by_what_is_judged_and_not_by_the_paths_of_others() {
        let path = |name: &str, place, values: Vec<f64>| Measured {
            name: name.to_owned(),
            place,
            kinds: vec![Kind::RoundTrip, Kind::Packets],
            rounds: vec![values.clone(), values],
        };
        let measured = [
            path("limit", Place::SameNode, vec![1.0, 1.0]),
            path("bridge", Place::SameNode, vec![1.0, 9.0]),
            path(ATOLL, Place::SameNode, vec![1.1, 1.2]),
            path("limit", Place::AcrossNodes, vec![2.0, 2.0]),
            path(ATOLL, Place::AcrossNodes, vec![2.0, 2.0]),
        ];
        let expected = [vec![1.1, 1.2], vec![1.0, 1.0]].map(Sample::new);
        assert_eq!(judged_ratios(&measured), expected);
        assert!(judged_ratios(&measured[..2]).is_empty());
    }

    #[test]
    fn a_path_through_a_service_has_goals_of_its_own() {
        let path = |name: &str, factor: f64| Measured {
            name: name.to_owned(),
            place: Place::SameNode,
            kinds: vec![Kind::RoundTrip, Kind::Connect, Kind::Packets],
            rounds: vec![vec![factor; 3]; 3],
        };
        let judged = judge(&[path("limit", 1.0), path(ATOLL_SERVICE, 1.11)]);
        let what: Vec<_> = judged.iter().map(|it| it.what.as_str()).collect();
        let names = [
            "Same node, round trip through a service",
            "Same node, connect-request-close through a service",
        ];
        assert_eq!(what, names);
        assert!(judged.iter().all(|it| it.verdict == Verdict::Met));
    }
}
