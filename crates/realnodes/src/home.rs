//! Where a cluster keeps everything: one folder, named by the cluster.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use atoll_types::Label;

use crate::fabric::Node;

const ROOT: &str = "/run/atoll/real";

/// The `realnodes` program, which is built beside every program that uses this crate: parts of a
/// cluster are processes of it.
pub(crate) fn helper_program() -> io::Result<PathBuf> {
    Ok(std::env::current_exe()?.with_file_name("realnodes"))
}

/// The folder of one cluster.
#[derive(Clone, Debug)]
pub(crate) struct Home {
    name: Label,
    folder: PathBuf,
}

impl Home {
    /// The folder of the cluster called `name`, whether it is there or not.
    pub(crate) fn of(name: &Label) -> Self {
        Home { name: name.clone(), folder: Path::new(ROOT).join(name.as_str()) }
    }

    /// Makes the folder; what a cluster of this name left is never taken over.
    pub(crate) fn create(&self) -> Result<()> {
        fs::create_dir_all(ROOT).with_context(|| format!("cannot make {ROOT}"))?;
        fs::create_dir(&self.folder).map_err(|error| self.explain(&error))?;
        fs::set_permissions(&self.folder, Permissions::from_mode(0o700))?;
        for part in [self.certificates(), self.logs(), self.namespaces(), self.disks()] {
            fs::create_dir(&part).with_context(|| format!("cannot make {}", part.display()))?;
        }
        Ok(())
    }

    fn explain(&self, error: &io::Error) -> anyhow::Error {
        match error.kind() {
            io::ErrorKind::AlreadyExists => anyhow::anyhow!(
                "a cluster {0} is up already, or was left by a crash: \
                 take it down first with `realnodes down --name {0}`",
                self.name
            ),
            _ => anyhow::anyhow!("cannot make {}: {error}", self.folder.display()),
        }
    }

    pub(crate) fn name(&self) -> &Label {
        &self.name
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn exists(&self) -> bool {
        self.folder.exists()
    }

    /// The kubeconfig of an administrator, for this machine.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }

    pub(crate) fn certificates(&self) -> PathBuf {
        self.folder.join("certificates")
    }

    pub(crate) fn logs(&self) -> PathBuf {
        self.folder.join("logs")
    }

    /// The log of `program`, to be written on at its end.
    pub(crate) fn open_log(&self, program: &str) -> Result<File> {
        let path = self.log(program);
        let opened = OpenOptions::new().create(true).append(true).open(&path);
        opened.with_context(|| format!("cannot write {}", path.display()))
    }

    pub(crate) fn log(&self, program: &str) -> PathBuf {
        self.logs().join(format!("{program}.log"))
    }

    pub(crate) fn namespaces(&self) -> PathBuf {
        self.folder.join("namespaces")
    }

    pub(crate) fn namespace(&self, place: &str) -> PathBuf {
        self.namespaces().join(place)
    }

    /// A file system in memory, where every node has its disk.
    pub(crate) fn disks(&self) -> PathBuf {
        self.folder.join("disks")
    }

    /// A node's disk: it outlives a crash of the node, as a real one does.
    pub(crate) fn disk(&self, node: Node) -> PathBuf {
        self.disks().join(node.to_string())
    }

    /// What etcd keeps.
    pub(crate) fn store(&self) -> PathBuf {
        self.folder.join("etcd")
    }

    /// What it kept when it was saved.
    pub(crate) fn saved_store(&self) -> PathBuf {
        self.folder.join("etcd-saved")
    }

    /// The folder of Kubernetes programs, a link.
    pub(crate) fn binaries(&self) -> PathBuf {
        self.folder.join("kubernetes")
    }

    /// The list of the control groups that were made.
    pub(crate) fn cgroups(&self) -> PathBuf {
        self.folder.join("cgroups")
    }

    /// The nodes, from their disks.
    pub(crate) fn nodes(&self) -> Vec<Node> {
        let entries = fs::read_dir(self.disks()).into_iter().flatten().flatten();
        let mut nodes: Vec<Node> =
            entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        nodes.sort();
        nodes
    }
}
