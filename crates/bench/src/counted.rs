//! The same paths, counted in instructions instead of measured in time.
//!
//! A small machine in QEMU runs a Debian kernel with a clock that goes on by a nanosecond for each
//! instruction. What a round trip takes there is how many instructions it is, whatever else this
//! machine does meanwhile: it repeats within a percent. The rule: a count says which path does more
//! work, never how long it takes.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::datapath::{self, Measured};
use crate::document::Section;
use crate::paths::{self, Place};
use crate::traffic::Kind;

/// The kernel of the machine.
const KERNEL: &str = "6.12";
/// What stands before the counts in the output of the machine.
const MARK: &str = "counted: ";
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

/// Counts inside the machine, and tells the outside.
pub(crate) fn inside(rounds: usize, only_ours: bool) -> Result<()> {
    let paths = if only_ours { paths::ours_and_limits()? } else { paths::all_and_services()? };
    let measured = datapath::measure_paths(&paths, &KINDS, rounds)?;
    println!("{MARK}{}", serde_json::to_string(&measured)?);
    Ok(())
}

/// Starts the machine, and gives what it counted.
pub(crate) fn measure(rounds: usize) -> Result<Section> {
    let measured = read(&run_machine(rounds)?)?;
    let (same, across): (Vec<_>, Vec<_>) =
        measured.into_iter().partition(|path| path.place() == Place::SameNode);
    let tables = [&same, &across];
    let table = |paths: &[Measured]| datapath::table(paths, Kind::name);
    Ok(Section {
        title: "Counted in instructions",
        notes: format!("{NOTES}\n\nLinux {KERNEL}, {rounds} rounds."),
        tables: tables.map(|paths| (paths[0].place().to_string(), table(paths))).into(),
        judged: tables.iter().flat_map(|paths| datapath::judge(paths)).collect(),
    })
}

fn run_machine(rounds: usize) -> Result<String> {
    let this = std::env::current_exe().context("cannot find this program")?;
    let script = Path::new("scripts/in-kernel");
    ensure!(script.exists(), "{} is not here: run this inside the clone", script.display());
    eprintln!("counted: a machine with Linux {KERNEL} counts {rounds} rounds (some minutes)");
    let output = Command::new(script)
        .arg("--counted")
        .args(TOOLS.iter().flat_map(|tool| ["--tool", tool]))
        .args([KERNEL.as_ref(), this.as_os_str()])
        .args(["count", "--rounds", &rounds.to_string()])
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start the machine")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "the machine counted nothing; it said:\n{said}");
    Ok(said)
}

fn read(said: &str) -> Result<Vec<Measured>> {
    let counts = said.lines().find_map(|line| line.strip_prefix(MARK));
    let counts = counts.with_context(|| format!("there are no counts in: {said}"))?;
    serde_json::from_str(counts).context("the machine's counts cannot be read")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_machine_counted_is_found_among_what_it_said() {
        let said = "kernel 6.12\ncounted: [{\"name\":\"direct\",\"place\":\"SameNode\",\
                    \"kinds\":[\"RoundTrip\"],\"rounds\":[[31.0,31.1]]}]\nin-kernel: ended with 0\n";
        let measured = read(said).unwrap();
        assert_eq!((measured.len(), measured[0].place()), (1, Place::SameNode));
    }

    #[test]
    fn a_machine_that_says_no_counts_is_quoted() {
        let refused = read("kernel panic").unwrap_err().to_string();
        assert_eq!(refused, "there are no counts in: kernel panic");
    }
}
