//! Who is where: endpoints, interfaces, doors and peers of one node.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;

use atoll_abi::NODE_RESOLVER;
use atoll_plan::{
    Doors, Endpoint, Guard, HostInterface, Infra, NodePlan, Place, PodInterface, Reach, Resolver,
    ServiceDoor,
};
use atoll_types::{Cidr, NetAddr, NetworkId, PodRef};

use super::PlacedPort;
use super::egress::{OutletOf, plan_egress};
use super::infra::plan_infra;
use super::openings::{Opened, plan_openings};
use super::tenants::{tenant_of, tenants};
use crate::export::Audience;

/// What a node has watched, and what its runtime has asked it for.
#[derive(Clone, Debug, Default)]
pub struct NodeView<'a> {
    /// This node's name.
    pub node: &'a str,
    /// The largest packet a pod may send.
    pub pod_mtu: u32,
    /// Every node's underlay address, by name; this node may be among them.
    pub nodes: BTreeMap<&'a str, IpAddr>,
    /// The ports of the networks that are present on this node.
    pub ports: Vec<&'a PlacedPort>,
    /// The interfaces that the container runtime has asked for.
    pub attachments: Vec<&'a Attachment>,
    /// The resolver that the cluster's pods have in their resolv.conf; none where the agent answers
    /// no names.
    pub cluster_dns: Resolver,
    /// The resolvers that networks have of their own.
    pub own_dns: BTreeMap<NetworkId, OwnResolver>,
    /// The services of the cluster's own for which the agent listens.
    pub fronts: Vec<Front<'a>>,
    /// What the networks that are present here say of the outside.
    pub outlets: Vec<OutletOf<'a>>,
    /// Those among them that have no pod here.
    pub guests: BTreeSet<NetworkId>,
    /// The addresses of the outside that this node answers for, and the network that each is for.
    pub held: BTreeMap<IpAddr, NetworkId>,
    /// What no pod reaches outside: nodes, what is the cluster's own, what an administrator denies.
    pub denied: BTreeSet<Cidr>,
    /// What of that an administrator denies.
    pub forbidden: BTreeSet<Cidr>,
    /// The services whose owners open them to networks that are present here.
    pub opened: Vec<Opened<'a>>,
    /// The addresses that nodes have themselves, and whether this one has it.
    pub node_ips: BTreeMap<IpAddr, bool>,
    /// What of infra is where, where an administrator lets networks reach it directly.
    pub infra: BTreeMap<Cidr, Infra>,
    /// What of the denied is so for another reason than being infra's.
    pub kept: BTreeSet<Cidr>,
}

/// A service of the cluster's own at one address and port, and the agent's port for it.
#[derive(Clone, Copy, Debug)]
pub struct Front<'a> {
    /// The service's address.
    pub ip: IpAddr,
    /// The service's port.
    pub port: u16,
    /// Whether it is of UDP; else it is of TCP.
    pub datagrams: bool,
    /// The agent's port.
    pub listener: u16,
    /// Who may call it.
    pub to: &'a Audience,
}

/// The resolver that a network has of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnResolver {
    /// Its addresses.
    pub at: Resolver,
    /// Who answers there, and at the cluster's resolver.
    pub answers: Answers,
}

/// Who answers the pods of a network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Answers {
    /// The agent of their node.
    #[default]
    Agent,
    /// Pods, to which services lead; they themselves ask the agent elsewhere.
    Pods,
}

/// An interface that the container runtime has asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// The container runtime's id of the sandbox.
    pub container_id: String,
    /// The pod's network namespace.
    pub sandbox: PathBuf,
    /// The interface's name inside the pod.
    pub interface: String,
    /// The pod.
    pub pod: PodRef,
    /// The pod's UID, where the runtime said it.
    pub pod_uid: Option<String>,
}

impl Attachment {
    /// Whether this is the interface that `port` was made for.
    pub fn is_for(&self, port: &PlacedPort) -> bool {
        let same_uid = self.pod_uid.as_ref().is_none_or(|uid| *uid == port.pod_uid);
        same_uid && self.pod == port.pod && self.interface == port.interface
    }

    /// The name of the host side of the interface that `port` was made for.
    pub fn host_interface(&self, port: &PlacedPort) -> HostInterface {
        HostInterface::for_attachment(&self.container_id, &port.interface)
    }
}

