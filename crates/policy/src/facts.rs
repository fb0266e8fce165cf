//! What policy has to know of the world: namespaces, pods with their interfaces, nodes.
//!
//! The rule kept here: a fact belongs to one tenant, and an address to one network.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use atoll_types::{Label, NetAddr, NetworkId};

/// Labels of an object, as Kubernetes has them.
pub type Labels = BTreeMap<String, String>;

/// A protocol as policies know them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// TCP, number 6.
    Tcp,
    /// UDP, number 17.
    Udp,
    /// SCTP, number 132.
    Sctp,
    /// All that has no ports, such as ICMP. Only rules that name no port match it.
    Other,
}

impl Protocol {
    /// Every protocol, in the order in which tables are printed.
    pub const ALL: [Protocol; 4] = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp, Protocol::Other];

    /// The three that have ports.
    pub const WITH_PORTS: [Protocol; 3] = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp];

    /// The protocol that an API object calls `name`.
    pub fn named(name: &str) -> Option<Protocol> {
        Protocol::WITH_PORTS.into_iter().find(|protocol| protocol.name() == name)
    }

    /// What API objects call it.
    pub const fn name(self) -> &'static str {
        match self {
            Protocol::Tcp => "TCP",
            Protocol::Udp => "UDP",
            Protocol::Sctp => "SCTP",
            Protocol::Other => "other",
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A port of a container that has a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamedPort {
    /// The name that policies use.
    pub name: String,
    /// The protocol it is served by.
    pub protocol: Protocol,
    /// Its number in this pod.
    pub port: u16,
}

/// An interface of a pod: the network it is in, and its addresses there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The network's name inside the tenant; policies are aimed by it.
    pub network: Label,
    /// The network's number.
    pub id: NetworkId,
    /// The interface's addresses.
    pub ips: BTreeSet<IpAddr>,
}

impl Interface {
    /// The interface's addresses in their network.
    pub fn addresses(&self) -> impl Iterator<Item = NetAddr> + '_ {
        self.ips.iter().map(|ip| NetAddr::new(self.id, *ip))
    }
}

/// What policy knows of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    /// The pod's labels.
    pub labels: Labels,
    /// Its containers' ports that have names.
    pub ports: BTreeSet<NamedPort>,
    /// Its interfaces. Those of a pod on the host's network are the node's, and not listed.
    pub interfaces: Vec<Interface>,
    /// The node it runs on, once it is bound.
    pub node: Option<String>,
    /// Whether it uses the network of its node. No selector finds such a pod.
    pub host_network: bool,
}

/// What policy knows of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// The node's labels.
    pub labels: Labels,
    /// Its addresses, from its status.
    pub ips: BTreeSet<IpAddr>,
}
