//! Bringing the CNI plugin to the node: the program first, and last the file that makes the
//! container runtime use it, so that a node is never Ready before its pods can be served.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use atoll_cni::door;
use atoll_types::Cidr;
use serde_json::{Map, Value, json};

use crate::plain::Plain;

/// A list of plugins, as a node's folder has it.
type Network = Map<String, Value>;

/// What the runtime calls the plugin.
const PROGRAM: &str = "atoll-cni";
/// What our network is called in it.
const NETWORK: &str = "atoll";
/// Early in the alphabet: a runtime takes the first file it finds.
const CONFIGURATION: &str = "05-atoll.conflist";

/// The newest version that all runtimes in use read.
const COMMON_VERSION: &str = "1.0.0";
/// The newest that the plugin speaks.
const NEWEST_VERSION: &str = "1.1.0";

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

    /// The network among those configurations that pods of no tenant are handed to; by default the
    /// first one there that is not ours.
    #[arg(long, value_name = "NAME", requires = "cni_conf_dir")]
    pub cni_delegate: Option<String>,

    /// The newest version of CNI that the container runtime may speak with the plugin: 1.0.0 by default. With
    /// 1.1.0, one that knows it asks whether the plugin can take pods, so that the node is not ready while its
    /// agent is away, and has it collect what pods left behind; an older one goes on as before.
    #[arg(long, value_name = "VERSION", value_parser = [COMMON_VERSION, NEWEST_VERSION])]
    #[arg(requires = "cni_conf_dir")]
    pub cni_version: Option<String>,

    /// The range that the podCIDRs of all nodes are parts of, one of each family. With it, pods of
    /// no tenant have a plain network of addresses from there, and no other network is needed; it
    /// takes the reference plugins ptp and host-local. Nodes must share a link.
    #[arg(long, value_name = "CIDRS", value_delimiter = ',', requires = "cni_conf_dir")]
    #[arg(conflicts_with = "cni_delegate")]
    pub plain_network: Vec<Cidr>,

    /// Whether the services of namespaces of no tenant are led for the pods of the plain network, the
    /// node's own processes and who comes to their node ports; say false where kube-proxy does that.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    pub plain_services: bool,
}

impl PluginPlaces {
    /// Puts `program` and the configuration that names `socket` in place. Repeatable.
    pub(crate) fn install(
        &self,
        program: &Path,
        socket: &Path,
        plain: Option<&Plain>,
    ) -> Result<()> {
        if let Some(folder) = &self.cni_bin_dir {
            put(&folder.join(PROGRAM), 0o755, |draft| {
                io::copy(&mut File::open(program)?, draft).map(drop)
            })?;
        }
        if let Some(folder) = &self.cni_conf_dir {
            let leads = plain.is_some() && self.plain_services;
            let mut list = configuration(socket, self.door(folder, plain)?.as_ref(), leads);
            if let Some(version) = &self.cni_version {
                list["cniVersions"] = json!([COMMON_VERSION, version]);
            }
            let text = format!("{list:#}\n");
            put(&folder.join(CONFIGURATION), 0o644, |draft| {
                io::Write::write_all(draft, text.as_bytes())
            })?;
        }
        Ok(())
    }
}

impl PluginPlaces {
    /// What stands behind the door for pods of no tenant, and the network it is.
    fn door(&self, folder: &Path, plain: Option<&Plain>) -> Result<Option<(Value, Network)>> {
        if let (Some(plain), Some(programs)) = (plain, &self.cni_bin_dir) {
            let network = plain.list(programs)?;
            return Ok(Some((network.clone().into(), network)));
        }
        let named = |network: Network| (network.get("name").cloned().unwrap_or_default(), network);
        Ok(self.delegate(folder)?.map(named))
    }

    /// The network that pods of no tenant are handed to.
    fn delegate(&self, folder: &Path) -> Result<Option<Network>> {
        let networks = door::networks(folder)
            .with_context(|| format!("cannot read the networks in {}", folder.display()))?;
        let is_wanted = |network: &Network| match &self.cni_delegate {
            Some(name) => network.get("name") == Some(&name.as_str().into()),
            None => network.get("name").is_some_and(|name| name != NETWORK),
        };
        let found = networks.into_iter().find(is_wanted);
        if let (None, Some(name)) = (&found, &self.cni_delegate) {
            anyhow::bail!("no network in {} is called {name:?}", folder.display());
        }
        Ok(found)
    }
}

