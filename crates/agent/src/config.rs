//! What the agent can be told.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use atoll_types::Cidr;
use atoll_zones::DomainName;

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

    /// An address where Prometheus reads what was counted on this node; nowhere by default.
    #[arg(long)]
    pub metrics_address: Option<SocketAddr>,

    /// A range that no pod reaches outside, beside nodes and what is the cluster's own; with a comma
    /// between, several. The cluster's range of services belongs here.
    #[arg(long, value_delimiter = ',')]
    pub egress_deny: Vec<Cidr>,

    /// Where to put the CNI plugin.
    #[command(flatten)]
    pub plugin: PluginPlaces,

    /// The names that pods ask for.
    #[command(flatten)]
    pub names: NamesConfig,
}

/// Settings of the resolver that answers the pods of this node.
#[derive(Clone, Debug, clap::Args)]
pub struct NamesConfig {
    /// The resolver's address in the pods' resolv.conf, as kubelet's clusterDNS has it; with a
    /// comma between, one of each family. Without it, the agent answers no names.
    #[arg(long, value_delimiter = ',')]
    pub cluster_dns: Vec<IpAddr>,

    /// The zone of services and pods, as kubelet's clusterDomain has it.
    #[arg(long, default_value = "cluster.local", value_parser = DomainName::parse)]
    pub cluster_domain: DomainName,

    /// A server that is asked for names outside of the cluster: an address, with or without a
    /// port. Without it, such questions are refused.
    #[arg(long, value_delimiter = ',', value_parser = upstream)]
    pub dns_upstream: Vec<SocketAddr>,
}

/// An address of a DNS server, at port 53 where none is given.
fn upstream(text: &str) -> Result<SocketAddr, String> {
    let without_port = text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, 53));
    let read = without_port.or_else(|_| text.parse());
    read.map_err(|_| format!("{text:?} is no address; give one like 192.0.2.53 or 192.0.2.53:5353"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upstream_is_an_address_with_or_without_a_port() {
        let read = |text| upstream(text).map(|address| address.to_string());
        assert_eq!(read("192.0.2.53").unwrap(), "192.0.2.53:53");
        assert_eq!(read("192.0.2.53:5353").unwrap(), "192.0.2.53:5353");
        assert_eq!(read("2001:db8::53").unwrap(), "[2001:db8::53]:53");
        assert!(read("resolver").unwrap_err().contains("\"resolver\" is no address"));
    }
}
