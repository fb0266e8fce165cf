//! Services as the kernel programs look them up: an address and port, a table of slots, and those
//! who stand behind it.

use bytemuck::{Pod, Zeroable};

use crate::Address;

/// How many slots one entry of the map `service_slots` holds.
pub const SLOTS_PER_PAGE: usize = 256;

/// How many backends one entry of the map `service_backends` holds.
pub const BACKENDS_PER_PAGE: usize = 16;

/// How many slots a backend has at least, so that one more or less makes little difference.
const SLOTS_EACH: usize = 16;

/// The most slots that a service ever has.
const MOST_SLOTS: usize = 1 << 16;

/// How many slots a service with so many backends has at least: a power of two that fills pages, or none.
pub fn slots_for(backends: usize) -> usize {
    match backends {
        0 => 0,
        some => (some * SLOTS_EACH).next_power_of_two().clamp(SLOTS_PER_PAGE, MOST_SLOTS),
    }
}

/// Key of the map `services`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Pod, Zeroable)]
pub struct ServiceKey {
    /// The network.
    pub network: u32,
    /// The service's address.
    pub address: Address,
    /// The port, in network byte order.
    pub port: [u8; 2],
    /// The number of the protocol.
    pub protocol: u8,
    /// [`SIDE_CLIENTS`], [`SIDE_BACKENDS`] or [`SIDE_OUTSIDE`].
    pub side: u8,
}

/// The side of a service that leads pods of this node to its backends.
pub const SIDE_CLIENTS: u8 = 0;

/// The side of a service that leads what other nodes send to pods of this node, which are in another
/// network than the client.
pub const SIDE_BACKENDS: u8 = 1;

/// The side of a service that leads whoever is in no network.
pub const SIDE_OUTSIDE: u8 = 2;

/// Value of the map `services`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct Service {
    /// Its number on this node, by which its pages are found.
    pub id: u32,
    /// How many slots it has, a power of two; zero where nobody takes its connections.
    pub slots: u32,
    /// For how many seconds a client that comes back is led to the same backend; zero: not at all.
    pub affinity: u32,
}

/// Key of the maps `service_slots` and `service_backends`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Pod, Zeroable)]
pub struct ServicePage {
    /// The number of the service.
    pub service: u32,
    /// The number of the page.
    pub page: u32,
}

/// Value of the map `service_slots`: the place of a backend for each slot.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct Slots {
    /// The places.
    pub backends: [u16; SLOTS_PER_PAGE],
}

/// Value of the map `service_backends`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct Backends {
    /// Those at the places of this page.
    pub at: [Backend; BACKENDS_PER_PAGE],
}

/// One of those behind a service. A place that nobody has is all zeros.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct Backend {
    /// The network that its address is in.
    pub network: u32,
    /// Its address.
    pub address: Address,
    /// Its port, in network byte order.
    pub port: [u8; 2],
    /// Zero.
    pub reserved: [u8; 2],
}

/// Key of the map `service_affinity`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Pod, Zeroable)]
pub struct AffinityKey {
    /// The number of the service.
    pub service: u32,
    /// The client's address.
    pub client: Address,
}

/// Value of the map `service_affinity`: where a client of a service was led.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct Affinity {
    /// When it last opened a connection, in nanoseconds of the monotonic clock.
    pub seen: u64,
    /// The backend's address.
    pub address: Address,
    /// Its port, in network byte order.
    pub port: [u8; 2],
    /// Its place among the backends.
    pub place: u16,
    /// Zero.
    pub reserved: [u8; 4],
}
