//! What can be said on the command line of `atoll lab`.

use std::path::PathBuf;

use atoll_types::{InfraMode, Label};
use clap::{Args, Subcommand, ValueEnum};

use crate::fabric::MOST_NODES;

/// The lab that commands mean when they name none.
pub(crate) const DEFAULT_NAME: &str = "default";

/// A small cluster on one machine, for trying, learning and testing.
#[derive(Clone, Debug, Subcommand)]
pub enum LabCommand {
    /// Start a lab; ready when it returns.
    #[command(after_help = "Examples:\n  atoll lab up\n  atoll lab up --nodes 5 --name big\n  \
                            atoll lab up --port 6443\n  \
                            atoll lab up --underlay ipv6 --tunnel-port 4790")]
    Up(UpArgs),
    /// Take a lab down: processes, mounts, namespaces, files. Safe to repeat.
    #[command(after_help = "Examples:\n  atoll lab down\n  atoll lab down --name big")]
    Down(NameArgs),
    /// Show the nodes, their agents, the pods and where the API is.
    #[command(after_help = "Examples:\n  atoll lab status\n  atoll lab status -o json")]
    Status(StatusArgs),
    /// Run a command inside a pod; standard input and the exit code pass through.
    #[command(after_help = "Examples:\n  atoll lab exec -n acme web-1 -- ip addr\n  \
                            atoll lab exec -n acme web-1 -- atoll toolbox connect tcp 10.0.0.6")]
    Exec(ExecArgs),
    /// Run a command inside a node's network; standard input and the exit code pass through.
    #[command(after_help = "Examples:\n  atoll lab node node1 -- ip link\n  \
                            atoll lab node node2 -- ping -c1 172.30.0.11")]
    Node(NodeArgs),
    /// Print what a pod's container wrote.
    #[command(after_help = "Examples:\n  atoll lab logs -n acme web-1\n  \
                            atoll lab logs -n acme web-1 -f")]
    Logs(LogsArgs),
    /// Print the path of the kubeconfig, or with --content the kubeconfig itself.
    #[command(after_help = "Examples:\n  export KUBECONFIG=$(atoll lab kubeconfig)\n  \
                            atoll lab kubeconfig --content > lab.yaml")]
    Kubeconfig(KubeconfigArgs),
    /// Try every pod against every other, over TCP, UDP and ICMP, and show who reaches whom.
    #[command(after_help = "Examples:\n  atoll lab matrix\n  atoll lab matrix --expect isolated")]
    Matrix(MatrixArgs),
    /// The process that keeps a lab running.
    #[command(hide = true)]
    Supervise(UpArgs),
    /// The process that keeps one container.
    #[command(hide = true)]
    Shim(ShimArgs),
    /// The first process inside a container.
    #[command(hide = true)]
    ShimInit(ShimArgs),
    /// Become a command inside a network namespace.
    #[command(hide = true)]
    Enter(EnterArgs),
}

/// Which lab.
#[derive(Clone, Debug, Args)]
pub struct NameArgs {
    /// The lab's name.
    #[arg(long, default_value = DEFAULT_NAME)]
    pub name: Label,
}

/// Options of `up`.
#[derive(Clone, Debug, Args)]
pub struct UpArgs {
    /// Which lab.
    #[command(flatten)]
    pub lab: NameArgs,
    /// How many nodes it has.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=i64::from(MOST_NODES)))]
    pub nodes: u8,
    /// The port for kubectl on this machine's loopback; 0 picks a free one.
    #[arg(long, default_value_t = 0)]
    pub port: u16,
    /// The controller's template: a Network manifest from which new tenants get their default
    /// network.
    #[arg(long, value_name = "FILE")]
    pub default_network_template_path: Option<PathBuf>,
    /// By which addresses nodes meet: those that their agents find first in the Node objects.
    #[arg(long, value_enum, default_value_t = Underlay::Ipv4)]
    pub underlay: Underlay,
    /// What its agents are told.
    #[command(flatten)]
    pub agents: AgentArgs,
}

/// What all agents of a lab are told, in the words that an agent itself has for it.
#[derive(Clone, Debug, Args)]
pub struct AgentArgs {
    /// Whether pods of tenants reach the nodes directly.
    #[arg(long, value_name = "isolated|compatible", default_value_t = InfraMode::Isolated)]
    pub infra_mode: InfraMode,
    /// The UDP port for tunnel packets (VXLAN); the agents' own default when left out.
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub tunnel_port: Option<u16>,
}

impl AgentArgs {
    /// The same on a command line.
    pub(crate) fn words(&self) -> Vec<String> {
        let port = self.tunnel_port.map(|port| format!("--tunnel-port={port}"));
        [format!("--infra-mode={}", self.infra_mode)].into_iter().chain(port).collect()
    }
}

/// The family of the addresses by which nodes meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Underlay {
    /// Nodes have addresses of IPv4 alone.
    Ipv4,
    /// Nodes have addresses of both families, that of IPv6 first: tunnel packets go by it.
    Ipv6,
}

