//! A suite that is stopped while one of its clusters is coming up and another is there. It needs a
//! real Kubernetes (`ATOLL_KUBERNETES`), so `make test-real` runs it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use atoll_realnodes::{Cluster, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const SUITE: &str = env!("CARGO_BIN_EXE_e2e");
const NAMES: [&str; 2] = ["stopped", "stopped-2"];

#[test]
#[ignore = "needs a real Kubernetes"]
fn a_suite_that_is_stopped_leaves_nothing_of_its_clusters() {
    let clusters = NAMES.map(|name| Cluster::named(&name.parse().unwrap()));
    let down = || clusters.iter().for_each(|cluster| cluster.down().unwrap());
    down();
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        // The suite makes its other clusters much later, with images that nobody has built here.
        let there = realnodes(&["up", "--nodes=1", "--name", NAMES[1]]).status().unwrap();
        let mut suite = Command::new(SUITE).args(["--name", NAMES[0]]).spawn().unwrap();
        let has_nodes = || Ok(Path::new(&clusters[0].logs()).join("node3-init.log").exists());
        let came_up = wait_until("the nodes to be started", Duration::from_secs(120), has_nodes);
        kill(Pid::from_raw(i32::try_from(suite.id()).unwrap()), signal).unwrap();
        let status = suite.wait().unwrap();
        let left: Vec<_> = clusters.iter().flat_map(Cluster::traces).collect();
        down();
        assert!(there.success());
        came_up.unwrap();
        assert_eq!(status.code(), Some(1));
        assert_eq!(left, Vec::<String>::new());
    }
}

/// The program that makes clusters, which is built beside the suite.
fn realnodes(words: &[&str]) -> Command {
    let mut command = Command::new(PathBuf::from(SUITE).with_file_name("realnodes"));
    command.args(words);
    command
}
