//! One change to the kernel.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use atoll_types::{Cidr, NetAddr, NetworkId};

use crate::{
    Closed, Doors, Egress, Endpoint, Guard, HostInterface, Infra, Opening, PodInterface, Service,
    ServiceDoor, ServiceKey,
};

/// One change to the kernel. Each is repeatable: done twice, it is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Divide what there is only so much of among these tenants, each given as the networks it has here.
    ShareAmong(BTreeSet<BTreeSet<NetworkId>>),
    /// Believe tunnel packets of this node.
    AddPeer(IpAddr),
    /// Make the pair of links with the pod's side addressed and routed, the host side down.
    CreateInterface(HostInterface, PodInterface),
    /// Attach the program and give it the values to check.
    GuardInterface(HostInterface, Guard),
    /// Let larger packets through the interface, or only smaller ones, on both sides.
    ResizeInterface(HostInterface, PodInterface),
    /// Lead what the pod reaches through the interface there, and nothing else of it.
    RouteInterface(HostInterface, PodInterface),
    /// Program where packets for this address go.
    PutEndpoint(NetAddr, Endpoint),
    /// Program where the pods of a network find the agent.
    PutDoors(NetworkId, Doors),
    /// Program where connections to a service go.
    PutService(ServiceKey, Service),
    /// Let the pod speak: set the host side up.
    RaiseInterface(HostInterface),
    /// Forget the service.
    RemoveService(ServiceKey),
    /// Forget the address.
    RemoveEndpoint(NetAddr),
    /// Forget where the pods of a network find the agent.
    RemoveDoors(NetworkId),
    /// Lead the pods of a network to this port of the agent when they call a service.
    PutServiceDoor(ServiceDoor, u16),
    /// Lead them nowhere.
    RemoveServiceDoor(ServiceDoor),
    /// Let nothing leave for these addresses.
    CloseOutside(Closed),
    /// Let what may leave do so for these, too.
    OpenOutside(Closed),
    /// Let the pods of a network reach the outside.
    PutEgress(NetworkId, Egress),
    /// Let them no longer.
    RemoveEgress(NetworkId),
    /// Let those whom it was opened to reach something that is closed; it says whether this node answers
    /// for its address.
    PutOpening(Opening, bool),
    /// Let them no longer.
    RemoveOpening(Opening),
    /// Know what of infra is in a range.
    PutInfra(Cidr, Infra),
    /// Know it no longer.
    RemoveInfra(Cidr),
    /// Let the pods of a network reach infra.
    LetToInfra(NetworkId),
    /// Let them no longer.
    KeepFromInfra(NetworkId),
    /// Answer for an address of the outside, where only what is meant for this network gets in.
    Hold(IpAddr, NetworkId),
    /// Answer for it no longer.
    Release(IpAddr),
    /// Remove these links, their programs and their checks. The kernel takes as long for many as
    /// for one, so they go together.
    RemoveInterfaces(BTreeSet<HostInterface>),
    /// Believe this node no longer.
    RemovePeer(IpAddr),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::ShareAmong(tenants) => write!(f, "share among tenants: {}", tenants.len()),
            Step::AddPeer(ip) => write!(f, "add peer {ip}"),
            Step::CreateInterface(name, interface) => {
                write!(f, "create interface {name} for {}", interface.description)
            }
            Step::GuardInterface(name, guard) => {
                write!(f, "guard interface {name} of network {}", guard.network)
            }
            Step::ResizeInterface(name, wanted) => {
                write!(f, "resize interface {name} to packets of {} bytes", wanted.mtu)
            }
            Step::RouteInterface(name, wanted) => {
                write!(f, "route interface {name} of {}", wanted.description)
            }
            Step::PutEndpoint(addr, _) => write!(f, "put endpoint {addr}"),
            Step::RaiseInterface(name) => write!(f, "raise interface {name}"),
            Step::PutDoors(network, _) => write!(f, "put the doors of network {network}"),
            Step::RemoveDoors(network) => write!(f, "remove the doors of network {network}"),
            Step::PutService(key, _) => write!(f, "put service {key}"),
            Step::RemoveService(key) => write!(f, "remove service {key}"),
            Step::PutServiceDoor(door, listener) => {
                let ServiceDoor { addr, port, .. } = door;
                write!(f, "put the door to {addr} port {port} of {} at {listener}", door.protocol())
            }
            Step::RemoveServiceDoor(door) => {
                let ServiceDoor { addr, port, .. } = door;
                write!(f, "remove the door to {addr} port {port} of {}", door.protocol())
            }
            Step::CloseOutside(closed) => write!(f, "close {closed} outside"),
            Step::OpenOutside(closed) => write!(f, "open {closed} outside"),
            Step::PutEgress(network, _) => write!(f, "put the egress of network {network}"),
            Step::RemoveEgress(network) => write!(f, "remove the egress of network {network}"),
            Step::PutOpening(opening, _) => write!(f, "put what is open: {opening}"),
            Step::RemoveOpening(opening) => write!(f, "remove what is open: {opening}"),
            Step::PutInfra(range, _) => write!(f, "put what of infra is in {range}"),
            Step::RemoveInfra(range) => write!(f, "remove what of infra is in {range}"),
            Step::LetToInfra(network) => write!(f, "let network {network} reach infra"),
            Step::KeepFromInfra(network) => write!(f, "keep network {network} from infra"),
            Step::Hold(ip, network) => write!(f, "answer for {ip}, which is network {network}'s"),
            Step::Release(ip) => write!(f, "answer for {ip} no longer"),
            Step::RemoveEndpoint(addr) => write!(f, "remove endpoint {addr}"),
            Step::RemoveInterfaces(names) => {
                let names: Vec<_> = names.iter().map(HostInterface::as_str).collect();
                write!(f, "remove interfaces {}", names.join(", "))
            }
            Step::RemovePeer(ip) => write!(f, "remove peer {ip}"),
        }
    }
}
