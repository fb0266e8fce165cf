//! `e2e`: Atoll on real Kubernetes, installed the way a user would, and held to its promises.
//!
//! By default it makes three clusters of three real nodes each on this machine and removes them at the
//! end; with `E2E_KUBECONFIG` the same suite runs on any other cluster.

mod evidence;
mod install;
mod kubectl;
mod looks;
mod scenarios;
mod stage;
mod stop;
mod suite;
mod tenants;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use atoll_types::Label;
use clap::Parser;

use crate::stage::Stage;
use crate::suite::Promise;

/// Atoll on real Kubernetes, held to its promises.
#[derive(Parser)]
#[command(name = "e2e")]
struct Options {
    /// Run on this cluster, which has the images already, instead of nodes on this machine.
    #[arg(long, env = "E2E_KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
    /// HOST:PORT of that cluster's API as its nodes reach it; needed where kube-proxy is missing.
    #[arg(long, env = "E2E_API_SERVER")]
    api_server: Option<String>,
    /// What else `atoll install` is told on that cluster, such as `--cluster-dns=10.43.0.10`.
    #[arg(long, env = "E2E_INSTALL", value_name = "OPTIONS", requires = "kubeconfig")]
    #[arg(value_delimiter = ' ', allow_hyphen_values = true)]
    install: Vec<String>,
    /// The range that the podCIDRs of that cluster's nodes are parts of, where Atoll is its only network
    /// and no kube-proxy runs; without it, pods of no tenant are not tried there.
    #[arg(long, env = "E2E_PLAIN_NETWORK", value_name = "CIDR", requires = "kubeconfig")]
    plain_network: Option<String>,
    /// The folder of Kubernetes programs that `real/build` prints.
    #[arg(long, env = "ATOLL_KUBERNETES", required_unless_present = "kubeconfig")]
    kubernetes: Option<PathBuf>,
    /// The name of the first cluster on this machine; others have a number after it.
    #[arg(long, default_value = "e2e")]
    name: Label,
    /// The atoll program that installs; by default the one in the path.
    #[arg(long, env = "ATOLL_PROGRAM", default_value = "atoll")]
    atoll: PathBuf,
    /// helm, which installs the chart; `real/helm/build` builds one.
    #[arg(long, env = "ATOLL_HELM")]
    helm: Option<PathBuf>,
    /// The program of the lab's tests, of which those run here that need no lab.
    #[arg(long, env = "ATOLL_LAB_TESTS")]
    lab_tests: Option<PathBuf>,
    /// How many seconds the API is away.
    #[arg(long, env = "E2E_API_AWAY", value_name = "SECONDS", default_value_t = 300)]
    api_away: u64,
    /// Only the part that CI runs.
    #[arg(long)]
    smoke: bool,
    /// Only the promises with these words in their sentence, on clusters that `--keep` left.
    #[arg(long, value_name = "WORDS")]
    only: Option<String>,
    /// Only the promise with these words in its sentence and those after it on its cluster.
    #[arg(long, value_name = "WORDS", conflicts_with = "only")]
    from: Option<String>,
    /// Leave everything as it is at the end.
    #[arg(long)]
    keep: bool,
    /// Do the work; without it, a process of its own does, and this one cleans up after it.
    #[arg(long, hide = true)]
    attended: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let outcome = if options.attended { run(&options) } else { stop::attend(&options) };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("e2e: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether everything held.
fn run(options: &Options) -> Result<bool> {
    let stages = Stage::all(options)?;
    let is_chosen = |promise: &Promise| match &options.only {
        Some(words) => promise.sentence.contains(words),
        None => promise.smoke || !options.smoke,
    };
    Ok(suite::run(&stages, options.from.as_deref(), is_chosen, |stage, held| {
        if !held {
            evidence::keep(stage);
        }
        let cleared = options.keep || stage.clear();
        held && cleared
    }))
}
