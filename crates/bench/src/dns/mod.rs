//! DNS: what an answer costs in CPU, beside other servers with the same names and beside a loop
//! that only turns packets round.

mod contestant;
mod growth;
mod news;
mod objects;
mod zone;

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use atoll_testkit::Namespace;

use crate::document::{Judged, Section};
use crate::goal::Goal;
use crate::sample::Sample;
use crate::table::Table;
use contestant::Contestant;
use zone::Asking;

/// Seconds that one contestant is asked in one round, in a full run and in a quick one.
const SECONDS: (&str, &str) = ("1.2", "0.4");
const TO_ECHO: Goal = Goal::AtMost(1.3);
/// Four times its queries on a core.
const TO_COREDNS: Goal = Goal::AtMost(0.25);

const NOTES: &str = "\
CPU time of the server for each answer, in microseconds, summed over its threads and processes \
(schedstat). Debian's dnsperf asks over loopback of a namespace of its own, 8 clients, 100 \
questions under way; the server has one thread that answers, on one CPU, and dnsperf has another. \
10,000 names with an address and 10,000 addresses with a name, the same in every server; \
NXDOMAIN is what a search list asks: a name outside with the zone behind it. The limit is a loop \
of recvfrom and sendto that reads nothing. In Atoll each question also passes the lookup of its \
asker and of its network, two rate limits and the counters. CoreDNS stands there twice, without \
a cache and without a log: with the same zone files in its `file` plugin, and with its `kubernetes` \
plugin and the same names as services of a cluster, which it watches at the embedded API. *A change*: \
from the request that writes an EndpointSlice until a pod is first answered with what it says; a pod \
on each of three nodes of a lab asks once in a millisecond, and all of it, the API, the controller \
and three agents, is on this machine. A quick run leaves CoreDNS with its `kubernetes` plugin out, \
and a million names.";

/// Changes whose answers are waited for, in a full run and in a quick one.
const CHANGES: (u16, u16) = (500, 100);

/// Measures all servers in turns, and how soon a change is answered on three nodes.
pub(crate) fn measure(atoll: &Path, serve: &Path, rounds: usize, quick: bool) -> Result<Section> {
    let (space, folder) = (Namespace::new(), tempfile::tempdir()?);
    space.run(|| Command::new("ip").args(["link", "set", "lo", "up"]).status())?;
    zone::write(folder.path())?;
    let names: Vec<&'static str> =
        contestant::NAMES.into_iter().filter(|name| !quick || !contestant::is_slow(name)).collect();
    let field = contestant::all(&names, serve, &space, folder.path())?;
    let contestants = &field.contestants;
    let seconds = if quick { SECONDS.1 } else { SECONDS.0 };
    let mut costs = vec![[vec![], vec![], vec![]]; contestants.len()];
    for round in 0..rounds {
        eprint!("\rdns: round {} of {rounds}", round + 1);
        for (place, asking) in Asking::ALL.into_iter().enumerate() {
            for (contestant, costs) in contestants.iter().zip(&mut costs) {
                costs[place].push(cost(contestant, asking, &space, (folder.path(), seconds))?);
            }
        }
    }
    eprintln!();
    drop(field);
    let growth = growth::measure(serve, quick)?;
    let (news, soon) = news::measure(atoll, if quick { CHANGES.1 } else { CHANGES.0 })?;
    let names: Vec<_> = names.iter().map(ToString::to_string).collect();
    Ok(Section {
        title: "DNS",
        notes: format!("{NOTES}\n\n{rounds} rounds of {seconds} seconds."),
        tables: vec![
            ("CPU of an answer".into(), table(&names, &costs)),
            ("As names and networks grow".into(), growth.table),
            ("From a change of endpoints to its answer, on three nodes".into(), news),
        ],
        plots: vec![growth.plot],
        judged: judged(&names, &costs).into_iter().chain(growth.judged).chain(soon).collect(),
    })
}

