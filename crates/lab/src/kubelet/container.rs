//! The hands on one container: starts its keeper, tells when it runs and how it ended, and sends
//! it signals.

use std::process::Stdio;

use anyhow::Context;
use nix::sys::signal::Signal;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc::UnboundedSender;

use super::NodeContext;
use super::lifecycle::Fact;
use crate::home::{ContainerHome, absent_is_fine, read_json, write_json};
use crate::process::Process;
use crate::shim::{self, CANNOT_START, Exit, Launch, STARTED};

/// A container that was started.
#[derive(Debug)]
pub(crate) struct Handle {
    keeper: Option<Process>,
    home: ContainerHome,
}

/// Starts the container. What becomes of it is told to `facts`.
pub(crate) fn start(
    context: &NodeContext,
    name: &str,
    home: ContainerHome,
    launch: &Launch,
    facts: UnboundedSender<Fact>,
) -> Handle {
    let name = name.to_owned();
    match spawn_keeper(context, &home, launch) {
        Ok(child) => {
            let keeper = child.id().and_then(|pid| Process::with_pid(pid as i32));
            tokio::spawn(follow(child, name, home.clone(), facts));
            Handle { keeper, home }
        }
        Err(error) => {
            let start_error = Some(format!("{error:#}"));
            tell(&facts, Fact::Exited { name, code: CANNOT_START, start_error });
            Handle { keeper: None, home }
        }
    }
}

impl Handle {
    /// Asks the container to end.
    pub(crate) fn stop(&self) {
        self.send(self.keeper, Signal::SIGTERM);
    }

    /// Ends it now. The keeper stays to tell how it ended, unless there is nothing inside yet.
    pub(crate) fn kill(&self) {
        let init = Process::read(&self.home.init_record()).filter(Process::is_alive);
        self.send(init.or(self.keeper), Signal::SIGKILL);
    }

    fn send(&self, whom: Option<Process>, signal: Signal) {
        if let Some(process) = whom
            && let Err(error) = process.signal(signal)
        {
            tracing::warn!(pid = process.pid(), %error, "cannot send {signal}");
        }
    }
}

fn spawn_keeper(
    context: &NodeContext,
    home: &ContainerHome,
    launch: &Launch,
) -> anyhow::Result<Child> {
    home.create().context("cannot make the container's directory")?;
    for stale in [home.init_record(), home.exit_record()] {
        absent_is_fine(std::fs::remove_file(stale))?;
    }
    write_json(&home.launch(), launch).context("cannot write down what to start")?;
    Command::new(&context.program)
        .args(["lab", "shim"])
        .arg(home.launch())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start the container's keeper")
}

async fn follow(mut child: Child, name: String, home: ContainerHome, facts: UnboundedSender<Fact>) {
    if let Some(stdout) = child.stdout.take() {
        let first = BufReader::new(stdout).lines().next_line().await;
        if first.is_ok_and(|line| line.as_deref() == Some(STARTED)) {
            tell(&facts, Fact::Started(name.clone()));
        }
    }
    let status = child.wait().await;
    let exit = read_json::<Exit>(&home.exit_record()).unwrap_or_else(|_| Exit {
        code: status.map_or(CANNOT_START, shim::code_of),
        start_error: None,
    });
    tell(&facts, Fact::Exited { name, code: exit.code, start_error: exit.start_error });
}

/// A pod that is not there to listen any more needs no telling.
fn tell(facts: &UnboundedSender<Fact>, fact: Fact) {
    let _gone = facts.send(fact);
}
