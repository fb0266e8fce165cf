//! A suite that is stopped while its cluster is coming up. It needs a real Kubernetes
//! (`ATOLL_KUBERNETES`), so `make test-real` runs it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use atoll_realnodes::{Cluster, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const NAME: &str = "stopped";

#[test]
#[ignore = "needs a real Kubernetes"]
fn a_suite_that_is_stopped_leaves_nothing_of_its_cluster() {
    let cluster = Cluster::named(&NAME.parse().unwrap());
    cluster.down().unwrap();
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut suite =
            Command::new(env!("CARGO_BIN_EXE_e2e")).args(["--name", NAME]).spawn().unwrap();
        let has_nodes = || Ok(Path::new(&cluster.logs()).join("node3-init.log").exists());
        let came_up = wait_until("the nodes to be started", Duration::from_secs(120), has_nodes);
        kill(Pid::from_raw(i32::try_from(suite.id()).unwrap()), signal).unwrap();
        let status = suite.wait().unwrap();
        let left = cluster.traces();
        cluster.down().unwrap();
        came_up.unwrap();
        assert_eq!(status.code(), Some(1));
        assert_eq!(left, Vec::<String>::new());
    }
}
