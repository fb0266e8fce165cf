//! The resolver's memory and the cost of a change, as names and networks grow.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result};

use crate::document::Judged;
use crate::goal::Goal;
use crate::pinned::{Ended, tied};
use crate::plot::{Line, Plot};
use crate::sample::Sample;
use crate::table::Table;

/// Networks, and names with an address and a pointer in each.
const SIZES: [(u64, u64); 4] = [(1, 10_000), (1, 1_000_000), (10_000, 0), (10_000, 100)];
const CHANGES: [u64; 3] = [10, 10_000, 1_000_000];

/// Bytes of a record, at most.
const RECORD: Goal = Goal::AtMost(350.0);
/// Bytes of a network without names, at most.
const IDLE: Goal = Goal::AtMost(50.0 * 1024.0);

/// What was measured as names grow.
pub(crate) struct Growth {
    pub(crate) table: Table,
    pub(crate) plot: Plot,
    pub(crate) judged: Vec<Judged>,
}

/// Resident memory at each size, and the time of a change.
pub(crate) fn measure(serve: &Path, quick: bool) -> Result<Growth> {
    let mut table = Table::new(["what", "memory, MB", "of each", "bytes"]);
    let mut judged = vec![];
    // A quick run leaves out what has a million names.
    let is_measured = |names: &u64| !quick || *names < 1_000_000;
    let sizes = SIZES.into_iter().filter(|(networks, names)| is_measured(&(networks * names)));
    for (networks, names) in sizes {
        let bytes = memory(serve, networks, names)? * 1024;
        let (each, count, goal) = match names {
            0 => ("network", networks, IDLE),
            _ => ("record", networks * names * 2, RECORD),
        };
        let (what, share) = (format!("{networks} networks of {names} names"), bytes / count);
        let bytes_of = format!("DNS: bytes of a {each}, {what}");
        judged.push(Judged::new(bytes_of, goal, &Sample::new([share as f64])));
        table.row([what, format!("{:.1}", bytes as f64 / 1e6), each.into(), share.to_string()]);
    }
    let mut middles = vec![];
    for names in CHANGES.into_iter().filter(is_measured) {
        let line = first_line(serve, &["change", &names.to_string()])?.1;
        middles.extend(nanoseconds(&line).map(|middle| (names as f64, middle / 1e3)));
        table.row([line, "".into(), "".into(), "".into()]);
    }
    Ok(Growth { table, plot: plot(middles), judged })
}

/// The middle time of a change, as the resolver says it.
fn nanoseconds(line: &str) -> Option<f64> {
    line.split_once("costs ")?.1.split_whitespace().next()?.parse().ok()
}

fn plot(middles: Vec<(f64, f64)>) -> Plot {
    Plot {
        file: "names.svg",
        title: "What a change costs the resolver, as names grow".into(),
        across: "names",
        up: "µs",
        lines: vec![Line { name: "Atoll".into(), points: middles }],
    }
}

/// Kilobytes that the names take.
fn memory(serve: &Path, networks: u64, names: u64) -> Result<u64> {
    let (networks, names) = (networks.to_string(), names.to_string());
    let (_running, line) = first_line(serve, &["names", "127.0.0.1:0", &networks, &names])?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let place = words.iter().position(|word| *word == "KB,");
    let number = place.and_then(|place| words.get(place.wrapping_sub(1))?.parse().ok());
    number.with_context(|| format!("the resolver did not say how much memory it has: {line}"))
}

fn first_line(serve: &Path, arguments: &[&str]) -> Result<(Ended, String)> {
    let started = tied(serve).args(arguments).stdout(Stdio::piped()).spawn();
    let mut running = Ended(started.with_context(|| format!("cannot start {}", serve.display()))?);
    let mut line = String::new();
    if let Some(output) = running.0.stdout.take() {
        BufReader::new(output).read_line(&mut line)?;
    }
    Ok((running, line.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_a_change_is_read_from_what_the_resolver_says() {
        let said = "10000 names: a change costs 2429 ns (p50), 2831 ns (p99)";
        assert_eq!(nanoseconds(said), Some(2429.0));
        assert_eq!(nanoseconds("nothing"), None);
    }
}
