//! What is kept when a promise did not hold: the logs of everything, and what the API had.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::install::NAMESPACE;
use crate::stage::{Stage, in_tree};

const QUESTIONS: [(&str, &[&str]); 5] = [
    ("everything.txt", &["get", "pods,nodes,tenants,networks,ports", "-A", "-o", "wide"]),
    ("pods.txt", &["describe", "pods", "-A"]),
    ("events.txt", &["get", "events", "-A", "--sort-by=.lastTimestamp"]),
    ("agents.log", &["logs", "-n", NAMESPACE, "daemonset/atoll-agent", "--all-pods", "--tail=-1"]),
    ("controller.log", &["logs", "-n", NAMESPACE, "deployment/atoll-controller", "--tail=-1"]),
];

/// Writes it below `target/`, and says where.
pub(crate) fn keep(stage: &Stage) {
    match try_keep(stage) {
        Ok(folder) => stage.tell(&format!("logs are kept in {}", folder.display())),
        Err(error) => eprintln!("e2e: the logs of {} could not be kept: {error:#}", stage.name()),
    }
}

fn try_keep(stage: &Stage) -> Result<PathBuf> {
    let folder = in_tree("target/e2e-logs").join(stage.name());
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    for (file, question) in QUESTIONS {
        let answer = stage.kubectl.run(question).unwrap_or_else(|error| format!("{error:#}"));
        fs::write(folder.join(file), answer)?;
    }
    if let Some(logs) = stage.logs() {
        copy_files(&logs, &folder)?;
    }
    Ok(folder.canonicalize()?)
}

fn copy_files(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from).with_context(|| format!("no logs in {}", from.display()))? {
        let entry = entry?;
        fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}
