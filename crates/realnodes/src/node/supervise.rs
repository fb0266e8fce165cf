//! The node's first process at work: it starts containerd and kubelet, starts them again when they
//! end, and collects every process that nobody else waits for.

use std::fs::File;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sys::wait::waitpid;
use nix::unistd::Pid;

use super::program;
use super::root::KUBERNETES;
use super::settings::{CONTAINERD_FILE, KUBELET_FILE};
use crate::fabric::Node;
use crate::home::Home;

/// How long a program that ended stays away.
const PAUSE: Duration = Duration::from_secs(1);

/// The logs, opened before the node loses sight of the machine's folders.
pub(super) struct Logs {
    containerd: File,
    kubelet: File,
}

impl Logs {
    pub(super) fn open(home: &Home, node: Node) -> Result<Self> {
        let open = |name| home.open_log(&program(node, name));
        Ok(Logs { containerd: open("containerd")?, kubelet: open("kubelet")? })
    }
}

/// Runs for as long as the node lives.
pub(super) fn run(logs: &Logs, node: Node) -> Result<()> {
    let start_containerd = || spawn(containerd(), &logs.containerd);
    let start_kubelet = || spawn(kubelet(node), &logs.kubelet);
    let (mut runtime, mut agent) = (start_containerd()?, start_kubelet()?);
    loop {
        let ended = wait_for_any()?;
        if ended == runtime {
            runtime = again(start_containerd)?;
        } else if ended == agent {
            agent = again(start_kubelet)?;
        }
    }
}

fn again(start: impl FnOnce() -> Result<Pid>) -> Result<Pid> {
    std::thread::sleep(PAUSE);
    start()
}

fn wait_for_any() -> Result<Pid> {
    loop {
        match waitpid(None, None) {
            Ok(status) => match status.pid() {
                Some(pid) => return Ok(pid),
                None => continue,
            },
            Err(Errno::EINTR) => continue,
            Err(error) => return Err(error).context("cannot wait for the node's processes"),
        }
    }
}

fn spawn(mut command: Command, log: &File) -> Result<Pid> {
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log.try_clone()?);
    let child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
    Ok(Pid::from_raw(child.id().try_into()?))
}

fn containerd() -> Command {
    let mut command = Command::new("containerd");
    command.args(["--config", CONTAINERD_FILE]);
    command
}

fn kubelet(node: Node) -> Command {
    let mut command = Command::new(format!("{KUBERNETES}/kubelet"));
    command.args([
        format!("--config={KUBELET_FILE}"),
        "--kubeconfig=/etc/kubernetes/kubeconfig".into(),
        format!("--hostname-override={node}"),
        format!("--node-ip={}", node.address()),
    ]);
    command
}
