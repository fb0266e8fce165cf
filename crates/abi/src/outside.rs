//! Keys and values of the maps by which packets leave for the outside.

use bytemuck::{Pod, Zeroable};

use crate::{Address, ServiceKey};

/// The kind of an entry among the connections that leads what comes from outside to a pod.
pub const KIND_OUTSIDE: u8 = 3;

/// The same of what comes from this very node to the lower of both ends, and to the higher.
pub const KINDS_LOOP: [u8; 2] = [4, 5];

/// The flag of a connection with one end in no network.
pub const CONNECTION_OUTSIDE: u8 = 64;

/// Key of the map `egresses`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Pod, Zeroable)]
pub struct EgressKey {
    /// The network.
    pub network: u32,
}

/// Value of the map `egresses`: what the pods of a network leave by.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct Egress {
    /// What the outside sees of IPv4, or [`Address::NONE`]: nothing leaves.
    pub ipv4: Address,
    /// The same of IPv6.
    pub ipv6: Address,
    /// The first of the ports that are this network's alone.
    pub first_port: u16,
    /// How many they are.
    pub ports: u16,
    /// The place of the network in the map `networks`, where `for_all`.
    pub table: u16,
    /// One where pods of other nodes leave by it, too.
    pub for_all: u8,
    /// Zero.
    pub reserved: u8,
}

/// Key of the map `egress_nodes`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Pod, Zeroable)]
pub struct EgressNodeKey {
    /// The network.
    pub network: u32,
    /// One for IPv6, zero for IPv4.
    pub ipv6: u32,
}

/// Value of the map `egress_nodes`: another node that the pods of a network leave by.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct EgressNode {
    /// Its underlay address.
    pub node: Address,
}

/// What is compared of a key of the longest-prefix map `outside_closed`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Pod, Zeroable)]
pub struct ClosedKey {
    /// The network whose pods it is closed to, in network byte order, or
    /// [`NO_NETWORK`](crate::NO_NETWORK): all.
    pub network: [u8; 4],
    /// The first address of the range.
    pub address: Address,
}

/// Value of the map `outside_closed`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct Closed {
    /// The number of a [`DropReason`](crate::DropReason).
    pub reason: u32,
}

/// Key of the map `node_ports`: an address and port of this node that leads to a service.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Pod, Zeroable)]
pub struct NodePortKey {
    /// The address.
    pub address: Address,
    /// The port, in network byte order.
    pub port: [u8; 2],
    /// The number of the protocol.
    pub protocol: u8,
    /// Zero.
    pub reserved: u8,
}

/// Value of the map `node_ports`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct NodePort {
    /// The network of the service, which is there at the unspecified address.
    pub network: u32,
}

/// Key of the map `held_addresses`: an address of the outside that this node answers for.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Pod, Zeroable)]
pub struct HeldKey {
    /// The address.
    pub address: Address,
}

/// Value of the map `held_addresses`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct Held {
    /// The network that the address is for.
    pub network: u32,
}

/// What is compared of a key of the longest-prefix map `service_sources`: clients that are let in.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Pod, Zeroable)]
pub struct SourceKey {
    /// The service.
    pub service: ServiceKey,
    /// The first address of the clients' range.
    pub client: Address,
}

/// Value of the map `service_sources`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct Source {
    /// Zero.
    pub reserved: u32,
}

/// Key of the map `entrances`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Pod, Zeroable)]
pub struct EntranceKey {
    /// A network with services that the outside reaches.
    pub network: u32,
}

/// Value of the map `entrances`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct Entrance {
    /// The place of the network in the map `networks`.
    pub table: u32,
}

/// Key of the map `openings`: a port that its owner opened to the pods of a network, at an address that
/// is closed otherwise. Of a node's address at which node ports are reached: the address alone.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Pod, Zeroable)]
pub struct OpeningKey {
    /// The network, or [`NO_NETWORK`](crate::NO_NETWORK).
    pub network: u32,
    /// The address; the unspecified one for a port of every node.
    pub address: Address,
    /// The port, in network byte order.
    pub port: [u8; 2],
    /// The number of the protocol.
    pub protocol: u8,
    /// Zero.
    pub reserved: u8,
}

/// Value of the map `openings`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct Opening {
    /// One where this node answers for the address.
    pub is_here: u32,
}

/// What is compared of a key of the longest-prefix map `infra_ranges`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Pod, Zeroable)]
pub struct InfraKey {
    /// The first address of the range.
    pub address: Address,
}

/// Value of the map `infra_ranges`: nodes, or pods of no tenant.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct Infra {
    /// [`INFRA_NOWHERE`], [`INFRA_HERE`] or [`INFRA_THERE`].
    pub place: u16,
    /// One of a node, zero of its pods.
    pub is_node: u16,
}

/// Whoever is there is closed to all.
pub const INFRA_NOWHERE: u16 = 0;
/// This node itself, or pods of it.
pub const INFRA_HERE: u16 = 1;
/// Other nodes, or pods of them.
pub const INFRA_THERE: u16 = 2;
