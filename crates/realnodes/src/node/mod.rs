//! A node: a box of namespaces in which containerd and kubelet find all their standard paths.
//!
//! It starts in two processes. [`boot`] enters what must be entered from outside and makes the
//! namespaces; [`init`] is the first process inside, builds the node's file system and keeps its
//! programs running. When it is killed, everything on the node ends with it.

mod root;
mod settings;
mod supervise;

use std::process::{Command, Stdio};

pub(crate) use root::REFERENCE_PLUGINS;

use anyhow::{Context, Result};
use atoll_types::Label;
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{sethostname, setsid};

use crate::fabric::Node;
use crate::home::{Home, helper_program};
use crate::{cgroups, namespace};

/// Starts `node` from outside and returns when its first process runs.
pub(crate) fn start(home: &Home, node: Node) -> Result<()> {
    let status = command(home, "boot-node", node)?.status()?;
    anyhow::ensure!(status.success(), "{node} did not start; see {}", log_hint(home, node));
    Ok(())
}

fn log_hint(home: &Home, node: Node) -> String {
    home.log(&program(node, "init")).display().to_string()
}

/// What the log of a node's program is called.
pub(crate) fn program(node: Node, name: &str) -> String {
    format!("{node}-{name}")
}

fn command(home: &Home, step: &str, node: Node) -> Result<Command> {
    let log = home.open_log(&program(node, "init"))?;
    let mut command = Command::new(helper_program()?);
    command.args([step, "--name", home.name().as_str(), &node.to_string()]);
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    Ok(command)
}

/// The first step, in a process of its own: into the node's groups and network, then new
/// namespaces for everything else, then the first process inside.
pub fn boot(cluster: &Label, node: Node) -> Result<()> {
    let home = Home::of(cluster);
    setsid().context("cannot begin a session")?;
    cgroups::join(&home, node)?;
    namespace::enter(&home.namespace(&node.to_string()))?;
    let own = CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWUTS
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWCGROUP
        | CloneFlags::CLONE_NEWPID;
    unshare(own).context("cannot make the node's namespaces")?;
    command(&home, "init-node", node)?.spawn().context("cannot start the node's first process")?;
    Ok(())
}

/// The second step: the node's first process, which never returns while the node lives.
pub fn init(cluster: &Label, node: Node) -> Result<()> {
    let home = Home::of(cluster);
    sethostname(node.to_string()).context("cannot name the node")?;
    let logs = supervise::Logs::open(&home, node)?;
    root::enter(&home, node)?;
    settings::write(node)?;
    supervise::run(&logs, node)
}
