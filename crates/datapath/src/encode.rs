//! Plan values as map entries and back. Pure: no map is touched here.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use atoll_abi::{self as abi, Address, INTERFACE_NAME_BYTES, MAX_SOURCES};
use atoll_plan::{Endpoint, Guard, HostInterface, Place};
use atoll_types::{MacAddr, NetAddr, NetworkId};

use crate::error::DatapathError;

/// The map entry that enforces `guard` on the interface called `name`.
pub(crate) fn interface(
    name: &HostInterface,
    guard: &Guard,
) -> Result<abi::Interface, DatapathError> {
    let count = u8::try_from(guard.ips.len()).ok();
    let source_count = count.filter(|count| usize::from(*count) <= MAX_SOURCES);
    let mut sources = [Address::NONE; MAX_SOURCES];
    for (slot, ip) in sources.iter_mut().zip(&guard.ips) {
        *slot = (*ip).into();
    }
    Ok(abi::Interface {
        network: guard.network.get(),
        mac: guard.mac.octets(),
        source_count: source_count.ok_or(DatapathError::TooManySources(guard.ips.len()))?,
        serves_ipv6: guard.ips.iter().any(IpAddr::is_ipv6).into(),
        name: name_bytes(name),
        sources,
    })
}

fn name_bytes(name: &HostInterface) -> [u8; INTERFACE_NAME_BYTES] {
    let mut bytes = [0; INTERFACE_NAME_BYTES];
    let text = name.as_str().bytes().take(INTERFACE_NAME_BYTES - 1);
    bytes.iter_mut().zip(text).for_each(|(slot, byte)| *slot = byte);
    bytes
}

/// The name in a map entry, unless it is none of ours.
pub(crate) fn interface_name(entry: &abi::Interface) -> Option<HostInterface> {
    let end = entry.name.iter().position(|byte| *byte == 0)?;
    std::str::from_utf8(&entry.name[..end]).ok()?.parse().ok()
}

/// What a map entry enforces, unless it holds what no plan ever wrote.
pub(crate) fn guard(entry: &abi::Interface) -> Option<Guard> {
    let used = entry.sources.get(..usize::from(entry.source_count))?;
    Some(Guard {
        network: NetworkId::try_from(entry.network).ok()?,
        mac: MacAddr::new(entry.mac).ok()?,
        ips: used.iter().map(|source| IpAddr::from(*source)).collect::<BTreeSet<_>>(),
    })
}

/// The map entry for an endpoint, whose interface (if it is on this node) has index `ifindex`.
pub(crate) fn endpoint_here(mac: MacAddr, ifindex: u32) -> abi::Endpoint {
    abi::Endpoint { ifindex, node: Address::NONE, mac: mac.octets(), reserved: [0; 2] }
}

/// The map entry for an endpoint on the node with underlay address `node`.
pub(crate) fn endpoint_there(mac: MacAddr, node: Address) -> abi::Endpoint {
    abi::Endpoint { ifindex: 0, node, mac: mac.octets(), reserved: [0; 2] }
}

/// The address of another node. Nodes meet over one family, which is that of `own`.
pub(crate) fn node(node: IpAddr, own: IpAddr) -> Result<Address, DatapathError> {
    let is_same_family = node.is_ipv4() == own.is_ipv4();
    if is_same_family { Ok(node.into()) } else { Err(DatapathError::OtherFamily(node)) }
}

/// The address an endpoint entry is for, unless no plan ever wrote it.
pub(crate) fn net_addr(key: &abi::EndpointKey) -> Option<NetAddr> {
    Some(NetAddr::new(NetworkId::try_from(key.network).ok()?, key.address.into()))
}

/// What an endpoint entry says; `None` when its interface is not among `interfaces`.
pub(crate) fn endpoint(
    entry: &abi::Endpoint,
    interfaces: &BTreeMap<u32, HostInterface>,
) -> Option<Endpoint> {
    let place = match entry.ifindex {
        0 => Place::There(entry.node.into()),
        index => Place::Here(interfaces.get(&index)?.clone()),
    };
    Some(Endpoint { mac: MacAddr::new(entry.mac).ok()?, place })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> HostInterface {
        HostInterface::for_attachment("c0ffee", "eth0")
    }

    fn guard_with(ips: &[&str]) -> Guard {
        Guard {
            network: NetworkId::try_from(7).unwrap(),
            mac: "02:00:00:00:00:05".parse().unwrap(),
            ips: ips.iter().map(|ip| ip.parse().unwrap()).collect(),
        }
    }

    #[test]
    fn a_guard_survives_the_round_trip_with_its_interfaces_name() {
        for ips in [&["10.0.0.5"][..], &["10.0.0.5", "fd00::5"], &[]] {
            let entry = interface(&name(), &guard_with(ips)).unwrap();
            assert_eq!(guard(&entry), Some(guard_with(ips)));
            assert_eq!(interface_name(&entry), Some(name()));
        }
    }

    #[test]
    fn more_addresses_than_the_layout_holds_are_refused() {
        let ips: Vec<String> = (0..=MAX_SOURCES).map(|n| format!("10.0.0.{n}")).collect();
        let guard = guard_with(&ips.iter().map(String::as_str).collect::<Vec<_>>());
        let error = interface(&name(), &guard).unwrap_err();
        assert_eq!(error.to_string(), "an interface may have 8 addresses, not 9");
    }

    #[test]
    fn an_entry_that_no_plan_wrote_is_no_guard() {
        let mut entry = interface(&name(), &guard_with(&["10.0.0.5"])).unwrap();
        entry.source_count = 9;
        assert_eq!(guard(&entry), None);
        entry.source_count = 1;
        entry.network = 0;
        assert_eq!(guard(&entry), None);
    }

    #[test]
    fn an_endpoint_here_needs_its_interface_to_be_there() {
        let mac = "02:00:00:00:00:05".parse().unwrap();
        let entry = endpoint_here(mac, 12);
        let known = BTreeMap::from([(12, name())]);
        let expected = Endpoint { mac, place: Place::Here(name()) };
        assert_eq!(endpoint(&entry, &known), Some(expected));
        assert_eq!(endpoint(&entry, &BTreeMap::new()), None);
    }

    #[test]
    fn an_endpoint_there_names_its_node() {
        let mac = "02:00:00:00:00:05".parse().unwrap();
        for there in ["172.30.0.11", "fd00::11"].map(|ip| ip.parse().unwrap()) {
            let entry = endpoint_there(mac, node(there, there).unwrap());
            let expected = Endpoint { mac, place: Place::There(there) };
            assert_eq!(endpoint(&entry, &BTreeMap::new()), Some(expected));
        }
    }

    #[test]
    fn a_node_of_the_other_family_is_refused() {
        let [ipv4, ipv6] = ["172.30.0.11", "fd00::11"].map(|ip| ip.parse().unwrap());
        assert!(node(ipv4, ipv6).is_err() && node(ipv6, ipv4).is_err());
    }
}
