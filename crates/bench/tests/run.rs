//! The program itself, with one round: every path carries every kind of traffic. And interrupted: it
//! leaves nothing. Needs root.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a busy machine may take to start an agent.
const PATIENCE: Duration = Duration::from_secs(120);

/// What a run with this process has in /run.
fn folders_of(process: u32) -> Vec<PathBuf> {
    let prefix = format!("atoll-bench-{process}-");
    let all = std::fs::read_dir("/run").unwrap().flatten().map(|entry| entry.path());
    let name = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
    all.filter(|path| name(path).starts_with(&prefix)).collect()
}

#[test]
fn one_round_over_every_path_gives_tables_goals_and_a_document() {
    let folder = tempfile::tempdir().unwrap();
    let document = folder.path().join("benchmarks.md");
    let output = Command::new(env!("CARGO_BIN_EXE_bench"))
        .args(["run", "--quick", "--only", "datapath", "--rounds", "1", "--document"])
        .arg(&document)
        .output()
        .unwrap();
    let page = std::fs::read_to_string(&document)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    for row in [
        "direct veth pair",
        "bridge with nft",
        "VXLAN as flannel's",
        "**Atoll**",
        "8 streams",
        "Goals",
    ] {
        assert!(page.contains(row), "{row} is missing in {page}");
    }
}

#[test]
fn a_run_that_is_interrupted_leaves_nothing_in_the_machines_state() {
    let mut run = Command::new(env!("CARGO_BIN_EXE_bench"))
        .args(["run", "--quick", "--only", "changes"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let has_log = |folder: &PathBuf| folder.join("agent.log").exists();
    let begun = Instant::now();
    while !folders_of(run.id()).iter().any(has_log) {
        assert!(run.try_wait().unwrap().is_none(), "it ended; is the atoll program built?");
        assert!(begun.elapsed() < PATIENCE, "no agent was started");
        sleep(Duration::from_millis(20));
    }
    let interrupt = ["-INT", &run.id().to_string()].map(str::to_owned);
    assert!(Command::new("kill").args(interrupt).status().unwrap().success());
    assert_eq!(run.wait().unwrap().code(), Some(130));
    assert_eq!(folders_of(run.id()), Vec::<PathBuf>::new());
}
