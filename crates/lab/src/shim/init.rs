//! The first process inside a container: prepares what the command sees, starts it, passes signals
//! on, collects orphans, and ends when the command does.

use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};

use anyhow::Context;
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use super::launch::Launch;
use super::{CANNOT_START, Signals, mounts, on_this_thread};
use crate::home::read_json;

/// Runs as the first process of the PID namespace that the keeper made. Standard input is the
/// channel to the keeper: one line, empty when the command runs, else why it cannot.
pub(crate) fn run(launch_file: &Path) -> anyhow::Result<ExitCode> {
    set_pdeathsig(Signal::SIGKILL).context("cannot tie the init to its keeper")?;
    let launch: Launch = read_json(launch_file)?;
    let mut keeper = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let code = on_this_thread(async {
        let mut signals = Signals::listen()?;
        match prepare(&launch).and_then(|()| start(&launch)) {
            Ok(command) => {
                writeln!(keeper)?;
                signals.until_ended(Pid::from_raw(command.id() as i32)).await
            }
            Err(error) => {
                writeln!(keeper, "{error:#}")?;
                Ok(CANNOT_START)
            }
        }
    })?;
    Ok(ExitCode::from(code.clamp(0, 255) as u8))
}

fn prepare(launch: &Launch) -> anyhow::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWUTS)
        .context("cannot make the container's namespaces")?;
    nix::unistd::sethostname(&launch.hostname).context("cannot set the host name")?;
    mounts::arrange(launch)
}

fn start(launch: &Launch) -> anyhow::Result<Child> {
    let (program, arguments) = launch.command.split_first().context("the command is empty")?;
    let directory = &launch.working_directory;
    std::env::set_current_dir(directory)
        .with_context(|| format!("cannot go to the working directory {}", directory.display()))?;
    Command::new(program)
        .args(arguments)
        .env_clear()
        .envs(launch.environment.iter().cloned())
        .process_group(0)
        .stdin(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot run {program:?}"))
}
