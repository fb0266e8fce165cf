//! The doors to the outside: which networks have one, and what lies behind none.

use std::fmt;

use atoll_types::{Cidr, NetworkId};
use serde::{Deserialize, Serialize};

/// How what the pods of a network send to nobody of their network leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Egress {
    /// By the node's uplink, with the node's own addresses.
    Node,
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
