//! The same paths, counted in instructions instead of measured in time.
//!
//! A small machine in QEMU runs a Debian kernel with a clock that goes on by a nanosecond for each
//! instruction. What a round trip takes there is how many instructions it is, whatever else this
//! machine does meanwhile: it repeats within a percent. The rule: a count says which path does more
//! work, never how long it takes.

mod growth;

use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};
use clap::ValueEnum;
use serde::de::DeserializeOwned;

use crate::datapath::{self, Measured};
use crate::document::{Judged, Section};
use crate::paths::{self, Place};
use crate::rounds::{Length, Rounds};
use crate::traffic::Kind;

/// The kernel of the machine.
const KERNEL: &str = "6.12";
/// What stands before the counts in the output of the machine.
const MARK: &str = "counts: ";
/// What bulk costs hangs on caches and copies, which are no instructions.
const KINDS: [Kind; 2] = [Kind::RoundTrip, Kind::Connect];
/// Programs that the paths are made with.
const TOOLS: [&str; 3] = ["chrt", "nft", "bridge"];

const NOTES: &str = "\
Thousands of instructions from the first line of the client to its last, in a machine of one \
processor in QEMU with `-icount shift=0`: the applications, both TCP stacks and the path between \
them. Counts do not feel the load of this machine. They do not know of caches, mispredicted \
branches or network cards either: differences of a few percent between kinds of path should not be \
believed, differences of one path between two versions should.";

const OVN_NOTES: &str = "\
*OVN*: Debian's, with its kernel datapath and Geneve: a logical switch over two hosts, port security, \
policies that keep state and allow what is measured, a load balancer and a router.";

const GUARD_NOTES: &str = "\
The bounds are what the paths cost when they were last made cheaper, and a little for noise. Who makes \
one cheaper lowers its bound.";

/// What is counted inside the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum What {
    /// Every path
    All,
    /// Our own and what they are compared with, which takes less than half of the time
    Ours,
    /// One of ours as things grow
    Growth,
}

/// Counts inside the machine, and tells the outside.
pub(crate) fn inside(what: What, rounds: usize) -> Result<()> {
    let counts = match what {
        What::All => paths_counted(&paths::all_with_services_and_ovn()?, rounds)?,
        What::Ours => paths_counted(&paths::ours_and_limits()?, rounds)?,
        What::Growth => serde_json::to_string(&growth::count(rounds)?)?,
    };
    println!("{MARK}{counts}");
    Ok(())
}

fn paths_counted(paths: &[paths::Path], rounds: usize) -> Result<String> {
    let rounds = Rounds::exactly(rounds, Length::Brief);
    Ok(serde_json::to_string(&datapath::measure_paths(paths, &KINDS, rounds)?.0)?)
}

/// Starts the machine twice at once, as no load disturbs it, and gives what it counted, judged by our goals.
pub(crate) fn measure(rounds: usize) -> Result<Section> {
    let notes = format!("{NOTES}\n\n{OVN_NOTES}\n\nLinux {KERNEL}, {rounds} rounds.");
    let ovn = ["--package"; paths::OVN_PACKAGES.len()].into_iter().zip(paths::OVN_PACKAGES);
    let ovn = ovn.chain(["--module"; paths::OVN_MODULES.len()].into_iter().zip(paths::OVN_MODULES));
    let options: Vec<&str> = ovn.flat_map(|(option, value)| [option, value]).collect();
    let (paths, points) = thread::scope(|scope| {
        let points = scope.spawn(|| run::<Vec<growth::Point>>(What::Growth, &[], rounds));
        let paths = run(What::All, &options, rounds);
        (paths, points.join())
    });
    let points = points.map_err(|_| anyhow!("what counts growth has ended early"))??;
    let mut section = section("Counted in instructions", notes, paths?, datapath::judge);
    section.tables.push(("As things grow, same node".into(), growth::table(&points)));
    section.plots.push(growth::plot(&points));
    section.judged.extend(growth::judge(&points));
    Ok(section)
}

/// Our own paths alone, held to what they cost when they were last made cheaper.
pub(crate) fn guard(rounds: usize) -> Result<Section> {
    let notes = format!("{NOTES}\n\n{GUARD_NOTES}\n\nLinux {KERNEL}, {rounds} rounds.");
    Ok(section("Guard", notes, run(What::Ours, &[], rounds)?, datapath::judge_kept))
}

fn section(
    title: &'static str,
    notes: String,
    counted: Vec<Measured>,
    judge: fn(&[Measured]) -> Vec<Judged>,
) -> Section {
    let (same, across): (Vec<_>, Vec<_>) =
        counted.into_iter().partition(|path| path.place() == Place::SameNode);
    let places = [same, across];
    let table = |paths: &[Measured]| datapath::table(paths, Kind::name);
    Section {
        title,
        notes,
        tables: places.iter().map(|it| (it[0].place().to_string(), table(it))).collect(),
        plots: vec![],
        judged: places.iter().flat_map(|it| judge(it)).collect(),
    }
}

/// Runs a machine that counts, and reads its counts.
fn run<T: DeserializeOwned>(what: What, options: &[&str], rounds: usize) -> Result<T> {
    let this = std::env::current_exe().context("cannot find this program")?;
    let script = Path::new("scripts/in-kernel");
    ensure!(script.exists(), "{} is not here: run this inside the clone", script.display());
    eprintln!("counted: a machine with Linux {KERNEL} counts {what:?} (some minutes)");
    let output = Command::new(script)
        .arg("--counted")
        .args(TOOLS.iter().flat_map(|tool| ["--tool", tool]))
        .args(options)
        .args([KERNEL.as_ref(), this.as_os_str()])
        .args(["count", &format!("{what:?}").to_lowercase(), "--rounds", &rounds.to_string()])
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start the machine")?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "the machine counted nothing; it said:\n{said}");
    read(&said)
}

fn read<T: DeserializeOwned>(said: &str) -> Result<T> {
    let counts = said.lines().find_map(|line| line.strip_prefix(MARK));
    let counts = counts.with_context(|| format!("there are no counts in: {said}"))?;
    serde_json::from_str(counts).context("the machine's counts cannot be read")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_machine_counted_is_found_among_what_it_said() {
        let said = "kernel 6.12\ncounted: 1 networks\ncounts: [{\"name\":\"direct\",\"place\":\"SameNode\",\
                    \"kinds\":[\"RoundTrip\"],\"rounds\":[[31.0,31.1]]}]\nin-kernel: ended with 0\n";
        let measured: Vec<Measured> = read(said).unwrap();
        assert_eq!((measured.len(), measured[0].place()), (1, Place::SameNode));
    }

    #[test]
    fn a_machine_that_says_no_counts_is_quoted() {
        let refused = read::<Vec<Measured>>("kernel panic").unwrap_err().to_string();
        assert_eq!(refused, "there are no counts in: kernel panic");
    }
}
