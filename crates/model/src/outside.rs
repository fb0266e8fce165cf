//! Addresses that the outside knows, and the node that answers for each.
//!
//! The rule: an address has one purpose and one node at a time. Who holds it was decided once and
//! written down; nothing here guesses.

use std::net::IpAddr;

use crate::compile::ServiceName;

/// A node by the name of its object.
pub type NodeName = String;

/// An address of the outside that a node of ours answers for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Held {
    /// The address.
    pub address: IpAddr,
    /// The one node that answers for it.
    pub node: NodeName,
    /// What it is there for.
    pub purpose: Purpose,
}

/// What an address of the outside is there for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    /// Pods of a network, known by its object name, speak to the outside from it.
    Egress {
        /// The network's object name.
        network: String,
    },
    /// The outside speaks to a service at it.
    LoadBalancer {
        /// The service.
        service: ServiceName,
    },
}
