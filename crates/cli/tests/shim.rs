//! One container under its keeper: what its command sees, how it ends, and that nothing of it stays.
//!
//! Needs root, and says so.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

const ATOLL: &str = env!("CARGO_BIN_EXE_atoll");
const PATIENCE: Duration = Duration::from_secs(60);

/// A container that is ended when the test is.
struct Container {
    directory: PathBuf,
    keeper: Child,
}

impl Container {
    /// Starts a shell script in namespaces of its own; the network is the test's.
    fn run(name: &str, script: &str) -> Container {
        Container::start(name, &json!({"command": ["sh", "-c", script]}))
    }

    fn start(name: &str, change: &Value) -> Container {
        let user = Command::new("id").arg("-u").output().unwrap();
        assert_eq!(String::from_utf8_lossy(&user.stdout).trim(), "0", "this test needs root");
        let name = format!("atoll-shim-{}-{name}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir_all(directory.join("secret")).unwrap();
        fs::write(directory.join("hosts"), "10.0.0.5\tweb-1\n").unwrap();
        fs::write(directory.join("secret/key"), "for nobody").unwrap();
        let file = |name: &str| directory.join(name);
        let mut launch = json!({
            "namespace": "/proc/self/ns/net",
            "hostname": "web-1",
            "command": ["true"],
            "environment": [
                ["PATH", "/usr/bin:/bin"], ["TIER", "front"], ["SECRET", file("secret/key")],
            ],
            "working_directory": "/",
            "files": [{"source": file("hosts"), "target": "/etc/hosts"}],
            "hidden": file("secret"),
            "log": file("log"),
            "init_record": file("init.json"),
            "exit_record": file("exit.json"),
        });
        launch.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        fs::write(file("launch.json"), launch.to_string()).unwrap();
        let keeper = Command::new(ATOLL)
            .args(["lab", "shim"])
            .arg(file("launch.json"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Container { directory, keeper }
    }

    /// Waits until the keeper says that the command runs.
    fn await_start(&mut self) {
        let mut line = String::new();
        BufReader::new(self.keeper.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "started\n");
    }

    /// Waits until the log holds `text`.
    fn await_log(&self, text: &str) {
        await_condition(|| self.log().contains(text), || self.log());
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    fn json(&self, file: &str) -> Value {
        serde_json::from_slice(&fs::read(self.directory.join(file)).unwrap()).unwrap()
    }

    /// The first process inside, as the machine numbers it.
    fn init(&self) -> i64 {
        self.json("init.json")["pid"].as_i64().unwrap()
    }

    /// How the keeper ended, which is how the container did.
    fn end(&mut self) -> i32 {
        let status = self.keeper.wait().unwrap();
        status.code().expect("the keeper was not killed")
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ended = self.keeper.kill();
        let _ended = self.keeper.wait();
        let _gone = fs::remove_dir_all(&self.directory);
    }
}

fn await_condition(holds: impl Fn() -> bool, seen: impl Fn() -> String) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "went on seeing: {}", seen());
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn signal(which: &str, pid: i64) {
    let sent = Command::new("kill").args([which, &pid.to_string()]).status().unwrap();
    assert!(sent.success(), "cannot send {which} to {pid}");
}

#[test]
fn the_exit_code_of_the_command_is_kept() {
    for (script, code) in [("exit 0", 0), ("exit 3", 3), ("kill -KILL $$", 137)] {
        let mut container = Container::run(&format!("code{code}"), script);
        assert_eq!(container.end(), code, "{script}");
        assert_eq!(container.json("exit.json"), json!({"code": code, "start_error": null}));
    }
}

#[test]
fn what_the_command_writes_is_in_the_log() {
    let mut container = Container::run("log", "echo out; echo err >&2");
    container.end();
    assert_eq!(container.log(), "out\nerr\n");
}

#[test]
fn the_command_sees_its_own_name_files_processes_and_environment() {
    let script =
        "hostname; cat /etc/hosts; echo tier $TIER; echo home $HOME; ps -e -o pid= | wc -l";
    let mut container = Container::run("sees", script);
    assert_eq!(container.end(), 0);
    let log = container.log();
    for expected in ["web-1\n", "10.0.0.5\tweb-1\n", "tier front\n", "home\n"] {
        assert!(log.contains(expected), "{log}");
    }
    let processes: u32 = log.lines().last().unwrap().trim().parse().unwrap();
    assert!(processes <= 4, "only its own: {log}");
}

#[test]
fn the_lab_behind_it_is_out_of_sight_and_the_machine_keeps_its_own_name() {
    let name_before = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let mut container = Container::run("hidden", "cat \"$SECRET\" || echo hidden");
    container.end();
    assert!(container.log().ends_with("hidden\n"), "{}", container.log());
    assert_eq!(fs::read_to_string("/proc/sys/kernel/hostname").unwrap(), name_before);
}

#[test]
fn a_request_to_end_reaches_the_command() {
    let script = "trap 'echo asked; exit 7' TERM; echo ready; while :; do sleep 0.05; done";
    let mut container = Container::run("term", script);
    container.await_log("ready");
    signal("-TERM", container.keeper.id().into());
    assert_eq!(container.end(), 7);
    assert!(container.log().contains("asked"));
}

#[test]
fn killing_the_init_ends_everyone_inside_and_the_keeper_tells() {
    let mut container = Container::run("kill", "trap '' TERM; sleep 1000 & sleep 1000");
    container.await_start();
    signal("-KILL", container.init());
    assert_eq!(container.end(), 137);
}

#[test]
fn when_the_keeper_dies_so_does_everyone_inside() {
    let mut container = Container::run("orphan", "sleep 1000 & echo ready; wait");
    container.await_start();
    container.await_log("ready");
    let init = PathBuf::from(format!("/proc/{}/exe", container.init()));
    assert!(init.read_link().is_ok(), "the init runs");
    container.keeper.kill().unwrap();
    await_condition(|| init.read_link().is_err(), || "the init lives on".to_owned());
}

#[test]
fn orphans_inside_are_collected() {
    let script = "orphan=$(sleep 0.1 >&2 & echo $!); \
                  while [ -e /proc/$orphan ]; do sleep 0.05; done; echo collected";
    let container = Container::run("reap", script);
    container.await_log("collected");
}

#[test]
fn a_command_that_does_not_exist_is_named() {
    let mut container = Container::start("missing", &json!({"command": ["no-such-program"]}));
    assert_eq!(container.end(), 128);
    let why = container.json("exit.json")["start_error"].as_str().unwrap().to_owned();
    assert!(why.contains("cannot run \"no-such-program\""), "{why}");
}

#[test]
fn a_working_directory_that_does_not_exist_is_named() {
    let mut container = Container::start("nowhere", &json!({"working_directory": "/no/where"}));
    assert_eq!(container.end(), 128);
    let why = container.json("exit.json")["start_error"].as_str().unwrap().to_owned();
    assert!(why.contains("/no/where"), "{why}");
}