/// Microseconds of the server's CPU for one answer.
fn cost(
    contestant: &Contestant,
    asking: Asking,
    space: &Namespace,
    (folder, seconds): (&Path, &str),
) -> Result<f64> {
    let before = contestant.cpu()?;
    let output = space.run(|| {
        Command::new("taskset")
            .args(["-c", "1", "dnsperf", "-s", "127.0.0.1", "-c", "8", "-T", "1", "-q", "100"])
            .args(["-t", "1", "-l", seconds, "-p", &contestant.port.to_string(), "-d"])
            .arg(folder.join(asking.file()))
            .output()
    });
    let output = output.context("cannot run dnsperf: scripts/setup-bench installs it")?;
    let spent = contestant.cpu()? - before;
    let text = String::from_utf8_lossy(&output.stdout);
    let answers = number_after(&text, "Queries completed:");
    let answers = answers.with_context(|| format!("dnsperf says nothing of answers: {text}"))?;
    let right = contestant.echoes() || text.contains(asking.code());
    ensure!(right && answers > 0.0, "{} does not answer as it should: {text}", contestant.name);
    Ok(spent as f64 / 1000.0 / answers)
}

fn number_after(text: &str, words: &str) -> Option<f64> {
    text.split_once(words)?.1.split_whitespace().next()?.parse().ok()
}

type Costs = [Vec<f64>; 3];

fn table(names: &[String], costs: &[Costs]) -> Table {
    let mut table = Table::new(["server", "A", "ratio", "PTR", "ratio", "NXDOMAIN", "ratio"]);
    for (name, own) in names.iter().zip(costs) {
        let cells = own.iter().zip(&costs[0]).flat_map(|(own, limit)| {
            let (median, ratio) = (Sample::new(own.clone()).median(), Sample::ratios(own, limit));
            let (low, high) = ratio.spread();
            [format!("{median:.2}"), format!("{:.2} ({low:.2}–{high:.2})", ratio.median())]
        });
        table.row([name.clone()].into_iter().chain(cells));
    }
    table
}

fn judged(names: &[String], costs: &[Costs]) -> Vec<Judged> {
    let of = |wanted: &str| Some(&costs[names.iter().position(|name| name == wanted)?]);
    let Some(ours) = of(contestant::OURS) else { return vec![] };
    let others = [
        (contestant::NAMES[0], TO_ECHO),
        (contestant::COREDNS, TO_COREDNS),
        (contestant::COREDNS_KUBERNETES, TO_COREDNS),
    ];
    let others = others.into_iter().filter_map(|(name, goal)| Some((name, goal, of(name)?)));
    let judge = |name: &str, goal: Goal, other: &Costs| {
        let each = Asking::ALL.into_iter().zip(ours.iter().zip(other));
        let judge = |(asking, (own, other)): (Asking, (&Vec<f64>, &Vec<f64>))| {
            let ratios = Sample::ratios(own, other);
            let what = format!("DNS: {} to {name}", asking.title());
            Judged::new(what, goal, &ratios)
        };
        each.map(judge).collect::<Vec<_>>()
    };
    others.flat_map(|(name, goal, other)| judge(name, goal, other)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_answers_is_read_from_what_dnsperf_prints() {
        let text = "  Queries sent: 12\n  Queries completed:    11 (91.67%)\n";
        assert_eq!(number_after(text, "Queries completed:"), Some(11.0));
        assert_eq!(number_after(text, "Queries lost:"), None);
    }

    #[test]
    fn each_ratio_is_taken_to_the_echo_loop_and_to_coredns_of_the_same_round() {
        let names = contestant::NAMES.map(str::to_owned);
        let slow = [vec![2.0, 4.0], vec![2.0, 4.0], vec![2.0, 4.0]];
        let mut costs = vec![slow; names.len()];
        costs[0] = [vec![1.0, 2.0], vec![2.0, 4.0], vec![4.0, 8.0]];
        let ratios: Vec<f64> = judged(&names, &costs).iter().map(|it| it.median).collect();
        assert_eq!(ratios, [2.0, 1.0, 0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]);
    }
}
