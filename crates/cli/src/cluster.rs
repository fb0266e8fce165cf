//! The cluster that a long-running command serves.

use std::future::Future;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tokio::signal::unix::{SignalKind, signal};

use crate::output;

/// Which cluster.
#[derive(clap::Args)]
pub(crate) struct ClusterArgs {
    /// The kubeconfig file; by default $KUBECONFIG, ~/.kube/config, or the pod's service account.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
}

impl ClusterArgs {
    /// A client of the cluster.
    pub(crate) async fn client(&self) -> Result<Client> {
        let config = match &self.kubeconfig {
            None => Config::infer().await.context("no cluster is configured; give --kubeconfig")?,
            Some(path) => {
                let file = Kubeconfig::read_from(path)
                    .with_context(|| format!("cannot read kubeconfig {}", path.display()))?;
                Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?
            }
        };
        atoll_agent::connect(config)
    }
}

/// A future that is done when the process is asked to end.
pub(crate) type Shutdown = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

/// Runs `program` against the cluster until it ends or SIGTERM or SIGINT comes.
pub(crate) fn serve<F>(
    cluster: &ClusterArgs,
    program: impl FnOnce(Client, Shutdown) -> F,
) -> Result<ExitCode>
where
    F: Future<Output = Result<()>>,
{
    output::log_to_standard_error();
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let client = cluster.client().await?;
        program(client, shutdown()?).await?;
        Ok(ExitCode::SUCCESS)
    })
}

/// Done when SIGTERM or SIGINT comes.
pub(crate) fn shutdown() -> Result<Shutdown> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(Box::pin(async move {
        tokio::select! {
            _ = terminate.recv() => (),
            _ = interrupt.recv() => (),
        }
    }))
}
