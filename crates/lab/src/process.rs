//! A process that is surely the one meant: its id together with the moment it began, so that a
//! number that the kernel gave out again is never taken for it.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::home;
use crate::namespace::NamespaceId;

/// How often the end of a foreign process is looked for; there is no way to wait for one.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// One process of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Process {
    pid: i32,
    /// When it began, in clock ticks since the machine started.
    began: u64,
}

/// What `/proc/<pid>/stat` tells.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    state: char,
    began: u64,
}

impl Process {
    /// The living process that has `pid` now.
    pub(crate) fn with_pid(pid: i32) -> Option<Self> {
        let stat = read_stat(pid)?;
        Some(Process { pid, began: stat.began })
    }

    /// The one that runs this code.
    #[cfg(test)]
    pub(crate) fn current() -> Option<Self> {
        Process::with_pid(Pid::this().as_raw())
    }

    /// The one that was written down at `path`.
    pub(crate) fn read(path: &Path) -> Option<Self> {
        home::read_json(path).ok()
    }

    /// Writes it down at `path`.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        home::write_json(path, self)
    }

    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    /// Whether it still runs. One that has ended but was not collected by its parent does not.
    pub(crate) fn is_alive(&self) -> bool {
        read_stat(self.pid)
            .is_some_and(|stat| stat.began == self.began && !matches!(stat.state, 'Z' | 'X'))
    }

    /// Sends `signal`; a process that has ended needs none.
    pub(crate) fn signal(&self, signal: Signal) -> io::Result<()> {
        if !self.is_alive() {
            return Ok(());
        }
        match kill(Pid::from_raw(self.pid), signal) {
            Ok(()) | Err(Errno::ESRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Every living process whose network namespace is one of `namespaces`.
pub(crate) fn inside(namespaces: &[NamespaceId]) -> Vec<Process> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let members = pids.filter(|pid| {
        let namespace = NamespaceId::of(Path::new(&format!("/proc/{pid}/ns/net")));
        namespace.is_ok_and(|namespace| namespaces.contains(&namespace))
    });
    members.filter_map(Process::with_pid).filter(Process::is_alive).collect()
}

/// Asks all to end, waits for `grace`, then kills the rest. Returns who is left even then.
pub(crate) fn end(processes: &[Process], grace: Duration) -> Vec<Process> {
    for (signal, patience) in [(Signal::SIGTERM, grace), (Signal::SIGKILL, Duration::from_secs(5))]
    {
        for process in processes {
            if let Err(error) = process.signal(signal) {
                tracing::warn!(pid = process.pid, %error, "cannot send {signal}");
            }
        }
        if wait_until_gone(processes, patience) {
            return Vec::new();
        }
    }
    processes.iter().copied().filter(Process::is_alive).collect()
}

fn wait_until_gone(processes: &[Process], patience: Duration) -> bool {
    let deadline = Instant::now() + patience;
    loop {
        if !processes.iter().any(Process::is_alive) {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

fn read_stat(pid: i32) -> Option<Stat> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The command in the second field may hold blanks and brackets, so fields count from its end.
fn parse_stat(text: &str) -> Option<Stat> {
    let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    Some(Stat { state, began: fields.nth(18)?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    fn sleeper() -> Child {
        Command::new("sleep").arg("60").spawn().unwrap()
    }

    fn process_of(child: &Child) -> Process {
        Process::with_pid(child.id() as i32).unwrap()
    }

    #[test]
    fn a_command_with_brackets_and_blanks_does_not_confuse_the_fields() {
        let text = "42 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 777 20";
        assert_eq!(parse_stat(text), Some(Stat { state: 'S', began: 777 }));
        assert_eq!(parse_stat("42 (x) S 1 2"), None);
    }

    #[test]
    fn a_number_given_out_again_is_another_process() {
        let current = Process::current().unwrap();
        assert!(current.is_alive());
        let earlier = Process { began: current.began - 1, ..current };
        assert!(!earlier.is_alive());
        assert!(earlier.signal(Signal::SIGKILL).is_ok(), "and a signal for it goes nowhere");
    }

    #[test]
    fn a_process_that_ended_but_was_not_collected_is_not_alive() {
        let mut child = sleeper();
        let process = process_of(&child);
        process.signal(Signal::SIGKILL).unwrap();
        assert!(wait_until_gone(&[process], Duration::from_secs(10)));
        child.wait().unwrap();
    }

    #[test]
    fn one_that_ignores_the_request_to_end_is_killed() {
        let script = "trap '' TERM; echo ready; while :; do sleep 0.1; done";
        let mut child = Command::new("sh")
            .args(["-c", script])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        io::BufRead::read_line(&mut io::BufReader::new(child.stdout.take().unwrap()), &mut line)
            .unwrap();
        let left = end(&[process_of(&child)], Duration::from_millis(100));
        assert_eq!(left, []);
        child.wait().unwrap();
    }

    #[test]
    fn it_reads_back_from_where_it_was_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("me.json");
        assert_eq!(Process::read(&path), None);
        let current = Process::current().unwrap();
        current.write(&path).unwrap();
        assert_eq!(Process::read(&path), Some(current));
    }
}
