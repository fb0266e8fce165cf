//! Processes of a measurement: on a CPU of their own choice, ahead of everything else, and gone
//! with their value.

use std::ffi::OsStr;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};
use atoll_testkit::Namespace;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

/// The CPU that both ends share when cost is measured: then time is CPU time.
pub(crate) fn shared_cpu() -> usize {
    std::thread::available_parallelism().map_or(0, |cores| cores.get() - 1)
}

/// The CPU of the asking end when throughput over two CPUs is measured.
pub(crate) fn other_cpu() -> usize {
    0
}

/// Keeps the current thread, and those it starts later, on one CPU.
pub(crate) fn stay_on(cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu)?;
    sched_setaffinity(Pid::from_raw(0), &set).with_context(|| format!("cannot stay on CPU {cpu}"))
}

/// A process that ends with this value.
#[derive(Debug)]
pub(crate) struct Ended(pub(crate) Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A command whose process ends with the thread that starts it, and so however this program ends.
pub(crate) fn tied(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(program);
    command
}

/// Nanoseconds of CPU that the threads of a process, and of those that it started, have had.
pub(crate) fn cpu_of(process: u32) -> Result<u64> {
    let tasks = format!("/proc/{process}/task");
    let mut sum = 0;
    for task in std::fs::read_dir(&tasks).with_context(|| format!("cannot read {tasks}"))? {
        let task = task?.path();
        // A thread may end between being listed and being looked at.
        let Ok(times) = std::fs::read_to_string(task.join("schedstat")) else { continue };
        sum += times.split_whitespace().next().unwrap_or_default().parse::<u64>()?;
        let children = std::fs::read_to_string(task.join("children")).unwrap_or_default();
        for child in children.split_whitespace() {
            // So may a process.
            sum += cpu_of(child.parse()?).unwrap_or_default();
        }
    }
    Ok(sum)
}

/// Starts this very program inside `namespace`, ahead of all other processes. First in, first out:
/// neither end interrupts the other, so that every round takes turns in the same way.
pub(crate) fn start_self(namespace: &Namespace, arguments: &[String]) -> Result<Child> {
    let this = std::env::current_exe().context("cannot find this program")?;
    let started = namespace.run(|| {
        Command::new("chrt")
            .args(["--fifo", "1"])
            .arg(this)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
    });
    started.with_context(|| format!("cannot start {arguments:?} in a namespace"))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn the_cpu_of_a_process_grows_with_its_work() {
        let before = cpu_of(std::process::id()).unwrap();
        let start = Instant::now();
        while cpu_of(std::process::id()).unwrap() == before {
            assert!(start.elapsed() < Duration::from_secs(10), "work was not counted");
        }
    }
}
