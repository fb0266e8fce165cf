//! One container: a process in namespaces of its own that outlives whoever started it.
//!
//! Two processes make one container. The *keeper* stays outside, passes signals on and writes down
//! how it ended; the *init* (`init.rs`) is the first process inside, prepares the file system,
//! starts the command and collects orphans. When the keeper dies, the kernel ends the init and
//! everything inside with it.

mod init;
mod launch;
mod mounts;

use std::fs::OpenOptions;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus};

use anyhow::Context;
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::signal::unix::{Signal as Incoming, SignalKind, signal};

pub(crate) use init::run as run_init;
pub(crate) use launch::{Exit, Launch, Overlay};
pub(crate) use mounts::mounted_below;

use crate::home::{read_json, write_json};
use crate::namespace;
use crate::process::Process;

/// The exit code of a container whose command could not be started, as runtimes report it.
pub(crate) const CANNOT_START: i32 = 128;

/// The line on the keeper's standard output once the container's command runs.
pub(crate) const STARTED: &str = "started";

/// What the keeper and the init pass on to the command.
const PASSED_ON: [Signal; 6] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// The keeper: runs the container that `launch_file` describes, and ends with its exit code.
pub(crate) fn run(launch_file: &Path) -> anyhow::Result<ExitCode> {
    let launch: Launch = read_json(launch_file)?;
    // A keeper that leads a session already is as good.
    let _already = nix::unistd::setsid();
    namespace::enter(&launch.namespace)?;
    let exit = on_this_thread(keep(&launch, launch_file))?;
    write_json(&launch.exit_record, &exit)?;
    Ok(ExitCode::from(exit.code.clamp(0, 255) as u8))
}

async fn keep(launch: &Launch, launch_file: &Path) -> anyhow::Result<Exit> {
    let mut signals = Signals::listen()?;
    let (ours, theirs) = UnixStream::pair()?;
    // From here on this process cannot make threads: they would be of another PID namespace.
    unshare(CloneFlags::CLONE_NEWPID).context("cannot make a PID namespace")?;
    let init = start_init(launch, launch_file, theirs)?;
    let start_error = first_word(ours).await?;
    let pid = init.id() as i32;
    if let Some(process) = Process::with_pid(pid).filter(|_| start_error.is_none()) {
        process.write(&launch.init_record)?;
        announce_start();
    }
    let code = signals.until_ended(Pid::from_raw(pid)).await?;
    Ok(Exit { code, start_error })
}

fn start_init(launch: &Launch, launch_file: &Path, channel: UnixStream) -> anyhow::Result<Child> {
    let log = OpenOptions::new().create(true).append(true).open(&launch.log);
    let log = log.with_context(|| format!("cannot open the log {}", launch.log.display()))?;
    Command::new(std::env::current_exe()?)
        .args(["lab", "shim-init"])
        .arg(launch_file)
        .stdin(OwnedFd::from(channel))
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .context("cannot start the container's init")
}

/// What the init says first: an empty line once the command runs, else why it cannot.
async fn first_word(channel: UnixStream) -> anyhow::Result<Option<String>> {
    channel.set_nonblocking(true)?;
    let mut line = String::new();
    let channel = tokio::net::UnixStream::from_std(channel)?;
    BufReader::new(channel).read_line(&mut line).await?;
    Ok(Some(line.trim()).filter(|text| !text.is_empty()).map(str::to_owned))
}

/// Tells whoever started the keeper; a starter that is gone needs no telling.
fn announce_start() {
    let _gone = writeln!(std::io::stdout(), "{STARTED}");
}

/// Signals for this process, and the news that children ended, as one stream.
struct Signals {
    passed_on: Vec<(Signal, Incoming)>,
    child_ended: Incoming,
}

impl Signals {
    fn listen() -> anyhow::Result<Self> {
        let one = |which: Signal| anyhow::Ok((which, signal(SignalKind::from_raw(which as i32))?));
        let passed_on = PASSED_ON.into_iter().map(one).collect::<Result<_, _>>()?;
        Ok(Signals { passed_on, child_ended: signal(SignalKind::child())? })
    }

    /// Passes signals on to `child` and collects whoever ends, until `child` does: its exit code.
    async fn until_ended(&mut self, child: Pid) -> anyhow::Result<i32> {
        loop {
            if let Some(code) = collect(child)? {
                return Ok(code);
            }
            let incoming =
                futures::future::select_all(self.passed_on.iter_mut().map(|(which, stream)| {
                    Box::pin(async move { stream.recv().await.map(|()| *which) })
                }));
            tokio::select! {
                (which, _, _) = incoming => {
                    if let Some(which) = which {
                        // A child that has just ended is collected in the next turn.
                        let _ended = nix::sys::signal::kill(child, which);
                    }
                }
                _ = self.child_ended.recv() => {}
            }
        }
    }
}

/// Collects every child that has ended; the exit code of `main` when it is among them.
fn collect(main: Pid) -> anyhow::Result<Option<i32>> {
    let mut code = None;
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, status)) if pid == main => code = Some(status),
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == main => {
                code = Some(code_of_signal(signal as i32));
            }
            Ok(WaitStatus::StillAlive) | Err(nix::Error::ECHILD) => return Ok(code),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// The exit code that shells and runtimes give to an end by a signal.
fn code_of_signal(signal: i32) -> i32 {
    128 + signal
}

/// The exit code of `status`, in the same way.
pub(crate) fn code_of(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| code_of_signal(status.signal().unwrap_or_default()))
}

/// Runs `work` on a runtime that makes no thread.
pub(crate) fn on_this_thread<T>(
    work: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(work)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_by_signal_has_the_code_that_shells_give_it() {
        let by = |script: &str| {
            code_of(Command::new("sh").args(["-c", script]).status().expect("sh runs"))
        };
        assert_eq!(by("exit 3"), 3);
        assert_eq!(by("kill -KILL $$"), 137);
    }
}
