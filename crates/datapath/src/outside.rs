//! The ways to the outside in the kernel's maps, and the program at the uplink that is there while
//! there are any.
//!
//! The rule: each network has ports of its own towards the outside, which nobody else can use up,
//! and none of them is one that the node's own sockets take by themselves. The maps are the only
//! memory of who leaves how.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::path::Path;

use atoll_abi::{
    self as abi, Address, ClosedKey, DropReason, EgressKey, EgressNode, EgressNodeKey, NO_NETWORK,
};
use atoll_plan::{Closed, Egress, Exit, Exits};
use atoll_types::{Cidr, NetworkId};

use crate::error::{Attempt, DatapathError};
use crate::maps::{Table, check_shape};
use crate::netlink::{Link, Netlink};
use crate::shares::Tenants;
use crate::trie::{Prefix, Trie};

/// Where the kernel says which ports it gives to sockets that ask for none.
const LOCAL_PORTS: &str = "/proc/sys/net/ipv4/ip_local_port_range";
/// The ports from which Kubernetes takes node ports unless it is told otherwise.
const NODE_PORTS: RangeInclusive<u16> = 30_000..=32_767;
/// Ports below are the machine's own.
const LOWEST_PORT: u16 = 1024;
/// With fewer, no network would have a share worth the name.
const FEWEST_PORTS: u16 = 1024;
/// One port in so many is for clients of plain node ports.
const SHARE_OF_FACES: u16 = 4;

