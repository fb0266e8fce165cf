//! Keys and values of the kernel's maps.

use atoll_types::NetAddr;
use bytemuck::{Pod, Zeroable};

use crate::{Address, DropReason};

/// The version of everything in this file. Pins live in a directory of this number; it grows with
/// every change that an older program could misread.
pub const LAYOUT_VERSION: u32 = 5;

/// How many source addresses one interface may have.
pub const MAX_SOURCES: usize = 8;

/// The kernel's room for an interface name, with the closing zero.
pub const INTERFACE_NAME_BYTES: usize = 16;

/// The number in a [`DropKey`] when a packet could not be put to any network.
pub const NO_NETWORK: u32 = 0;

/// How many interfaces one node may have.
pub const MAX_INTERFACES: u16 = 4096;

/// How many connections all networks of one node may have together.
pub const MAX_CONNECTIONS: u32 = 262_144;

/// Key of the map `interfaces`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Pod, Zeroable)]
pub struct InterfaceKey {
    /// The host side's index.
    pub ifindex: u32,
}

/// Value of the map `interfaces`: what frames from a pod are checked against. What every packet
/// needs comes first, in one line of the cache.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct Interface {
    /// When the interface was guarded first, as of an [`Endpoint`].
    pub since: u64,
    /// The network this interface is in.
    pub network: u32,
    /// The place of its counters in the map `traffic`.
    pub slot: u16,
    /// The place of its network in the map `networks`.
    pub table: u16,
    /// The only source MAC let through.
    pub mac: [u8; 6],
    /// How many of `sources` are used.
    pub source_count: u8,
    /// One if any of `sources` is IPv6, else zero.
    pub serves_ipv6: u8,
    /// The host side's name, by which remains are found when the link is gone.
    pub name: [u8; INTERFACE_NAME_BYTES],
    /// The only source addresses let through.
    pub sources: [Address; MAX_SOURCES],
}

/// Value of the map `near_interfaces`, at the index of an interface modulo [`MAX_INTERFACES`]: the
/// interface that has the place, if its index is the one that is looked for.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct NearInterface {
    /// The host side's index; zero where nobody has the place.
    pub ifindex: u32,
    /// Zero.
    pub reserved: u32,
    /// The same as in the map `interfaces`.
    pub interface: Interface,
}

/// Key of the map `endpoints`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Pod, Zeroable)]
pub struct EndpointKey {
    /// The network.
    pub network: u32,
    /// The address inside it.
    pub address: Address,
}

impl From<NetAddr> for EndpointKey {
    fn from(addr: NetAddr) -> Self {
        EndpointKey { network: addr.network.get(), address: addr.ip.into() }
    }
}

/// Value of the map `endpoints`: where packets go. Exactly one of `ifindex` and `node` is used.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct Endpoint {
    /// When it came to this place, in nanoseconds of the monotonic clock. A connection that is
    /// older belongs to somebody who had the address before.
    pub since: u64,
    /// The host side of the pod's interface on this node, or zero.
    pub ifindex: u32,
    /// The underlay address of the node that has the pod, or [`Address::NONE`].
    pub node: Address,
    /// The pod's MAC, put into the frame on delivery.
    pub mac: [u8; 6],
    /// Of an endpoint of this node: as of its interface.
    pub slot: u16,
    /// Likewise.
    pub table: u16,
    /// Zero.
    pub reserved: [u8; 2],
}

/// Value of the map `networks`, at the place of a network that has a pod on this node.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Network {
    /// Of everything that decisions about connections hang on. A connection that was decided at
    /// another one is decided anew with its next packet. Zero where the place was never used.
    pub generation: u32,
    /// The network, or [`NO_NETWORK`].
    pub network: u32,
    /// How many connections it may have on this node.
    pub share: u32,
    /// What the networks of its tenant on this node have in common, and no others; zero where that is
    /// not known. It is for the agent, and for one that comes after it: the programs do not ask.
    pub tenant: u32,
}

/// Key of the map `peers`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Pod, Zeroable)]
pub struct PeerKey {
    /// The underlay address of another node.
    pub address: Address,
}

/// Value of the map `peers`. Being in the map is what counts.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct Peer {
    /// Zero.
    pub reserved: u32,
}

/// Key of the map `doors`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Pod, Zeroable)]
pub struct DoorKey {
    /// The network.
    pub network: u32,
}

/// Value of the map `doors`: where the pods of a network find the agent of their node, by
/// [`Door`](crate::Door). An unused one is [`Address::NONE`].
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct Doors {
    /// The doors for IPv4.
    pub ipv4: [Address; 2],
    /// The doors for IPv6.
    pub ipv6: [Address; 2],
}

/// Key of the map `service_doors`: a service of the cluster's own, as the pods of a network see it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Pod, Zeroable)]
pub struct ServiceDoorKey {
    /// The network.
    pub network: u32,
    /// The service's address.
    pub address: Address,
    /// Its port, in network byte order.
    pub port: [u8; 2],
    /// One where the port is of UDP, zero where it is of TCP.
    pub datagrams: u8,
    /// Zero.
    pub reserved: u8,
}

/// Value of the map `service_doors`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct ServiceDoor {
    /// The agent's port, in network byte order.
    pub listener: [u8; 2],
    /// Zero.
    pub reserved: [u8; 2],
}

/// Key of the map `service_fronts`: `service_doors` the other way round.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Pod, Zeroable)]
pub struct ServiceFrontKey {
    /// The network.
    pub network: u32,
    /// The agent's port, in network byte order.
    pub listener: [u8; 2],
    /// Zero.
    pub reserved: [u8; 2],
}

/// Value of the map `service_fronts`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct ServiceFront {
    /// The service's address.
    pub address: Address,
    /// Its port, in network byte order.
    pub port: [u8; 2],
    /// One where the port is of UDP, zero where it is of TCP.
    pub datagrams: u8,
    /// Zero.
    pub reserved: u8,
}

/// Key of the per-CPU map `drops`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Pod, Zeroable)]
pub struct DropKey {
    /// The network, or [`NO_NETWORK`].
    pub network: u32,
    /// The number of a [`DropReason`].
    pub reason: u32,
}

impl DropKey {
    /// The counter of drops for `reason` that belong to no network.
    pub fn of_no_network(reason: DropReason) -> Self {
        DropKey { network: NO_NETWORK, reason: reason.number() }
    }
}

/// Value of the per-CPU map `drops`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct DropCounter {
    /// Packets; a batch that the kernel has not yet cut into packets counts as one.
    pub packets: u64,
    /// Bytes from the Ethernet header on.
    pub bytes: u64,
}
