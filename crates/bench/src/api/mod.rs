//! The API: the embedded one beside a real kube-apiserver with etcd, asked by the same client.

mod load;
mod server;

pub(crate) use load::client;
pub(crate) use server::{Serve, Server, serve};

use anyhow::{Context, Result};
use tokio::runtime::Runtime;

use crate::document::{Judged, Section};
use crate::goal::Goal;
use crate::sample::Sample;
use crate::table::Table;
use load::Load;

/// Milliseconds until it is ready, at most.
const READY: f64 = 200.0;
/// Megabytes that it holds when nobody asks it anything, at most.
const IDLE: f64 = 50.0;

const NOTES: &str = "\
Both on loopback over TLS, asked by one client program; both write to disk before they answer. \
*One after the other* and *32 at once*: creates of config maps with 200 bytes. *List*: one answer \
with all objects, read and not decoded. *kubectl get*: the program from start to end, its table \
thrown away. *Watchers*: a thousand of them, a hundred creates, until the last watcher has seen \
the last. *Ready*: from the start of the programs until `/readyz` says ok. *Memory*: resident, of \
a server that nobody has asked yet; of the real one, kube-apiserver and etcd together. The \
embedded one is for one machine, authorizes nobody and has one copy; the real one does much more.";

/// What is measured, in the order of the table.
const MEASURES: [Measure; 7] = [
    Measure { what: "creates one after the other, per second", better: Better::More },
    Measure { what: "creates 32 at once, per second", better: Better::More },
    Measure { what: "list of 10,000, milliseconds", better: Better::Less },
    Measure { what: "kubectl get of 10,000, milliseconds", better: Better::Less },
    Measure { what: "1,000 watchers, events per second", better: Better::More },
    Measure { what: "ready, milliseconds", better: Better::Less },
    Measure { what: "idle memory, megabytes", better: Better::Less },
];

struct Measure {
    what: &'static str,
    better: Better,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Better {
    More,
    Less,
}

impl Better {
    fn goal(self) -> Goal {
        match self {
            Better::More => Goal::AtLeast(1.0),
            Better::Less => Goal::AtMost(1.0),
        }
    }
}

/// One value for each measure.
type Values = [f64; MEASURES.len()];

/// Measures both in turns; each round has servers of its own.
pub(crate) fn measure(rounds: usize) -> Result<Section> {
    let runtime = Runtime::new().context("cannot start the client")?;
    let (mut embedded, mut real) = (vec![], vec![]);
    for round in 0..rounds {
        eprint!("\rapi: round {} of {rounds}", round + 1);
        embedded.push(one(&runtime, &Server::embedded()?)?);
        real.push(one(&runtime, &Server::real()?)?);
    }
    eprintln!();
    Ok(Section {
        title: "API",
        notes: format!("{NOTES}\n\n{rounds} rounds."),
        tables: vec![("The embedded API beside the real one".into(), table(&embedded, &real))],
        plots: vec![],
        judged: judged(&embedded, &real),
    })
}

fn one(runtime: &Runtime, server: &Server) -> Result<Values> {
    let idle = server.megabytes()?;
    let load = runtime.block_on(Load::connect(&server.kubeconfig))?;
    let alone = runtime.block_on(load.creates("alone", 200, 1))?;
    let together = runtime.block_on(load.creates("together", 10_000, 32))?;
    let list = runtime.block_on(load.list())?;
    let kubectl = load.kubectl()?;
    let events = runtime.block_on(load.watches(1_000, 100))?;
    Ok([alone, together, list, kubectl, events, server.ready, idle])
}

fn column(values: &[Values], place: usize) -> Vec<f64> {
    values.iter().map(|values| values[place]).collect()
}

fn table(embedded: &[Values], real: &[Values]) -> Table {
    let mut table = Table::new(["what", "embedded", "real", "ratio"]);
    for (place, measure) in MEASURES.iter().enumerate() {
        let (ours, theirs) = (column(embedded, place), column(real, place));
        let median = |values: &[f64]| Sample::new(values.iter().copied()).median();
        table.row([
            measure.what.to_owned(),
            format!("{:.0}", median(&ours)),
            format!("{:.0}", median(&theirs)),
            ratio(&Sample::ratios(&ours, &theirs)),
        ]);
    }
    table
}

fn ratio(ratios: &Sample) -> String {
    let (low, high) = ratios.spread();
    format!("{:.2} ({low:.2}–{high:.2})", ratios.median())
}

fn judged(embedded: &[Values], real: &[Values]) -> Vec<Judged> {
    let beside = MEASURES.iter().enumerate().map(|(place, measure)| {
        let ratios = Sample::ratios(&column(embedded, place), &column(real, place));
        Judged::new(measure.what, measure.better.goal(), &ratios)
    });
    let bound = |what: &str, place: usize, limit: f64| {
        let shares = Sample::new(column(embedded, place).iter().map(|value| value / limit));
        Judged::new(format!("{what} {limit:.0}"), Goal::AtMost(1.0), &shares)
    };
    let bounds = [bound("ready, of milliseconds", 5, READY), bound("idle, of megabytes", 6, IDLE)];
    beside.chain(bounds).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goal::Verdict;

    const REAL: Values = [100.0, 1_000.0, 200.0, 3_000.0, 10_000.0, 4_000.0, 400.0];

    #[test]
    fn more_is_better_for_rates_and_less_for_times_and_memory() {
        let ours = [200.0, 2_000.0, 50.0, 2_900.0, 20_000.0, 100.0, 20.0];
        assert!(judged(&[ours], &[REAL]).iter().all(|it| it.verdict == Verdict::Met));
        let slow = ours.map(|value| value * 0.4);
        let missed: Vec<_> = judged(&[slow], &[REAL])
            .into_iter()
            .filter(|it| it.verdict == Verdict::Missed)
            .map(|it| it.what)
            .collect();
        let rates: Vec<_> = MEASURES.iter().filter(|it| it.better == Better::More).collect();
        assert_eq!(missed, rates.iter().map(|it| it.what).collect::<Vec<_>>());
    }

    #[test]
    fn what_is_late_or_large_is_missed_even_when_the_real_one_is_later_and_larger() {
        let late = [200.0, 2_000.0, 50.0, 2_900.0, 20_000.0, 300.0, 60.0];
        let missed = judged(&[late], &[REAL]);
        let missed = missed.iter().filter(|it| it.verdict == Verdict::Missed).count();
        assert_eq!(missed, 2);
    }
}
