//! What the programs of plain pods, and of the node's own processes, remember of connections. Their
//! services have the forms of tenants' ([`crate::ServiceKey`] and what follows from it), in maps of
//! their own.

use bytemuck::{Pod, Zeroable};

use crate::Address;

/// The number that all services of plain pods have. No packet bears it, and no tenant's map.
pub const PLAIN_NETWORK: u32 = 1;

/// How many reasons the map `plain_drops` counts by; more than there are.
pub const PLAIN_DROP_REASONS: u32 = 128;

/// Key of the map `plain_ways`: a packet as it comes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Pod, Zeroable)]
pub struct PlainKey {
    /// Where it comes from.
    pub source: Address,
    /// Where it goes.
    pub destination: Address,
    /// The port that it comes from, in network byte order; of a part of a datagram, one half of its
    /// number.
    pub source_port: [u8; 2],
    /// The port that it goes to; of a part, the other half.
    pub destination_port: [u8; 2],
    /// The number of the protocol.
    pub protocol: u8,
    /// Whether a pod sends or receives it, and whether it is a part.
    pub kind: u8,
    /// Zero.
    pub reserved: [u8; 2],
}

/// Value of the map `plain_ways`: the ends with which the packet goes on.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct PlainWay {
    /// When a packet last went this way, in nanoseconds of the monotonic clock, to the second.
    pub seen: u64,
    /// Where it comes from.
    pub source: Address,
    /// Where it goes.
    pub destination: Address,
    /// The port that it comes from, in network byte order.
    pub source_port: [u8; 2],
    /// The port that it goes to.
    pub destination_port: [u8; 2],
    /// The place of the backend among those of its service.
    pub place: u16,
    /// Whether it goes straight, has ended, or leads a pod to itself.
    pub flags: u8,
    /// Zero.
    pub reserved: u8,
}

/// Key of the map `node_fronts`: a socket of the node, and one whom it speaks with.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Pod, Zeroable)]
pub struct NodeFrontKey {
    /// The kernel's number of the socket.
    pub socket: u64,
    /// The other one's address.
    pub address: Address,
    /// Its port, in network byte order.
    pub port: [u8; 2],
    /// Zero.
    pub reserved: [u8; 6],
}

/// Value of the map `node_fronts`: the service by which the socket speaks with the other one.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct NodeFront {
    /// Its address.
    pub address: Address,
    /// Its port, in network byte order.
    pub port: [u8; 2],
    /// Zero.
    pub reserved: [u8; 2],
}
