//! One step of a plan, done. Each is repeatable: done twice, it is done.

use std::collections::BTreeSet;
use std::net::IpAddr;

use atoll_abi::{self as abi, DoorKey, InterfaceKey, Peer, PeerKey};
use atoll_plan::{
    Egress, Endpoint, Guard, HostInterface, Opening, Place, PodInterface, Service, ServiceDoor,
    ServiceKey, Side, Step,
};
use atoll_types::{NetAddr, NetworkId};

use crate::error::DatapathError;
use crate::netlink::Link;
use crate::outside::Way;
use crate::pins::unpin;
use crate::seat::Seat;
use crate::{Datapath, clock, encode, held, interface, observe, settle};

/// Does the step, and then has decided anew what was decided before it.
pub(crate) async fn apply(datapath: &mut Datapath, step: &Step) -> Result<(), DatapathError> {
    do_step(datapath, step).await?;
    match touched(step) {
        Touched::Nothing => Ok(()),
        Touched::Network(network) => datapath.maps.raise(network.get()),
        Touched::All => datapath.maps.networks.raise_all(),
    }
}

/// Whose connections hang on what a step changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Touched {
    Nothing,
    Network(NetworkId),
    All,
}

/// The pods of a node that goes may be of any network.
fn touched(step: &Step) -> Touched {
    match step {
        Step::GuardInterface(_, guard) => Touched::Network(guard.network),
        Step::PutEndpoint(addr, _) | Step::RemoveEndpoint(addr) => Touched::Network(addr.network),
        Step::PutService(key, _) | Step::RemoveService(key) => Touched::Network(key.network),
        Step::PutEgress(network, _) | Step::RemoveEgress(network) | Step::Hold(_, network) => {
            Touched::Network(*network)
        }
        Step::CloseOutside(closed) | Step::OpenOutside(closed) => {
            closed.to.map_or(Touched::All, Touched::Network)
        }
        Step::PutOpening(Opening::Port { to, .. }, _)
        | Step::RemoveOpening(Opening::Port { to, .. }) => Touched::Network(*to),
        Step::PutOpening(Opening::Node(_), _) | Step::RemoveOpening(Opening::Node(_)) => {
            Touched::All
        }
        Step::LetToInfra(network) | Step::KeepFromInfra(network) => Touched::Network(*network),
        Step::RemovePeer(_) | Step::PutInfra(..) | Step::RemoveInfra(_) => Touched::All,
        Step::AddPeer(_)
        | Step::CreateInterface(..)
        | Step::ResizeInterface(..)
        | Step::RaiseInterface(_)
        | Step::RemoveInterfaces(_)
        | Step::RouteInterface(..)
        | Step::PutDoors(..)
        | Step::RemoveDoors(_)
        | Step::PutServiceDoor(..)
        | Step::RemoveServiceDoor(_)
        | Step::ShareAmong(_)
        | Step::Release(_) => Touched::Nothing,
    }
}

async fn do_step(datapath: &mut Datapath, step: &Step) -> Result<(), DatapathError> {
    match step {
        Step::ShareAmong(tenants) => share_among(datapath, tenants),
        Step::AddPeer(ip) => {
            let key = PeerKey { address: encode::node(*ip, datapath.config.underlay)? };
            datapath.maps.peers.put(key, Peer { reserved: 0 })
        }
        Step::CreateInterface(name, wanted) => {
            interface::create(&datapath.netlink, name, wanted).await?;
            note_reach(datapath, name, wanted);
            Ok(())
        }
        Step::RouteInterface(name, wanted) => {
            interface::route_pod_side(wanted).await?;
            note_reach(datapath, name, wanted);
            Ok(())
        }
        Step::GuardInterface(name, guard) => guard_interface(datapath, name, guard).await,
        Step::ResizeInterface(name, wanted) => resize_interface(datapath, name, wanted).await,
        Step::PutEndpoint(addr, endpoint) => put_endpoint(datapath, *addr, endpoint).await,
        Step::RaiseInterface(name) => raise_interface(datapath, name).await,
        Step::PutDoors(network, doors) => {
            let key = DoorKey { network: network.get() };
            datapath.maps.doors.put(key, encode::doors(doors))
        }
        Step::RemoveDoors(network) => {
            datapath.maps.doors.remove(DoorKey { network: network.get() })
        }
        Step::PutService(key, service) => put_service(datapath, key, service).await,
        Step::RemoveService(key) => remove_service(datapath, key).await,
        Step::PutServiceDoor(door, listener) => put_service_door(datapath, door, *listener),
        Step::RemoveServiceDoor(door) => remove_service_door(datapath, door),
        Step::CloseOutside(closed) => datapath.maps.outside.close(closed),
        Step::OpenOutside(closed) => datapath.maps.outside.reopen(closed),
        Step::PutEgress(network, egress) => put_egress(datapath, *network, *egress).await,
        Step::RemoveEgress(network) => remove_egress(datapath, *network).await,
        Step::PutOpening(opening, is_here) => datapath.maps.openings.put(*opening, *is_here),
        Step::RemoveOpening(opening) => datapath.maps.openings.remove(*opening),
        Step::PutInfra(range, place) => datapath.maps.infra.put(range, *place),
        Step::RemoveInfra(range) => datapath.maps.infra.remove(range),
        Step::LetToInfra(network) => {
            let tenants = datapath.maps.networks.tenants();
            datapath.maps.infra.let_in(*network, &datapath.uplink, tenants)?;
            datapath.mind_infra().await
        }
        Step::KeepFromInfra(network) => {
            let tenants = datapath.maps.networks.tenants();
            datapath.maps.infra.keep_out(*network, &datapath.uplink, tenants)?;
            datapath.mind_infra().await
        }
        Step::Hold(ip, network) => hold(datapath, *ip, *network).await,
        Step::Release(ip) => release(datapath, *ip).await,
        Step::RemoveEndpoint(addr) => datapath.maps.endpoints.remove((*addr).into()),
        Step::RemoveInterfaces(names) => remove_interfaces(datapath, names).await,
        Step::RemovePeer(ip) => datapath.maps.peers.remove(PeerKey { address: (*ip).into() }),
    }
}

