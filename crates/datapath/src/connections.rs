//! The connections of all networks of this node, and the ring in which those of each stand.
//!
//! The rule: the kernel programs alone open connections and make room for them. What is over is taken
//! away here, so that memory goes back; nothing hangs on when.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};

use atoll_abi::{
    CONNECTION_ACROSS, CONNECTION_LEADS_ON, CONNECTION_OPENED_BY_HIGH, Connection as Entry,
    ConnectionKey, ConnectionState, KIND_CONNECTION, KIND_OUTSIDE, KINDS_LOOP, NO_NETWORK,
    TURNS_PER_PAGE, Turns, TurnsKey,
};
use atoll_types::NetworkId;
use bytemuck::Zeroable;

use crate::clock;
use crate::error::{Attempt, DatapathError};
use crate::maps::Table;

/// What leads a client to a backend in another network.
const LEADS_ACROSS: u8 = CONNECTION_LEADS_ON | CONNECTION_ACROSS;

const ESTABLISHED: u8 = ConnectionState::Established as u8;

const TCP: u8 = 6;
const SCTP: u8 = 132;
const SECOND: u64 = 1_000_000_000;

/// How long a datagram in fragments is kept, and by how much later than the programs we take
/// anything for over: what comes at the last moment should still find it.
const GRACE_SECONDS: u64 = 30;

/// A connection of a network, as this node knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Who spoke first; an echo has its id for this port, and none for the other.
    pub client: SocketAddr,
    /// The other end.
    pub server: SocketAddr,
    /// The number of the protocol.
    pub protocol: u8,
    /// How far it is.
    pub state: ConnectionState,
}

/// All connections of a node.
pub(crate) struct Connections {
    entries: Table<ConnectionKey, Entry>,
    turns: Table<TurnsKey, Turns>,
}

impl Connections {
    pub(crate) fn open(dir: &Path) -> Result<Self, DatapathError> {
        let entries = Table::open(dir, "connections")?;
        Ok(Connections { entries, turns: Table::open(dir, "turns")? })
    }

    /// The connections of a network.
    pub(crate) fn list(&self, network: NetworkId) -> Result<Vec<Connection>, DatapathError> {
        let own = self.entries.entries()?.into_iter();
        let own = own.filter(|(key, _)| key.network == network.get());
        Ok(own.filter_map(|(key, entry)| connection(&key, &entry)).collect())
    }

    /// Takes away what is over, and what its network had no place for at the moment of `census`.
    /// Each entry is looked at just before it goes: a packet may have come. What is over leaves its
    /// place in the ring to whoever comes next there.
    pub(crate) fn collect(&mut self, census: &Census) -> Result<(), DatapathError> {
        let (mut taken, mut above) = (BTreeSet::new(), Vec::new());
        let mut room = census.shares.clone();
        for key in self.entries.keys()? {
            let Some(entry) = self.entries.get(key)? else { continue };
            match census.standing(&key, &entry) {
                Standing::None => self.entries.remove(key)?,
                _ if is_over(&key, &entry, clock::now()?) => self.entries.remove(key)?,
                Standing::InRing => {
                    take_room(&mut room, entry.table);
                    taken.insert(page_of(&entry));
                }
                Standing::Above => above.push((entry.state != ESTABLISHED, key)),
            }
        }
        above.sort_unstable_by_key(|(is_unanswered, _)| *is_unanswered);
        for (_, key) in above {
            let Some(entry) = self.entries.get(key)? else { continue };
            if census.reaches(&entry) || take_room(&mut room, entry.table) {
                taken.insert(page_of(&entry));
            } else {
                self.entries.remove(key)?;
            }
        }
        self.collect_turns(census, &taken)
    }

    /// Takes away the rings of networks that are gone, and of the others what is above their share,
    /// except where somebody still stands.
    fn collect_turns(
        &mut self,
        census: &Census,
        taken: &BTreeSet<TurnsKey>,
    ) -> Result<(), DatapathError> {
        for key in self.turns.keys()? {
            let share = u16::try_from(key.table).ok().and_then(|place| census.shares.get(&place));
            let is_used = share.is_some_and(|it| key.page < it.div_ceil(TURNS_PER_PAGE as u32));
            if !is_used && !taken.contains(&key) {
                self.turns.remove(key)?;
            }
        }
        Ok(())
    }

