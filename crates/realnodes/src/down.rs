//! Taking a cluster down: it goes on to the end and reports every failure.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::home::Home;
use crate::{cgroups, namespace, processes};

/// Removes everything of the cluster. Repeatable; a cluster that is not there is down already.
pub(crate) fn down(home: &Home) -> Result<()> {
    if !home.exists() {
        return Ok(());
    }
    let namespaces = kept_namespaces(home);
    let mut failures: Vec<anyhow::Error> = Vec::new();
    let mut attempt = |outcome: Result<()>| failures.extend(outcome.err());
    attempt(processes::end_inside(&namespaces));
    attempt(cgroups::remove(home));
    namespaces.iter().for_each(|path| attempt(namespace::remove(path)));
    attempt(namespace::unmount(&home.disks()));
    match failures.as_slice() {
        [] => fs::remove_dir_all(home.folder())
            .with_context(|| format!("cannot remove {}", home.folder().display())),
        failures => bail!("cluster {} is not all down: {}", home.name(), told(failures)),
    }
}

fn kept_namespaces(home: &Home) -> Vec<PathBuf> {
    let entries = fs::read_dir(home.namespaces()).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

fn told(failures: &[anyhow::Error]) -> String {
    let told: Vec<_> = failures.iter().map(|failure| format!("{failure:#}")).collect();
    told.join("; ")
}
