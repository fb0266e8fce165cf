//! Being stopped: the work is done by a process of its own, so that whoever is told to stop can end
//! it at any moment and clean up after it in peace.

use std::process::ExitStatus;

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

use crate::stage::Stage;
use crate::{Options, evidence};

/// Whether the work went well. SIGINT and SIGTERM end it, and nothing stays of it.
pub(crate) fn attend(options: &Options) -> Result<bool> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(work_or_signal())?;
    match ended {
        Ended::Done(status) if matches!(status.code(), Some(0 | 1)) => Ok(status.success()),
        Ended::Done(status) => {
            eprintln!("e2e: the suite ended with {status}");
            Stage::all(options)?.iter().for_each(evidence::keep);
            clean_up(options)?;
            Ok(false)
        }
        Ended::Stopped(name) => {
            eprintln!("e2e: stopped by {name}, cleaning up");
            clean_up(options)?;
            bail!("stopped by {name}")
        }
    }
}

enum Ended {
    Done(ExitStatus),
    Stopped(&'static str),
}

async fn work_or_signal() -> Result<Ended> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut work = start()?;
    tokio::select! {
        status = work.wait() => Ok(Ended::Done(status?)),
        _ = interrupt.recv() => stop(work, "SIGINT").await,
        _ = terminate.recv() => stop(work, "SIGTERM").await,
    }
}

/// This program again, in a process group of its own: what is typed at a terminal reaches us alone.
fn start() -> Result<Child> {
    let mut work = Command::new(std::env::current_exe()?);
    work.args(std::env::args_os().skip(1)).arg("--attended").process_group(0).kill_on_drop(true);
    work.spawn().context("cannot start the suite")
}

/// Ends the work and the kubectls it runs. What the cluster is made of has groups of its own.
async fn stop(mut work: Child, name: &'static str) -> Result<Ended> {
    if let Some(group) = work.id() {
        let _ = killpg(Pid::from_raw(i32::try_from(group)?), Signal::SIGKILL);
    }
    work.wait().await?;
    Ok(Ended::Stopped(name))
}

fn clean_up(options: &Options) -> Result<()> {
    let cleared = |stage: &Stage| options.keep || stage.clear();
    let left = Stage::all(options)?.iter().filter(|stage| !cleared(stage)).count();
    ensure!(left == 0, "not everything could be removed");
    Ok(())
}