    /// Has these connections stand in the rings of their networks, at those turns. What stands on a
    /// page that is there already stays as it is.
    pub(crate) fn line_up(
        &mut self,
        turns: impl Iterator<Item = ((u32, u32), ConnectionKey)>,
    ) -> Result<(), DatapathError> {
        let mut pages: BTreeMap<TurnsKey, Turns> = BTreeMap::new();
        for ((table, turn), connection) in turns {
            let (key, place) = TurnsKey::of(table, turn);
            pages.entry(key).or_insert_with(Turns::zeroed).at[place] = connection;
        }
        for (key, page) in pages {
            if self.turns.get(key)?.is_none() {
                self.turns.put(key, page)?;
            }
        }
        Ok(())
    }
}

/// Which networks were where at one moment, and how many connections each might have.
#[derive(Clone, Debug)]
pub(crate) struct Census {
    /// The moment.
    pub(crate) at: u64,
    /// The place of each network.
    pub(crate) places: BTreeMap<u32, u16>,
    /// The share of the network at each place.
    pub(crate) shares: BTreeMap<u16, u32>,
}

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// In the ring of its network.
    InRing,
    /// Where its network's ring went before its share became smaller. Nothing pushes it out there, and
    /// it goes only if its network has more connections than it may: what was answered last.
    Above,
    /// Nowhere: its network is gone.
    None,
}

impl Census {
    /// A connection that is younger may be of a network that came later.
    fn standing(&self, key: &ConnectionKey, entry: &Entry) -> Standing {
        if entry.opened >= self.at || (self.knows(key, entry) && self.reaches(entry)) {
            return Standing::InRing;
        }
        if self.knows(key, entry) { Standing::Above } else { Standing::None }
    }

    fn reaches(&self, entry: &Entry) -> bool {
        self.shares.get(&entry.table).is_some_and(|share| entry.turn < *share)
    }

    /// What comes from outside has the network of its pod in its entry, and fragments of it none. What
    /// leads into another network stands among the connections of that one.
    fn knows(&self, key: &ConnectionKey, entry: &Entry) -> bool {
        if entry.flags & LEADS_ACROSS == LEADS_ACROSS {
            return self.places.get(&entry.egress_rule) == Some(&entry.table);
        }
        match (key.network, key.kind) {
            (NO_NETWORK, kind) if kind == KIND_OUTSIDE || KINDS_LOOP.contains(&kind) => {
                self.places.get(&entry.egress_rule) == Some(&entry.table)
            }
            (NO_NETWORK, _) => self.places.values().any(|place| *place == entry.table),
            (network, _) => self.places.get(&network) == Some(&entry.table),
        }
    }
}

/// Collects beside everything else: a walk through a full table takes its time.
#[derive(Debug, Default)]
pub(crate) struct Collector {
    walk: Option<JoinHandle<()>>,
}

impl Collector {
    /// Begins a walk through the connections pinned in `dir`, unless one is under way.
    pub(crate) fn start(&mut self, dir: PathBuf, census: Census) -> Result<(), DatapathError> {
        if self.walk.as_ref().is_some_and(|walk| !walk.is_finished()) {
            return Ok(());
        }
        let walk = move || {
            let done = Connections::open(&dir).and_then(|mut it| it.collect(&census));
            if let Err(error) = done {
                tracing::warn!(%error, "cannot take away connections that are over");
            }
        };
        let started = thread::Builder::new().name("collect".into()).spawn(walk);
        self.walk = Some(started.attempt(|| "start a thread".into())?);
        Ok(())
    }
}

/// One more connection of the network at a place; says whether there was room.
fn take_room(room: &mut BTreeMap<u16, u32>, place: u16) -> bool {
    let Some(left) = room.get_mut(&place) else { return false };
    let has_room = *left > 0;
    *left = left.saturating_sub(1);
    has_room
}

fn page_of(entry: &Entry) -> TurnsKey {
    TurnsKey::of(entry.table.into(), entry.turn).0
}

fn is_over(key: &ConnectionKey, entry: &Entry, now: u64) -> bool {
    let is_stream = key.protocol == TCP || key.protocol == SCTP;
    let lasts = ConnectionState::from_number(entry.state).map_or(0, |it| it.lasts(is_stream));
    now.saturating_sub(entry.last_seen) > (lasts + GRACE_SECONDS) * SECOND
}

