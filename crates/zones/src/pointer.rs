//! The names of an address.

use std::net::IpAddr;

use crate::records::{Kind, Rrsets};
use crate::trie::Entry;

/// An address as a key: its bytes, 4 or 16.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Octets {
    bytes: [u8; 16],
    len: u8,
}

impl Octets {
    pub(crate) fn of(ip: IpAddr) -> Self {
        let mut bytes = [0; 16];
        let len = match ip {
            IpAddr::V4(ip) => {
                bytes[..4].copy_from_slice(&ip.octets());
                4
            }
            IpAddr::V6(ip) => {
                bytes = ip.octets();
                16
            }
        };
        Octets { bytes, len }
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// An address with the names that point back from it.
#[derive(Debug)]
pub(crate) struct Pointer {
    address: Octets,
    pub(crate) names: Rrsets,
}

impl Entry for Pointer {
    fn key(&self) -> &[u8] {
        self.address.as_slice()
    }
}

impl Pointer {
    /// The address with one more name.
    pub(crate) fn with(old: Option<&Pointer>, ip: IpAddr, name: Vec<u8>, ttl: u32) -> Pointer {
        let mut names = targets(old);
        names.push(name);
        names.sort();
        names.dedup();
        Pointer::new(ip, &names, ttl)
    }

    /// The address without a name, where others are left.
    pub(crate) fn without(&self, ip: IpAddr, name: &[u8], ttl: u32) -> Option<Pointer> {
        let mut names = targets(Some(self));
        names.retain(|target| target != name);
        (!names.is_empty()).then(|| Pointer::new(ip, &names, ttl))
    }

    fn new(ip: IpAddr, names: &[Vec<u8>], ttl: u32) -> Pointer {
        Pointer { address: Octets::of(ip), names: Rrsets::new(&[], Kind::Ptr, names, ttl) }
    }
}

fn targets(pointer: Option<&Pointer>) -> Vec<Vec<u8>> {
    pointer.into_iter().flat_map(|it| it.names.others()).map(<[u8]>::to_vec).collect()
}
