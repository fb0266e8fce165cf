//! The ways to the outside in the kernel's maps, and the program at the uplink that is there while
//! there are any.
//!
//! The rule: each network has ports of its own towards the outside, which nobody else can use up,
//! and none of them is one that the node's own sockets take by themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::path::Path;

use atoll_abi::{self as abi, Address, ClosedKey, DropReason, EgressKey, NO_NETWORK};
use atoll_plan::{Closed, Egress};
use atoll_types::{Cidr, NetworkId};

use crate::error::{Attempt, DatapathError};
use crate::maps::{Table, check_shape};
use crate::netlink::{Link, Netlink};
use crate::trie::{Prefix, Trie};

/// Where the kernel says which ports it gives to sockets that ask for none.
const LOCAL_PORTS: &str = "/proc/sys/net/ipv4/ip_local_port_range";
/// The ports from which Kubernetes takes node ports unless it is told otherwise.
const NODE_PORTS: RangeInclusive<u16> = 30_000..=32_767;
/// Ports below are the machine's own.
const LOWEST_PORT: u16 = 1024;
/// With fewer, no network would have a share worth the name.
const FEWEST_PORTS: u16 = 1024;
/// However few networks there are, none has more than one part in so many.
const SHARERS: u32 = 4;

/// What the outside sees of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Uplink {
    pub(crate) link: Link,
    pub(crate) ipv4: Option<Ipv4Addr>,
    pub(crate) ipv6: Option<Ipv6Addr>,
    /// The ports that pods speak from; none where the node's own sockets take too many.
    pub(crate) ports: Option<(u16, u16)>,
}

impl Uplink {
    /// The link that has the underlay address, and its first global address of each family.
    pub(crate) async fn find(netlink: &Netlink, underlay: IpAddr) -> Result<Self, DatapathError> {
        let link = netlink.link_with_address(underlay).await?;
        let link = link.ok_or(DatapathError::NoUplink(underlay))?;
        let all = netlink.global_addresses(&link).await?;
        let first = |of_family: fn(&IpAddr) -> bool| {
            let own = Some(underlay).filter(of_family);
            own.or_else(|| all.iter().copied().find(of_family))
        };
        let ipv4 = first(IpAddr::is_ipv4).and_then(|ip| match ip {
            IpAddr::V4(ip) => Some(ip),
            IpAddr::V6(_) => None,
        });
        let ipv6 = first(IpAddr::is_ipv6).and_then(|ip| match ip {
            IpAddr::V6(ip) => Some(ip),
            IpAddr::V4(_) => None,
        });
        Ok(Uplink { link, ipv4, ipv6, ports: spare_ports(local_ports()?) })
    }

    /// Whether this is the same link with the same addresses, whatever else has changed of it.
    pub(crate) fn is_as(&self, other: &Uplink) -> bool {
        let known = |it: &Uplink| (it.link.index, it.ipv4, it.ipv6, it.ports);
        known(self) == known(other)
    }
}

fn local_ports() -> Result<RangeInclusive<u16>, DatapathError> {
    let text = std::fs::read_to_string(LOCAL_PORTS).attempt(|| format!("read {LOCAL_PORTS}"))?;
    let mut numbers = text.split_whitespace().filter_map(|word| word.parse::<u16>().ok());
    let both = numbers.next().zip(numbers.next());
    let (first, last) = both
        .ok_or(std::io::Error::from(std::io::ErrorKind::InvalidData))
        .attempt(|| format!("understand {LOCAL_PORTS}"))?;
    Ok(first..=last)
}