impl Underlay {
    /// The same on a command line.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Underlay::Ipv4 => "--underlay=ipv4",
            Underlay::Ipv6 => "--underlay=ipv6",
        }
    }
}

/// Options of `status`.
#[derive(Clone, Debug, Args)]
pub struct StatusArgs {
    /// Which lab.
    #[command(flatten)]
    pub lab: NameArgs,
    /// How to print it.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
}

/// Which container of which pod.
#[derive(Clone, Debug, Args)]
pub struct ContainerArgs {
    /// Which lab.
    #[command(flatten)]
    pub lab: NameArgs,
    /// The pod's namespace.
    #[arg(short, long, default_value = "default")]
    pub namespace: String,
    /// The pod.
    pub pod: String,
    /// The container; the first when left out.
    #[arg(short, long)]
    pub container: Option<String>,
}

/// Options of `exec`.
#[derive(Clone, Debug, Args)]
pub struct ExecArgs {
    /// Which container.
    #[command(flatten)]
    pub of: ContainerArgs,
    /// The command and its arguments.
    #[arg(last = true, required = true)]
    pub command: Vec<String>,
}

/// Options of `node`.
#[derive(Clone, Debug, Args)]
pub struct NodeArgs {
    /// Which lab.
    #[command(flatten)]
    pub lab: NameArgs,
    /// The node.
    pub node: String,
    /// The command and its arguments.
    #[arg(last = true, required = true)]
    pub command: Vec<String>,
}

/// Options of `logs`.
#[derive(Clone, Debug, Args)]
pub struct LogsArgs {
    /// Which container.
    #[command(flatten)]
    pub of: ContainerArgs,
    /// Go on printing what is written from now on.
    #[arg(short, long)]
    pub follow: bool,
    /// Print what the run before the present one wrote.
    #[arg(short, long, conflicts_with = "follow")]
    pub previous: bool,
}

/// Options of `kubeconfig`.
#[derive(Clone, Debug, Args)]
pub struct KubeconfigArgs {
    /// Which lab.
    #[command(flatten)]
    pub lab: NameArgs,
    /// Print the path, which is also what happens without any option.
    #[arg(long, conflicts_with = "content")]
    pub path: bool,
    /// Print the content instead of the path.
    #[arg(long)]
    pub content: bool,
}

/// Options of `matrix`.
#[derive(Clone, Debug, Args)]
pub struct MatrixArgs {
    /// Which lab.
    #[command(flatten)]
    pub lab: NameArgs,
    /// How to print it.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
    /// Exit 1 unless the matrix is as expected.
    #[arg(long, value_enum)]
    pub expect: Option<Expectation>,
    /// How long each probe waits for its answer, in milliseconds.
    #[arg(long, default_value_t = 2000)]
    pub timeout_ms: u32,
}

/// What a matrix is held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Expectation {
    /// Inside each network all reach each other; nothing answers from any other network.
    Isolated,
}

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Table,
    /// For programs.
    Json,
}

/// The container to keep.
#[derive(Clone, Debug, Args)]
pub struct ShimArgs {
    /// The file that describes it.
    pub launch: PathBuf,
}

/// Options of `enter`.
#[derive(Clone, Debug, Args)]
pub struct EnterArgs {
    /// The network namespace.
    #[arg(long)]
    pub netns: PathBuf,
    /// The command and its arguments.
    #[arg(last = true, required = true)]
    pub command: Vec<String>,
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Alone {
        #[command(flatten)]
        up: UpArgs,
    }

    fn read(words: &[&str]) -> Result<UpArgs, String> {
        let read = Alone::try_parse_from([&["up"], words].concat());
        read.map(|it| it.up).map_err(|error| error.to_string())
    }

    #[test]
    fn what_agents_are_told_reads_the_same_where_it_was_passed_on() {
        let usual = read(&[]).unwrap();
        assert_eq!((usual.underlay, usual.agents.tunnel_port), (Underlay::Ipv4, None));
        assert_eq!(usual.agents.words(), ["--infra-mode=isolated"]);
        let own = ["--infra-mode=compatible", "--tunnel-port=4790"];
        for underlay in [Underlay::Ipv4, Underlay::Ipv6] {
            let given = read(&[&own[..], &[underlay.word()]].concat()).unwrap();
            assert_eq!(
                (given.underlay, given.agents.words()),
                (underlay, own.map(Into::into).into())
            );
        }
    }

    #[test]
    fn a_port_or_an_underlay_that_is_none_is_refused_with_what_could_be_said() {
        for wrong in ["0", "65536", "-1", "vxlan"] {
            let said = read(&[&format!("--tunnel-port={wrong}")]).unwrap_err();
            assert!(said.contains(&format!("'{wrong}' for '--tunnel-port <PORT>'")), "{said}");
        }
        assert!(read(&["--tunnel-port=0"]).unwrap_err().contains("0 is not in 1..=65535"));
        let said = read(&["--underlay=ipx"]).unwrap_err();
        assert!(said.contains("[possible values: ipv4, ipv6]"), "{said}");
    }
}
