//! Leaving a node: everything that an agent ever put there goes, whatever version it was.
//!
//! The rule of this file: first the file that makes the runtime call us, last the lock that keeps
//! agents away; it goes on after a failure and reports all.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use atoll_datapath::Datapath;

use crate::alone::Alone;
use crate::{plain, plugin};

/// Which node, and how.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  atoll leave                take everything off this machine
  atoll leave --check        only tell what is left, and end with 1 if anything is

Pods that are still in a tenant's network lose it. `atoll uninstall` runs this on every node.")]
pub struct LeaveConfig {
    /// Where the node's own file system is, seen from here. Its network must be this one's.
    #[arg(long, value_name = "FOLDER", default_value = "/")]
    pub host: PathBuf,

    /// Remove nothing; tell what is left.
    #[arg(long)]
    pub check: bool,

    /// Wait for SIGTERM once nothing is left.
    #[arg(long, conflicts_with = "check")]
    pub stay: bool,
}

impl LeaveConfig {
    fn at(&self, path: &str) -> PathBuf {
        self.host.join(path)
    }

    fn bpf_root(&self) -> PathBuf {
        self.at("sys/fs/bpf/atoll")
    }

    fn state(&self) -> PathBuf {
        self.at("run/atoll/agent")
    }

    /// Addresses of plain pods.
    fn leases(&self) -> PathBuf {
        self.at(plain::LEASES.trim_start_matches('/'))
    }

    /// What the runtime has of us, the configuration first.
    fn plugin_files(&self) -> Vec<PathBuf> {
        let (programs, configurations) = (self.at("opt/cni/bin"), self.at("etc/cni/net.d"));
        plugin::files(&programs, &configurations)
    }

    /// Where callers asked.
    fn sockets(&self) -> [PathBuf; 2] {
        ["run/atoll/agent.sock", "run/atoll/agent.draft"].map(|path| self.at(path))
    }
}

/// Removes everything. Refused while an agent runs; repeatable.
pub async fn leave(config: &LeaveConfig) -> Result<()> {
    let alone = Alone::on(&config.state())?;
    let mut failures: Vec<String> = Vec::new();
    let mut attempt = |what: &Path, outcome: io::Result<()>| {
        let failure = outcome.err().filter(|error| error.kind() != io::ErrorKind::NotFound);
        failures.extend(failure.map(|error| format!("{}: {error}", what.display())));
    };
    for file in config.plugin_files().iter().chain(&config.sockets()) {
        attempt(file, fs::remove_file(file));
    }
    let unmade = Datapath::remove(&config.bpf_root()).await;
    for folder in [config.leases(), config.state()] {
        attempt(&folder, fs::remove_dir_all(&folder));
    }
    drop(alone);
    // Labs of this machine have their folders beside ours.
    let _ = fs::remove_dir(config.at("run/atoll"));
    failures.extend(unmade.err().map(|error| error.to_string()));
    if !failures.is_empty() {
        bail!("not all could be removed: {}", failures.join("; "));
    }
    Ok(())
}

/// What is left of any agent on the node, in words.
pub async fn left_on_node(config: &LeaveConfig) -> Result<Vec<String>> {
    let mut left = Datapath::traces(&config.bpf_root()).await?;
    let places = config
        .plugin_files()
        .into_iter()
        .chain(config.sockets())
        .chain([config.leases(), config.state()]);
    let there = places.filter(|path| fs::symlink_metadata(path).is_ok());
    left.extend(there.map(|path| path.display().to_string()));
    Ok(left)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PluginPlaces;

    /// A node's folders with everything that an agent leaves in files.
    fn node() -> (tempfile::TempDir, LeaveConfig) {
        let host = tempfile::tempdir().unwrap();
        for folder in ["opt/cni/bin", "etc/cni/net.d", "run/atoll/agent/pods", "run/atoll/plain"] {
            fs::create_dir_all(host.path().join(folder)).unwrap();
        }
        let places = PluginPlaces {
            cni_bin_dir: Some(host.path().join("opt/cni/bin")),
            cni_conf_dir: Some(host.path().join("etc/cni/net.d")),
            ..PluginPlaces::default()
        };
        let socket = Path::new("/run/atoll/agent.sock");
        places.install(Path::new("/proc/self/exe"), socket, None).unwrap();
        fs::write(host.path().join("run/atoll/agent.sock"), "").unwrap();
        fs::write(host.path().join("etc/cni/net.d/10-other.conflist"), "{}").unwrap();
        let config = LeaveConfig { host: host.path().to_owned(), check: false, stay: false };
        (host, config)
    }

    /// With a network of its own, as links of others are not for this test to remove.
    fn within_own_network<T: Send>(work: impl Future<Output = T> + Send) -> T {
        atoll_testkit::Namespace::new().run(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(work)
        })
    }

    #[test]
    fn what_an_agent_left_is_told_and_removed_and_what_is_others_stays() {
        let (host, config) = node();
        within_own_network(async {
            assert_eq!(left_on_node(&config).await.unwrap().len(), 5);
            leave(&config).await.unwrap();
            assert_eq!(left_on_node(&config).await.unwrap(), Vec::<String>::new());
            leave(&config).await.unwrap();
        });
        assert!(host.path().join("etc/cni/net.d/10-other.conflist").exists());
        assert!(!host.path().join("run/atoll").exists());
    }

    #[test]
    fn while_an_agent_runs_nothing_is_removed() {
        let (host, config) = node();
        let _agent = Alone::on(&host.path().join("run/atoll/agent")).unwrap();
        let refused = within_own_network(async { leave(&config).await.unwrap_err().to_string() });
        assert!(refused.starts_with("another agent of this node"), "{refused}");
        assert!(host.path().join("opt/cni/bin/atoll-cni").exists());
    }
}
