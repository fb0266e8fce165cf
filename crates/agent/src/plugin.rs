//! Bringing the CNI plugin to the node: the program first, and last the file that makes the
//! container runtime use it, so that a node is never Ready before its pods can be served.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::json;

/// What the runtime calls the plugin.
const PROGRAM: &str = "atoll-cni";
/// Early in the alphabet: a runtime takes the first file it finds.
const CONFIGURATION: &str = "05-atoll.conflist";

/// Where the plugin goes; nowhere by default.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct PluginPlaces {
    /// The folder where the container runtime looks for plugins, such as /opt/cni/bin. This very
    /// program is put there as `atoll-cni`.
    #[arg(long, value_name = "FOLDER", requires = "cni_conf_dir")]
    pub cni_bin_dir: Option<PathBuf>,

    /// The folder where the container runtime looks for configurations, such as /etc/cni/net.d.
    #[arg(long, value_name = "FOLDER", requires = "cni_bin_dir")]
    pub cni_conf_dir: Option<PathBuf>,
}

impl PluginPlaces {
    /// Puts `program` and the configuration that names `socket` in place. Repeatable.
    pub(crate) fn install(&self, program: &Path, socket: &Path) -> Result<()> {
        if let Some(folder) = &self.cni_bin_dir {
            put(&folder.join(PROGRAM), 0o755, |draft| {
                io::copy(&mut File::open(program)?, draft).map(drop)
            })?;
        }
        if let Some(folder) = &self.cni_conf_dir {
            let text = configuration(socket);
            put(&folder.join(CONFIGURATION), 0o644, |draft| {
                io::Write::write_all(draft, text.as_bytes())
            })?;
        }
        Ok(())
    }
}

/// The newest version that the runtimes in use read.
fn configuration(socket: &Path) -> String {
    let plugin = json!({ "type": PROGRAM, "agentSocket": socket });
    let list = json!({ "cniVersion": "1.0.0", "name": "atoll", "plugins": [plugin] });
    format!("{list:#}\n")
}

/// A file appears whole or not at all, also in the place of one that is being run.
fn put(path: &Path, mode: u32, write: impl FnOnce(&mut File) -> io::Result<()>) -> Result<()> {
    let draft = path.with_file_name(format!(".{PROGRAM}.draft"));
    let put = || {
        let mut file = File::create(&draft)?;
        write(&mut file)?;
        fs::set_permissions(&draft, Permissions::from_mode(mode))?;
        fs::rename(&draft, path)
    };
    put().with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A node's two folders.
    struct Node(tempfile::TempDir);

    impl Node {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            for name in ["bin", "conf"] {
                fs::create_dir(folder.path().join(name)).unwrap();
            }
            fs::write(folder.path().join("program"), "first").unwrap();
            Node(folder)
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn install(&self) -> Result<()> {
            let places = PluginPlaces {
                cni_bin_dir: Some(self.path("bin")),
                cni_conf_dir: Some(self.path("conf")),
            };
            places.install(&self.path("program"), Path::new("/run/atoll/agent.sock"))
        }
    }

    #[test]
    fn the_plugin_can_be_run_and_its_configuration_names_the_agent() {
        let node = Node::new();
        node.install().unwrap();
        let plugin = node.path("bin/atoll-cni");
        assert_eq!(fs::metadata(plugin).unwrap().permissions().mode() & 0o777, 0o755);
        let text = fs::read_to_string(node.path("conf/05-atoll.conflist")).unwrap();
        let list: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(list["plugins"][0]["type"], "atoll-cni");
        assert_eq!(list["plugins"][0]["agentSocket"], "/run/atoll/agent.sock");
    }

    #[test]
    fn a_newer_program_takes_the_older_ones_place_and_no_draft_stays() {
        let node = Node::new();
        node.install().unwrap();
        fs::write(node.path("program"), "second").unwrap();
        node.install().unwrap();
        assert_eq!(fs::read_to_string(node.path("bin/atoll-cni")).unwrap(), "second");
        for folder in ["bin", "conf"] {
            assert_eq!(fs::read_dir(node.path(folder)).unwrap().count(), 1);
        }
    }

    #[test]
    fn without_the_program_there_is_no_configuration() {
        let node = Node::new();
        fs::remove_dir(node.path("bin")).unwrap();
        let said = node.install().unwrap_err().to_string();
        assert!(said.ends_with("bin/atoll-cni"), "{said}");
        assert_eq!(fs::read_dir(node.path("conf")).unwrap().count(), 0);
    }

    #[test]
    fn nowhere_is_the_default() {
        PluginPlaces::default().install(Path::new("/nowhere"), Path::new("/nowhere")).unwrap();
    }
}
