//! What is closed outside and was opened to the pods of a network, in the kernel's map.
//!
//! The rule: an entry opens one port to one network, or says of an address that it is a node's, and the
//! map is the only memory of it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::path::Path;

use atoll_abi::{self as abi, NO_NETWORK, OpeningKey};
use atoll_plan::Opening;
use atoll_types::{NetworkId, Protocol};

use crate::error::DatapathError;
use crate::maps::{Table, check_shape};

/// The map of what was opened.
pub(crate) struct Openings {
    table: Table<OpeningKey, abi::Opening>,
}

/// Refuses a pinned map whose entries have other sizes than ours.
pub(crate) fn check_pinned(dir: &Path) -> Result<(), DatapathError> {
    check_shape::<OpeningKey, abi::Opening>(&dir.join("openings"))
}

impl Openings {
    pub(crate) fn open(dir: &Path) -> Result<Self, DatapathError> {
        Ok(Openings { table: Table::open(dir, "openings")? })
    }

    pub(crate) fn put(&mut self, opening: Opening, is_here: bool) -> Result<(), DatapathError> {
        self.table.put(encode(opening), abi::Opening { is_here: is_here.into() })
    }

    pub(crate) fn remove(&mut self, opening: Opening) -> Result<(), DatapathError> {
        self.table.remove(encode(opening))
    }

    /// All of them, as far as a plan wrote them.
    pub(crate) fn all(&self) -> Result<BTreeMap<Opening, bool>, DatapathError> {
        let entries = self.table.entries()?.into_iter();
        let read = |(key, it): (OpeningKey, abi::Opening)| Some((decode(&key)?, it.is_here != 0));
        Ok(entries.filter_map(read).collect())
    }
}

fn encode(opening: Opening) -> OpeningKey {
    let (network, address, port, protocol) = match opening {
        Opening::Port { to, address, protocol, port } => {
            (to.get(), address, port.get(), protocol.number())
        }
        Opening::Node(address) => (NO_NETWORK, address, 0, 0),
    };
    OpeningKey { network, address: address.into(), port: port.to_be_bytes(), protocol, reserved: 0 }
}

fn decode(key: &OpeningKey) -> Option<Opening> {
    let address = IpAddr::from(key.address);
    if key.network == NO_NETWORK {
        return Some(Opening::Node(address));
    }
    let protocol = Protocol::ALL.into_iter().find(|it| it.number() == key.protocol)?;
    let port = NonZeroU16::new(u16::from_be_bytes(key.port))?;
    Some(Opening::Port { to: NetworkId::try_from(key.network).ok()?, address, protocol, port })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_opened_survives_the_round_trip() {
        let to = NetworkId::try_from(7).unwrap();
        let port = NonZeroU16::new(30_080).unwrap();
        for address in ["192.0.2.5", "0.0.0.0", "2001:db8::5", "::"] {
            let address: IpAddr = address.parse().unwrap();
            assert_eq!(decode(&encode(Opening::Node(address))), Some(Opening::Node(address)));
            for protocol in Protocol::ALL {
                let opening = Opening::Port { to, address, protocol, port };
                assert_eq!(decode(&encode(opening)), Some(opening));
            }
        }
    }
}
