//! `pause` as a pod sees it: it ends when told to, and no process stays uncollected beside it.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const PAUSE: &str = env!("CARGO_BIN_EXE_pause");

/// A process that ends with the test, however the test ends.
struct Started(Child);

impl Started {
    /// Returns when the process is `pause` and waits for signals.
    fn by(command: &mut Command) -> Self {
        let started = Started(command.stdout(Stdio::piped()).spawn().expect("pause starts"));
        wait_until("pause to wait", || {
            started.status("Name:") == "pause" && started.status("State:").starts_with('S')
        });
        started
    }

    fn status(&self, field: &str) -> String {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default();
        line.trim().to_owned()
    }

    fn children(&self) -> Vec<u32> {
        let pid = self.0.id();
        let list =
            std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("it runs");
        list.split_whitespace().map(|pid| pid.parse().expect("a number")).collect()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn it_ends_well_when_told_to() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut pause = Started::by(&mut Command::new(PAUSE));
        kill(Pid::from_raw(pause.0.id() as i32), signal).unwrap();
        assert!(pause.0.wait().unwrap().success(), "{signal}");
    }
}

/// A shell starts a process that nobody waits for, says which, and becomes `pause`.
#[test]
fn it_collects_processes_that_nobody_waits_for() {
    let script = format!("sleep 60 & echo $!; exec {PAUSE}");
    let mut pause = Started::by(Command::new("sh").args(["-c", &script]));
    let mut orphan = String::new();
    BufReader::new(pause.0.stdout.take().unwrap()).read_line(&mut orphan).unwrap();
    let orphan: u32 = orphan.trim().parse().unwrap();
    assert_eq!(pause.children(), [orphan], "it is there before it ends");
    kill(Pid::from_raw(orphan as i32), Signal::SIGKILL).unwrap();
    wait_until("the orphan to be collected", || pause.children().is_empty());
}
