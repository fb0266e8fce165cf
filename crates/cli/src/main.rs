//! `atoll`: one program for every place. This file wires, and nothing else.

mod agents;
mod apply;
mod cluster;
mod convert;
mod dns;
mod drops;
mod install;
mod leave;
mod observe;
mod output;
mod policy;
mod target;
mod traffic;
mod who;

use std::process::ExitCode;

use anyhow::Result;
use atoll_agent::{AgentConfig, LeaveConfig};
use atoll_controller::ControllerConfig;
use atoll_datapath::Datapath;
use atoll_lab::{Hooks, LabCommand};
use atoll_toolbox::ToolboxCommand;
use clap::{Parser, Subcommand};

use crate::apply::ApplyArgs;
use crate::cluster::ClusterArgs;
use crate::convert::ConvertArgs;
use crate::dns::DnsCommand;
use crate::drops::DropsArgs;
use crate::install::{InstallArgs, Intent, UninstallArgs};
use crate::observe::ObserveArgs;
use crate::policy::PolicyCommand;
use crate::traffic::TrafficArgs;
use crate::who::WhoArgs;

/// Every tenant of a Kubernetes cluster gets its own networks.
#[derive(Parser)]
#[command(name = "atoll", version, propagate_version = true, after_help = EXAMPLES)]
struct Atoll {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "Examples:
  atoll lab up                      a small cluster on this machine
  atoll lab exec -n acme web -- ip addr
  atoll drops --lab default         what was dropped, and why
  atoll traffic --lab default       what each pod has sent and received
  atoll observe --pod acme/web      drops and connections of a pod, as they happen
  atoll who 10.0.0.5                the pod of every network that has this address
  atoll dns query --as acme/web db  what that pod is told about a name, and why
  atoll policy test -f new.yaml     who would reach whom, before it is applied
  atoll apply -f network.yaml --tenant acme
  atoll install --dry-run           what it would bring to a cluster";

#[derive(Subcommand)]
enum Command {
    /// A small cluster on this machine, for trying and testing
    #[command(subcommand)]
    Lab(LabCommand),
    /// What was dropped on a node or in a lab, and why
    Drops(DropsArgs),
    /// What the pods of a node or a lab have sent, received and lost
    Traffic(TrafficArgs),
    /// Drops and connections on a node or in a lab, as they happen
    Observe(ObserveArgs),
    /// Who has an address, in every network that has it
    Who(WhoArgs),
    /// What names mean to a pod
    #[command(subcommand)]
    Dns(DnsCommand),
    /// What the policies of a cluster are, and what new ones would change
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Print manifests of Arktos and of Kubernetes' networking proposal as ours
    Convert(ConvertArgs),
    /// Send manifests, ours or those that `convert` takes, to a cluster
    Apply(ApplyArgs),
    /// Bring Atoll to a cluster
    Install(InstallArgs),
    /// Bring this version to a cluster that has another, with the settings as they are
    Upgrade(InstallArgs),
    /// Take Atoll off a cluster and its nodes
    Uninstall(UninstallArgs),
    /// Client, echo server and prober for trying out networks
    #[command(subcommand)]
    Toolbox(ToolboxCommand),
    /// The controller: ids, addresses, status (one for each cluster)
    Controller {
        #[command(flatten)]
        cluster: ClusterArgs,
        #[command(flatten)]
        config: ControllerConfig,
    },
    /// The agent: makes the kernel of a node match (one on each node)
    Agent {
        #[command(flatten)]
        cluster: ClusterArgs,
        #[command(flatten)]
        config: AgentConfig,
    },
    /// Take everything of Atoll off this node, once its agent has ended
    Leave(LeaveConfig),
    /// The CNI plugin, as a container runtime calls it; the same as calling this program atoll-cni
    Cni,
}

fn main() -> ExitCode {
    if called_as("atoll-cni") {
        return atoll_cni::run();
    }
    output::end_quietly_when_nobody_reads();
    let command = Atoll::parse().command;
    output::report(match command {
        Command::Cni => return atoll_cni::run(),
        Command::Lab(lab) => atoll_lab::run(lab, &hooks()),
        Command::Drops(args) => drops::run(&args),
        Command::Traffic(args) => traffic::run(&args),
        Command::Observe(args) => observe::run(&args),
        Command::Who(args) => who::run(&args),
        Command::Dns(command) => dns::run(command),
        Command::Policy(command) => policy::run(command),
        Command::Convert(args) => convert::run(&args),
        Command::Apply(args) => apply::run(&args),
        Command::Install(args) => install::run(args, Intent::Install),
        Command::Upgrade(args) => install::run(args, Intent::Upgrade),
        Command::Uninstall(args) => install::uninstall(&args),
        Command::Toolbox(toolbox) => atoll_toolbox::run(toolbox),
        Command::Controller { cluster, config } => cluster::serve(&cluster, |client, shutdown| {
            atoll_controller::run(client, config, shutdown)
        }),
        Command::Agent { cluster, config } => {
            cluster::serve(&cluster, |client, shutdown| atoll_agent::run(client, config, shutdown))
        }
        Command::Leave(config) => leave::run(&config),
    })
}

fn called_as(name: &str) -> bool {
    let program = std::env::args_os().next().unwrap_or_default();
    std::path::Path::new(&program).file_name().is_some_and(|file| file == name)
}

fn hooks() -> Hooks {
    Hooks { preflight: || -> Result<()> { Ok(Datapath::preflight()?) } }
}
