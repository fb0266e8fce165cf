//! Who is where: endpoints, interfaces, doors and peers of one node.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;

use atoll_abi::NODE_RESOLVER;
use atoll_plan::{
    Doors, Endpoint, Guard, HostInterface, NodePlan, Place, PodInterface, Reach, Resolver,
    ServiceDoor,
};
use atoll_types::{Cidr, NetAddr, NetworkId, PodRef};

use super::PlacedPort;
use super::egress::{OutletOf, plan_egress};
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
}

/// A service of the cluster's own at one address and port, and the agent's port for it.
#[derive(Clone, Copy, Debug)]
pub struct Front<'a> {
    /// The service's address.
    pub ip: IpAddr,
    /// The service's port.
    pub port: u16,
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
        self.network_name.split('.').next().unwrap_or_default()
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
    compiled.plan.doors = doors(view, &compiled.plan);
    compiled.plan.service_doors = service_doors(view, &compiled);
    compiled.plan.held = view.held.clone();
    plan_egress(view, &mut compiled.plan, &mut compiled.complaints);
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
            doors.insert(ServiceDoor { addr, port: front.port }, front.listener);
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

#[cfg(test)]
mod tests {
    use atoll_plan::Device;
    use atoll_types::MacAddr;

    use super::*;

    fn port(network: u32, ip: &str, pod: &str, node: &str) -> PlacedPort {
        let ip = ip.parse().unwrap();
        PlacedPort {
            network: NetworkId::try_from(network).unwrap(),
            network_name: format!("tenant-{network}.default"),
            ips: vec![ip],
            mac: MacAddr::for_ip(ip),
            pod: PodRef::new(format!("tenant-{network}"), pod),
            pod_uid: format!("{network}-{pod}"),
            interface: "eth0".into(),
            device: Device::Veth,
            node: Some(node.into()),
            others: BTreeSet::new(),
            routes: BTreeSet::new(),
        }
    }

    fn attachment(port: &PlacedPort) -> Attachment {
        Attachment {
            container_id: port.pod_uid.clone(),
            sandbox: "/run/netns/pod".into(),
            interface: "eth0".into(),
            pod: port.pod.clone(),
            pod_uid: Some(port.pod_uid.clone()),
        }
    }

    fn addr(network: u32, ip: &str) -> NetAddr {
        NetAddr::new(NetworkId::try_from(network).unwrap(), ip.parse().unwrap())
    }

    fn compile_on_node1(ports: &[PlacedPort], attachments: &[Attachment]) -> Compiled {
        compile(&NodeView {
            node: "node1",
            pod_mtu: 1450,
            nodes: [("node1", [192, 0, 2, 1].into()), ("node2", [192, 0, 2, 2].into())].into(),
            ports: ports.iter().collect(),
            attachments: attachments.iter().collect(),
            ..NodeView::default()
        })
    }

    #[test]
    fn two_networks_may_use_the_same_address_on_one_node() {
        let ports = [port(1, "10.0.0.5", "web", "node1"), port(2, "10.0.0.5", "web", "node1")];
        let attachments = [attachment(&ports[0]), attachment(&ports[1])];
        let compiled = compile_on_node1(&ports, &attachments);
        assert_eq!(compiled.complaints, []);
        for (port, attachment) in ports.iter().zip(&attachments) {
            let addr = NetAddr::new(port.network, port.ips[0]);
            let here = Place::Here(attachment.host_interface(port));
            assert_eq!(compiled.plan.endpoints[&addr].place, here);
            let interface = &compiled.plan.interfaces[&attachment.host_interface(port)];
            assert_eq!(interface.guard.network, port.network);
        }
    }

    #[test]
    fn a_pod_elsewhere_is_behind_its_nodes_underlay_address() {
        let compiled = compile_on_node1(&[port(1, "10.0.0.5", "web", "node2")], &[]);
        let there = Place::There([192, 0, 2, 2].into());
        assert_eq!(compiled.plan.endpoints[&addr(1, "10.0.0.5")].place, there);
        assert!(compiled.plan.interfaces.is_empty());
    }

