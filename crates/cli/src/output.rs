//! How the program speaks and is spoken to: errors in one place, logs for those that run long.

use std::io::IsTerminal;
use std::process::ExitCode;

use anyhow::Result;
use atoll_types::PodRef;
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

/// What a shell calls the end of a program whose reader has gone away.
pub(crate) const NOBODY_READS: u8 = 128 + 13;

/// Standard output that nobody reads any more (`| head`) is the end of the work, not a failure.
/// The print macros panic then; this ends the program instead, whoever printed.
pub(crate) fn end_quietly_when_nobody_reads() {
    let otherwise = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let message = panic.payload().downcast_ref::<String>();
        if message.is_some_and(|message| is_about_a_gone_reader(message)) {
            std::process::exit(NOBODY_READS.into());
        }
        otherwise(panic);
    }));
}

fn is_about_a_gone_reader(message: &str) -> bool {
    message.starts_with("failed printing to stdout") && message.contains("Broken pipe")
}

/// A pod as people write it.
pub(crate) fn pod(text: &str) -> Result<PodRef, String> {
    let parts = text.split_once('/').filter(|(namespace, name)| {
        !namespace.is_empty() && !name.is_empty() && !name.contains('/')
    });
    let (namespace, name) = parts.ok_or("write it as namespace/pod, like acme/web")?;
    Ok(PodRef::new(namespace, name))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_written_with_its_namespace() {
        assert_eq!(pod("acme/web").unwrap(), PodRef::new("acme", "web"));
        for bad in ["web", "/web", "acme/", "a/b/c"] {
            assert!(pod(bad).unwrap_err().contains("acme/web"), "{bad}");
        }
    }
}
