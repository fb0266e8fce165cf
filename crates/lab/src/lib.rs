//! `atoll lab`: a small cluster on one machine.
//!
//! One supervisor process holds the embedded API, the controller, a scheduler and a small kubelet
//! per node; each node is a network namespace with an agent process of its own; each container is
//! a process of its own. The supervisor may die: everything it started lives on, and
//! `atoll lab down` finds and removes it all.

mod agent_keeper;
mod args;
mod cluster;
mod down;
mod enter;
mod event;
mod fabric;
mod home;
mod kubelet;
mod logs;
mod matrix;
mod namespace;
mod node;
mod process;
mod progress;
mod report;
mod roll;
mod scheduler;
mod shim;
mod supervise;
mod up;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use args::KubeconfigArgs;
use atoll_types::Label;
use home::Home;

pub use args::LabCommand;

/// What the lab needs of the program around it.
#[derive(Clone, Copy, Debug)]
pub struct Hooks {
    /// Checks that this machine can run a datapath at all, before anything is made.
    pub preflight: fn() -> Result<()>,
}

/// Runs one command of the lab. Call it before the process has threads: some commands change
/// namespaces, which only a process of one thread may do.
pub fn run(command: LabCommand, hooks: &Hooks) -> Result<ExitCode> {
    match command {
        LabCommand::Up(args) => wait_for(up::run(&args, hooks)),
        LabCommand::Down(args) => down::run(&args.name),
        LabCommand::Status(args) => wait_for(report::run(&args)),
        LabCommand::Exec(args) => enter::exec(&args.of, &args.command),
        LabCommand::Node(args) => enter::node(&args.lab.name, &args.node, &args.command),
        LabCommand::Logs(args) => logs::run(&args),
        LabCommand::Kubeconfig(args) => kubeconfig(&args),
        LabCommand::Matrix(args) => wait_for(matrix::run(&args)),
        LabCommand::Supervise(args) => supervise::run(&args),
        LabCommand::Shim(args) => shim::run(&args.launch),
        LabCommand::ShimInit(args) => shim::run_init(&args.launch),
        LabCommand::Enter(args) => enter::become_inside(&args.netns, &args.command),
    }
}

/// The nodes of a lab that is up, each with the socket of its agent.
pub fn agent_sockets(lab: &str) -> Result<Vec<(String, PathBuf)>> {
    let home = Home::of(&lab.parse::<Label>()?);
    home.require_up()?;
    let socket = |name: String| (name.clone(), home.node(&name).agent_socket());
    Ok(home.node_names().into_iter().map(socket).collect())
}

fn wait_for(work: impl Future<Output = Result<ExitCode>>) -> Result<ExitCode> {
    let runtime = tokio::runtime::Runtime::new()?;
    let result = runtime.block_on(work);
    runtime.shutdown_background();
    result
}

fn kubeconfig(args: &KubeconfigArgs) -> Result<ExitCode> {
    let home = Home::of(&args.lab.name);
    home.require_up()?;
    match args.content {
        true => print!("{}", std::fs::read_to_string(home.kubeconfig())?),
        false => println!("{}", home.kubeconfig().display()),
    }
    Ok(ExitCode::SUCCESS)
}

fn require_root(to: &str) -> Result<()> {
    anyhow::ensure!(nix::unistd::geteuid().is_root(), "only root can {to}: run it with sudo");
    Ok(())
}
