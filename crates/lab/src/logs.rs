//! `atoll lab logs`: what a container wrote, and with `-f` what it goes on to write, also across
//! its restarts.

use std::fs::File;
use std::io::{self, Seek};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;

use crate::args::LogsArgs;
use crate::enter::find_container;
use crate::home::{ContainerHome, Home};

/// How often a followed log is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Prints the log.
pub(crate) fn run(args: &LogsArgs) -> anyhow::Result<ExitCode> {
    let container = find_container(&Home::of(&args.of.lab.name), &args.of)?;
    let nothing =
        || format!("pod {}/{} has not written anything yet", args.of.namespace, args.of.pod);
    let (newest, attempt) = container.newest_log().with_context(nothing)?;
    match (args.previous, args.follow) {
        (true, _) => print(&before(&container, attempt)?, 0).map(drop)?,
        (false, false) => print(&newest, 0).map(drop)?,
        (false, true) => follow(&container, newest)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn before(container: &ContainerHome, attempt: u32) -> anyhow::Result<PathBuf> {
    let previous = attempt.checked_sub(1).context("the container has not been restarted")?;
    Ok(container.log(previous))
}

/// Ends when the pod is gone.
fn follow(container: &ContainerHome, mut log: PathBuf) -> anyhow::Result<()> {
    let mut at = 0;
    while log.exists() {
        at = print(&log, at)?;
        match container.newest_log() {
            Some((newer, _)) if newer != log => {
                print(&log, at)?;
                (log, at) = (newer, 0);
            }
            _ => std::thread::sleep(LOOK_AGAIN),
        }
    }
    Ok(())
}

/// Prints from there to the present end; where that is.
fn print(log: &PathBuf, from: u64) -> io::Result<u64> {
    let mut file = File::open(log)?;
    file.seek(io::SeekFrom::Start(from))?;
    Ok(from + io::copy(&mut file, &mut io::stdout())?)
}
