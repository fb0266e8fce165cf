//! A node's desired state and what is seen of the real one, in the same words.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use atoll_types::{Cidr, MacAddr, NetAddr, NetworkId, Protocol};
use serde::{Deserialize, Serialize};

use crate::{Closed, Egress, HostInterface, Infra, Opening, Service, ServiceKey, Step};

/// Everything the kernel of one node must hold, and nothing of networks that are not on it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodePlan {
    /// Underlay addresses of the other nodes: the only senders of tunnel packets we believe.
    pub peers: BTreeSet<IpAddr>,
    /// The networks that are present on this node, those of one tenant together: what the node has only
    /// so much of is divided among these. A network that several tenants share is by itself.
    #[serde(default)]
    pub tenants: BTreeSet<BTreeSet<NetworkId>>,
    /// Interfaces of the pods on this node, by the name of their host side.
    pub interfaces: BTreeMap<HostInterface, PodInterface>,
    /// Every endpoint of every network that is present on this node.
    #[serde(with = "pairs")]
    pub endpoints: BTreeMap<NetAddr, Endpoint>,
    /// Where the pods of each network find the agent of their node.
    #[serde(default)]
    pub doors: BTreeMap<NetworkId, Doors>,
    /// The services of every network that is present on this node.
    #[serde(default, with = "pairs")]
    pub services: BTreeMap<ServiceKey, Service>,
    /// The services of the cluster's own that the pods of a network reach through the agent, each
    /// with the agent's port for it.
    #[serde(default, with = "pairs")]
    pub service_doors: BTreeMap<ServiceDoor, u16>,
    /// The networks of this node whose pods reach the outside.
    #[serde(default)]
    pub egress: BTreeMap<NetworkId, Egress>,
    /// What they do not reach there.
    #[serde(default)]
    pub closed: BTreeSet<Closed>,
    /// What they reach there although it is closed, and whether this node answers for its address.
    #[serde(default, with = "pairs")]
    pub openings: BTreeMap<Opening, bool>,
    /// The networks of this node whose pods reach infra: nodes, and pods of no tenant.
    #[serde(default)]
    pub compatible: BTreeSet<NetworkId>,
    /// What of it is where.
    #[serde(default, with = "pairs")]
    pub infra: BTreeMap<Cidr, Infra>,
    /// The addresses of the outside that this node answers for, and the network that each is for.
    #[serde(default)]
    pub held: BTreeMap<IpAddr, NetworkId>,
}

/// A port of a service of the cluster's own, as the pods of one network see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ServiceDoor {
    /// The network, and the service's address in it.
    pub addr: NetAddr,
    /// The service's port.
    pub port: u16,
    /// Whether it is of UDP; else it is of TCP.
    pub datagrams: bool,
}

impl ServiceDoor {
    /// What API objects call the protocol of the port.
    pub fn protocol(&self) -> Protocol {
        if self.datagrams { Protocol::Udp } else { Protocol::Tcp }
    }
}

/// The resolvers that the pods of a network may ask, at most one of each kind for each family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Doors {
    /// What the cluster's pods have in their resolv.conf.
    pub cluster: Resolver,
    /// The network's own.
    pub own: Resolver,
}

/// The addresses of one resolver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resolver {
    /// For IPv4.
    pub v4: Option<Ipv4Addr>,
    /// For IPv6.
    pub v6: Option<Ipv6Addr>,
}

impl Resolver {
    /// Its addresses.
    pub fn addresses(self) -> impl Iterator<Item = IpAddr> {
        self.v4.map(IpAddr::V4).into_iter().chain(self.v6.map(IpAddr::V6))
    }
}

impl FromIterator<IpAddr> for Resolver {
    /// The last address of each family counts.
    fn from_iter<T: IntoIterator<Item = IpAddr>>(addresses: T) -> Self {
        addresses.into_iter().fold(Resolver::default(), |resolver, address| match address {
            IpAddr::V4(v4) => Resolver { v4: Some(v4), ..resolver },
            IpAddr::V6(v6) => Resolver { v6: Some(v6), ..resolver },
        })
    }
}