    #[test]
    fn a_node_is_no_peer_of_itself() {
        let compiled = compile_on_node1(&[], &[]);
        assert_eq!(compiled.plan.peers, [[192, 0, 2, 2].into()].into());
    }

    #[test]
    fn a_pod_that_is_not_attached_yet_gets_no_packet() {
        let compiled = compile_on_node1(&[port(1, "10.0.0.5", "web", "node1")], &[]);
        assert_eq!(compiled.plan.endpoints, BTreeMap::new());
    }

    #[test]
    fn a_pod_without_a_node_is_nowhere() {
        let unbound = PlacedPort { node: None, ..port(1, "10.0.0.5", "web", "node1") };
        assert_eq!(compile_on_node1(&[unbound], &[]).plan.endpoints, BTreeMap::new());
    }

    #[test]
    fn an_attachment_of_a_pod_that_had_the_same_name_before_is_not_taken_for_it() {
        let web = port(1, "10.0.0.5", "web", "node1");
        let former = Attachment { pod_uid: Some("another".into()), ..attachment(&web) };
        let compiled = compile_on_node1(&[web], &[former]);
        assert!(compiled.plan.interfaces.is_empty());
    }

    #[test]
    fn an_address_with_two_owners_serves_neither() {
        let ports = [
            port(1, "10.0.0.5", "web", "node1"),
            port(1, "10.0.0.5", "thief", "node2"),
            port(1, "10.0.0.6", "bystander", "node2"),
        ];
        let compiled = compile_on_node1(&ports, &[attachment(&ports[0])]);
        assert_eq!(compiled.plan.endpoints.len(), 1);
        assert!(compiled.plan.endpoints.contains_key(&addr(1, "10.0.0.6")));
        assert_eq!(
            compiled.complaints[0].to_string(),
            "1/10.0.0.5 belongs to both tenant-1/web and tenant-1/thief: neither is served"
        );
    }

    #[test]
    fn a_pod_on_an_unknown_node_is_named() {
        let compiled = compile_on_node1(&[port(1, "10.0.0.5", "web", "node9")], &[]);
        assert_eq!(compiled.plan.endpoints, BTreeMap::new());
        assert_eq!(
            compiled.complaints[0].to_string(),
            "tenant-1/web is on node node9, whose address is not known"
        );
    }

    /// A pod with a second interface in another network.
    fn two_interfaces() -> [PlacedPort; 2] {
        let web = port(1, "10.0.0.5", "web", "node1");
        let first = PlacedPort { others: ["net1".to_owned()].into(), ..web.clone() };
        let second = PlacedPort {
            pod: web.pod.clone(),
            pod_uid: web.pod_uid,
            interface: "net1".into(),
            routes: ["10.1.0.0/16".parse().unwrap()].into(),
            ..port(2, "10.1.0.5", "web", "node1")
        };
        [first, second]
    }

    #[test]
    fn one_request_attaches_every_interface_and_the_first_has_the_default_route() {
        let ports = two_interfaces();
        let asked = attachment(&ports[0]);
        let compiled = compile_on_node1(&ports, std::slice::from_ref(&asked));
        let [first, second] = ports.each_ref().map(|port| {
            let name = asked.host_interface(port);
            let addr = NetAddr::new(port.network, port.ips[0]);
            assert_eq!(compiled.plan.endpoints[&addr].place, Place::Here(name.clone()));
            &compiled.plan.interfaces[&name]
        });
        assert_eq!((first.name.as_str(), &first.reach), ("eth0", &Reach::Everything));
        assert_eq!((second.name.as_str(), second.guard.network), ("net1", ports[1].network));
        assert_eq!(second.reach, Reach::Only(ports[1].routes.clone()));
        assert!(first.has_siblings && second.has_siblings);
    }

