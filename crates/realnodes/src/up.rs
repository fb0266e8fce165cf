//! Bringing a cluster up, with visible progress.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::mount::{MsFlags, mount};

use crate::control_plane::Started;
use crate::fabric::{self, MOST_NODES, Node};
use crate::home::Home;
use crate::node::REFERENCE_PLUGINS;
use crate::patience::wait_until;
use crate::{cgroups, control_plane, forward, node};

/// How long a part of the cluster may take on a busy machine.
const START: Duration = Duration::from_secs(240);

/// The cluster to make.
#[derive(Clone, Debug, clap::Args)]
pub struct UpOptions {
    /// How many nodes.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=MOST_NODES as i64))]
    pub nodes: u8,
    /// The port of the host's loopback where kubectl finds the API; 0 takes a free one.
    #[arg(long, default_value_t = 0)]
    pub port: u16,
    /// The folder of Kubernetes programs that `real/build` prints.
    #[arg(long, env = "ATOLL_KUBERNETES", value_name = "FOLDER")]
    pub kubernetes: PathBuf,
}

/// Makes the cluster; it is up when this returns, with nodes that only lack a network.
pub(crate) fn up(home: &Home, options: &UpOptions) -> Result<()> {
    check(options)?;
    let (listener, port) = forward::listen(options.port)?;
    home.create()?;
    make(home, options, listener, port).with_context(|| {
        let (name, logs) = (home.name(), home.logs());
        format!(
            "the cluster is half made (logs in {}; remove it with `realnodes down --name {name}`)",
            logs.display()
        )
    })
}

fn make(home: &Home, options: &UpOptions, listener: TcpListener, port: u16) -> Result<()> {
    let began = Instant::now();
    let name = home.name().as_str();
    let step = |what: &str| {
        eprintln!("{name:6} [{:5.1} s] {what}", began.elapsed().as_secs_f32());
    };
    step("namespaces, links, control groups and certificates");
    prepare(home, options, port)?;
    step("etcd and the API server");
    let mut started = start_api(home, listener)?;
    step(&format!("{} nodes with containerd and kubelet", options.nodes));
    Node::first(options.nodes).into_iter().try_for_each(|node| node::start(home, node))?;
    await_api(home, &mut started)?;
    step("controller manager and scheduler");
    control_plane::controller_manager(home).start(home)?;
    control_plane::scheduler(home).start(home)?;
    await_nodes(home, options.nodes)?;
    step("up");
    Ok(())
}

fn check(options: &UpOptions) -> Result<()> {
    ensure!(nix::unistd::geteuid().is_root(), "nodes are made of namespaces: run this as root");
    for program in ["containerd", "runc", "ip", "nsenter"] {
        ensure!(in_path(program), "{program} is missing: run scripts/setup-real");
    }
    let loopback = Path::new(REFERENCE_PLUGINS).join("loopback");
    ensure!(loopback.exists(), "{} is missing: run scripts/setup-real", loopback.display());
    let folder = &options.kubernetes;
    let programs = ["etcd", "kube-apiserver", "kubelet", "kubectl"];
    let complete = programs.iter().all(|program| folder.join(program).exists());
    ensure!(complete, "there is no Kubernetes in {}: run real/build", folder.display());
    Ok(())
}

fn in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).exists())
}

fn prepare(home: &Home, options: &UpOptions, port: u16) -> Result<()> {
    let nodes = Node::first(options.nodes);
    let binaries = std::path::absolute(&options.kubernetes)?;
    std::os::unix::fs::symlink(binaries, home.binaries())?;
    mount_disks(&home.disks())?;
    for node in &nodes {
        std::fs::create_dir(home.disk(*node))?;
    }
    cgroups::create(home, &nodes)?;
    fabric::create(home, &nodes)?;
    control_plane::write_identities(home, &nodes, port)
}

fn mount_disks(folder: &Path) -> Result<()> {
    mount(Some("tmpfs"), folder, Some("tmpfs"), MsFlags::empty(), Some("mode=755"))
        .with_context(|| format!("cannot mount a file system in memory at {}", folder.display()))
}

fn start_api(home: &Home, listener: TcpListener) -> Result<[Started; 2]> {
    let started =
        [control_plane::etcd(home).start(home)?, control_plane::api_server(home).start(home)?];
    forward::start(home, listener)?;
    Ok(started)
}

/// Waits for the API, but not for one whose program has ended.
pub(crate) fn await_api(home: &Home, started: &mut [Started]) -> Result<()> {
    let mut ended = None;
    wait_until("the API", START, || {
        ended = started.iter_mut().find_map(Started::ended);
        Ok(ended.is_some() || kubectl(home, &["get", "--raw=/readyz"])? == "ok")
    })?;
    match ended {
        None => Ok(()),
        Some(program) => bail!("{program} ended; its last words: {}", last_words(home, program)),
    }
}

fn last_words(home: &Home, program: &str) -> String {
    let log = std::fs::read_to_string(home.log(program)).unwrap_or_default();
    log.lines().last().unwrap_or("none").to_owned()
}

/// A node is there when its kubelet has written that nothing but the network is missing.
fn await_nodes(home: &Home, count: u8) -> Result<()> {
    let ask = "-o=jsonpath={range .items[*].status.conditions[?(@.type==\"Ready\")]}{.message}{\"\\n\"}{end}";
    wait_until("all nodes", START, || {
        let messages = kubectl(home, &["get", "nodes", ask])?;
        Ok(messages.lines().filter(|line| only_lacks_network(line)).count() == usize::from(count))
    })
}

fn only_lacks_network(message: &str) -> bool {
    message.contains("cni plugin not initialized") || message.contains("is posting ready status")
}

fn kubectl(home: &Home, arguments: &[&str]) -> Result<String> {
    let output = kubectl_command(home).args(arguments).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "kubectl {}: {}", arguments.join(" "), said.trim());
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// kubectl of the cluster's own version, with a limit of time.
pub(crate) fn kubectl_command(home: &Home) -> Command {
    let mut command = Command::new(home.binaries().join("kubectl"));
    command.env("KUBECONFIG", home.kubeconfig()).arg("--request-timeout=10s");
    command
}
