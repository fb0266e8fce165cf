//! The tables of connections, one for each network that has a pod on this node.
//!
//! The rule: a network's table is there before a packet of it can pass. A table that its network
//! has left stays and serves the next.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use atoll_abi::{
    CONNECTION_OPENED_BY_HIGH, CONNECTIONS_PER_NETWORK, Connection as Entry, ConnectionKey,
    ConnectionState, KIND_CONNECTION,
};
use atoll_types::NetworkId;
use aya::maps::{ArrayOfMaps, HashMap, Map, MapData, MapError};
use aya_obj::generated::bpf_map_type::BPF_MAP_TYPE_LRU_HASH;

use crate::error::{Attempt, DatapathError};
use crate::maps::{Raw, is_missing, pinned};

/// A connection of a network, as this node knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Who spoke first; an echo has its id for a port.
    pub client: SocketAddr,
    /// The other end.
    pub server: SocketAddr,
    /// The number of the protocol.
    pub protocol: u8,
    /// How far it is.
    pub state: ConnectionState,
}

type Table = HashMap<MapData, Raw<ConnectionKey>, Raw<Entry>>;

/// All tables of a node, by their places.
pub(crate) struct Tables {
    tables: ArrayOfMaps<MapData, Table>,
}

impl Tables {
    pub(crate) fn open(dir: &Path) -> Result<Self, DatapathError> {
        let map = pinned(dir, "connections")?;
        let tables = ArrayOfMaps::try_from(map).attempt(|| "use the map connections".into())?;
        Ok(Tables { tables })
    }

    /// Makes the table at `place`, unless it is there.
    pub(crate) fn ensure(&mut self, place: u16) -> Result<(), DatapathError> {
        if self.get(place)?.is_some() {
            return Ok(());
        }
        let attempt = || format!("make the table of connections {place}");
        let table = new_table().attempt(attempt)?;
        self.tables.set(place.into(), &table, 0).attempt(attempt)
    }

    /// The connections of a network in the table at `place`.
    pub(crate) fn list(
        &self,
        place: u16,
        network: NetworkId,
    ) -> Result<Vec<Connection>, DatapathError> {
        let Some(table) = self.get(place)? else { return Ok(vec![]) };
        let entries = table.iter().filter(|entry| !is_missing(entry));
        let own = entries.map(|entry| {
            let (Raw(key), Raw(value)) = entry?;
            let own = key.network == network.get();
            Ok(own.then(|| connection(&key, &value)).flatten())
        });
        let own: Result<Vec<_>, MapError> = own.collect();
        let own = own.attempt(|| format!("read the connections of network {network}"))?;
        Ok(own.into_iter().flatten().collect())
    }

    fn get(&self, place: u16) -> Result<Option<Table>, DatapathError> {
        match self.tables.get(&place.into(), 0) {
            found if is_missing(&found) => Ok(None),
            found => found.map(Some).attempt(|| format!("open the table of connections {place}")),
        }
    }
}

fn new_table() -> Result<Table, MapError> {
    let (key, value) = (size_of::<ConnectionKey>() as u32, size_of::<Entry>() as u32);
    let kind = BPF_MAP_TYPE_LRU_HASH as u32;
    let table = aya_obj::Map::new_from_params(kind, key, value, CONNECTIONS_PER_NETWORK, 0);
    Map::from_map_data(MapData::create(table, "connections_of", None)?)?.try_into()
}

/// What an entry says, unless it is a datagram in fragments or of another version.
fn connection(key: &ConnectionKey, entry: &Entry) -> Option<Connection> {
    let end = |ip, port| SocketAddr::new(IpAddr::from(ip), u16::from_be_bytes(port));
    let (low, high) = (end(key.low, key.low_port), end(key.high, key.high_port));
    let by_high = entry.flags & CONNECTION_OPENED_BY_HIGH != 0;
    let (client, server) = if by_high { (high, low) } else { (low, high) };
    let state = ConnectionState::from_number(entry.state)?;
    let is_connection = key.kind == KIND_CONNECTION;
    is_connection.then_some(Connection { client, server, protocol: key.protocol, state })
}

#[cfg(test)]
mod tests {
    use bytemuck::Zeroable;

    use super::*;

    fn entry() -> (ConnectionKey, Entry) {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap().into();
        let key = ConnectionKey {
            low: ip("10.0.0.1"),
            high: ip("10.0.0.2"),
            low_port: [0, 80],
            high_port: [4, 0],
            protocol: 6,
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
    fn a_datagram_in_fragments_is_no_connection() {
        let (mut key, entry) = entry();
        key.kind = 1;
        assert_eq!(connection(&key, &entry), None);
    }
}