/// Connections have their places, and what is open keeps its port, whoever has that from now on.
fn share_among(
    datapath: &mut Datapath,
    tenants: &BTreeSet<BTreeSet<NetworkId>>,
) -> Result<(), DatapathError> {
    datapath.maps.networks.share_among(tenants)?;
    let tenants = datapath.maps.networks.tenants();
    datapath.maps.outside.share_among(&datapath.uplink, tenants)?;
    datapath.maps.infra.share_among(&datapath.uplink, tenants)
}

fn note_reach(datapath: &mut Datapath, name: &HostInterface, wanted: &PodInterface) {
    datapath.routed.extend(wanted.routed().map(|reach| (name.clone(), reach)));
}

async fn existing(datapath: &Datapath, name: &HostInterface) -> Result<Link, DatapathError> {
    let link = datapath.netlink.link(name.as_str()).await?;
    link.ok_or_else(|| DatapathError::NoInterface(name.clone()))
}

/// The values first, then the program: a program without values drops everything.
async fn guard_interface(
    datapath: &mut Datapath,
    name: &HostInterface,
    guard: &Guard,
) -> Result<(), DatapathError> {
    let link = existing(datapath, name).await?;
    let key = InterfaceKey { ifindex: link.index };
    let known = datapath.maps.interfaces.get(key)?;
    let (seat, since) = match encode::known_interface(known, name, guard) {
        Some(known) => (Seat::from(&known), known.since),
        None => (datapath.maps.new_seat(guard.network.get())?, clock::now()?),
    };
    datapath.maps.interfaces.put(key, encode::interface(name, guard, seat, since)?)?;
    datapath.from_pod.put_on(&datapath.netlink, &link).await
}

/// The pod's side first: until both agree, packets of the larger size are lost on the way in only,
/// where the sender is told.
async fn resize_interface(
    datapath: &Datapath,
    name: &HostInterface,
    wanted: &PodInterface,
) -> Result<(), DatapathError> {
    let link = existing(datapath, name).await?;
    interface::resize_pod_side(name, wanted).await?;
    datapath.netlink.set_mtu(&link, wanted.mtu).await
}

async fn put_endpoint(
    datapath: &mut Datapath,
    addr: NetAddr,
    endpoint: &Endpoint,
) -> Result<(), DatapathError> {
    let entry = match &endpoint.place {
        Place::Here(name) => {
            let ifindex = existing(datapath, name).await?.index;
            let guarded = datapath.maps.interfaces.get(InterfaceKey { ifindex })?;
            let guarded = guarded.ok_or_else(|| DatapathError::NotGuarded(name.clone()))?;
            encode::endpoint_here(endpoint.mac, ifindex, Seat::from(&guarded))
        }
        Place::There(node) => {
            let node = encode::node(*node, datapath.config.underlay)?;
            encode::endpoint_there(endpoint.mac, node)
        }
    };
    let known = datapath.maps.endpoints.get(addr.into())?;
    datapath.maps.endpoints.put(addr.into(), encode::aged(entry, known, clock::now()?))
}

/// The way back first: a connection that gets in must be answered.
fn put_service_door(
    datapath: &mut Datapath,
    door: &ServiceDoor,
    listener: u16,
) -> Result<(), DatapathError> {
    let (key, value) = (encode::service_door_key(door), encode::service_door(listener));
    if datapath.maps.service_doors.get(key)?.is_some_and(|known| known != value) {
        remove_service_door(datapath, door)?;
    }
    let (back, front) = encode::service_front(&key, &value);
    datapath.maps.service_fronts.put(back, front)?;
    datapath.maps.service_doors.put(key, value)
}

