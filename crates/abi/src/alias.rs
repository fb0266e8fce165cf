//! The node's link: how the agent speaks with a pod where two pods of a node have one address.
//!
//! Each interface of a pod has an alias that follows from its index, so that there is nothing to
//! allocate and nothing to remember. The kernel programs translate between an alias and the pod's
//! own address, and between a network's door and the agent's address behind it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The side of the node's link that the node's own stack has.
pub const NODE_LINK: &str = "atoll-node";

/// The other side, where the kernel programs are.
pub const DOOR_LINK: &str = "atoll-door";

/// The Ethernet address of the node's side.
pub const NODE_MAC: [u8; 6] = [0x02, 0xa7, 0x00, 0x00, 0x00, 0x02];

/// The port at which the agent answers what comes through a door.
pub const DOOR_PORT: u16 = 61053;

/// The first of the ports that probes come from; the last is the last that there is. Kernels give
/// them to nobody who does not ask.
pub const PROBER_PORTS: u16 = 62000;

/// The port of a door as pods see it: DNS.
pub const DNS_PORT: u16 = 53;

/// The range of IPv4 aliases: reserved for the future by its standard, unused by its past.
pub const ALIASES_V4: (Ipv4Addr, u8) = (Ipv4Addr::new(240, 0, 0, 0), 4);

/// The range of IPv6 aliases.
pub const ALIASES_V6: (Ipv6Addr, u8) = (Ipv6Addr::new(0xfd61, 0x746f, 0x6c6c, 1, 0, 0, 0, 0), 64);

/// Where a network whose names others answer still finds the agent of the node: its DNS pods ask
/// there. The same in every network, and of a range that no network has.
pub const NODE_RESOLVER: (Ipv4Addr, Ipv6Addr) =
    (Ipv4Addr::new(169, 254, 1, 53), Ipv6Addr::new(0xfd61, 0x746f, 0x6c6c, 0, 0, 0, 0, 0x53));

/// A way between a network and the agent of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Door {
    /// The resolver that the cluster's pods have in their resolv.conf, the same in every network.
    Cluster,
    /// The network's own resolver.
    Own,
    /// Services of the cluster's own, such as its API, each at a port of its own.
    Service,
    /// What probes of the agent come from: here it is the agent that opens connections.
    Prober,
}

impl Door {
    /// All doors.
    pub const ALL: [Door; 4] = [Door::Cluster, Door::Own, Door::Service, Door::Prober];

    /// How many of them, from the first on, are resolvers.
    pub const RESOLVERS: usize = 2;

    /// Where the agent listens for what comes through this door.
    pub const fn listeners(self) -> [IpAddr; 2] {
        let last = 2 + self as u8;
        let v6 = Ipv6Addr::new(0xfd61, 0x746f, 0x6c6c, 0, 0, 0, 0, last as u16);
        [IpAddr::V4(Ipv4Addr::new(169, 254, 1, last)), IpAddr::V6(v6)]
    }
}

/// The interface of a pod whose alias this is, by the index of its host side.
pub fn aliased_interface(alias: IpAddr) -> Option<u32> {
    match alias {
        IpAddr::V4(v4) => {
            let bits = v4.to_bits();
            (bits >> 28 == 0xf).then_some(bits & 0x0fff_ffff)
        }
        IpAddr::V6(v6) => {
            let bits = v6.to_bits();
            let index = u32::try_from(bits & 0xffff_ffff_ffff_ffff).ok()?;
            (bits >> 64 == ALIASES_V6.0.to_bits() >> 64).then_some(index)
        }
    }
}

/// The aliases of the interface with this index, one for each family.
pub fn aliases_of(ifindex: u32) -> [IpAddr; 2] {
    let v4 = Ipv4Addr::from_bits(ALIASES_V4.0.to_bits() | ifindex & 0x0fff_ffff);
    let v6 = Ipv6Addr::from_bits(ALIASES_V6.0.to_bits() | u128::from(ifindex));
    [v4.into(), v6.into()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alias_names_its_interface_in_both_families() {
        for index in [1, 2, 255, 256, 70_000, 0x0fff_ffff] {
            for alias in aliases_of(index) {
                assert_eq!(aliased_interface(alias), Some(index), "{alias}");
            }
        }
    }

    #[test]
    fn an_address_that_is_no_alias_names_nobody() {
        for text in ["10.0.0.5", "169.254.1.2", "239.255.255.255", "fd61:746f:6c6c::2", "fd00::1"] {
            assert_eq!(aliased_interface(text.parse().unwrap()), None, "{text}");
        }
        let beyond = "fd61:746f:6c6c:1:0:1::1".parse().unwrap();
        assert_eq!(aliased_interface(beyond), None);
    }

    #[test]
    fn each_door_has_listeners_of_its_own() {
        let mut all: Vec<IpAddr> = Door::ALL.iter().flat_map(|door| door.listeners()).collect();
        all.dedup();
        assert_eq!(all.len(), 8);
        assert_eq!(Door::Cluster.listeners()[0].to_string(), "169.254.1.2");
        assert_eq!(Door::Own.listeners()[1].to_string(), "fd61:746f:6c6c::3");
    }
}
