//! Where a lab keeps everything it makes: one directory, with one name for each thing in it.
//!
//! The rule: nothing of a lab lives outside its home, so that taking the home away takes the lab
//! away, whatever state it was left in.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use atoll_types::Label;
use serde::{Deserialize, Serialize};

use crate::process::Process;

/// The directory that holds the homes of all labs.
pub(crate) const ROOT: &str = "/run/atoll/lab";

/// The home of one lab. Having one says nothing about whether it exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Home {
    name: Label,
    path: PathBuf,
}

/// What was decided when the lab was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Settings {
    /// How many nodes it has.
    pub(crate) nodes: u8,
    /// The port of the API on the host's loopback.
    pub(crate) port: u16,
}

/// What is found where a lab would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    /// Nothing.
    Absent,
    /// A home, but nobody who looks after it.
    Abandoned,
    /// A home with a living supervisor.
    Up,
}

impl Home {
    /// The home of the lab called `name`.
    pub(crate) fn of(name: &Label) -> Self {
        Home::below(Path::new(ROOT), name)
    }

    /// The same, below another root.
    pub(crate) fn below(root: &Path, name: &Label) -> Self {
        Home { name: name.clone(), path: root.join(name.as_str()) }
    }

    /// Makes the directories, refusing when the home exists already.
    pub(crate) fn create(&self) -> anyhow::Result<()> {
        let parent = self.path.parent().unwrap_or(Path::new("/"));
        private_directory().recursive(true).create(parent).with_context(|| cannot_make(parent))?;
        private_directory().create(&self.path).with_context(|| cannot_make(&self.path))?;
        for directory in [self.logs(), self.namespaces(), self.bpf(), self.plugins(), self.tls()] {
            private_directory().create(&directory).with_context(|| cannot_make(&directory))?;
        }
        Ok(())
    }

    /// Whether a lab is there, and whether anyone looks after it.
    pub(crate) fn presence(&self) -> Presence {
        match (self.path.exists(), Process::read(&self.supervisor_record())) {
            (false, _) => Presence::Absent,
            (true, Some(supervisor)) if supervisor.is_alive() => Presence::Up,
            (true, _) => Presence::Abandoned,
        }
    }

    /// Fails with a sentence for the user unless the lab is up.
    pub(crate) fn require_up(&self) -> anyhow::Result<()> {
        let name = &self.name;
        match self.presence() {
            Presence::Up => Ok(()),
            Presence::Absent => anyhow::bail!(
                "there is no lab {name}: start one with `atoll lab up{}`",
                self.name_option()
            ),
            Presence::Abandoned => Err(self.abandoned()),
        }
    }

    /// The sentence for half a lab left behind.
    pub(crate) fn abandoned(&self) -> anyhow::Error {
        anyhow::anyhow!(
            "half a lab {} is left from a crash: remove it with `atoll lab down{}` and start again",
            self.name,
            self.name_option()
        )
    }

    /// ` --name X` as a command needs it; empty for the default lab.
    pub(crate) fn name_option(&self) -> String {
        match self.name.as_str() {
            crate::args::DEFAULT_NAME => String::new(),
            name => format!(" --name {name}"),
        }
    }