/// A plan, and what had to be left out of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compiled {
    /// What the kernel must look like.
    pub plan: NodePlan,
    /// Who is behind each interface of the plan.
    pub occupants: BTreeMap<HostInterface, Occupant>,
    /// Where each pod of this node is probed, by its UID: its first interface, and the address there
    /// that others know it by.
    pub primaries: BTreeMap<String, (HostInterface, IpAddr)>,
    /// What was left out, and why.
    pub complaints: Vec<Complaint>,
}

/// The pod behind an interface, as the agent needs to know it when the pod asks for names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Occupant {
    /// The network of the pod's first interface, whichever this one is, by object name.
    pub network_name: String,
    /// The pod.
    pub pod: PodRef,
    /// The pod's UID.
    pub pod_uid: String,
}

impl Occupant {
    /// The pod's tenant.
    pub fn tenant(&self) -> &str {
        tenant_of(&self.network_name)
    }
}

/// Something that was left out of a plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Complaint {
    /// Two ports have one address. Neither is believed before the other is gone.
    #[error("{addr} belongs to both {one} and {other}: neither is served")]
    Contested {
        /// The address.
        addr: NetAddr,
        /// The pod seen first.
        one: PodRef,
        /// The pod seen next.
        other: PodRef,
    },
    /// A port is on a node that is not known.
    #[error("{pod} is on node {node}, whose address is not known")]
    UnknownNode {
        /// The port's pod.
        pod: PodRef,
        /// The node's name.
        node: String,
    },
    /// Networks that share a number say different things of the outside.
    #[error("{one} and {other} share one VPC and do not agree on egress: neither has it")]
    EgressContested {
        /// A network's object name.
        one: String,
        /// Another's.
        other: String,
    },
    /// A network's own addresses are infra's, too.
    #[error(
        "{network} stays apart from nodes and pods of no tenant: its range {own} has addresses of \
         their {infra}; give it another range"
    )]
    InfraConflict {
        /// The network's object name.
        network: String,
        /// Its range.
        own: Cidr,
        /// Infra's.
        infra: Cidr,
    },
}

/// The plan of the node that has this view.
pub fn compile(view: &NodeView<'_>) -> Compiled {
    let mut compiled = Compiled::default();
    let others = view.nodes.iter().filter(|(name, _)| **name != view.node);
    compiled.plan.peers = others.map(|(_, ip)| *ip).collect();
    let mut owners = BTreeMap::new();
    let attached = attached(view);
    for port in uncontested(&view.ports, &mut owners, &mut compiled.complaints) {
        place_port(view, &attached, port, &mut compiled);
    }
    compiled.plan.tenants = tenants(view, &compiled.plan);
    compiled.plan.doors = doors(view, &compiled.plan);
    compiled.plan.service_doors = service_doors(view, &compiled);
    compiled.plan.held = view.held.clone();
    plan_egress(view, &mut compiled.plan, &mut compiled.complaints);
    plan_openings(view, &mut compiled.plan);
    plan_infra(view, &mut compiled.plan, &mut compiled.complaints);
    compiled
}

/// The cluster's resolver, and a network's own, as doors of every network that has a pod here.
fn doors(view: &NodeView<'_>, plan: &NodePlan) -> BTreeMap<NetworkId, Doors> {
    if view.cluster_dns == Resolver::default() {
        return BTreeMap::new();
    }
    let door = |network: NetworkId| {
        let own = view.own_dns.get(&network).copied().unwrap_or_default();
        let doors = match own.answers {
            Answers::Agent => Doors { cluster: view.cluster_dns, own: own.at },
            Answers::Pods => Doors { cluster: Resolver::default(), own: at_the_node() },
        };
        (network, doors)
    };
    plan.interfaces.values().map(|interface| door(interface.guard.network)).collect()
}

fn at_the_node() -> Resolver {
    let (v4, v6) = NODE_RESOLVER;
    Resolver { v4: Some(v4), v6: Some(v6) }
}

/// Each service as a door of every network here that has a pod of a tenant that may call it.
fn service_doors(view: &NodeView<'_>, compiled: &Compiled) -> BTreeMap<ServiceDoor, u16> {
    let mut doors = BTreeMap::new();
    for (name, interface) in &compiled.plan.interfaces {
        let Some(occupant) = compiled.occupants.get(name) else { continue };
        for front in view.fronts.iter().filter(|front| front.to.has(occupant.tenant())) {
            let addr = NetAddr::new(interface.guard.network, front.ip);
            let Front { port, datagrams, listener, .. } = *front;
            doors.insert(ServiceDoor { addr, port, datagrams }, listener);
        }
    }
    doors
}

