//! What the kernel programs tell while somebody listens: drops, and connections that come and go.

use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::path::Path;
use std::time::{Duration, SystemTime};

use atoll_abi::{DropReason, Event as Entry, EventKind};
use atoll_types::NetworkId;
use aya::maps::{Array, MapData, RingBuf};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::clock;
use crate::error::{Attempt, DatapathError};
use crate::maps::pinned;

/// Something that happened to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When.
    pub at: SystemTime,
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
        let zero = clock::zero();
        while let Some(item) = self.ring.next() {
            let entry = bytemuck::try_pod_read_unaligned(&item).ok();
            taken.extend(entry.and_then(|entry| event(&entry, zero)));
        }
        taken
    }

    /// Passes everything on as it happens, for as long as the receiver is there.
    #[allow(unsafe_code, reason = "tokio wants to be promised that a descriptor stays open")]
    pub fn follow(self) -> Result<Receiver<Vec<Event>>, DatapathError> {
        // SAFETY: the ring owns its descriptor, is owned by the registration, and never changes it.
        let ring = unsafe { AsyncFd::register_with_interest(self, Interest::READABLE) };
        let ring = ring.map_err(std::io::Error::from).attempt(|| "wait for events".into())?;
        let (sender, receiver) = channel(BATCHES);
        tokio::spawn(async move {
            tokio::select! {
                () = sender.closed() => {}
                () = pass_on(ring, &sender) => {}
            }
        });
        Ok(receiver)
    }
}

/// How many batches may wait for whoever follows.
const BATCHES: usize = 4;

async fn pass_on(mut ring: AsyncFd<Events>, sender: &Sender<Vec<Event>>) {
    while let Ok(mut ready) = ring.readable_mut().await {
        let batch = ready.get_inner_mut().take();
        ready.clear_ready();
        if !batch.is_empty() && sender.send(batch).await.is_err() {
            return;
        }
    }
}

impl AsRawFd for Events {
    fn as_raw_fd(&self) -> RawFd {
        self.ring.as_raw_fd()
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

/// Whether somebody listens.
pub(crate) fn is_watched(dir: &Path) -> Result<bool, DatapathError> {
    let watched = watchers(dir)?.get(&0, 0).attempt(|| "read the switch of events".into())?;
    Ok(watched != 0)
}

/// Goes on telling a listener who was there before.
pub(crate) fn resume(dir: &Path) -> Result<(), DatapathError> {
    watchers(dir)?.set(0, 1, 0).attempt(|| "switch the events on".into())
}

fn watchers(dir: &Path) -> Result<Array<MapData, u32>, DatapathError> {
    Array::try_from(pinned(dir, "watchers")?).attempt(|| "use the switch of events".into())
}

/// What an entry says, unless it is of another version.
fn event(entry: &Entry, zero: SystemTime) -> Option<Event> {
    let end = |ip, port| SocketAddr::new(std::net::IpAddr::from(ip), u16::from_be_bytes(port));
    let what = match EventKind::from_number(entry.kind)? {
        EventKind::Drop => Happening::Dropped(DropReason::from_number(entry.reason.into())),
        EventKind::Opened => Happening::Opened,
        EventKind::Closed => Happening::Closed,
    };
    Some(Event {
        at: zero + Duration::from_nanos(entry.at),
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