/// Every file that [`PluginPlaces::install`] may have left, the configuration first.
pub(crate) fn files(programs: &Path, configurations: &Path) -> Vec<PathBuf> {
    let draft = format!(".{PROGRAM}.draft");
    vec![
        configurations.join(CONFIGURATION),
        configurations.join(&draft),
        programs.join(PROGRAM),
        programs.join(draft),
    ]
}

/// Our network. What the other one wants to be told must be told to us. Where the agent leads the services of
/// plain pods, it is told of their links.
fn configuration(socket: &Path, door: Option<&(Value, Network)>, leads: bool) -> Value {
    let mut plugin = json!({ "type": PROGRAM, "agentSocket": socket });
    if let Some((delegate, network)) = door {
        plugin["delegate"] = delegate.clone();
        plugin["capabilities"] = door::capabilities(network).into();
    }
    if leads {
        plugin["plainServices"] = true.into();
    }
    json!({ "cniVersion": COMMON_VERSION, "name": NETWORK, "plugins": [plugin] })
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
            self.install_for(None)
        }

        /// For a runtime that may speak this version.
        fn install_for(&self, version: Option<&str>) -> Result<()> {
            let places = PluginPlaces {
                cni_bin_dir: Some(self.path("bin")),
                cni_conf_dir: Some(self.path("conf")),
                cni_version: version.map(ToOwned::to_owned),
                ..PluginPlaces::default()
            };
            places.install(&self.path("program"), Path::new("/run/atoll/agent.sock"), None)
        }
    }

    #[test]
    fn the_plugin_can_be_run_and_its_configuration_names_the_agent() {
        let node = Node::new();
        node.install().unwrap();
        let plugin = node.path("bin/atoll-cni");
        assert_eq!(fs::metadata(plugin).unwrap().permissions().mode() & 0o777, 0o755);
        let text = fs::read_to_string(node.path("conf/05-atoll.conflist")).unwrap();
        let list: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(list["plugins"][0]["type"], "atoll-cni");
        assert_eq!(list["plugins"][0]["agentSocket"], "/run/atoll/agent.sock");
    }

    #[test]
    fn a_runtime_is_offered_the_newest_version_where_it_may_speak_it_and_every_one_reads_the_rest()
    {
        let node = Node::new();
        let versions = |version: Option<&str>| {
            node.install_for(version).unwrap();
            let text = fs::read_to_string(node.path("conf/05-atoll.conflist")).unwrap();
            let list: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(list["cniVersion"], "1.0.0", "what older runtimes go by");
            list["cniVersions"].clone()
        };
        assert_eq!(versions(None), Value::Null);
        assert_eq!(versions(Some("1.1.0")), json!(["1.0.0", "1.1.0"]));
    }

    #[test]
    fn pods_of_no_tenant_are_handed_to_the_network_that_was_there_before() {
        let node = Node::new();
        let configuration = || {
            node.install().unwrap();
            let text = fs::read_to_string(node.path("conf/05-atoll.conflist")).unwrap();
            serde_json::from_str::<Value>(&text).unwrap()["plugins"][0].clone()
        };
        assert_eq!(configuration().get("delegate"), None);
        let plugins = json!([{"type": "bridge"}, {"type": "portmap", "capabilities": {"portMappings": true}}]);
        let before = json!({ "name": "cbr0", "plugins": plugins });
        fs::write(node.path("conf/10-cbr0.conflist"), before.to_string()).unwrap();
        for _ in 0..2 {
            assert_eq!(configuration()["delegate"], "cbr0");
            assert_eq!(configuration()["capabilities"], json!({"portMappings": true}));
        }
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
        let nowhere = Path::new("/nowhere");
        PluginPlaces::default().install(nowhere, nowhere, None).unwrap();
    }
}