/// The longest stretch of ports that neither sockets nor node ports take, as the first and how many.
fn spare_ports(local: RangeInclusive<u16>) -> Option<(u16, u16)> {
    let taken = (*local.start().min(NODE_PORTS.start()), *local.end().max(NODE_PORTS.end()));
    let below = (LOWEST_PORT, taken.0.saturating_sub(LOWEST_PORT));
    let between = match local.end() < NODE_PORTS.start() {
        true => (local.end() + 1, NODE_PORTS.start() - local.end() - 1),
        false => (NODE_PORTS.end() + 1, local.start().saturating_sub(NODE_PORTS.end() + 1)),
    };
    let above = (taken.1.saturating_add(1), u16::MAX - taken.1);
    let longest = [below, between, above].into_iter().max_by_key(|(_, count)| *count);
    longest.filter(|(_, count)| *count >= FEWEST_PORTS)
}

/// The part of the ports that the network at `place` among `networks` has.
fn part((first, count): (u16, u16), place: usize, networks: usize) -> (u16, u16) {
    let sharers = u32::try_from(networks).unwrap_or(u32::MAX / 2).next_power_of_two();
    let each = u32::from(count) / sharers.max(SHARERS);
    let before = u32::try_from(place).unwrap_or(u32::MAX).saturating_mul(each);
    let narrow = |number: u32| u16::try_from(number).unwrap_or(u16::MAX);
    (first.saturating_add(narrow(before)), narrow(each))
}

/// The maps of the outside.
pub(crate) struct Outside {
    egresses: Table<EgressKey, abi::Egress>,
    closed: Trie<ClosedKey, abi::Closed>,
}

/// Refuses pinned maps whose entries have other sizes than ours.
pub(crate) fn check_pinned(dir: &Path) -> Result<(), DatapathError> {
    check_shape::<EgressKey, abi::Egress>(&dir.join("egresses"))?;
    check_shape::<(u32, ClosedKey), abi::Closed>(&dir.join("outside_closed"))
}

impl Outside {
    pub(crate) fn open(dir: &Path) -> Result<Self, DatapathError> {
        Ok(Outside {
            egresses: Table::open(dir, "egresses")?,
            closed: Trie::open(dir, "outside_closed")?,
        })
    }

    /// Whether any network of this node has to do with the outside.
    pub(crate) fn is_needed(&self) -> Result<bool, DatapathError> {
        Ok(!self.egresses.keys()?.is_empty())
    }

    /// Gives a network a way out, and every network that has one its part of the ports.
    pub(crate) fn put_egress(
        &mut self,
        network: NetworkId,
        uplink: &Uplink,
    ) -> Result<(), DatapathError> {
        let mut networks = self.networks()?;
        networks.insert(network.get());
        self.share_out(&networks, uplink)
    }

    /// Takes it away again.
    pub(crate) fn remove_egress(
        &mut self,
        network: NetworkId,
        uplink: &Uplink,
    ) -> Result<(), DatapathError> {
        self.egresses.remove(EgressKey { network: network.get() })?;
        self.share_out(&self.networks()?, uplink)
    }

    fn networks(&self) -> Result<BTreeSet<u32>, DatapathError> {
        Ok(self.egresses.keys()?.into_iter().map(|key| key.network).collect())
    }

    fn share_out(
        &mut self,
        networks: &BTreeSet<u32>,
        uplink: &Uplink,
    ) -> Result<(), DatapathError> {
        for (network, entry) in entries(networks, uplink)? {
            self.egresses.put(EgressKey { network }, entry)?;
        }
        Ok(())
    }

    /// The networks that have a way out, and which of them as they would get it now.
    pub(crate) fn egress(
        &self,
        uplink: &Uplink,
    ) -> Result<BTreeMap<NetworkId, Option<Egress>>, DatapathError> {
        let wanted = entries(&self.networks()?, uplink).unwrap_or_default();
        let seen = self.egresses.entries()?.into_iter().filter_map(|(key, entry)| {
            let is_right = wanted.get(&key.network) == Some(&entry);
            Some((NetworkId::try_from(key.network).ok()?, is_right.then_some(Egress::Node)))
        });
        Ok(seen.collect())
    }

    pub(crate) fn close(&mut self, closed: &Closed) -> Result<(), DatapathError> {
        let reason = match closed.to {
            Some(_) => DropReason::NoEndpoint,
            None => DropReason::OutsideClosed,
        };
        self.closed.put(closed_key(closed), abi::Closed { reason: reason.number() })
    }

