//! What the kernel has, in the plan's words.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use atoll_abi as abi;
use atoll_plan::{Doors, Endpoint, Guard, HostInterface, Observed, ObservedInterface, ServiceDoor};
use atoll_types::{NetAddr, NetworkId};

use crate::Datapath;
use crate::encode;
use crate::error::DatapathError;
use crate::netlink::{Kind, Link};
use crate::seat::Seat;
use crate::traffic::Traffic;

/// Reads links, pins and maps. Nothing is changed.
pub(crate) async fn observe(datapath: &Datapath) -> Result<Observed, DatapathError> {
    let links = our_links(datapath.netlink.links().await?);
    let tenants = datapath.maps.networks.tenants();
    Ok(Observed {
        tenants: tenants.known(),
        peers: peers(datapath)?,
        interfaces: interfaces(datapath, &links).await?,
        endpoints: endpoints(datapath, &seats(datapath, &links)?)?,
        doors: doors(datapath)?,
        services: datapath
            .maps
            .node_ports
            .led_to(&datapath.uplink, datapath.maps.services.all()?)?,
        service_doors: service_doors(datapath)?,
        egress: datapath.maps.outside.egress(&datapath.uplink, tenants)?,
        closed: datapath.maps.outside.closed()?,
        openings: datapath.maps.openings.all()?,
        compatible: datapath.maps.infra.compatible(&datapath.uplink, tenants)?,
        infra: datapath.maps.infra.ranges()?,
        held: datapath.maps.held.seen(&datapath.netlink, &datapath.uplink.link).await?,
    })
}

/// The interfaces that are there and have a seat, by index.
fn seats(
    datapath: &Datapath,
    links: &BTreeMap<HostInterface, Link>,
) -> Result<BTreeMap<u32, (HostInterface, Seat)>, DatapathError> {
    let entries: BTreeMap<u32, abi::Interface> = datapath
        .maps
        .interfaces
        .entries()?
        .into_iter()
        .map(|(key, it)| (key.ifindex, it))
        .collect();
    let seated = links.iter().filter_map(|(name, link)| {
        Some((link.index, (name.clone(), Seat::from(entries.get(&link.index)?))))
    });
    Ok(seated.collect())
}

/// The host sides of pods' interfaces, by name.
pub(crate) fn our_links(links: Vec<Link>) -> BTreeMap<HostInterface, Link> {
    let veths = links.into_iter().filter(|link| link.kind == Kind::Veth);
    veths.filter_map(|link| Some((link.name.parse().ok()?, link))).collect()
}

fn peers(datapath: &Datapath) -> Result<BTreeSet<IpAddr>, DatapathError> {
    let entries = datapath.maps.peers.entries()?;
    Ok(entries.into_iter().map(|(key, _)| key.address.into()).collect())
}

fn endpoints(
    datapath: &Datapath,
    seats: &BTreeMap<u32, (HostInterface, Seat)>,
) -> Result<BTreeMap<NetAddr, Option<Endpoint>>, DatapathError> {
    let entries = datapath.maps.endpoints.entries()?.into_iter();
    let decode = |(key, value): (abi::EndpointKey, abi::Endpoint)| {
        Some((encode::net_addr(&key)?, encode::endpoint(&value, seats)))
    };
    Ok(entries.filter_map(decode).collect())
}

fn doors(datapath: &Datapath) -> Result<BTreeMap<NetworkId, Doors>, DatapathError> {
    let entries = datapath.maps.doors.entries()?.into_iter();
    let decode = |(key, value): (abi::DoorKey, abi::Doors)| {
        Some((NetworkId::try_from(key.network).ok()?, encode::doors_in(&value)))
    };
    Ok(entries.filter_map(decode).collect())
}

/// A door without its way back is only half there.
fn service_doors(datapath: &Datapath) -> Result<BTreeMap<ServiceDoor, Option<u16>>, DatapathError> {
    let mut seen = BTreeMap::new();
    for (key, value) in datapath.maps.service_doors.entries()? {
        let Some(door) = encode::service_door_of(&key) else { continue };
        let (back, front) = encode::service_front(&key, &value);
        let is_whole = datapath.maps.service_fronts.get(back)? == Some(front);
        seen.insert(door, is_whole.then_some(u16::from_be_bytes(value.listener)));
    }
    Ok(seen)
}

/// The pods' interfaces that are guarded, by the index of their host side.
pub(crate) fn askers(datapath: &Datapath) -> Result<BTreeMap<u32, HostInterface>, DatapathError> {
    let entries = datapath.maps.interfaces.entries()?.into_iter();
    let named = |(key, entry): (abi::InterfaceKey, abi::Interface)| {
        Some((key.ifindex, encode::interface_name(&entry)?))
    };
    Ok(entries.filter_map(named).collect())
}

/// Links, and remains of links: a pin or a map entry that bears the name of one.
async fn interfaces(
    datapath: &Datapath,
    links: &BTreeMap<HostInterface, Link>,
) -> Result<BTreeMap<HostInterface, ObservedInterface>, DatapathError> {
    let mut seen = remains(datapath)?;
    for (name, link) in links {
        let guard = guard(datapath, name, link).await?;
        let (up, mtu) = (link.up, link.mtu);
        let reach = datapath.routed.get(name).cloned();
        seen.insert(name.clone(), ObservedInterface { exists: true, up, mtu, reach, guard });
    }
    Ok(seen)
}

fn remains(
    datapath: &Datapath,
) -> Result<BTreeMap<HostInterface, ObservedInterface>, DatapathError> {
    let entries = datapath.maps.interfaces.entries()?.into_iter();
    let of_maps = entries.filter_map(|(_, entry)| encode::interface_name(&entry));
    let of_pins = datapath.pins.pinned_links()?.into_iter().filter_map(|name| name.parse().ok());
    Ok(of_maps.chain(of_pins).map(|name| (name, ObservedInterface::default())).collect())
}

/// What is enforced on a link: our program is on it, and the entry is for this very link.
pub(crate) async fn guard(
    datapath: &Datapath,
    name: &HostInterface,
    link: &Link,
) -> Result<Option<Guard>, DatapathError> {
    let entry = datapath.maps.interfaces.get(abi::InterfaceKey { ifindex: link.index })?;
    let Some(entry) = entry.filter(|entry| encode::interface_name(entry).as_ref() == Some(name))
    else {
        return Ok(None);
    };
    let in_force = datapath.from_pod.is_on(&datapath.netlink, link).await?;
    Ok(in_force.then(|| encode::guard(&entry)).flatten())
}

/// The counters of every interface that a plan wrote.
pub(crate) fn traffic(datapath: &Datapath) -> Result<Vec<Traffic>, DatapathError> {
    let mut all = vec![];
    for (_, entry) in datapath.maps.interfaces.entries()? {
        let network = NetworkId::try_from(entry.network).ok();
        if let Some((interface, network)) = encode::interface_name(&entry).zip(network) {
            let counters = datapath.maps.traffic.get(entry.slot)?;
            all.push(Traffic { interface, network, counters });
        }
    }
    Ok(all)
}
