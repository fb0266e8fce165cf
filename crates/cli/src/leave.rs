//! `atoll leave`: what the remover runs on a node.

use std::process::ExitCode;

use anyhow::Result;
use atoll_agent::LeaveConfig;
use tokio::signal::unix::{SignalKind, signal};

/// Removes everything, or only looks; ends with 1 where something is left.
pub(crate) fn run(config: &LeaveConfig) -> Result<ExitCode> {
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        if !config.check {
            atoll_agent::leave(config).await?;
        }
        let left = atoll_agent::left_on_node(config).await?;
        for trace in &left {
            eprintln!("left: {trace}");
        }
        if !left.is_empty() {
            return Ok(ExitCode::FAILURE);
        }
        println!("nothing of Atoll is on this node");
        if config.stay {
            signal(SignalKind::terminate())?.recv().await;
        }
        Ok(ExitCode::SUCCESS)
    })
}