    pub(crate) fn name(&self) -> &Label {
        &self.name
    }
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
    /// The directory of this lab and all others, which no pod may see.
    pub(crate) fn all_labs(&self) -> &Path {
        self.path.parent().unwrap_or(&self.path)
    }
    pub(crate) fn supervisor_record(&self) -> PathBuf {
        self.path.join("supervisor.json")
    }
    pub(crate) fn settings_file(&self) -> PathBuf {
        self.path.join("lab.json")
    }
    /// For people and for the supervisor: reaches the API over the host's loopback.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.path.join("kubeconfig")
    }
    /// For the agents: reaches the API over the fabric.
    pub(crate) fn node_kubeconfig(&self) -> PathBuf {
        self.path.join("node-kubeconfig")
    }
    pub(crate) fn store(&self) -> PathBuf {
        self.path.join("store.redb")
    }
    pub(crate) fn tls(&self) -> PathBuf {
        self.path.join("tls")
    }
    pub(crate) fn logs(&self) -> PathBuf {
        self.path.join("logs")
    }
    pub(crate) fn log(&self, of: &str) -> PathBuf {
        self.logs().join(format!("{of}.log"))
    }
    pub(crate) fn namespaces(&self) -> PathBuf {
        self.path.join("netns")
    }
    pub(crate) fn namespace(&self, of: &str) -> PathBuf {
        self.namespaces().join(of)
    }
    pub(crate) fn pod_namespace(&self, uid: &str) -> PathBuf {
        self.namespace(&format!("pod-{uid}"))
    }
    pub(crate) fn bpf(&self) -> PathBuf {
        self.path.join("bpf")
    }
    /// Where the CNI plugin is found by its name.
    pub(crate) fn plugins(&self) -> PathBuf {
        self.path.join("cni-bin")
    }
    pub(crate) fn nodes(&self) -> PathBuf {
        self.path.join("nodes")
    }

    /// The home of one of its nodes.
    pub(crate) fn node(&self, name: &str) -> NodeHome {
        NodeHome {
            name: name.to_owned(),
            path: self.nodes().join(name),
            namespace: self.namespace(name),
            bpf: self.bpf().join(name),
            agent_log: self.log(&format!("agent-{name}")),
        }
    }

    /// The nodes that have a home here, in order.
    pub(crate) fn node_names(&self) -> Vec<String> {
        let mut names = entries(&self.nodes());
        names.sort_by_key(|name| (name.len(), name.clone()));
        names
    }

    pub(crate) fn settings(&self) -> anyhow::Result<Settings> {
        read_json(&self.settings_file())
    }
}

/// The home of one node, and where the lab keeps what belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeHome {
    pub(crate) name: String,
    path: PathBuf,
    pub(crate) namespace: PathBuf,
    pub(crate) bpf: PathBuf,
    pub(crate) agent_log: PathBuf,
}

impl NodeHome {
    pub(crate) fn create(&self) -> anyhow::Result<()> {
        for directory in [self.pods(), self.agent_state()] {
            let made = private_directory().recursive(true).create(&directory);
            made.with_context(|| cannot_make(&directory))?;
        }
        Ok(())
    }
    pub(crate) fn agent_socket(&self) -> PathBuf {
        self.path.join("agent.sock")
    }
    pub(crate) fn agent_state(&self) -> PathBuf {
        self.path.join("agent")
    }
    pub(crate) fn agent_record(&self) -> PathBuf {
        self.path.join("agent.json")
    }
    pub(crate) fn pods(&self) -> PathBuf {
        self.path.join("pods")
    }
    pub(crate) fn pod(&self, uid: &str) -> PodHome {
        PodHome { path: self.pods().join(uid) }
    }
    pub(crate) fn pod_homes(&self) -> Vec<PodHome> {
        entries(&self.pods()).iter().map(|uid| self.pod(uid)).collect()
    }
}

/// The home of one pod on its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodHome {
    path: PathBuf,
}

/// What is written down about a pod, so that it is found without asking the API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PodRecord {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) node: String,
    /// Containers in the pod's order, init containers first.
    pub(crate) containers: Vec<String>,
    /// The one that commands mean when they name none.
    pub(crate) default_container: String,
}

impl PodHome {
    pub(crate) fn create(&self) -> io::Result<()> {
        private_directory().recursive(true).create(&self.path)
    }
    pub(crate) fn remove(&self) -> io::Result<()> {
        absent_is_fine(fs::remove_dir_all(&self.path))
    }
    pub(crate) fn record(&self) -> PathBuf {
        self.path.join("pod.json")
    }
    /// A file of the pod's own `/etc`.
    pub(crate) fn etc(&self, file: &str) -> PathBuf {
        self.path.join(file)
    }
    pub(crate) fn container(&self, name: &str) -> ContainerHome {
        ContainerHome { path: self.path.join("containers").join(name) }
    }
}

/// The home of one container of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ContainerHome {
    path: PathBuf,
}

