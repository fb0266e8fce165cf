//! Going inside: a command in a node's network, or in all namespaces of a running container.
//!
//! All of it happens before any thread exists, because a process that has threads cannot change
//! its mount namespace.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::Context;
use atoll_types::Label;
use nix::sched::{CloneFlags, setns};
use tokio::signal::unix::{SignalKind, signal};

use crate::args::ContainerArgs;
use crate::home::{ContainerHome, Home, PodHome, PodRecord, read_json};
use crate::namespace;
use crate::process::Process;
use crate::shim::{self, Launch};

/// The exit code for a command that cannot be run.
const CANNOT_RUN: u8 = 127;

/// Becomes `command`, inside the network namespace kept at `path`.
pub(crate) fn become_inside(path: &Path, command: &[String]) -> anyhow::Result<ExitCode> {
    let (program, arguments) = command.split_first().context("no command was given")?;
    namespace::enter(path)?;
    Ok(cannot_run(program, &Command::new(program).args(arguments).exec()))
}

/// Says so, with the exit code that shells have for it.
fn cannot_run(program: &str, error: &std::io::Error) -> ExitCode {
    eprintln!("atoll: cannot run {program:?}: {error}");
    ExitCode::from(CANNOT_RUN)
}

/// Becomes `command`, inside a node's network namespace.
pub(crate) fn node(lab: &Label, node: &str, command: &[String]) -> anyhow::Result<ExitCode> {
    let home = Home::of(lab);
    let names = home.node_names();
    if names.is_empty() {
        home.require_up()?;
    }
    anyhow::ensure!(
        names.iter().any(|name| name == node),
        "lab {lab} has no node {node}: it has {}",
        names.join(", ")
    );
    become_inside(&home.node(node).namespace, command)
}

/// Runs `command` inside a container and ends with its exit code.
pub(crate) fn exec(whom: &ContainerArgs, command: &[String]) -> anyhow::Result<ExitCode> {
    let home = Home::of(&whom.lab.name);
    if home.node_names().is_empty() {
        home.require_up()?;
    }
    let container = find_container(&home, whom)?;
    let launch = running(&container, whom)?;
    let (program, arguments) = command.split_first().context("no command was given")?;
    let terminal = std::env::var("TERM").map(|kind| ("TERM".to_owned(), kind));
    let mut inside = tokio::process::Command::new(program);
    inside.args(arguments).env_clear().envs(launch.environment).envs(terminal);
    shim::on_this_thread(async move {
        // Ctrl-C is for the command; what it does with it decides.
        let _interrupts = signal(SignalKind::interrupt())?;
        match inside.spawn() {
            Ok(mut child) => {
                let code = shim::code_of(child.wait().await?);
                Ok(ExitCode::from(code.clamp(0, 255) as u8))
            }
            Err(error) => Ok(cannot_run(program, &error)),
        }
    })
}

/// The home of the pod that runs, or ran, under this name.
pub(crate) fn find_pod(
    home: &Home,
    namespace: &str,
    pod: &str,
) -> anyhow::Result<(PodHome, PodRecord)> {
    let homes = home.node_names().into_iter().flat_map(|node| home.node(&node).pod_homes());
    let mut records = homes.filter_map(|pod| {
        let record: PodRecord = read_json(&pod.record()).ok()?;
        Some((pod, record))
    });
    records.find(|(_, record)| record.namespace == namespace && record.name == pod).with_context(|| {
        format!(
            "pod {namespace}/{pod} runs on no node of lab {}: see `kubectl get pods -A -o wide`",
            home.name()
        )
    })
}

/// The home of the container that the user means.
pub(crate) fn find_container(home: &Home, whom: &ContainerArgs) -> anyhow::Result<ContainerHome> {
    let (pod, record) = find_pod(home, &whom.namespace, &whom.pod)?;
    let name = whom.container.as_ref().unwrap_or(&record.default_container);
    anyhow::ensure!(
        record.containers.iter().any(|known| known == name),
        "pod {}/{} has no container {name}: it has {}",
        whom.namespace,
        whom.pod,
        record.containers.join(", ")
    );
    Ok(pod.container(name))
}

/// Moves this process into the container's namespaces; the PID namespace counts for its children.
fn running(container: &ContainerHome, whom: &ContainerArgs) -> anyhow::Result<Launch> {
    let not_running = || {
        format!(
            "pod {}/{} is not running now: see `kubectl -n {} describe pod {}`",
            whom.namespace, whom.pod, whom.namespace, whom.pod
        )
    };
    let launch: Launch = read_json(&container.launch()).with_context(not_running)?;
    let init = Process::read(&container.init_record()).filter(Process::is_alive);
    let init = init.with_context(not_running)?;
    join_namespaces(init.pid()).with_context(not_running)?;
    std::env::set_current_dir(&launch.working_directory).with_context(not_running)?;
    Ok(launch)
}

/// Every namespace file is opened before the first is entered: `/proc` changes on the way.
fn join_namespaces(pid: i32) -> anyhow::Result<()> {
    let kinds = [
        ("net", CloneFlags::CLONE_NEWNET),
        ("uts", CloneFlags::CLONE_NEWUTS),
        ("pid", CloneFlags::CLONE_NEWPID),
        ("mnt", CloneFlags::CLONE_NEWNS),
    ];
    let open = |(name, kind)| {
        let path = PathBuf::from(format!("/proc/{pid}/ns/{name}"));
        File::open(&path).map(|file| (file, kind)).with_context(|| path.display().to_string())
    };
    let opened = kinds.into_iter().map(open).collect::<anyhow::Result<Vec<_>>>()?;
    for (file, kind) in opened {
        setns(file, kind).context("cannot enter a namespace of the container")?;
    }
    Ok(())
}
