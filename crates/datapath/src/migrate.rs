//! What an earlier version left, taken over: the entries of its maps and its program links.
//!
//! The rule: nothing is lost and nothing is taken away before it is in its new place. Cut short
//! anywhere, it is done again from the beginning.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use atoll_abi::{
    self as abi, Address, ConnectionKey, DoorKey, Doors, DropCounter, DropKey, EndpointKey,
    Interface, InterfaceKey, KIND_CONNECTION, Peer, PeerKey, Traffic,
};
use aya::maps::{ArrayOfMaps, HashMap, MapData};
use bytemuck::{Pod, Zeroable};

use crate::error::{Attempt, DatapathError};
use crate::maps::{Maps, Raw, Table, check_shape, is_missing, pinned};
use crate::pins::Pins;

/// The layout that this version takes over.
pub(crate) const FORMER_LAYOUT: u32 = 2;

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct FormerEndpoint {
    since: u64,
    ifindex: u32,
    node: Address,
    mac: [u8; 6],
    slot: u16,
    table: u16,
    reserved: [u8; 2],
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct FormerConnection {
    opened: u64,
    last_seen: u64,
    rule: u32,
    state: u8,
    flags: u8,
    unused: [u8; 26],
}

/// The connections of one network.
type FormerTable = HashMap<MapData, Raw<ConnectionKey>, Raw<FormerConnection>>;

impl From<FormerEndpoint> for abi::Endpoint {
    fn from(former: FormerEndpoint) -> Self {
        let FormerEndpoint { since, ifindex, node, mac, slot, table, .. } = former;
        abi::Endpoint { since, ifindex, identity: 0, node, mac, slot, table, reserved: [0; 6] }
    }
}

impl FormerConnection {
    /// Without a generation, so that it is decided anew with its next packet.
    fn undecided(self, table: u16) -> abi::Connection {
        let FormerConnection { opened, last_seen, state, flags, .. } = self;
        abi::Connection { opened, last_seen, state, flags, table, ..abi::Connection::zeroed() }
    }
}

/// The pins of an earlier version.
pub(crate) struct Former {
    root: PathBuf,
}

impl Former {
    /// What an earlier version left, if it did.
    pub(crate) fn find(pins: &Pins) -> Option<Self> {
        let root = pins.of_layout(FORMER_LAYOUT);
        root.is_dir().then_some(Former { root })
    }

    /// Refuses maps that are not what that version made.
    pub(crate) fn check(&self) -> Result<(), DatapathError> {
        check_shape::<InterfaceKey, Interface>(&self.map("interfaces"))?;
        check_shape::<EndpointKey, FormerEndpoint>(&self.map("endpoints"))?;
        check_shape::<PeerKey, Peer>(&self.map("peers"))?;
        check_shape::<DoorKey, Doors>(&self.map("doors"))?;
        check_shape::<u32, Traffic>(&self.map("traffic"))?;
        check_shape::<u32, u32>(&self.map("connections"))?;
        check_shape::<DropKey, DropCounter>(&self.map("drops"))
    }

    /// Puts its entries into `maps`. Its programs go on with its own until they are replaced.
    pub(crate) fn copy_entries(&self, maps: &mut Maps) -> Result<(), DatapathError> {
        let interfaces = self.entries::<InterfaceKey, Interface>("interfaces")?;
        for (key, former) in &interfaces {
            maps.interfaces.put(*key, *former)?;
        }
        maps.learn_networks()?;
        for (key, former) in self.entries::<EndpointKey, FormerEndpoint>("endpoints")? {
            maps.endpoints.put(key, former.into())?;
        }
        for (key, former) in self.entries::<PeerKey, Peer>("peers")? {
            maps.peers.put(key, former)?;
        }
        for (key, former) in self.entries::<DoorKey, Doors>("doors")? {
            maps.doors.put(key, former)?;
        }
        self.copy_counters(maps, &interfaces)?;
        self.copy_connections(maps, &interfaces)
    }

    fn copy_counters(
        &self,
        maps: &mut Maps,
        interfaces: &[(InterfaceKey, Interface)],
    ) -> Result<(), DatapathError> {
        if self.map("drops").exists() {
            maps.copy_drops(&self.maps())?;
        }
        if self.map("traffic").exists() {
            maps.traffic.copy(&self.maps(), interfaces.iter().map(|(_, entry)| entry.slot))?;
        }
        Ok(())
    }

    fn copy_connections(
        &self,
        maps: &mut Maps,
        interfaces: &[(InterfaceKey, Interface)],
    ) -> Result<(), DatapathError> {
        if !self.map("connections").exists() {
            return Ok(());
        }
        let attempt = || format!("take over the connections in {}", self.root.display());
        let tables: ArrayOfMaps<_, FormerTable> =
            pinned(&self.maps(), "connections")?.try_into().attempt(attempt)?;
        for place in interfaces.iter().map(|(_, entry)| entry.table).collect::<BTreeSet<_>>() {
            let table = match tables.get(&place.into(), 0) {
                found if is_missing(&found) => continue,
                found => found.attempt(attempt)?,
            };
            for entry in table.iter().filter(|entry| !is_missing(entry)) {
                let (Raw(key), Raw(former)) = entry.attempt(attempt)?;
                if key.kind == KIND_CONNECTION {
                    maps.connections.take_over(key, former.undecided(place))?;
                }
            }
        }
        Ok(())
    }

    /// Moves its program links to where this version looks for them; they stay in force.
    pub(crate) fn move_links(&self, to: &Path) -> Result<(), DatapathError> {
        let attempt = || format!("move the program links of {}", self.root.display());
        let links = self.root.join("links");
        if !links.is_dir() {
            return Ok(());
        }
        for entry in fs::read_dir(links).attempt(attempt)? {
            let entry = entry.attempt(attempt)?;
            fs::rename(entry.path(), to.join(entry.file_name())).attempt(attempt)?;
        }
        Ok(())
    }

    /// The directory that is no longer needed.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    fn maps(&self) -> PathBuf {
        self.root.join("maps")
    }

    fn map(&self, name: &str) -> PathBuf {
        self.maps().join(name)
    }

    /// The entries of one of its maps; none where the map is not there.
    fn entries<K: Pod, V: Pod>(&self, name: &'static str) -> Result<Vec<(K, V)>, DatapathError> {
        if !self.map(name).exists() {
            return Ok(vec![]);
        }
        Table::open(&self.maps(), name)?.entries()
    }
}
