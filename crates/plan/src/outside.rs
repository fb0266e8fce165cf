//! The doors to the outside: which networks have one, and what lies behind none.

use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroU16;

use atoll_types::{Cidr, NetworkId, Protocol};
use serde::{Deserialize, Serialize};

/// How what the pods of a network send to nobody of their network leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Egress {
    /// By the node's uplink, with the node's own addresses.
    Node,
    /// With addresses that are the network's alone, each by the node that answers for it.
    Addresses(Exits),
}

/// Where what the pods of a network send leaves with an address of the network; nothing of a family
/// that has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exits {
    /// For IPv4.
    pub v4: Option<Exit>,
    /// For IPv6.
    pub v6: Option<Exit>,
}

impl Exits {
    /// Whether any is on this node.
    pub fn is_here(&self) -> bool {
        [self.v4, self.v6].iter().any(|exit| matches!(exit, Some(Exit::Here(_))))
    }
}

/// Where packets leave with an address of their network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exit {
    /// Here, with this address, also those that come from pods of other nodes.
    Here(IpAddr),
    /// By the node with this underlay address.
    There(IpAddr),
}

/// Addresses for which nothing leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Closed {
    /// The network whose pods it is closed to, since it is their own; none: to all.
    pub to: Option<NetworkId>,
    /// The addresses.
    pub range: Cidr,
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to {
            Some(network) => write!(f, "{} to network {network}", self.range),
            None => write!(f, "{}", self.range),
        }
    }
}

/// What is closed outside, and yet reached by some.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Opening {
    /// A port that its owner opened to the pods of a network.
    Port {
        /// The network.
        to: NetworkId,
        /// The address; the unspecified one for a port of every node.
        address: IpAddr,
        /// The protocol.
        protocol: Protocol,
        /// The number.
        port: NonZeroU16,
    },
    /// An address of a node, at which such ports of every node are reached.
    Node(IpAddr),
}

impl fmt::Display for Opening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Opening::Port { to, address, protocol, port } => {
                write!(f, "{protocol} port {port} of {address} to network {to}")
            }
            Opening::Node(ip) => write!(f, "node ports at {ip}"),
        }
    }
}

/// Where a range of infra is: of nodes, or of their pods that are of no tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Infra {
    /// Closed to all, whoever is there.
    Nowhere,
    /// This node itself.
    ThisNode,
    /// Pods of this node.
    PodsHere,
    /// Another node.
    OtherNode,
    /// Pods of another node.
    PodsThere,
}
