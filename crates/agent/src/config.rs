//! What the agent can be told.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use atoll_dns::{Limits, Rate};
use atoll_types::{Cidr, InfraMode};
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
    #[arg(long, default_value_t = 4789, value_parser = clap::value_parser!(u16).range(1..))]
    pub tunnel_port: u16,

    /// An address where Prometheus reads what was counted on this node; nowhere by default.
    #[arg(long)]
    pub metrics_address: Option<SocketAddr>,

    /// A range that no pod reaches outside, beside nodes and what is the cluster's own; with a comma
    /// between, several. The cluster's range of services belongs here.
    #[arg(long, value_delimiter = ',')]
    pub egress_deny: Vec<Cidr>,

    /// Whether pods of tenants reach the nodes and the pods of no tenant.
    #[arg(long, value_name = "isolated|compatible", default_value_t = InfraMode::Isolated)]
    pub infra_mode: InfraMode,

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

    /// What one pod and one tenant may take of the resolver.
    #[command(flatten)]
    pub limits: NamesLimits,
}

/// What one pod and one tenant may take of the resolver of this node. What is more is not answered
/// (SERVFAIL where it would wait for an upstream), and counted in atoll_dns_refusals_total.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::Args)]
pub struct NamesLimits {
    /// Questions of one pod in a second; as many at once after a pause.
    #[arg(long, value_name = "NUMBER", value_parser = rate)]
    #[arg(default_value_t = NamesLimits::default().dns_pod_queries)]
    pub dns_pod_queries: u32,

    /// Questions of all pods of one tenant on this node in a second.
    #[arg(long, value_name = "NUMBER", value_parser = rate)]
    #[arg(default_value_t = NamesLimits::default().dns_tenant_queries)]
    pub dns_tenant_queries: u32,

    /// Questions of one pod that wait for an upstream at one moment.
    #[arg(long, value_name = "NUMBER", value_parser = rate)]
    #[arg(default_value_t = NamesLimits::default().dns_pod_forwards)]
    pub dns_pod_forwards: u32,

    /// Questions of all pods of one tenant on this node that wait for an upstream at one moment.
    #[arg(long, value_name = "NUMBER", value_parser = rate)]
    #[arg(default_value_t = NamesLimits::default().dns_tenant_forwards)]
    pub dns_tenant_forwards: u32,
}

impl Default for NamesLimits {
    fn default() -> Self {
        let usual = Limits::default();
        NamesLimits {
            dns_pod_queries: usual.pod.per_second,
            dns_tenant_queries: usual.tenant.per_second,
            dns_pod_forwards: usual.pod_forwards as u32,
            dns_tenant_forwards: usual.tenant_forwards as u32,
        }
    }
}

/// How many times what the resolver answers a pod comes as far as to the resolver: enough that it
/// counts what it refuses, and not so much that all pods of a node could keep it from reading.
const HEARD_OF_ANSWERED: u32 = 4;

impl NamesLimits {
    /// Questions of one interface in a second that the kernel lets through to the resolver.
    pub(crate) fn pod_questions_at_door(&self) -> u32 {
        self.dns_pod_queries.saturating_mul(HEARD_OF_ANSWERED)
    }
}

impl From<NamesLimits> for Limits {
    fn from(given: NamesLimits) -> Limits {
        let rate = |per_second| Rate { per_second, burst: per_second };
        Limits {
            pod: rate(given.dns_pod_queries),
            tenant: rate(given.dns_tenant_queries),
            pod_forwards: given.dns_pod_forwards as usize,
            tenant_forwards: given.dns_tenant_forwards as usize,
            ..Limits::default()
        }
    }
}

/// The most that can be asked for: a nanosecond for each.
const MOST: u32 = 1_000_000_000;

/// A limit that lets somebody through.
fn rate(text: &str) -> Result<u32, String> {
    let read = text.parse().ok().filter(|number| (1..=MOST).contains(number));
    read.ok_or_else(|| format!("{text:?} is no limit; give a number from 1 to {MOST}"))
}

/// An address of a DNS server, at port 53 where none is given.
fn upstream(text: &str) -> Result<SocketAddr, String> {
    let without_port = text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, 53));
    let read = without_port.or_else(|_| text.parse());
    read.map_err(|_| format!("{text:?} is no address; give one like 192.0.2.53 or 192.0.2.53:5353"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Alone {
        #[command(flatten)]
        limits: NamesLimits,
    }

    #[test]
    fn what_comes_to_the_resolver_is_a_multiple_of_what_it_answers() {
        let at_door = |dns_pod_queries| {
            NamesLimits { dns_pod_queries, ..NamesLimits::default() }.pod_questions_at_door()
        };
        assert_eq!(NamesLimits::default().pod_questions_at_door(), 8_000);
        assert_eq!([at_door(1), at_door(MOST)], [4, 4_000_000_000]);
    }

    #[test]
    fn limits_are_what_the_agent_is_told_and_the_resolvers_own_where_it_is_not() {
        let read = |flags: &[&str]| {
            let limits = Alone::try_parse_from([&["agent"], flags].concat())?.limits;
            Ok::<_, clap::Error>(format!("{:?}", Limits::from(limits)))
        };
        assert_eq!(read(&[]).unwrap(), format!("{:?}", Limits::default()));
        let own = Limits {
            pod: Rate { per_second: 7, burst: 7 },
            tenant: Rate { per_second: 70, burst: 70 },
            pod_forwards: 3,
            tenant_forwards: 30,
            ..Limits::default()
        };
        let flags = ["--dns-pod-queries=7", "--dns-tenant-queries=70", "--dns-pod-forwards=3"];
        let flags = [&flags[..], &["--dns-tenant-forwards=30"]].concat();
        assert_eq!(read(&flags).unwrap(), format!("{own:?}"));
        for wrong in ["0", "-1", "many", "1000000001"] {
            let said = read(&[&format!("--dns-pod-queries={wrong}")]).unwrap_err().to_string();
            assert!(said.contains("--dns-pod-queries"), "{said}");
            assert!(said.contains("give a number from 1 to"), "{said}");
        }
    }

    #[test]
    fn an_upstream_is_an_address_with_or_without_a_port() {
        let read = |text| upstream(text).map(|address| address.to_string());
        assert_eq!(read("192.0.2.53").unwrap(), "192.0.2.53:53");
        assert_eq!(read("192.0.2.53:5353").unwrap(), "192.0.2.53:5353");
        assert_eq!(read("2001:db8::53").unwrap(), "[2001:db8::53]:53");
        assert!(read("resolver").unwrap_err().contains("\"resolver\" is no address"));
    }
}
