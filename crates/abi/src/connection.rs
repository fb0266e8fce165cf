//! Connections as the kernel programs keep them: what was decided about each, and when.

use bytemuck::{Pod, Zeroable};

use crate::Address;

/// Key of the map `connections`. The lower of both ends stands first, so that one entry serves both
/// directions.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Pod, Zeroable)]
pub struct ConnectionKey {
    /// The network.
    pub network: u32,
    /// One end.
    pub low: Address,
    /// The other.
    pub high: Address,
    /// The port of `low` in network byte order; an echo's id; half of a datagram's identification.
    pub low_port: [u8; 2],
    /// The port of `high`, likewise.
    pub high_port: [u8; 2],
    /// The number of the protocol.
    pub protocol: u8,
    /// [`KIND_CONNECTION`], or another number for a datagram that comes in fragments.
    pub kind: u8,
    /// Zero.
    pub reserved: [u8; 2],
}

/// The kind of an entry that is a connection.
pub const KIND_CONNECTION: u8 = 0;

/// The flag of a connection that the higher end opened.
pub const CONNECTION_OPENED_BY_HIGH: u8 = 1;

/// The flag of a connection whose opener spoke to a service, from where it expects answers.
pub const CONNECTION_TRANSLATED: u8 = 8;

/// The flag of an entry that is no connection: it leads from a service to its backend.
pub const CONNECTION_LEADS_ON: u8 = 16;

/// The flag of a connection that was refused when it was decided anew.
pub const CONNECTION_DENIED: u8 = 32;

/// The flag of an entry of a connection between two networks of one tenant. It has the number of the
/// other network in the place of the rule that let the connection leave.
pub const CONNECTION_ACROSS: u8 = 128;

/// Where one end of a connection is.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Place {
    /// The host side of the pod's interface on this node, or zero.
    pub ifindex: u32,
    /// The pod's MAC.
    pub mac: [u8; 6],
    /// Of a pod of this node: the place of its counters.
    pub slot: u16,
}

/// Value of the map `connections`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct Connection {
    /// The generation of its network at which it was decided; zero: it must be decided anew.
    pub generation: u32,
    /// The place of its network in the map `networks`.
    pub table: u16,
    /// The number of a [`ConnectionState`].
    pub state: u8,
    /// Who opened it, who has said its last word, and whether it is translated or denied.
    pub flags: u8,
    /// Where the lower end is.
    pub low: Place,
    /// Where the higher end is.
    pub high: Place,
    /// When its latest packet came, in nanoseconds of the monotonic clock, to the second.
    pub last_seen: u64,
    /// The node of the end that is on another one, or [`Address::NONE`]. Of a connection with a client
    /// outside that its pod sees as the gateway: that client, on the node that it came in by.
    pub node: Address,
    /// When its first packet came.
    pub opened: u64,
    /// What let it leave its opener; zero where nobody was asked.
    pub egress_rule: u32,
    /// What let it reach the other end, likewise. Of what leads in from outside: the port of the gateway
    /// by which its client is known inside, or zero.
    pub ingress_rule: u32,
    /// The address of the service, or of the backend that an entry leads on to. Of a datagram in
    /// fragments: what its first fragment said.
    pub nat_address: Address,
    /// The port of the service or backend, likewise.
    pub nat_port: [u8; 2],
    /// Of a service: the place of its backend among those of the service. Of a client outside that its
    /// pod sees as the gateway: its port.
    pub backend: u16,
    /// Its place in the ring of its network.
    pub turn: u32,
}

/// How many places of a ring one entry of the map `turns` holds.
pub const TURNS_PER_PAGE: usize = 16;

/// Key of the map `turns`: some places of the ring of a network.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Pod, Zeroable)]
pub struct TurnsKey {
    /// The place of the network in the map `networks`.
    pub table: u32,
    /// The number of the page.
    pub page: u32,
}

/// Value of the map `turns`: the key of the connection in each place, or zeros.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct Turns {
    /// The places.
    pub at: [ConnectionKey; TURNS_PER_PAGE],
}

impl TurnsKey {
    /// Where the place `turn` of a ring lies: its page, and where in that.
    pub fn of(table: u32, turn: u32) -> (Self, usize) {
        let per_page = TURNS_PER_PAGE as u32;
        (TurnsKey { table, page: turn / per_page }, (turn % per_page) as usize)
    }
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ConnectionState {
    /// One side has spoken.
    New = 1,
    /// Both have.
    Established = 2,
    /// One side has said its last word.
    Closing = 3,
    /// Both have, or one has broken it off.
    Closed = 4,
}

impl ConnectionState {
    /// All states, by number.
    pub const ALL: [ConnectionState; 4] = [
        ConnectionState::New,
        ConnectionState::Established,
        ConnectionState::Closing,
        ConnectionState::Closed,
    ];

    /// For how many seconds a connection is remembered after its latest packet.
    pub const fn lasts(self, is_stream: bool) -> u64 {
        match (self, is_stream) {
            (ConnectionState::New, true) => 120,
            (ConnectionState::New, false) => 30,
            (ConnectionState::Established, true) => 21_600,
            (ConnectionState::Established, false) => 180,
            (ConnectionState::Closing, _) => 300,
            (ConnectionState::Closed, _) => 60,
        }
    }

    /// The state with this number, if this version knows it.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|state| *state as u8 == number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_places_of_a_ring_lie_side_by_side_page_by_page() {
        let at = |table, page, place| (TurnsKey { table, page }, place);
        let places = [0, 15, 16, 16_383].map(|turn| TurnsKey::of(3, turn));
        assert_eq!(places, [at(3, 0, 0), at(3, 0, 15), at(3, 1, 0), at(3, 1023, 15)]);
    }

    #[test]
    fn states_have_their_numbers_and_no_others() {
        for state in ConnectionState::ALL {
            assert_eq!(ConnectionState::from_number(state as u8), Some(state));
        }
        assert_eq!(ConnectionState::from_number(0), None);
        assert_eq!(ConnectionState::from_number(5), None);
    }
}
