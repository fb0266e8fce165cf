//! What the agent can be told.

use std::net::IpAddr;
use std::path::PathBuf;

use crate::plugin::PluginPlaces;

/// Settings of the agent.
#[derive(Clone, Debug, clap::Args)]
pub struct AgentConfig {
    /// The name of this node's Node object.
    #[arg(long, env = "NODE_NAME")]
    pub node_name: String,

    /// The unix socket where the CNI plugin asks; only root may open it.
    #[arg(long, default_value = "/run/atoll/agent.sock")]
    pub socket: PathBuf,

    /// Where attachments are remembered across restarts of the agent. It should not outlive a
    /// reboot of the node.
    #[arg(long, default_value = "/run/atoll/agent")]
    pub state_dir: PathBuf,

    /// A folder on a BPF file system, where maps and links are kept across restarts.
    #[arg(long, default_value = "/sys/fs/bpf/atoll")]
    pub bpf_root: PathBuf,

    /// This node's address for tunnel packets, IPv4 or IPv6 as on every node; by default the Node
    /// object's first InternalIP.
    #[arg(long)]
    pub underlay: Option<IpAddr>,

    /// The UDP port for tunnel packets (VXLAN), the same on every node.
    #[arg(long, default_value_t = 4789)]
    pub tunnel_port: u16,

    /// Where to put the CNI plugin.
    #[command(flatten)]
    pub plugin: PluginPlaces,
}
