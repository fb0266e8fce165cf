//! How the program speaks: errors in one place, logs for those that run long.

use std::io::IsTerminal;
use std::process::ExitCode;

use anyhow::Result;
use tracing_subscriber::EnvFilter;

/// Tables for people, JSON for programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// A table.
    #[default]
    Table,
    /// JSON.
    Json,
}

/// The exit code of a command; its error, with every cause, on standard error.
pub(crate) fn report(outcome: Result<ExitCode>) -> ExitCode {
    outcome.unwrap_or_else(|error| {
        eprintln!("atoll: {error:#}");
        ExitCode::FAILURE
    })
}

/// Logs of level info and above, or as `RUST_LOG` says.
pub(crate) fn log_to_standard_error() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
}