    #[test]
    fn an_interface_that_the_pods_first_does_not_name_is_not_attached() {
        let [first, second] = two_interfaces();
        let alone = PlacedPort { others: BTreeSet::new(), ..first };
        let asked = attachment(&alone);
        let compiled = compile_on_node1(&[alone, second], &[asked]);
        assert_eq!(compiled.plan.interfaces.len(), 1);
        assert!(!compiled.plan.interfaces.values().any(|interface| interface.has_siblings));
    }

    #[test]
    fn without_the_first_interface_no_other_is_attached() {
        let [first, second] = two_interfaces();
        let asked = attachment(&first);
        assert!(compile_on_node1(&[second], &[asked]).plan.interfaces.is_empty());
    }

    #[test]
    fn a_network_has_doors_to_the_clusters_resolver_and_its_own_where_it_has_a_pod_here() {
        let ports = [port(1, "10.0.0.5", "web", "node1"), port(2, "10.0.0.5", "web", "node2")];
        let asked = attachment(&ports[0]);
        let cluster_dns: Resolver = [IpAddr::from([10, 96, 0, 10])].into_iter().collect();
        let view = NodeView {
            node: "node1",
            nodes: [("node2", [192, 0, 2, 2].into())].into(),
            ports: ports.iter().collect(),
            attachments: vec![&asked],
            cluster_dns,
            ..NodeView::default()
        };
        let doors = compile(&view).plan.doors;
        let cluster_only = Doors { cluster: cluster_dns, own: Resolver::default() };
        assert_eq!(doors, [(ports[0].network, cluster_only)].into());
        let own: Resolver = [IpAddr::from([198, 18, 0, 10])].into_iter().collect();
        let doors = |answers| {
            let own = OwnResolver { at: own, answers };
            let own_dns = ports.each_ref().map(|port| (port.network, own)).into();
            compile(&NodeView { own_dns, ..view.clone() }).plan.doors
        };
        let both = Doors { cluster: cluster_dns, own };
        assert_eq!(doors(Answers::Agent), [(ports[0].network, both)].into());
        let node = Doors { cluster: Resolver::default(), own: at_the_node() };
        assert_eq!(doors(Answers::Pods), [(ports[0].network, node)].into(), "for the DNS pods");
        let without = NodeView { cluster_dns: Resolver::default(), ..view };
        assert_eq!(compile(&without).plan.doors, BTreeMap::new());
    }

    #[test]
    fn a_network_has_a_door_to_a_service_where_a_tenant_that_may_call_it_has_a_pod_here() {
        let ports = [1, 2].map(|number| port(number, "10.0.0.5", "web", "node1"));
        let elsewhere = port(3, "10.0.0.5", "web", "node2");
        let asked = ports.each_ref().map(attachment);
        let (all, one) = (Audience::All, Audience::Listed(["tenant-2".to_owned()].into()));
        let front =
            |last, to| Front { ip: [10, 96, 0, last].into(), port: 443, listener: 61100, to };
        let view = NodeView {
            node: "node1",
            nodes: [("node2", [192, 0, 2, 2].into())].into(),
            ports: ports.iter().chain([&elsewhere]).collect(),
            attachments: asked.iter().collect(),
            fronts: vec![front(1, &all), front(7, &one)],
            ..NodeView::default()
        };
        let doors = compile(&view).plan.service_doors;
        let texts: Vec<_> = doors.keys().map(|door| door.addr.to_string()).collect();
        assert_eq!(texts, ["1/10.96.0.1", "2/10.96.0.1", "2/10.96.0.7"]);
    }

    #[test]
    fn a_pod_with_several_interfaces_is_known_by_its_first_at_each() {
        let ports = two_interfaces();
        let asked = attachment(&ports[0]);
        let occupants = compile_on_node1(&ports, std::slice::from_ref(&asked)).occupants;
        assert_eq!(occupants.len(), 2);
        for port in &ports {
            let occupant = &occupants[&asked.host_interface(port)];
            assert_eq!(occupant.network_name, "tenant-1.default");
            assert_eq!(occupant.pod_uid, ports[0].pod_uid);
        }
    }
}