    pub(crate) fn reopen(&mut self, closed: &Closed) -> Result<(), DatapathError> {
        self.closed.remove(closed_key(closed))
    }

    /// What is closed, as far as a plan wrote it.
    pub(crate) fn closed(&self) -> Result<BTreeSet<Closed>, DatapathError> {
        Ok(self.closed.keys()?.into_iter().filter_map(closed_of).collect())
    }
}

fn entries(
    networks: &BTreeSet<u32>,
    uplink: &Uplink,
) -> Result<BTreeMap<u32, abi::Egress>, DatapathError> {
    let ports = uplink.ports.ok_or(DatapathError::NoPortsLeft)?;
    let entry = |(place, network): (usize, &u32)| {
        let (first_port, ports) = part(ports, place, networks.len());
        let ipv4 = uplink.ipv4.map_or(Address::NONE, |ip| IpAddr::V4(ip).into());
        let ipv6 = uplink.ipv6.map_or(Address::NONE, |ip| IpAddr::V6(ip).into());
        (*network, abi::Egress { ipv4, ipv6, first_port, ports, reserved: [0; 4] })
    };
    Ok(networks.iter().enumerate().map(entry).collect())
}

/// How many bits of a key come before those of an IPv4 or IPv6 address.
fn bits_before(range: &Cidr) -> u32 {
    if range.is_ipv4() { 32 + 96 } else { 32 }
}

fn closed_key(closed: &Closed) -> Prefix<ClosedKey> {
    let network = closed.to.map_or(NO_NETWORK, NetworkId::get);
    let key = ClosedKey { network: network.to_be_bytes(), address: closed.range.first().into() };
    (bits_before(&closed.range) + u32::from(closed.range.prefix_len()), key)
}

fn closed_of((bits, key): Prefix<ClosedKey>) -> Option<Closed> {
    let ip = IpAddr::from(key.address);
    let length = bits.checked_sub(if ip.is_ipv4() { 32 + 96 } else { 32 })?;
    let number = u32::from_be_bytes(key.network);
    let to = match number {
        NO_NETWORK => None,
        number => Some(NetworkId::try_from(number).ok()?),
    };
    Some(Closed { to, range: format!("{ip}/{length}").parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_speak_from_the_longest_stretch_that_neither_sockets_nor_node_ports_take() {
        assert_eq!(spare_ports(32_768..=60_999), Some((1024, 28_976)));
        assert_eq!(spare_ports(15_000..=60_000), Some((1024, 13_976)));
        assert_eq!(spare_ports(1024..=20_000), Some((32_768, 32_768)));
        assert_eq!(spare_ports(1024..=61_000), Some((61_001, 4535)));
        assert_eq!(spare_ports(1024..=65_535), None);
    }

    #[test]
    fn every_network_has_ports_that_nobody_else_has() {
        for networks in [1_usize, 2, 4, 5, 100, 4096] {
            let parts = (0..networks).map(|place| part((1024, 28_976), place, networks));
            let mut next = 1024_u32;
            for (first, count) in parts {
                assert!(u32::from(first) >= next && count > 0, "{networks}");
                next = u32::from(first) + u32::from(count);
            }
            assert!(next <= 30_000, "{networks}");
        }
        assert_eq!(part((1024, 28_976), 0, 1), (1024, 7244));
    }

    #[test]
    fn what_is_closed_survives_the_round_trip() {
        let network = NetworkId::try_from(7).ok();
        let ranges = ["10.0.0.0/8", "192.0.2.1/32", "0.0.0.0/0", "fd00::/8", "::1/128"];
        for (to, range) in [None, network].into_iter().flat_map(|to| ranges.map(|it| (to, it))) {
            let closed = Closed { to, range: range.parse().unwrap() };
            assert_eq!(closed_of(closed_key(&closed)), Some(closed));
        }
    }
}
