//! The services of a node's networks: which address and port leads to whom.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::time::Duration;

use atoll_types::{Cidr, NetAddr, NetworkId, Protocol};
use serde::{Deserialize, Serialize};

/// A port of a service's address, for the clients of one side of a network. The same address in
/// another network is another service's, or nobody's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ServiceKey {
    /// The network whose pods serve.
    pub network: NetworkId,
    /// The service's address. A port of every node is at the unspecified one.
    pub ip: IpAddr,
    /// The protocol.
    pub protocol: Protocol,
    /// The port that clients name.
    pub port: NonZeroU16,
    /// Whose packets are led.
    #[serde(default)]
    pub side: Side,
}

/// The number of services of no tenant's namespace, in maps that hold nobody else's.
pub const PLAIN: NetworkId = NetworkId::MIN;

/// Whose packets a [`ServiceKey`] leads. A service may lead to pods of another network of its tenant;
/// then the client's node chooses a node, and that node who of its own pods takes the connection.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum Side {
    /// Those of pods of this node, to whoever is behind the service.
    #[default]
    Clients,
    /// Those that other nodes send here for pods of this node, which are in another network than the
    /// client.
    Backends,
    /// Those of whoever is in no network.
    Outside,
}

impl ServiceKey {
    /// Whether it is a port of every node.
    pub fn is_node_port(&self) -> bool {
        self.side == Side::Outside && self.ip.is_unspecified()
    }

    /// Whether it is at an address of the outside that one node answers for.
    pub fn is_balanced(&self) -> bool {
        self.side == Side::Outside && !self.ip.is_unspecified()
    }
}

/// Where a connection to a [`ServiceKey`] may go. Who is ready, near enough or all there is was
/// decided when the plan was made: all of these take new connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    /// Who takes connections. If nobody does, they are refused at once.
    pub backends: BTreeSet<Backend>,
    /// How long a client that comes back is led to the same backend, if it is at all.
    pub affinity: Option<Duration>,
    /// The clients that are let in at an address of the outside; whom none of these contains is
    /// not. Nobody else is asked where it comes from.
    #[serde(default)]
    pub sources: BTreeSet<Cidr>,
}

/// One that takes connections of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Backend {
    /// Its address, and the network that the address is in.
    pub addr: NetAddr,
    /// The port that it listens on.
    pub port: NonZeroU16,
}

impl fmt::Display for ServiceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ServiceKey { network, ip, protocol, port, side } = self;
        match ip {
            IpAddr::V4(ip) => write!(f, "{network}/{ip}:{port} {protocol}")?,
            IpAddr::V6(ip) => write!(f, "{network}/[{ip}]:{port} {protocol}")?,
        }
        match side {
            Side::Clients => Ok(()),
            Side::Backends => f.write_str(" from other networks"),
            Side::Outside => f.write_str(" from outside"),
        }
    }
}