/// The ports whose every address is theirs alone.
fn uncontested<'a>(
    ports: &[&'a PlacedPort],
    owners: &mut BTreeMap<NetAddr, &'a PlacedPort>,
    complaints: &mut Vec<Complaint>,
) -> Vec<&'a PlacedPort> {
    let mut contested = Vec::new();
    for port in ports {
        for addr in port.addresses() {
            let Some(first) = owners.insert(addr, port) else { continue };
            contested.extend([first, *port]);
            complaints.push(Complaint::Contested {
                addr,
                one: first.pod.clone(),
                other: port.pod.clone(),
            });
        }
    }
    ports.iter().copied().filter(|port| !contested.contains(port)).collect()
}

/// A pod that the runtime has asked for: its sandbox, and the port of its first interface.
struct Attached<'a> {
    attachment: &'a Attachment,
    first: &'a PlacedPort,
}

impl Attached<'_> {
    fn has(&self, port: &PlacedPort) -> bool {
        self.attachment.is_for(port) || self.first.brings(port)
    }

    fn is_first(&self, port: &PlacedPort) -> bool {
        port.interface == self.first.interface && port.routes.is_empty()
    }
}

/// The pods that the runtime has asked for, each with the port it asked for.
fn attached<'a>(view: &NodeView<'a>) -> BTreeMap<&'a PodRef, Vec<Attached<'a>>> {
    let mut ports: BTreeMap<&PodRef, Vec<&PlacedPort>> = BTreeMap::new();
    for port in view.ports.iter().filter(|port| port.node.as_deref() == Some(view.node)) {
        ports.entry(&port.pod).or_default().push(port);
    }
    let mut attached: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for attachment in &view.attachments {
        let ports = ports.get(&attachment.pod).into_iter().flatten();
        let first = ports.copied().find(|port| attachment.is_for(port));
        let pods = attached.entry(&attachment.pod).or_default();
        pods.extend(first.map(|first| Attached { attachment, first }));
    }
    attached
}

fn place_port(
    view: &NodeView<'_>,
    attached: &BTreeMap<&PodRef, Vec<Attached<'_>>>,
    port: &PlacedPort,
    compiled: &mut Compiled,
) {
    let Some(node) = port.node.as_deref() else { return };
    let place = if node == view.node {
        let pods = attached.get(&port.pod).into_iter().flatten();
        let Some(pod) = pods.into_iter().find(|pod| pod.has(port)) else { return };
        let name = pod.attachment.host_interface(port);
        compiled.plan.interfaces.insert(name.clone(), pod_interface(view, port, pod));
        compiled.occupants.insert(name.clone(), occupant(pod));
        if let Some(ip) = port.ips.first().filter(|_| pod.is_first(port)) {
            compiled.primaries.insert(port.pod_uid.clone(), (name.clone(), *ip));
        }
        Place::Here(name)
    } else if let Some(ip) = view.nodes.get(node) {
        Place::There(*ip)
    } else {
        let node = node.to_owned();
        compiled.complaints.push(Complaint::UnknownNode { pod: port.pod.clone(), node });
        return;
    };
    for addr in port.addresses() {
        let endpoint = Endpoint { mac: port.mac, place: place.clone() };
        compiled.plan.endpoints.insert(addr, endpoint);
    }
}

fn occupant(pod: &Attached<'_>) -> Occupant {
    let first = pod.first;
    Occupant {
        network_name: first.network_name.clone(),
        pod: first.pod.clone(),
        pod_uid: first.pod_uid.clone(),
    }
}

fn pod_interface(view: &NodeView<'_>, port: &PlacedPort, pod: &Attached<'_>) -> PodInterface {
    PodInterface {
        sandbox: pod.attachment.sandbox.clone(),
        name: port.interface.clone(),
        description: format!("{} {}", port.pod, port.interface),
        mtu: view.pod_mtu,
        guard: Guard {
            network: port.network,
            mac: port.mac,
            ips: port.ips.iter().copied().collect(),
        },
        reach: if pod.is_first(port) {
            Reach::Everything
        } else {
            Reach::Only(port.routes.clone())
        },
        has_siblings: !pod.first.others.is_empty(),
        device: port.device,
    }
}