/// What an entry says, unless it is none of a connection or of another version.
fn connection(key: &ConnectionKey, entry: &Entry) -> Option<Connection> {
    let end = |ip, port| SocketAddr::new(IpAddr::from(ip), u16::from_be_bytes(port));
    let (low, high) = (end(key.low, key.low_port), end(key.high, key.high_port));
    let by_high = entry.flags & CONNECTION_OPENED_BY_HIGH != 0;
    let (client, server) = if by_high { (high, low) } else { (low, high) };
    let state = ConnectionState::from_number(entry.state)?;
    let is_connection = key.kind == KIND_CONNECTION && entry.flags & CONNECTION_LEADS_ON == 0;
    is_connection.then_some(Connection { client, server, protocol: key.protocol, state })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> (ConnectionKey, Entry) {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap().into();
        let key = ConnectionKey {
            low: ip("10.0.0.1"),
            high: ip("10.0.0.2"),
            low_port: [0, 80],
            high_port: [4, 0],
            protocol: TCP,
            ..ConnectionKey::zeroed()
        };
        (key, Entry { state: 2, ..Entry::zeroed() })
    }

    #[test]
    fn the_client_is_who_opened_it() {
        let (key, mut entry) = entry();
        let client = |entry: &Entry| connection(&key, entry).unwrap().client.to_string();
        assert_eq!(client(&entry), "10.0.0.1:80");
        entry.flags = CONNECTION_OPENED_BY_HIGH;
        assert_eq!(client(&entry), "10.0.0.2:1024");
    }

    #[test]
    fn a_datagram_in_fragments_and_a_lead_to_a_backend_are_no_connections() {
        let (mut key, mut entry) = entry();
        entry.flags = CONNECTION_LEADS_ON;
        assert_eq!(connection(&key, &entry), None);
        entry.flags = 0;
        key.kind = 1;
        assert_eq!(connection(&key, &entry), None);
    }

    #[test]
    fn a_connection_is_over_some_time_after_the_programs_take_it_for_over() {
        let (mut key, entry) = entry();
        let hours = |n: u64| n * 3600 * SECOND;
        assert!(!is_over(&key, &entry, hours(6) + SECOND));
        assert!(is_over(&key, &entry, hours(6) + 31 * SECOND));
        key.protocol = 17;
        assert!(!is_over(&key, &entry, 181 * SECOND));
        assert!(is_over(&key, &entry, 211 * SECOND));
        let fragments = Entry { state: 0, ..entry };
        assert!(is_over(&key, &fragments, 31 * SECOND));
    }

    /// Of one network at one place, whose share is eight.
    fn census(network: u32, place: u16) -> Census {
        Census { at: 100, places: [(network, place)].into(), shares: [(place, 8)].into() }
    }

    #[test]
    fn a_connection_of_a_network_that_is_gone_has_no_place_unless_it_is_younger_than_that() {
        let (key, entry) = entry();
        let key = ConnectionKey { network: 7, ..key };
        let standing = |network, entry| census(network, 0).standing(&key, &entry);
        assert_eq!(standing(7, entry), Standing::InRing);
        assert_eq!(standing(8, entry), Standing::None);
        assert_eq!(standing(7, Entry { turn: 8, ..entry }), Standing::Above);
        assert_eq!(standing(8, Entry { opened: 100, ..entry }), Standing::InRing);
    }

    #[test]
    fn what_stands_above_a_share_goes_only_if_there_are_more_than_the_share() {
        let mut room = census(7, 3).shares;
        assert!((0..8).all(|_| take_room(&mut room, 3)));
        assert!(!take_room(&mut room, 3) && !take_room(&mut room, 4));
    }

    #[test]
    fn what_comes_from_outside_goes_with_the_network_of_its_pod() {
        let (key, entry) = entry();
        let has_place = |key, entry| census(7, 3).standing(&key, &entry) == Standing::InRing;
        let to = |network, table| Entry { egress_rule: network, table, ..entry };
        for kind in [KIND_OUTSIDE].into_iter().chain(KINDS_LOOP) {
            let way = ConnectionKey { kind, ..key };
            assert!(has_place(way, to(7, 3)));
            assert!(!has_place(way, to(8, 3)), "another network has the place");
            assert!(!has_place(way, to(7, 4)));
        }
        let part = ConnectionKey { kind: 1, ..key };
        assert!(has_place(part, to(0, 3)));
        assert!(!has_place(part, to(0, 4)));
    }

    #[test]
    fn what_leads_into_another_network_goes_with_that_network() {
        let (key, entry) = entry();
        let key = ConnectionKey { network: 6, ..key };
        let has_place = |entry| census(7, 3).standing(&key, &entry) == Standing::InRing;
        let lead = Entry { flags: LEADS_ACROSS, table: 3, egress_rule: 7, ..entry };
        assert!(has_place(lead), "also where its client's network has no place");
        assert!(!has_place(Entry { egress_rule: 8, ..lead }));
        assert!(!has_place(Entry { flags: CONNECTION_LEADS_ON, ..lead }));
    }
}
