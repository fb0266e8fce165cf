//! `realnodes`: a real Kubernetes on this machine, for tests. This file wires, and nothing else.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use anyhow::{Result, bail};
use atoll_realnodes::{Cluster, Node, UpOptions};
use atoll_types::Label;
use clap::{Args, Parser, Subcommand};

/// Real Kubernetes nodes on one machine.
#[derive(Parser)]
#[command(name = "realnodes", version, after_help = EXAMPLES)]
struct Realnodes {
    #[command(subcommand)]
    command: Action,
}

const EXAMPLES: &str = "Examples:
  realnodes up --kubernetes $(real/build)
  KUBECONFIG=$(realnodes kubeconfig) kubectl get nodes
  realnodes exec node1 -- ip link
  realnodes down";

/// Which cluster.
#[derive(Args)]
struct Which {
    /// The cluster's name.
    #[arg(long, default_value = "default")]
    name: Label,
}

#[derive(Subcommand)]
enum Action {
    /// Make a cluster; its nodes are NotReady until somebody brings a CNI plugin
    Up {
        #[command(flatten)]
        which: Which,
        #[command(flatten)]
        options: UpOptions,
    },
    /// Remove a cluster, or what is left of one
    Down {
        #[command(flatten)]
        which: Which,
    },
    /// Print where the administrator's kubeconfig is
    Kubeconfig {
        #[command(flatten)]
        which: Which,
    },
    /// Run a command inside a node
    Exec {
        #[command(flatten)]
        which: Which,
        /// The node, such as node1.
        node: Node,
        /// The command.
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// Print where this machine finds a node's files
    Files {
        #[command(flatten)]
        which: Which,
        /// The node, such as node1.
        node: Node,
    },
    /// Show the log of a node's program
    Logs {
        #[command(flatten)]
        which: Which,
        /// The node, such as node1.
        node: Node,
        /// Whose log.
        #[arg(value_parser = ["kubelet", "containerd", "init"])]
        program: String,
    },
    /// Put the images of OCI archives into every node
    Load {
        #[command(flatten)]
        which: Which,
        /// The archives.
        #[arg(required = true)]
        archives: Vec<std::path::PathBuf>,
    },
    /// End a node as a power cut would
    Kill {
        #[command(flatten)]
        which: Which,
        /// The node, such as node1.
        node: Node,
    },
    /// Start a node that was killed
    Start {
        #[command(flatten)]
        which: Which,
        /// The node, such as node1.
        node: Node,
    },
    #[command(hide = true)]
    BootNode {
        #[command(flatten)]
        which: Which,
        node: Node,
    },
    #[command(hide = true)]
    InitNode {
        #[command(flatten)]
        which: Which,
        node: Node,
    },
    #[command(hide = true)]
    Forward {
        #[command(flatten)]
        which: Which,
    },
}

fn main() -> ExitCode {
    match run(Realnodes::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("realnodes: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(action: Action) -> Result<()> {
    match action {
        Action::Up { which, options } => up(&which.cluster(), &options),
        Action::Down { which } => which.cluster().down(),
        Action::Kubeconfig { which } => {
            println!("{}", which.cluster().kubeconfig().display());
            Ok(())
        }
        Action::Exec { which, node, command } => exec(&which.cluster(), node, &command),
        Action::Files { which, node } => {
            println!("{}", which.cluster().files(node)?.display());
            Ok(())
        }
        Action::Logs { which, node, program } => {
            become_command(Command::new("cat").arg(which.cluster().log(node, &program)))
        }
        Action::Load { which, archives } => {
            archives.iter().try_for_each(|archive| which.cluster().load(archive))
        }
        Action::Kill { which, node } => which.cluster().kill_node(node),
        Action::Start { which, node } => which.cluster().start_node(node),
        Action::BootNode { which, node } => atoll_realnodes::boot_node(&which.name, node),
        Action::InitNode { which, node } => atoll_realnodes::init_node(&which.name, node),
        Action::Forward { .. } => atoll_realnodes::serve_forwarder(),
    }
}

impl Which {
    fn cluster(&self) -> Cluster {
        Cluster::named(&self.name)
    }
}

fn up(cluster: &Cluster, options: &UpOptions) -> Result<()> {
    cluster.up(options)?;
    println!("export KUBECONFIG={}", cluster.kubeconfig().display());
    Ok(())
}

fn exec(cluster: &Cluster, node: Node, command: &[String]) -> Result<()> {
    let [program, arguments @ ..] = command else { bail!("no command was given") };
    become_command(cluster.on_node(node, program)?.args(arguments))
}

/// Becomes `command`; returns only when that fails.
fn become_command(command: &mut Command) -> Result<()> {
    Err(command.exec().into())
}
