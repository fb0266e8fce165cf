//! One agent process for each node, started again whenever it ends.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::process::{Child, Command};

use crate::args::AgentArgs;
use crate::home::{Home, NodeHome};
use crate::kubelet::CLUSTER_DNS;
use crate::process::Process;

const FIRST_WAIT: Duration = Duration::from_millis(100);
/// Where agents tell what they count; each has a network namespace of its own.
const METRICS: &str = "127.0.0.1:9965";
/// The range of the cluster's services, which no pod has to look for outside.
const SERVICES: &str = "10.96.0.0/16";
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// An agent that ran this long did well: the next one starts without delay.
const GOOD_RUN: Duration = Duration::from_secs(5);

/// Who keeps the agent of one node running.
pub(crate) struct Keeper {
    home: Home,
    node: NodeHome,
    program: PathBuf,
    told: AgentArgs,
}

impl Keeper {
    pub(crate) fn new(home: &Home, node: &NodeHome, program: &Path, told: &AgentArgs) -> Self {
        let (home, node, program) = (home.clone(), node.clone(), program.to_owned());
        Keeper { home, node, program, told: told.clone() }
    }

    /// This very program.
    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// Keeps an agent running until the future is dropped; the agent itself lives on then.
    pub(crate) async fn run(self) {
        let (mut wait, node) = (FIRST_WAIT, &self.node.name);
        loop {
            let begun = Instant::now();
            match self.start() {
                Ok(mut agent) => {
                    let ended = agent.wait().await;
                    tracing::warn!(node, ?ended, "the agent ended and is started again");
                }
                Err(error) => tracing::error!(node, "cannot start the agent: {error:#}"),
            }
            wait = next_wait(wait, begun.elapsed());
            tokio::time::sleep(wait).await;
        }
    }

    fn start(&self) -> anyhow::Result<Child> {
        let Keeper { home, node, program, told } = self;
        let log = OpenOptions::new().create(true).append(true).open(&node.agent_log)?;
        let mut command = Command::new(program);
        command.args(["lab", "enter", "--netns"]).arg(&node.namespace).arg("--").arg(program);
        command.args(["agent", "--node-name", &node.name, "--cluster-dns", CLUSTER_DNS]);
        command.args(["--metrics-address", METRICS, "--egress-deny", SERVICES]);
        command.args(told.words());
        for (option, value) in [
            ("--kubeconfig", home.node_kubeconfig()),
            ("--socket", node.agent_socket()),
            ("--state-dir", node.agent_state()),
            ("--bpf-root", node.bpf.clone()),
        ] {
            command.arg(option).arg(value);
        }
        let agent = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()?;
        let process = agent.id().and_then(|pid| Process::with_pid(pid as i32));
        process.context("it ended at once")?.write(&node.agent_record())?;
        Ok(agent)
    }
}

fn next_wait(before: Duration, ran: Duration) -> Duration {
    if ran >= GOOD_RUN { FIRST_WAIT } else { (before * 2).min(LONGEST_WAIT) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_that_keeps_ending_is_started_ever_later_until_one_runs_well() {
        let mut waits = vec![FIRST_WAIT];
        for _ in 0..7 {
            waits.push(next_wait(waits[waits.len() - 1], Duration::ZERO));
        }
        let millis: Vec<_> = waits.iter().map(Duration::as_millis).collect();
        assert_eq!(millis, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(next_wait(LONGEST_WAIT, GOOD_RUN), FIRST_WAIT);
    }
}
