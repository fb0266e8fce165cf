//! What the kernel programs count and tell: traffic of a pod, and events for whoever watches.

use bytemuck::{Pod, Zeroable};

use crate::Address;

/// Value of the per-CPU map `traffic`, at the slot of an interface.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Traffic {
    /// Packets that left the pod and were sent on.
    pub sent_packets: u64,
    /// Their bytes from the Ethernet header on.
    pub sent_bytes: u64,
    /// Packets that were delivered to the pod.
    pub received_packets: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Packets that left the pod and were dropped.
    pub dropped_packets: u64,
    /// Their bytes.
    pub dropped_bytes: u64,
}

/// What lies in the ring `events`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct Event {
    /// When, in nanoseconds of the monotonic clock.
    pub at: u64,
    /// The network, or [`crate::NO_NETWORK`].
    pub network: u32,
    /// The interface where the packet came in.
    pub ifindex: u32,
    /// The packet's sender, as far as it could be read.
    pub source: Address,
    /// The packet's receiver, likewise.
    pub destination: Address,
    /// The sender's port in network byte order.
    pub source_port: [u8; 2],
    /// The receiver's port, likewise.
    pub destination_port: [u8; 2],
    /// Of a drop: the number of a [`crate::DropReason`].
    pub reason: u16,
    /// The number of an [`EventKind`].
    pub kind: u8,
    /// The number of the protocol.
    pub protocol: u8,
    /// What let the connection leave its opener, or refused it; zero where nobody was asked.
    pub egress_rule: u32,
    /// What let it reach the other end, likewise.
    pub ingress_rule: u32,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum EventKind {
    /// A packet was dropped.
    Drop = 1,
    /// A packet opened a connection.
    Opened = 2,
    /// A packet closed a connection.
    Closed = 3,
}

impl EventKind {
    /// All kinds, by number.
    pub const ALL: [EventKind; 3] = [EventKind::Drop, EventKind::Opened, EventKind::Closed];

    /// The kind with this number, if this version knows it.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_their_numbers_and_no_others() {
        for kind in EventKind::ALL {
            assert_eq!(EventKind::from_number(kind as u8), Some(kind));
        }
        assert_eq!(EventKind::from_number(0), None);
    }
}
