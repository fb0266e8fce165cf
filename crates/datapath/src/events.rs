//! What the kernel programs tell while somebody listens: drops, and connections that come and go.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use atoll_abi::{DropReason, Event as Entry, EventKind};
use atoll_types::NetworkId;
use aya::maps::{Array, MapData, RingBuf};

use crate::error::{Attempt, DatapathError};
use crate::maps::pinned;

/// Something that happened to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, in nanoseconds of the monotonic clock.
    pub at: u64,
    /// The network, or none for a packet that could not be put to one.
    pub network: Option<NetworkId>,
    /// The interface where the packet came in.
    pub ifindex: u32,
    /// The packet's sender, as far as it could be read.
    pub source: SocketAddr,
    /// The packet's receiver, likewise.
    pub destination: SocketAddr,
    /// The number of the protocol.
    pub protocol: u8,
    /// What happened.
    pub what: Happening,
    /// The rule of policy that let the connection leave its opener, or refused it, by the number
    /// that [`crate::Datapath::policy_rule`] takes; zero where none decided.
    pub egress_rule: u32,
    /// The rule that let it reach the other end, likewise.
    pub ingress_rule: u32,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happening {
    /// The packet was dropped.
    Dropped(DropReason),
    /// The packet opened a connection.
    Opened,
    /// The packet closed a connection.
    Closed,
}

/// The events since this was made. As long as it lives, the kernel programs tell; there is one
/// listener for each node at a time. Whoever falls behind misses what found no room.
pub struct Events {
    ring: RingBuf<MapData>,
    watchers: Array<MapData, u32>,
}

impl Events {
    /// Begins to listen.
    pub(crate) fn open(dir: &Path) -> Result<Self, DatapathError> {
        let ring = RingBuf::try_from(pinned(dir, "events")?);
        let ring = ring.attempt(|| "use the ring of events".into())?;
        let mut events = Events { ring, watchers: watchers(dir)? };
        while events.ring.next().is_some() {}
        events.watchers.set(0, 1, 0).attempt(|| "switch the events on".into())?;
        Ok(events)
    }

    /// Everything that was told up to now and not yet taken.
    pub fn take(&mut self) -> Vec<Event> {
        let mut taken = vec![];
        while let Some(item) = self.ring.next() {
            let entry = bytemuck::try_pod_read_unaligned(&item).ok();
            taken.extend(entry.and_then(|entry| event(&entry)));
        }
        taken
    }
}

/// What becomes readable when there is something to take.
impl AsFd for Events {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        if let Err(error) = self.watchers.set(0, 0, 0) {
            tracing::warn!(%error, "cannot switch the events off");
        }
    }
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Events")
    }
}

/// Switches off what a listener that was killed left on.
pub(crate) fn silence(dir: &Path) -> Result<(), DatapathError> {
    watchers(dir)?.set(0, 0, 0).attempt(|| "switch the events off".into())
}

fn watchers(dir: &Path) -> Result<Array<MapData, u32>, DatapathError> {
    Array::try_from(pinned(dir, "watchers")?).attempt(|| "use the switch of events".into())
}

/// What an entry says, unless it is of another version.
fn event(entry: &Entry) -> Option<Event> {
    let end = |ip, port| SocketAddr::new(std::net::IpAddr::from(ip), u16::from_be_bytes(port));
    let what = match EventKind::from_number(entry.kind)? {
        EventKind::Drop => Happening::Dropped(DropReason::from_number(entry.reason.into())),
        EventKind::Opened => Happening::Opened,
        EventKind::Closed => Happening::Closed,
    };
    Some(Event {
        at: entry.at,
        network: NetworkId::try_from(entry.network).ok(),
        ifindex: entry.ifindex,
        source: end(entry.source, entry.source_port),
        destination: end(entry.destination, entry.destination_port),
        protocol: entry.protocol,
        what,
        egress_rule: entry.egress_rule,
        ingress_rule: entry.ingress_rule,
    })
}
