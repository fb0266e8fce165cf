//! The ways of networks to infra in the kernel's maps: to nodes, and to the pods of no tenant.
//!
//! The rule: each tenant has ports of its own there, as towards the outside. Who is closed outside and
//! who is infra are never the same end of a connection, so that both may use the same ports.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;

use atoll_abi::{
    self as abi, Address, EgressKey, INFRA_HERE, INFRA_NOWHERE, INFRA_THERE, InfraKey,
};
use atoll_plan::Infra as Place;
use atoll_types::{Cidr, NetworkId};

use crate::error::DatapathError;
use crate::maps::{Table, check_shape};
use crate::outside::Uplink;
use crate::shares::Tenants;
use crate::trie::{Prefix, Trie};

/// The maps of infra.
pub(crate) struct Infra {
    ranges: Trie<InfraKey, abi::Infra>,
    exits: Table<EgressKey, abi::Egress>,
}

/// Refuses pinned maps whose entries have other sizes than ours.
pub(crate) fn check_pinned(dir: &Path) -> Result<(), DatapathError> {
    check_shape::<(u32, InfraKey), abi::Infra>(&dir.join("infra_ranges"))?;
    check_shape::<EgressKey, abi::Egress>(&dir.join("infra_exits"))
}

impl Infra {
    pub(crate) fn open(dir: &Path) -> Result<Self, DatapathError> {
        Ok(Infra {
            ranges: Trie::open(dir, "infra_ranges")?,
            exits: Table::open(dir, "infra_exits")?,
        })
    }

    /// Whether any network reaches infra from this node.
    pub(crate) fn is_needed(&self) -> Result<bool, DatapathError> {
        Ok(!self.exits.keys()?.is_empty())
    }

    pub(crate) fn put(&mut self, range: &Cidr, place: Place) -> Result<(), DatapathError> {
        self.ranges.put(range_key(range), encode(place))
    }

    pub(crate) fn remove(&mut self, range: &Cidr) -> Result<(), DatapathError> {
        self.ranges.remove(range_key(range))
    }

    /// Has a network reach infra, and gives every one that does its part of the ports.
    pub(crate) fn let_in(
        &mut self,
        network: NetworkId,
        uplink: &Uplink,
        tenants: &Tenants,
    ) -> Result<(), DatapathError> {
        let mut networks = self.networks()?;
        networks.insert(network.get());
        self.write(&networks, uplink, tenants)
    }

    /// Keeps a network from it.
    pub(crate) fn keep_out(
        &mut self,
        network: NetworkId,
        uplink: &Uplink,
        tenants: &Tenants,
    ) -> Result<(), DatapathError> {
        self.exits.remove(EgressKey { network: network.get() })?;
        self.share_among(uplink, tenants)
    }

    fn networks(&self) -> Result<BTreeSet<u32>, DatapathError> {
        Ok(self.exits.keys()?.into_iter().map(|key| key.network).collect())
    }

    /// Gives every network that reaches infra its part of the ports, after it was told whose each is.
    pub(crate) fn share_among(
        &mut self,
        uplink: &Uplink,
        tenants: &Tenants,
    ) -> Result<(), DatapathError> {
        let networks = self.networks()?;
        if networks.is_empty() { Ok(()) } else { self.write(&networks, uplink, tenants) }
    }

    fn write(
        &mut self,
        networks: &BTreeSet<u32>,
        uplink: &Uplink,
        tenants: &Tenants,
    ) -> Result<(), DatapathError> {
        for (network, exit) in exits(networks, uplink, tenants)? {
            self.exits.put(EgressKey { network }, exit)?;
        }
        Ok(())
    }

    /// The networks that reach infra, and whether as they would get it now.
    pub(crate) fn compatible(
        &self,
        uplink: &Uplink,
        tenants: &Tenants,
    ) -> Result<BTreeMap<NetworkId, bool>, DatapathError> {
        let wanted = exits(&self.networks()?, uplink, tenants).unwrap_or_default();
        let seen = self.exits.entries()?.into_iter().filter_map(|(key, exit)| {
            let is_right = wanted.get(&key.network) == Some(&exit);
            Some((NetworkId::try_from(key.network).ok()?, is_right))
        });
        Ok(seen.collect())
    }

