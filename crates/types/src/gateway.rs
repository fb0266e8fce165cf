//! The gateway that every pod sees. It is the same in every network, and exists only in the
//! answers that the datapath gives.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The gateway of pods with IPv4 addresses.
pub const GATEWAY_V4: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);

/// The gateway of pods with IPv6 addresses.
pub const GATEWAY_V6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);

/// The gateway of a pod with this address.
pub const fn gateway_of(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => IpAddr::V4(GATEWAY_V4),
        IpAddr::V6(_) => IpAddr::V6(GATEWAY_V6),
    }
}
