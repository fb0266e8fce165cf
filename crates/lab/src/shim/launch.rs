//! Everything a container needs to start, and how it ended: what is handed over in files between
//! the kubelet and the shim.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// One start of one container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Launch {
    /// The pod's network namespace.
    pub(crate) namespace: PathBuf,
    pub(crate) hostname: String,
    /// The command and its arguments; never empty.
    pub(crate) command: Vec<String>,
    /// The whole environment: nothing is inherited.
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) working_directory: PathBuf,
    /// Files that the container sees in place of the machine's own.
    pub(crate) files: Vec<Overlay>,
    /// A directory that the container must not see.
    pub(crate) hidden: PathBuf,
    pub(crate) log: PathBuf,
    pub(crate) init_record: PathBuf,
    pub(crate) exit_record: PathBuf,
}

/// One file put in place of another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Overlay {
    pub(crate) source: PathBuf,
    pub(crate) target: PathBuf,
}

/// How a container ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Exit {
    pub(crate) code: i32,
    /// Why the command could not even start.
    pub(crate) start_error: Option<String>,
}
