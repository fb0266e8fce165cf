//! An address inside a network: the only key by which an endpoint is ever looked up.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::NetworkId;

/// An IP address together with the network it belongs to. Two tenants may both own `10.0.0.5`;
/// they never own the same `NetAddr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NetAddr {
    /// The network.
    pub network: NetworkId,
    /// The address inside it.
    pub ip: IpAddr,
}

impl NetAddr {
    /// The address `ip` of `network`.
    pub const fn new(network: NetworkId, ip: IpAddr) -> Self {
        NetAddr { network, ip }
    }
}

impl fmt::Display for NetAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.ip)
    }
}
