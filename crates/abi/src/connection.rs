//! Connections as the kernel programs keep them: one table for each network.

use bytemuck::{Pod, Zeroable};

use crate::Address;

/// Key of a network's table. The lower of both ends stands first, so that one entry serves both
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

/// Value of a network's table.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct Connection {
    /// When its first packet came, in nanoseconds of the monotonic clock.
    pub opened: u64,
    /// When its latest packet came, to the second.
    pub last_seen: u64,
    /// What policy decided when it was opened; zero where nobody was asked.
    pub rule: u32,
    /// The number of a [`ConnectionState`].
    pub state: u8,
    /// Who opened it, and who has said its last word.
    pub flags: u8,
    /// The port that one end is translated to, or zero.
    pub nat_port: [u8; 2],
    /// The address that one end is translated to, or [`Address::NONE`].
    pub nat_address: Address,
    /// Of a datagram in fragments: what its first fragment said.
    pub source_port: [u8; 2],
    /// Likewise.
    pub destination_port: [u8; 2],
    /// How many bytes of the datagram the first fragment had.
    pub extent: u16,
    /// Likewise: the number of the protocol.
    pub protocol: u8,
    /// Zero.
    pub reserved: u8,
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

    /// The state with this number, if this version knows it.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|state| *state as u8 == number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_have_their_numbers_and_no_others() {
        for state in ConnectionState::ALL {
            assert_eq!(ConnectionState::from_number(state as u8), Some(state));
        }
        assert_eq!(ConnectionState::from_number(0), None);
        assert_eq!(ConnectionState::from_number(5), None);
    }
}
