//! `pause`: the process that holds a pod's namespaces. It waits to be told to end, and collects
//! processes that nobody else waits for.

use std::process::ExitCode;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};

fn main() -> ExitCode {
    match pause() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pause: cannot wait for signals: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns when SIGTERM or SIGINT comes.
fn pause() -> nix::Result<()> {
    let awaited = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT, Signal::SIGCHLD]);
    awaited.thread_block()?;
    loop {
        match awaited.wait()? {
            Signal::SIGCHLD => collect(),
            _ => return Ok(()),
        }
    }
}

/// One signal may stand for several processes that ended.
fn collect() {
    while let Ok(status) = waitpid(None, Some(WaitPidFlag::WNOHANG)) {
        if status == WaitStatus::StillAlive {
            return;
        }
    }
}