/// A map whose keys are no strings, as a list of pairs.
mod pairs {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer, K: Serialize, V: Serialize>(
        map: &BTreeMap<K, V>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(map)
    }

    pub(super) fn deserialize<'de, D, K, V>(deserializer: D) -> Result<BTreeMap<K, V>, D::Error>
    where
        D: Deserializer<'de>,
        K: Deserialize<'de> + Ord,
        V: Deserialize<'de>,
    {
        Ok(Vec::<(K, V)>::deserialize(deserializer)?.into_iter().collect())
    }
}

/// One interface of one pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodInterface {
    /// The pod's network namespace, as a path that can be opened.
    pub sandbox: PathBuf,
    /// The interface's name inside the pod, such as `eth0`.
    pub name: String,
    /// What the host side is labelled with for people: `namespace/pod eth0`.
    pub description: String,
    /// The largest packet the pod may send.
    pub mtu: u32,
    /// Who may speak through it.
    pub guard: Guard,
    /// What the pod reaches through it.
    pub reach: Reach,
    /// Whether the pod has other interfaces, between which it must not forward.
    pub has_siblings: bool,
    /// What the pod finds under its name.
    pub device: Device,
}

impl PodInterface {
    /// The name of the pair's side inside the pod, whose host side has the name `host_side`. A tap
    /// stands before it under the interface's own name.
    pub fn pod_side<'a>(&'a self, host_side: &'a HostInterface) -> &'a str {
        match self.device {
            Device::Veth => &self.name,
            Device::Tap => host_side.as_str(),
        }
    }
}

/// What a pod finds under the name of its interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Device {
    /// A link with the pod's addresses, for its processes.
    #[default]
    Veth,
    /// A tap without addresses, for a virtual machine to open.
    Tap,
}

impl PodInterface {
    /// What the pod reaches through it, where that can change: one interface alone has all of it.
    pub fn routed(&self) -> Option<Reach> {
        self.has_siblings.then(|| self.reach.clone())
    }
}

/// What a pod reaches through one of its interfaces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reach {
    /// Whatever no other interface leads to: the default routes.
    Everything,
    /// These ranges.
    Only(BTreeSet<Cidr>),
}

/// What the datapath checks on every frame that leaves a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guard {
    /// The one network this interface is in.
    pub network: NetworkId,
    /// The only source MAC let through.
    pub mac: MacAddr,
    /// The only source addresses let through.
    pub ips: BTreeSet<IpAddr>,
}

/// Where packets for a [`NetAddr`] go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// The pod's MAC, put into the frame on delivery.
    pub mac: MacAddr,
    /// The node, or the interface on this one.
    pub place: Place,
}

/// On which side of the tunnel an endpoint is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place {
    /// Behind an interface of this node.
    Here(HostInterface),
    /// On the node with this underlay address.
    There(IpAddr),
}

/// What the kernel has at the moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// The tenants that things are divided among.
    pub tenants: BTreeSet<BTreeSet<NetworkId>>,
    /// Nodes whose tunnel packets are let in.
    pub peers: BTreeSet<IpAddr>,
    /// Our host-side interfaces and what is known of each.
    pub interfaces: BTreeMap<HostInterface, ObservedInterface>,
    /// Programmed endpoints. An endpoint whose interface is gone is seen with `None`.
    pub endpoints: BTreeMap<NetAddr, Option<Endpoint>>,
    /// Programmed doors.
    pub doors: BTreeMap<NetworkId, Doors>,
    /// Programmed services.
    pub services: BTreeMap<ServiceKey, Service>,
    /// Programmed doors to services. One that is only half there is seen with `None`.
    pub service_doors: BTreeMap<ServiceDoor, Option<u16>>,
    /// Programmed ways to the outside. One that is not as it would be made now is seen with `None`.
    pub egress: BTreeMap<NetworkId, Option<Egress>>,
    /// What is closed outside.
    pub closed: BTreeSet<Closed>,
    /// What of it is open to some.
    pub openings: BTreeMap<Opening, bool>,
    /// Networks whose pods reach infra, and whether as they would be made to now.
    pub compatible: BTreeMap<NetworkId, bool>,
    /// What is known of infra.
    pub infra: BTreeMap<Cidr, Infra>,
    /// Addresses of the outside that this node answers for. One that is only half there is seen
    /// with `None`.
    pub held: BTreeMap<IpAddr, Option<NetworkId>>,
}

