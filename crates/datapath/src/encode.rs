//! Plan values as map entries and back. Pure: no map is touched here.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use atoll_abi::{self as abi, Address, INTERFACE_NAME_BYTES, MAX_SOURCES};
use atoll_plan::{Doors, Endpoint, Guard, HostInterface, Place, Resolver, ServiceDoor};
use atoll_types::{MacAddr, NetAddr, NetworkId};

use crate::error::DatapathError;
use crate::seat::Seat;

/// The map entry that enforces `guard` on the interface called `name`, which is in its seat `since`.
pub(crate) fn interface(
    name: &HostInterface,
    guard: &Guard,
    seat: Seat,
    since: u64,
) -> Result<abi::Interface, DatapathError> {
    let count = u8::try_from(guard.ips.len()).ok();
    let source_count = count.filter(|count| usize::from(*count) <= MAX_SOURCES);
    let mut sources = [Address::NONE; MAX_SOURCES];
    for (slot, ip) in sources.iter_mut().zip(&guard.ips) {
        *slot = (*ip).into();
    }
    Ok(abi::Interface {
        since,
        network: guard.network.get(),
        mac: guard.mac.octets(),
        source_count: source_count.ok_or(DatapathError::TooManySources(guard.ips.len()))?,
        serves_ipv6: guard.ips.iter().any(IpAddr::is_ipv6).into(),
        name: name_bytes(name),
        sources,
        slot: seat.slot,
        table: seat.table,
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

/// The map entry for an endpoint whose interface is on this node, with index `ifindex`, in `seat`.
pub(crate) fn endpoint_here(mac: MacAddr, ifindex: u32, seat: Seat) -> abi::Endpoint {
    abi::Endpoint {
        since: 0,
        ifindex,
        node: Address::NONE,
        mac: mac.octets(),
        slot: seat.slot,
        table: seat.table,
        reserved: [0; 2],
    }
}

/// The map entry for an endpoint on the node with underlay address `node`.
pub(crate) fn endpoint_there(mac: MacAddr, node: Address) -> abi::Endpoint {
    abi::Endpoint { node, ..endpoint_here(mac, 0, Seat::default()) }
}

/// The entry that an interface has already: what is there keeps its seat and its age, so that its
/// connections stay its own.
pub(crate) fn known_interface(
    known: Option<abi::Interface>,
    name: &HostInterface,
    guard: &Guard,
) -> Option<abi::Interface> {
    known.filter(|known| {
        interface_name(known).as_ref() == Some(name) && known.network == guard.network.get()
    })
}

/// The same endpoint as old as it is: one that has moved or changed is new.
pub(crate) fn aged(entry: abi::Endpoint, known: Option<abi::Endpoint>, now: u64) -> abi::Endpoint {
    let same = known.filter(|known| abi::Endpoint { since: 0, ..*known } == entry);
    abi::Endpoint { since: same.map_or(now, |known| known.since), ..entry }
}

/// The address of another node. Nodes meet over one family, which is that of `own`.
pub(crate) fn node(node: IpAddr, own: IpAddr) -> Result<Address, DatapathError> {
    let is_same_family = node.is_ipv4() == own.is_ipv4();
    if is_same_family { Ok(node.into()) } else { Err(DatapathError::OtherFamily(node)) }
}

/// The map entry for a network's doors.
pub(crate) fn doors(doors: &Doors) -> abi::Doors {
    let resolvers = [doors.cluster, doors.own];
    abi::Doors {
        ipv4: resolvers.map(|it| it.v4.map_or(Address::NONE, |ip| IpAddr::V4(ip).into())),
        ipv6: resolvers.map(|it| it.v6.map_or(Address::NONE, |ip| IpAddr::V6(ip).into())),
    }
}

/// The doors that a map entry holds.
pub(crate) fn doors_in(entry: &abi::Doors) -> Doors {
    let resolver = |door: usize| -> Resolver {
        let used = [entry.ipv4[door], entry.ipv6[door]].into_iter().filter(|it| !it.is_none());
        used.map(IpAddr::from).collect()
    };
    Doors { cluster: resolver(0), own: resolver(1) }
}

/// The key of the map entry for a door to a service.
pub(crate) fn service_door_key(door: &ServiceDoor) -> abi::ServiceDoorKey {
    abi::ServiceDoorKey {
        network: door.addr.network.get(),
        address: door.addr.ip.into(),
        port: door.port.to_be_bytes(),
        datagrams: door.datagrams.into(),
        reserved: 0,
    }
}

/// The map entry for a door to a service that leads to this port of the agent.
pub(crate) fn service_door(listener: u16) -> abi::ServiceDoor {
    abi::ServiceDoor { listener: listener.to_be_bytes(), reserved: [0; 2] }
}

/// The way back from the agent's port to what pods see.
pub(crate) fn service_front(
    key: &abi::ServiceDoorKey,
    door: &abi::ServiceDoor,
) -> (abi::ServiceFrontKey, abi::ServiceFront) {
    let abi::ServiceDoorKey { network, address, port, datagrams, reserved } = *key;
    (
        abi::ServiceFrontKey { network, listener: door.listener, reserved: [0; 2] },
        abi::ServiceFront { address, port, datagrams, reserved },
    )
}

/// The door that an entry is for, unless no plan ever wrote it.
pub(crate) fn service_door_of(key: &abi::ServiceDoorKey) -> Option<ServiceDoor> {
    let network = NetworkId::try_from(key.network).ok()?;
    let addr = NetAddr::new(network, key.address.into());
    let datagrams = match key.datagrams {
        0 => false,
        1 => true,
        _ => return None,
    };
    Some(ServiceDoor { addr, port: u16::from_be_bytes(key.port), datagrams })
}

/// The address an endpoint entry is for, unless no plan ever wrote it.
pub(crate) fn net_addr(key: &abi::EndpointKey) -> Option<NetAddr> {
    Some(NetAddr::new(NetworkId::try_from(key.network).ok()?, key.address.into()))
}

/// What an endpoint entry says; `None` when its interface is not among `interfaces`, or in another
/// seat.
pub(crate) fn endpoint(
    entry: &abi::Endpoint,
    interfaces: &BTreeMap<u32, (HostInterface, Seat)>,
) -> Option<Endpoint> {
    let place = match entry.ifindex {
        0 => Place::There(entry.node.into()),
        index => {
            let (name, seat) = interfaces.get(&index)?;
            (Seat::from(entry) == *seat).then(|| Place::Here(name.clone()))?
        }
    };
    Some(Endpoint { mac: MacAddr::new(entry.mac).ok()?, place })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEAT: Seat = Seat { slot: 3, table: 4 };

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
            let entry = interface(&name(), &guard_with(ips), SEAT, 1).unwrap();
            assert_eq!(guard(&entry), Some(guard_with(ips)));
            assert_eq!(interface_name(&entry), Some(name()));
        }
    }

    #[test]
    fn more_addresses_than_the_layout_holds_are_refused() {
        let ips: Vec<String> = (0..=MAX_SOURCES).map(|n| format!("10.0.0.{n}")).collect();
        let guard = guard_with(&ips.iter().map(String::as_str).collect::<Vec<_>>());
        let error = interface(&name(), &guard, SEAT, 1).unwrap_err();
        assert_eq!(error.to_string(), "an interface may have 8 addresses, not 9");
    }

    #[test]
    fn an_entry_that_no_plan_wrote_is_no_guard() {
        let mut entry = interface(&name(), &guard_with(&["10.0.0.5"]), SEAT, 1).unwrap();
        entry.source_count = 9;
        assert_eq!(guard(&entry), None);
        entry.source_count = 1;
        entry.network = 0;
        assert_eq!(guard(&entry), None);
    }

    #[test]
    fn doors_survive_the_round_trip_whichever_are_used() {
        let some: Resolver = ["10.96.0.10".parse().unwrap()].into_iter().collect();
        let both = ["10.0.0.2", "fd00::a"].map(|ip| ip.parse::<IpAddr>().unwrap());
        let both: Resolver = both.into_iter().collect();
        let none = Resolver::default();
        for (cluster, own) in [(some, both), (both, none), (none, some), (none, none)] {
            let planned = Doors { cluster, own };
            assert_eq!(doors_in(&doors(&planned)), planned);
        }
    }

    #[test]
    fn a_door_to_a_service_survives_the_round_trip_and_leads_back() {
        for (ip, datagrams) in [("10.96.0.1", false), ("fd96::1", true)] {
            let addr = NetAddr::new(NetworkId::try_from(7).unwrap(), ip.parse().unwrap());
            let door = ServiceDoor { addr, port: 443, datagrams };
            let (key, value) = (service_door_key(&door), service_door(61100));
            assert_eq!(service_door_of(&key), Some(door));
            let (back, front) = service_front(&key, &value);
            assert_eq!((back.network, back.listener), (7, value.listener));
            let (at, of) = ((front.address, front.port), front.datagrams);
            assert_eq!((at, of), ((key.address, key.port), datagrams.into()));
        }
    }

    #[test]
    fn an_endpoint_here_needs_its_interface_to_be_there() {
        let mac = "02:00:00:00:00:05".parse().unwrap();
        let entry = endpoint_here(mac, 12, SEAT);
        let known = BTreeMap::from([(12, (name(), SEAT))]);
        let expected = Endpoint { mac, place: Place::Here(name()) };
        assert_eq!(endpoint(&entry, &known), Some(expected));
        let elsewhere = BTreeMap::from([(12, (name(), Seat::default()))]);
        assert_eq!(endpoint(&entry, &elsewhere), None);
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

    #[test]
    fn what_stays_keeps_its_age_and_what_moves_is_new() {
        let mac = "02:00:00:00:00:05".parse().unwrap();
        let here = |ifindex| endpoint_here(mac, ifindex, SEAT);
        let first = aged(here(12), None, 100);
        assert_eq!(first.since, 100);
        assert_eq!(aged(here(12), Some(first), 200), first);
        assert_eq!(aged(here(13), Some(first), 200).since, 200);
        let guard = guard_with(&["10.0.0.5"]);
        let known = interface(&name(), &guard, SEAT, 100).unwrap();
        assert_eq!(known_interface(Some(known), &name(), &guard), Some(known));
        let other = HostInterface::for_attachment("decaf", "eth0");
        assert_eq!(known_interface(Some(known), &other, &guard), None);
    }
}