    /// What is known of infra, as far as a plan wrote it.
    pub(crate) fn ranges(&self) -> Result<BTreeMap<Cidr, Place>, DatapathError> {
        let entries = self.ranges.entries()?.into_iter();
        Ok(entries.filter_map(|(key, entry)| Some((range_of(key)?, decode(&entry)?))).collect())
    }
}

/// What each of these networks leaves by.
fn exits(
    networks: &BTreeSet<u32>,
    uplink: &Uplink,
    tenants: &Tenants,
) -> Result<BTreeMap<u32, abi::Egress>, DatapathError> {
    let ports = uplink.ports.ok_or(DatapathError::NoPortsLeft)?;
    let exit = |(first_port, ports)| abi::Egress {
        ipv4: uplink.ipv4.map_or(Address::NONE, |ip| IpAddr::V4(ip).into()),
        ipv6: uplink.ipv6.map_or(Address::NONE, |ip| IpAddr::V6(ip).into()),
        first_port,
        ports,
        table: 0,
        for_all: 0,
        reserved: 0,
    };
    let parts = tenants.ports(ports, networks.iter().copied());
    Ok(parts.into_iter().map(|(network, part)| (network, exit(part))).collect())
}

fn encode(place: Place) -> abi::Infra {
    let (place, is_node) = match place {
        Place::Nowhere => (INFRA_NOWHERE, 0),
        Place::ThisNode => (INFRA_HERE, 1),
        Place::PodsHere => (INFRA_HERE, 0),
        Place::OtherNode => (INFRA_THERE, 1),
        Place::PodsThere => (INFRA_THERE, 0),
    };
    abi::Infra { place, is_node }
}

fn decode(entry: &abi::Infra) -> Option<Place> {
    let all =
        [Place::Nowhere, Place::ThisNode, Place::PodsHere, Place::OtherNode, Place::PodsThere];
    all.into_iter().find(|place| encode(*place) == *entry)
}

/// How many bits of a key come before those of an IPv4 address.
const BEFORE_V4: u32 = 96;

fn range_key(range: &Cidr) -> Prefix<InfraKey> {
    let before = if range.is_ipv4() { BEFORE_V4 } else { 0 };
    (before + u32::from(range.prefix_len()), InfraKey { address: range.first().into() })
}

fn range_of((bits, key): Prefix<InfraKey>) -> Option<Cidr> {
    let ip = IpAddr::from(key.address);
    let length = bits.checked_sub(if ip.is_ipv4() { BEFORE_V4 } else { 0 })?;
    format!("{ip}/{length}").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_of_infra_survives_the_round_trip() {
        for range in ["192.0.2.1/32", "10.244.0.0/16", "fd77::1/128", "fd44::/56"] {
            let range: Cidr = range.parse().unwrap();
            assert_eq!(range_of(range_key(&range)), Some(range));
        }
        let all = [Place::Nowhere, Place::ThisNode, Place::PodsHere, Place::OtherNode];
        for place in all.into_iter().chain([Place::PodsThere]) {
            assert_eq!(decode(&encode(place)), Some(place));
        }
        assert_eq!(decode(&abi::Infra { place: 9, is_node: 0 }), None);
    }

    #[test]
    fn every_network_has_ports_of_its_own_and_the_nodes_addresses() {
        let uplink = Uplink {
            link: netlink_packet_route::link::LinkMessage::default().into(),
            ipv4: Some([192, 0, 2, 1].into()),
            ipv6: None,
            ports: Some((1024, 28_976)),
            faces: None,
        };
        let exits = exits(&[7, 9].into(), &uplink, &Tenants::default()).unwrap();
        let ends = |it: &abi::Egress| (it.first_port, it.first_port + it.ports);
        assert_eq!(ends(&exits[&7]).1, ends(&exits[&9]).0);
        assert_eq!(exits[&9].ipv4, IpAddr::from([192, 0, 2, 1]).into());
        assert_eq!(exits[&9].ipv6, Address::NONE, "nothing of that family leaves");
        let no_ports = Uplink { ports: None, ..uplink };
        assert!(super::exits(&[7].into(), &no_ports, &Tenants::default()).is_err());
    }
}