/// What the outside sees of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Uplink {
    pub(crate) link: Link,
    pub(crate) ipv4: Option<Ipv4Addr>,
    pub(crate) ipv6: Option<Ipv6Addr>,
    /// The ports that tenants' pods speak from; none where the node's own sockets take too many.
    pub(crate) ports: Option<(u16, u16)>,
    /// Those that clients of plain node ports are given towards backends of other nodes.
    pub(crate) faces: Option<(u16, u16)>,
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
        let (ports, faces) = spare_ports(local_ports()?).map(apart).unzip();
        Ok(Uplink { link, ipv4, ipv6, ports, faces })
    }

    /// Whether this is the same link with the same addresses, whatever else has changed of it.
    pub(crate) fn is_as(&self, other: &Uplink) -> bool {
        let known = |it: &Uplink| (it.link.index, it.ipv4, it.ipv6, it.ports, it.faces);
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

/// The ports of tenants, and those of plain pods' clients, who come by the same addresses and are known in
/// other tables: neither sees which port the other has taken.
fn apart((first, count): (u16, u16)) -> ((u16, u16), (u16, u16)) {
    let faces = count / SHARE_OF_FACES;
    ((first, count - faces), (first + (count - faces), faces))
}

/// The maps of the outside.
pub(crate) struct Outside {
    egresses: Table<EgressKey, abi::Egress>,
    nodes: Table<EgressNodeKey, EgressNode>,
    closed: Trie<ClosedKey, abi::Closed>,
}

/// Refuses pinned maps whose entries have other sizes than ours.
pub(crate) fn check_pinned(dir: &Path) -> Result<(), DatapathError> {
    check_shape::<EgressKey, abi::Egress>(&dir.join("egresses"))?;
    check_shape::<EgressNodeKey, EgressNode>(&dir.join("egress_nodes"))?;
    check_shape::<(u32, ClosedKey), abi::Closed>(&dir.join("outside_closed"))
}

impl Outside {
    pub(crate) fn open(dir: &Path) -> Result<Self, DatapathError> {
        Ok(Outside {
            egresses: Table::open(dir, "egresses")?,
            nodes: Table::open(dir, "egress_nodes")?,
            closed: Trie::open(dir, "outside_closed")?,
        })
    }

    /// Whether any network leaves by this node.
    pub(crate) fn is_needed(&self) -> Result<bool, DatapathError> {
        Ok(!self.egresses.keys()?.is_empty())
    }

    /// The networks whose pods leave by this node wherever they are, and the place of each.
    pub(crate) fn places(&self) -> Result<Vec<(u32, u32)>, DatapathError> {
        let all = self.egresses.entries()?.into_iter().filter(|(_, entry)| entry.for_all != 0);
        Ok(all.map(|(key, entry)| (key.network, entry.table.into())).collect())
    }

    /// Gives a network a way out, and every network that leaves here its part of the ports.
    pub(crate) fn put_egress(
        &mut self,
        network: NetworkId,
        way: Way,
        uplink: &Uplink,
        tenants: &Tenants,
    ) -> Result<(), DatapathError> {
        let mut ways = self.ways()?;
        ways.insert(network.get(), way);
        self.write(&entries(&ways, uplink, tenants)?)?;
        self.write_nodes(network.get(), way.exits())
    }

    /// Takes it away again.
    pub(crate) fn remove_egress(
        &mut self,
        network: NetworkId,
        uplink: &Uplink,
        tenants: &Tenants,
    ) -> Result<(), DatapathError> {
        self.write_nodes(network.get(), Exits::default())?;
        let mut ways = self.ways()?;
        ways.remove(&network.get());
        self.write(&entries(&ways, uplink, tenants)?)
    }

    /// Gives every network that leaves here its part of the ports, after it was told whose each is.
    pub(crate) fn share_among(
        &mut self,
        uplink: &Uplink,
        tenants: &Tenants,
    ) -> Result<(), DatapathError> {
        self.write(&entries(&self.ways()?, uplink, tenants)?)
    }

    /// Has exactly these leave here.
    fn write(&mut self, entries: &BTreeMap<u32, abi::Egress>) -> Result<(), DatapathError> {
        for key in self.egresses.keys()? {
            if !entries.contains_key(&key.network) {
                self.egresses.remove(key)?;
            }
        }
        let mut entries = entries.iter();
        entries
            .try_for_each(|(network, it)| self.egresses.put(EgressKey { network: *network }, *it))
    }

    /// Has a network leave by these other nodes.
    fn write_nodes(&mut self, network: u32, exits: Exits) -> Result<(), DatapathError> {
        for (ipv6, exit) in [(0, exits.v4), (1, exits.v6)] {
            let key = EgressNodeKey { network, ipv6 };
            match exit {
                Some(Exit::There(node)) => self.nodes.put(key, EgressNode { node: node.into() })?,
                Some(Exit::Here(_)) | None => self.nodes.remove(key)?,
            }
        }
        Ok(())
    }

    /// How each network leaves, as the maps say.
    fn ways(&self) -> Result<BTreeMap<u32, Way>, DatapathError> {
        let here = self.egresses.entries()?.into_iter();
        let mut ways: BTreeMap<u32, Way> =
            here.map(|(key, entry)| (key.network, way_of(&entry))).collect();
        for (key, EgressNode { node }) in self.nodes.entries()? {
            let way = ways.entry(key.network).or_insert(Way::NOWHERE);
            let mut exits = way.exits();
            let exit = if key.ipv6 == 0 { &mut exits.v4 } else { &mut exits.v6 };
            *exit = Some(Exit::There(node.into()));
            way.egress = Egress::Addresses(exits);
        }
        Ok(ways)
    }

    /// The networks that have a way out, and which of them as they would get it now.
    pub(crate) fn egress(
        &self,
        uplink: &Uplink,
        tenants: &Tenants,
    ) -> Result<BTreeMap<NetworkId, Option<Egress>>, DatapathError> {
        let ways = self.ways()?;
        let wanted = entries(&ways, uplink, tenants).unwrap_or_default();
        let seen = self.egresses.entries()?.into_iter().map(|(key, entry)| (key.network, entry));
        let seen: BTreeMap<u32, abi::Egress> = seen.collect();
        let decoded = ways.into_iter().filter_map(|(network, way)| {
            let is_right = wanted.get(&network) == seen.get(&network);
            Some((NetworkId::try_from(network).ok()?, is_right.then_some(way.egress)))
        });
        Ok(decoded.collect())
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

/// How a network leaves, and its place where pods of other nodes do so here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    pub(crate) egress: Egress,
    pub(crate) place: u16,
}

impl Way {
    const NOWHERE: Way = Way { egress: Egress::Addresses(Exits { v4: None, v6: None }), place: 0 };

    fn exits(&self) -> Exits {
        match self.egress {
            Egress::Node => Exits::default(),
            Egress::Addresses(exits) => exits,
        }
    }

    fn is_here(&self) -> bool {
        self.egress == Egress::Node || self.exits().is_here()
    }
}

fn way_of(entry: &abi::Egress) -> Way {
    if entry.for_all == 0 {
        return Way { egress: Egress::Node, place: 0 };
    }
    let here = |address: Address| (address != Address::NONE).then(|| Exit::Here(address.into()));
    let exits = Exits { v4: here(entry.ipv4), v6: here(entry.ipv6) };
    Way { egress: Egress::Addresses(exits), place: entry.table }
}

/// The entries of those that leave here.
fn entries(
    ways: &BTreeMap<u32, Way>,
    uplink: &Uplink,
    tenants: &Tenants,
) -> Result<BTreeMap<u32, abi::Egress>, DatapathError> {
    let here = ways.iter().filter(|(_, way)| way.is_here()).map(|(network, _)| *network);
    let here: Vec<u32> = here.collect();
    if here.is_empty() {
        return Ok(BTreeMap::new());
    }
    let ports = uplink.ports.ok_or(DatapathError::NoPortsLeft)?;
    let parts = tenants.ports(ports, here);
    Ok(parts
        .iter()
        .map(|(network, part)| (*network, entry(&ways[network], *part, uplink)))
        .collect())
}

fn entry(way: &Way, (first_port, ports): (u16, u16), uplink: &Uplink) -> abi::Egress {
    let address = |ip: Option<IpAddr>| ip.map_or(Address::NONE, Into::into);
    let here = |exit| match exit {
        Some(Exit::Here(ip)) => Some(ip),
        Some(Exit::There(_)) | None => None,
    };
    let (ipv4, ipv6, table, for_all) = match way.egress {
        Egress::Node => (uplink.ipv4.map(IpAddr::V4), uplink.ipv6.map(IpAddr::V6), 0, 0),
        Egress::Addresses(exits) => (here(exits.v4), here(exits.v6), way.place, 1),
    };
    let (ipv4, ipv6) = (address(ipv4), address(ipv6));
    abi::Egress { ipv4, ipv6, first_port, ports, table, for_all, reserved: 0 }
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
    fn tenants_and_clients_of_plain_node_ports_have_no_port_in_common() {
        for (first, count) in [(1024, 28_976), (61_001, 4535), (1024, 1024)] {
            let (ports, faces) = apart((first, count));
            assert_eq!((ports.0, ports.0 + ports.1), (first, faces.0));
            assert_eq!(faces.0 - first + faces.1, count);
            assert!(faces.1 >= 256 && ports.1 > faces.1, "{ports:?} {faces:?}");
        }
    }

    #[test]
    fn whoever_leaves_here_has_ports_and_the_networks_address_is_for_pods_of_all_nodes() {
        let uplink = Uplink {
            link: netlink_packet_route::link::LinkMessage::default().into(),
            ipv4: Some(Ipv4Addr::new(192, 0, 2, 1)),
            ipv6: None,
            ports: Some((1024, 28_976)),
            faces: None,
        };
        let own = Exit::Here([192, 0, 2, 9].into());
        let there = Exit::There([192, 0, 2, 2].into());
        let way = |egress| Way { egress, place: 3 };
        let exits = |v4| Egress::Addresses(Exits { v4: Some(v4), v6: None });
        let ways = [(1, Egress::Node), (2, exits(own)), (3, exits(there))];
        let ways = ways.map(|(network, egress)| (network, way(egress))).into();
        let entries = entries(&ways, &uplink, &Tenants::default()).unwrap();
        assert_eq!(entries.keys().collect::<Vec<_>>(), [&1, &2], "the third leaves elsewhere");
        assert_eq!((entries[&1].for_all, entries[&2].for_all, entries[&2].table), (0, 1, 3));
        assert_eq!(way_of(&entries[&2]), way(exits(own)));
        assert_eq!(way_of(&entries[&1]).egress, Egress::Node);
        assert_ne!(entries[&1].first_port, entries[&2].first_port);
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
