//! What the kernel programs and the agent share: map keys, map values, drop reasons.
//!
//! The rule of this crate: what is here is bytes that both sides read alike. Every layout is
//! `repr(C)` and derives [`bytemuck::Pod`], so that padding does not compile; the C side is
//! `crates/datapath/bpf/abi.h`, and a test of the datapath compares both. The first field of a key
//! that belongs to a network is the network, and addresses are always sixteen bytes.

mod address;
mod alias;
mod connection;
mod drop_reason;
mod event;
mod layout;
mod outside;
mod plain;
mod policy;
mod service;

pub use address::Address;
pub use alias::{
    ALIASES_V4, ALIASES_V6, DNS_PORT, DOOR_LINK, DOOR_PORT, Door, NODE_LINK, NODE_MAC,
    NODE_RESOLVER, PROBER_PORTS, aliased_interface, aliases_of,
};
pub use connection::{
    CONNECTION_ACROSS, CONNECTION_DENIED, CONNECTION_LEADS_ON, CONNECTION_OPENED_BY_HIGH,
    CONNECTION_TRANSLATED, Connection, ConnectionKey, ConnectionState, KIND_CONNECTION, Place,
    TURNS_PER_PAGE, Turns, TurnsKey,
};
pub use drop_reason::DropReason;
pub use event::{Event, EventKind, Traffic};
pub use layout::{
    DoorKey, Doors, DropCounter, DropKey, Endpoint, EndpointKey, INTERFACE_NAME_BYTES, Interface,
    InterfaceKey, LAYOUT_VERSION, MAX_CONNECTIONS, MAX_INTERFACES, MAX_SOURCES, NO_NETWORK,
    NearInterface, Network, Peer, PeerKey, ServiceDoor, ServiceDoorKey, ServiceFront,
    ServiceFrontKey,
};
pub use outside::{
    CONNECTION_OUTSIDE, Closed, ClosedKey, Egress, EgressKey, EgressNode, EgressNodeKey, Entrance,
    EntranceKey, Held, HeldKey, INFRA_HERE, INFRA_NOWHERE, INFRA_THERE, Infra, InfraKey,
    KIND_OUTSIDE, KINDS_LOOP, NodePort, NodePortKey, Opening, OpeningKey, Source, SourceKey,
};
pub use plain::{NodeFront, NodeFrontKey, PLAIN_DROP_REASONS, PLAIN_NETWORK, PlainKey, PlainWay};
pub use policy::{
    NO_BANK, PolicyColumnKey, PolicyEndKey, PolicyIdentity, PolicyOutside, PolicyPort,
    PolicyVerdict, SECOND_BANK, TIER_NETWORK_POLICY,
};
pub use service::{
    Affinity, AffinityKey, BACKENDS_PER_PAGE, Backend, Backends, SIDE_BACKENDS, SIDE_CLIENTS,
    SIDE_OUTSIDE, SLOTS_PER_PAGE, Service, ServiceKey, ServicePage, Slots, slots_for,
};