/// What is seen of one of our interfaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedInterface {
    /// Whether the link is there. Without it, only remains are: a pin or a map entry.
    pub exists: bool,
    /// Whether the host side is up.
    pub up: bool,
    /// The largest packet that it takes.
    pub mtu: u32,
    /// What the pod reaches through it, where that can change and is known.
    pub reach: Option<Reach>,
    /// The checks in force: a program of ours is attached and holds these values.
    pub guard: Option<Guard>,
}

impl ObservedInterface {
    /// An interface that was just made.
    fn of_new(made: &PodInterface) -> Self {
        ObservedInterface {
            exists: true,
            mtu: made.mtu,
            reach: made.routed(),
            ..ObservedInterface::default()
        }
    }
}

impl Observed {
    /// What will be seen once `step` is done.
    pub fn note(&mut self, step: &Step) {
        match step {
            Step::ShareAmong(tenants) => self.tenants.clone_from(tenants),
            Step::AddPeer(ip) => _ = self.peers.insert(*ip),
            Step::RemovePeer(ip) => _ = self.peers.remove(ip),
            Step::CreateInterface(name, made) => {
                *self.interface(name) = ObservedInterface::of_new(made);
            }
            Step::ResizeInterface(name, wanted) => self.interface(name).mtu = wanted.mtu,
            Step::RouteInterface(name, wanted) => self.interface(name).reach = wanted.routed(),
            Step::GuardInterface(name, guard) => self.interface(name).guard = Some(guard.clone()),
            Step::RaiseInterface(name) => self.interface(name).up = true,
            Step::RemoveInterfaces(names) => {
                self.interfaces.retain(|name, _| !names.contains(name));
            }
            Step::PutEndpoint(addr, put) => drop(self.endpoints.insert(*addr, Some(put.clone()))),
            Step::RemoveEndpoint(addr) => drop(self.endpoints.remove(addr)),
            Step::PutDoors(network, doors) => _ = self.doors.insert(*network, *doors),
            Step::RemoveDoors(network) => _ = self.doors.remove(network),
            Step::PutService(key, service) => drop(self.services.insert(*key, service.clone())),
            Step::RemoveService(key) => drop(self.services.remove(key)),
            Step::PutServiceDoor(door, at) => _ = self.service_doors.insert(*door, Some(*at)),
            Step::RemoveServiceDoor(door) => _ = self.service_doors.remove(door),
            Step::CloseOutside(closed) => _ = self.closed.insert(*closed),
            Step::OpenOutside(closed) => _ = self.closed.remove(closed),
            Step::PutEgress(network, egress) => _ = self.egress.insert(*network, Some(*egress)),
            Step::RemoveEgress(network) => _ = self.egress.remove(network),
            Step::PutOpening(opening, is_here) => _ = self.openings.insert(*opening, *is_here),
            Step::RemoveOpening(opening) => _ = self.openings.remove(opening),
            Step::PutInfra(range, infra) => _ = self.infra.insert(*range, *infra),
            Step::RemoveInfra(range) => _ = self.infra.remove(range),
            Step::LetToInfra(network) => _ = self.compatible.insert(*network, true),
            Step::KeepFromInfra(network) => _ = self.compatible.remove(network),
            Step::Hold(ip, network) => _ = self.held.insert(*ip, Some(*network)),
            Step::Release(ip) => _ = self.held.remove(ip),
        }
    }

    /// What is known of an interface, which may be nothing yet.
    fn interface(&mut self, name: &HostInterface) -> &mut ObservedInterface {
        self.interfaces.entry(name.clone()).or_default()
    }
}