impl ContainerHome {
    pub(crate) fn create(&self) -> io::Result<()> {
        private_directory().recursive(true).create(&self.path)
    }
    pub(crate) fn launch(&self) -> PathBuf {
        self.path.join("launch.json")
    }
    /// Who runs as the first process inside.
    pub(crate) fn init_record(&self) -> PathBuf {
        self.path.join("init.json")
    }
    pub(crate) fn exit_record(&self) -> PathBuf {
        self.path.join("exit.json")
    }
    pub(crate) fn log(&self, attempt: u32) -> PathBuf {
        self.path.join(format!("{attempt}.log"))
    }
    /// The log of the newest attempt, and how many came before it.
    pub(crate) fn newest_log(&self) -> Option<(PathBuf, u32)> {
        let attempts = entries(&self.path).into_iter();
        let newest = attempts.filter_map(|file| file.strip_suffix(".log")?.parse().ok()).max()?;
        Some((self.log(newest), newest))
    }
}

/// Writes `value` so that a reader sees either the old content or the whole new one.
pub(crate) fn write_json(path: &Path, value: &impl Serialize) -> io::Result<()> {
    let mut fresh = path.to_owned().into_os_string();
    fresh.push(".new");
    serde_json::to_writer_pretty(File::create(&fresh)?, value)?;
    fs::rename(&fresh, path)
}

pub(crate) fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> anyhow::Result<T> {
    let text = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("cannot understand {}", path.display()))
}

/// What is not there any more needs no removing.
pub(crate) fn absent_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn private_directory() -> DirBuilder {
    let mut builder = DirBuilder::new();
    builder.mode(0o700);
    builder
}

fn cannot_make(directory: &Path) -> String {
    format!("cannot make the directory {}", directory.display())
}

fn entries(directory: &Path) -> Vec<String> {
    let found = fs::read_dir(directory).into_iter().flatten().flatten();
    found.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn home_below(root: &Path) -> Home {
        Home::below(root, &"trial".parse().unwrap())
    }

    #[test]
    fn a_home_is_private_and_made_only_once() {
        let root = tempfile::tempdir().unwrap();
        let home = home_below(root.path());
        home.create().unwrap();
        assert_eq!(fs::metadata(home.path()).unwrap().permissions().mode() & 0o777, 0o700);
        assert!(home.create().is_err());
    }

    #[test]
    fn presence_follows_the_supervisor() {
        let root = tempfile::tempdir().unwrap();
        let home = home_below(root.path());
        assert_eq!(home.presence(), Presence::Absent);
        home.create().unwrap();
        assert_eq!(home.presence(), Presence::Abandoned);
        Process::current().unwrap().write(&home.supervisor_record()).unwrap();
        assert_eq!(home.presence(), Presence::Up);
    }

    #[test]
    fn what_is_missing_is_told_with_the_command_that_helps() {
        let root = tempfile::tempdir().unwrap();
        let home = home_below(root.path());
        let absent = home.require_up().unwrap_err().to_string();
        assert_eq!(absent, "there is no lab trial: start one with `atoll lab up --name trial`");
        home.create().unwrap();
        let abandoned = home.require_up().unwrap_err().to_string();
        assert!(abandoned.contains("`atoll lab down --name trial`"), "{abandoned}");
    }

    #[test]
    fn nodes_are_listed_by_their_number() {
        let root = tempfile::tempdir().unwrap();
        let home = home_below(root.path());
        home.create().unwrap();
        for name in ["node10", "node2", "node1"] {
            home.node(name).create().unwrap();
        }
        assert_eq!(home.node_names(), ["node1", "node2", "node10"]);
    }

    #[test]
    fn the_newest_log_is_that_of_the_last_attempt() {
        let root = tempfile::tempdir().unwrap();
        let container = PodHome { path: root.path().to_owned() }.container("web");
        container.create().unwrap();
        assert_eq!(container.newest_log(), None);
        for attempt in [0, 9, 10] {
            File::create(container.log(attempt)).unwrap();
        }
        assert_eq!(container.newest_log(), Some((container.log(10), 10)));
    }
}
