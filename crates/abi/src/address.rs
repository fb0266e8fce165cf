//! An IP address of either family in sixteen bytes.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use bytemuck::{Pod, Zeroable};

/// An IP address in network byte order; IPv4 is written as IPv4-mapped IPv6 (`::ffff:10.0.0.5`).
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Pod, Zeroable)]
pub struct Address([u8; 16]);

impl Address {
    /// No address: what an unused field holds.
    pub const NONE: Address = Address([0; 16]);

    /// Whether this is an unused field.
    pub fn is_none(self) -> bool {
        self == Address::NONE
    }
}

impl From<IpAddr> for Address {
    fn from(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(v4) => Address(v4.to_ipv6_mapped().octets()),
            IpAddr::V6(v6) => Address(v6.octets()),
        }
    }
}

impl From<Address> for IpAddr {
    fn from(address: Address) -> Self {
        Ipv6Addr::from(address.0).to_canonical()
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        IpAddr::from(*self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_families_survive_the_round_trip() {
        for text in ["10.0.0.5", "0.0.0.0", "255.255.255.255", "fd00::5", "::1"] {
            let ip: IpAddr = text.parse().unwrap();
            assert_eq!(IpAddr::from(Address::from(ip)), ip, "{text}");
        }
    }

    #[test]
    fn ipv4_is_written_mapped_and_in_network_order() {
        let address = Address::from("10.1.2.3".parse::<IpAddr>().unwrap());
        assert_eq!(
            bytemuck::bytes_of(&address),
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 1, 2, 3]
        );
    }

    #[test]
    fn an_unused_field_is_no_ipv4_address() {
        assert!(Address::NONE.is_none());
        assert!(!Address::from("0.0.0.0".parse::<IpAddr>().unwrap()).is_none());
    }
}