fn remove_service_door(datapath: &mut Datapath, door: &ServiceDoor) -> Result<(), DatapathError> {
    let key = encode::service_door_key(door);
    let Some(value) = datapath.maps.service_doors.get(key)? else { return Ok(()) };
    datapath.maps.service_doors.remove(key)?;
    let (back, front) = encode::service_front(&key, &value);
    if datapath.maps.service_fronts.get(back)? == Some(front) {
        datapath.maps.service_fronts.remove(back)?;
    }
    Ok(())
}

/// What the outside reaches has its network's place before anything leads there.
async fn put_service(
    datapath: &mut Datapath,
    key: &ServiceKey,
    service: &Service,
) -> Result<(), DatapathError> {
    datapath.maps.services.put(*key, service)?;
    if key.side != Side::Outside {
        return Ok(());
    }
    let place = datapath.maps.guest_place(key.network.get())?;
    datapath.maps.node_ports.let_in(key.network.get(), place)?;
    if key.is_node_port() {
        datapath.maps.node_ports.put(key, &datapath.uplink)?;
    }
    datapath.mind_uplink().await
}

async fn remove_service(datapath: &mut Datapath, key: &ServiceKey) -> Result<(), DatapathError> {
    if key.is_node_port() {
        datapath.maps.node_ports.remove(key)?;
    }
    datapath.maps.services.remove(*key)?;
    if key.side != Side::Outside {
        return Ok(());
    }
    if !datapath.maps.services.reaches(key.network) {
        datapath.maps.node_ports.shut_out(key.network.get())?;
        datapath.maps.learn_networks()?;
    }
    datapath.mind_uplink().await
}

/// Where pods of other nodes leave here, their network has a place here.
async fn put_egress(
    datapath: &mut Datapath,
    network: NetworkId,
    egress: Egress,
) -> Result<(), DatapathError> {
    let place = match egress {
        Egress::Addresses(exits) if exits.is_here() => datapath.maps.guest_place(network.get())?,
        Egress::Addresses(_) | Egress::Node => 0,
    };
    let (way, tenants) = (Way { egress, place }, datapath.maps.networks.tenants());
    datapath.maps.outside.put_egress(network, way, &datapath.uplink, tenants)?;
    datapath.maps.learn_networks()?;
    datapath.mind_uplink().await
}

async fn remove_egress(datapath: &mut Datapath, network: NetworkId) -> Result<(), DatapathError> {
    let tenants = datapath.maps.networks.tenants();
    datapath.maps.outside.remove_egress(network, &datapath.uplink, tenants)?;
    datapath.maps.learn_networks()?;
    datapath.mind_uplink().await
}

/// What comes to the address is nobody else's before the address is there.
async fn hold(
    datapath: &mut Datapath,
    ip: IpAddr,
    network: NetworkId,
) -> Result<(), DatapathError> {
    datapath.maps.held.put(ip, network)?;
    datapath.mind_uplink().await?;
    held::take(&datapath.netlink, &datapath.uplink.link, ip).await
}

/// The address goes first, for the same reason.
async fn release(datapath: &mut Datapath, ip: IpAddr) -> Result<(), DatapathError> {
    held::give_up(&datapath.netlink, ip).await?;
    datapath.maps.held.remove(ip)?;
    datapath.mind_uplink().await
}

async fn raise_interface(datapath: &Datapath, name: &HostInterface) -> Result<(), DatapathError> {
    let link = existing(datapath, name).await?;
    match observe::guard(datapath, name, &link).await? {
        Some(_) => datapath.netlink.raise(&link).await?,
        None => return Err(DatapathError::NotGuarded(name.clone())),
    }
    settle::other_side(&datapath.netlink, &link).await
}

/// The links first: as long as one is there, its program must be, too. Then what bears their names.
async fn remove_interfaces(
    datapath: &mut Datapath,
    names: &BTreeSet<HostInterface>,
) -> Result<(), DatapathError> {
    interface::remove_all(&datapath.netlink, names).await?;
    for name in names {
        datapath.routed.remove(name);
        unpin(&datapath.pins.links().join(name.as_str()))?;
    }
    let is_gone = |entry: &abi::Interface| {
        encode::interface_name(entry).is_some_and(|name| names.contains(&name))
    };
    let entries = datapath.maps.interfaces.entries()?;
    for (key, entry) in entries.into_iter().filter(|(_, it)| is_gone(it)) {
        datapath.maps.interfaces.remove(key)?;
        datapath.maps.raise(entry.network)?;
    }
    datapath.maps.learn_networks()
}
