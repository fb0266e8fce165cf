//! What an earlier version left, taken over: the entries of its maps and its program links.
//!
//! The rule: nothing is lost and nothing is taken away before it is in its new place. Cut short
//! anywhere, it is done again from the beginning.

use std::fs;
use std::path::{Path, PathBuf};

use atoll_abi::{
    self as abi, Address, DropCounter, DropKey, EndpointKey, INTERFACE_NAME_BYTES, InterfaceKey,
    MAX_SOURCES, Peer, PeerKey,
};
use bytemuck::{Pod, Zeroable};

use crate::error::{Attempt, DatapathError};
use crate::maps::{Maps, Table, check_shape};
use crate::pins::Pins;
use crate::seat::Seat;

/// The layout that this version takes over.
pub(crate) const FORMER_LAYOUT: u32 = 1;

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct FormerInterface {
    network: u32,
    mac: [u8; 6],
    source_count: u8,
    serves_ipv6: u8,
    name: [u8; INTERFACE_NAME_BYTES],
    sources: [Address; MAX_SOURCES],
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct FormerEndpoint {
    ifindex: u32,
    node: Address,
    mac: [u8; 6],
    reserved: [u8; 2],
}

impl FormerInterface {
    fn seated(self, seat: Seat) -> abi::Interface {
        let former = self;
        abi::Interface {
            since: 0,
            network: former.network,
            mac: former.mac,
            source_count: former.source_count,
            serves_ipv6: former.serves_ipv6,
            name: former.name,
            sources: former.sources,
            slot: seat.slot,
            table: seat.table,
        }
    }
}

impl FormerEndpoint {
    fn seated(self, Seat { slot, table }: Seat) -> abi::Endpoint {
        let FormerEndpoint { ifindex, node, mac, .. } = self;
        abi::Endpoint { since: 0, ifindex, node, mac, slot, table, reserved: [0; 2] }
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
        check_shape::<InterfaceKey, FormerInterface>(&self.map("interfaces"))?;
        check_shape::<EndpointKey, FormerEndpoint>(&self.map("endpoints"))?;
        check_shape::<PeerKey, Peer>(&self.map("peers"))?;
        check_shape::<DropKey, DropCounter>(&self.map("drops"))
    }

    /// Puts its entries into `maps`. Its programs go on with its own until they are replaced.
    pub(crate) fn copy_entries(&self, maps: &mut Maps) -> Result<(), DatapathError> {
        for (key, former) in self.entries::<InterfaceKey, FormerInterface>("interfaces")? {
            let known = maps.interfaces.get(key)?;
            let seat =
                known.map_or_else(|| maps.new_seat(former.network), |it| Ok((&it).into()))?;
            maps.interfaces.put(key, former.seated(seat))?;
        }
        for (key, former) in self.entries::<EndpointKey, FormerEndpoint>("endpoints")? {
            let interface = maps.interfaces.get(InterfaceKey { ifindex: former.ifindex })?;
            let seat = interface.as_ref().map(Seat::from).unwrap_or_default();
            maps.endpoints.put(key, former.seated(seat))?;
        }
        for (key, former) in self.entries::<PeerKey, Peer>("peers")? {
            maps.peers.put(key, former)?;
        }
        if self.map("drops").exists() {
            maps.copy_drops(&self.maps())?;
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
