//! Nodes and pods for a test: each a namespace, nodes connected by veths, all gone with the value.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::panic::{self, AssertUnwindSafe};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use atoll_datapath::{Attachment, Connection, Datapath, DatapathConfig, DropReason, Traffic};
use atoll_plan::{
    Device, Endpoint, Guard, HostInterface, NodePlan, Observed, ObservedInterface, Place,
    PodInterface, Reach, Step, diff,
};
use atoll_testkit::{BpfFileSystem, Namespace, PacketSocket, Worker, eventually};
use atoll_types::{MacAddr, NetAddr, NetworkId};

pub(crate) const OVERLAY_PORT: u16 = 4789;

/// As many as the agent lets a pod put by default.
pub(crate) const POD_QUESTIONS: u32 = 8_000;

/// What lives on a node's own thread.
pub(crate) struct State {
    pub(crate) runtime: tokio::runtime::Runtime,
    pub(crate) bpf: BpfFileSystem,
    pub(crate) config: DatapathConfig,
    pub(crate) attachment: Attachment,
    pub(crate) datapath: Option<Datapath>,
}

/// A node: its namespace, its thread, and what it should look like.
pub(crate) struct Node {
    pub(crate) namespace: Namespace,
    pub(crate) underlay: Ipv4Addr,
    /// The address that tunnels end at: `underlay`, or the node's IPv6 address.
    pub(crate) tunnel: IpAddr,
    pub(crate) plan: Mutex<NodePlan>,
    worker: Worker<State>,
}

/// A pod: its namespace and who it is.
pub(crate) struct Pod {
    pub(crate) namespace: Namespace,
    pub(crate) host_side: HostInterface,
    pub(crate) network: NetworkId,
    pub(crate) ip: Ipv4Addr,
    pub(crate) ipv6: Ipv6Addr,
    pub(crate) mac: MacAddr,
}

/// Nodes that can reach each other.
pub(crate) struct Fabric {
    pub(crate) nodes: Vec<Node>,
    attached: AtomicU32,
}

/// A test that failed tells what its nodes dropped, and why: often that is the reason.
impl Drop for Fabric {
    fn drop(&mut self) {
        if !thread::panicking() {
            return;
        }
        for node in &self.nodes {
            let told = panic::catch_unwind(AssertUnwindSafe(|| {
                node.run(|state| state.datapath.as_ref().map(Datapath::drops))
            }));
            eprintln!("{} dropped: {:?}", node.underlay, told.ok().flatten());
        }
    }
}

/// The ways of attaching that this kernel has, the best first.
pub(crate) fn attachments() -> Vec<Attachment> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split('.').map(str::parse::<u32>);
    let version = (numbers.next().unwrap().unwrap(), numbers.next().unwrap().unwrap());
    let tcx = (version >= (6, 6)).then_some(Attachment::Tcx);
    tcx.into_iter().chain([Attachment::Clsact]).collect()
}

pub(crate) fn network(number: u32) -> NetworkId {
    NetworkId::try_from(number).unwrap()
}

impl State {
    fn start(underlay: IpAddr, attachment: Attachment) -> Self {
        let bpf = BpfFileSystem::mount_for_this_thread();
        let bpf_root = bpf.path().join("node");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let config = DatapathConfig {
            bpf_root,
            underlay,
            overlay_port: OVERLAY_PORT,
            pod_questions: POD_QUESTIONS,
        };
        let mut state = State { runtime, bpf, config, attachment, datapath: None };
        state.open();
        state
    }

    /// Opens the datapath anew, as after a crash.
    pub(crate) fn open(&mut self) {
        self.datapath = None;
        let opening = Datapath::open_with(&self.config, self.attachment);
        self.datapath = Some(self.runtime.block_on(opening).unwrap());
    }

    pub(crate) fn apply(&mut self, step: &Step) -> Result<(), atoll_datapath::StepError> {
        self.runtime.block_on(self.datapath.as_mut().unwrap().apply(step))
    }

    pub(crate) fn observe(&self) -> Observed {
        self.runtime.block_on(self.datapath.as_ref().unwrap().observe()).unwrap()
    }
}

impl Node {
    /// Runs `job` on the node's thread.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut State) -> T + Send + 'static,
    ) -> T {
        self.worker.run(job)
    }

    /// Observes, compares with the plan and does what is missing; gives the steps it took.
    pub(crate) fn converge(&self) -> Vec<Step> {
        let desired = self.plan.lock().unwrap().clone();
        self.run(move |state| {
            let steps = diff(&desired, &state.observe());
            steps.iter().for_each(|step| state.apply(step).unwrap());
            steps
        })
    }

    pub(crate) fn observe(&self) -> Observed {
        self.run(|state| state.observe())
    }

    /// What `observe` must say when everything is as planned.
    pub(crate) fn planned(&self) -> Observed {
        let plan = self.plan.lock().unwrap();
        let interface = |wanted: &PodInterface| ObservedInterface {
            exists: true,
            up: true,
            mtu: wanted.mtu,
            reach: wanted.routed(),
            guard: Some(wanted.guard.clone()),
        };
        let interfaces = plan.interfaces.iter();
        let endpoints = plan.endpoints.iter();
        Observed {
            tenants: plan.tenants.clone(),
            peers: plan.peers.clone(),
            interfaces: interfaces.map(|(name, it)| (name.clone(), interface(it))).collect(),
            endpoints: endpoints.map(|(addr, it)| (*addr, Some(it.clone()))).collect(),
            doors: plan.doors.clone(),
            services: plan.services.clone(),
            service_doors: plan.service_doors.iter().map(|(door, it)| (*door, Some(*it))).collect(),
            egress: plan.egress.iter().map(|(network, it)| (*network, Some(*it))).collect(),
            closed: plan.closed.clone(),
            openings: plan.openings.clone(),
            compatible: plan.compatible.iter().map(|network| (*network, true)).collect(),
            infra: plan.infra.clone(),
            held: plan.held.iter().map(|(ip, network)| (*ip, Some(*network))).collect(),
        }
    }

    /// Packets of a network dropped here for a reason.
    pub(crate) fn dropped(&self, network: Option<NetworkId>, reason: DropReason) -> u64 {
        let drops = self.run(|state| state.datapath.as_ref().unwrap().drops().unwrap());
        let counted = drops.iter().filter(|drop| drop.network == network && drop.reason == reason);
        counted.map(|drop| drop.packets).sum()
    }

    /// Waits until at least so many packets of a network were dropped here for a reason: what is sent may
    /// wait for its turn in a queue of the kernel.
    pub(crate) fn await_dropped(&self, network: Option<NetworkId>, reason: DropReason, count: u64) {
        eventually(&format!("{count} packets were dropped as {reason}"), || {
            (self.dropped(network, reason) >= count).then_some(())
        });
    }
}

impl Node {
    /// The connections of a network that this node knows.
    pub(crate) fn connections(&self, network: NetworkId) -> Vec<Connection> {
        self.run(move |state| state.datapath.as_ref().unwrap().connections(network).unwrap())
    }

    /// What a pod of this node has sent and received; none if it is not counted.
    pub(crate) fn traffic(&self, pod: &Pod) -> Option<Traffic> {
        let all = self.run(|state| state.datapath.as_ref().unwrap().traffic().unwrap());
        all.into_iter().find(|traffic| traffic.interface == pod.host_side)
    }

    /// Has a pod of this node send every frame, each part of them once the one before has passed: a queue
    /// of the kernel loses what is more than it holds.
    pub(crate) fn flood(&self, pod: &Pod, frames: impl IntoIterator<Item = Vec<u8>>) {
        const PART: usize = 512;
        let socket = pod.packets();
        let sent = || self.traffic(pod).unwrap().counters.sent_packets;
        let (mut frames, mut passed) = (frames.into_iter().peekable(), sent());
        while frames.peek().is_some() {
            for frame in frames.by_ref().take(PART) {
                socket.send(&frame).unwrap();
                passed += 1;
            }
            eventually("what was sent has passed", || (sent() >= passed).then_some(()));
        }
    }
}

impl Pod {
    /// The pod's addresses as others look them up.
    pub(crate) fn addrs(&self) -> [NetAddr; 2] {
        self.ips().map(|ip| NetAddr::new(self.network, ip))
    }

    pub(crate) fn ips(&self) -> [IpAddr; 2] {
        [self.ip.into(), self.ipv6.into()]
    }

    /// A raw socket on the pod's interface.
    pub(crate) fn packets(&self) -> PacketSocket {
        self.namespace.run(|| PacketSocket::open("eth0").unwrap())
    }

    pub(crate) fn guard(&self) -> Guard {
        Guard { network: self.network, mac: self.mac, ips: self.ips().into() }
    }

    pub(crate) fn interface(&self) -> PodInterface {
        PodInterface {
            sandbox: self.namespace.path(),
            name: "eth0".into(),
            description: format!("test/{} eth0", self.ip),
            mtu: 1450,
            guard: self.guard(),
            reach: Reach::Everything,
            has_siblings: false,
            device: Device::Veth,
        }
    }
}

impl Fabric {
    /// This many nodes, with their datapaths open.
    pub(crate) fn of(nodes: u8) -> Self {
        Self::attached_by(nodes, attachments()[0])
    }

    /// This many nodes that meet over IPv6.
    pub(crate) fn over_ipv6(nodes: u8) -> Self {
        Self::made_of(nodes, attachments()[0], |number| underlay_ipv6(number).into())
    }

    pub(crate) fn attached_by(count: u8, attachment: Attachment) -> Self {
        Self::made_of(count, attachment, |number| underlay(number).into())
    }

    /// This many nodes on a wire that goes through `world`, where it is the bridge `wire`.
    pub(crate) fn on_wire_through(world: &Namespace, count: u8) -> Self {
        world.ip("link add wire type bridge");
        let namespaces: Vec<_> = (0..count).map(|_| Namespace::new()).collect();
        for (number, namespace) in (1..).zip(&namespaces) {
            let peer = format!("peer name node{number} netns {}", world.path().display());
            namespace.ip(&format!("link add uplink type veth {peer}"));
            world.ip(&format!("link set node{number} master wire up"));
            address(number, namespace);
        }
        world.ip("link set wire up");
        namespaces.iter().chain([world]).for_each(Namespace::await_links);
        Self::started(namespaces, attachments()[0], |number| underlay(number).into())
    }

    /// One node, or two with a veth between them.
    fn made_of(count: u8, attachment: Attachment, tunnel: impl Fn(u8) -> IpAddr) -> Self {
        let namespaces: Vec<_> = (0..count).map(|_| Namespace::new()).collect();
        connect(&namespaces);
        Self::started(namespaces, attachment, tunnel)
    }

    fn started(
        namespaces: Vec<Namespace>,
        attachment: Attachment,
        tunnel: impl Fn(u8) -> IpAddr,
    ) -> Self {
        let nodes: Vec<_> = (1..)
            .zip(namespaces)
            .map(|(number, namespace)| start(number, tunnel(number), namespace, attachment))
            .collect();
        let fabric = Fabric { nodes, attached: AtomicU32::new(0) };
        fabric.introduce();
        fabric
    }

    /// Makes every node know the others.
    fn introduce(&self) {
        for node in &self.nodes {
            let others = self.nodes.iter().map(|other| other.tunnel);
            let others = others.filter(|other| *other != node.tunnel);
            node.plan.lock().unwrap().peers.extend(others);
        }
    }

    /// A pod on the node at `place`, in every node's plan but not yet in any kernel. It has an
    /// IPv6 address, too: `fd00::` and the last byte of `ip`.
    pub(crate) fn planned_pod(&self, place: usize, network: NetworkId, ip: &str) -> Pod {
        let number = self.attached.fetch_add(1, Ordering::Relaxed);
        let ip: Ipv4Addr = ip.parse().unwrap();
        let pod = Pod {
            namespace: Namespace::new(),
            host_side: HostInterface::for_attachment(&format!("container-{number}"), "eth0"),
            network,
            ip,
            ipv6: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, ip.octets()[3].into()),
            mac: MacAddr::for_ip(ip.into()),
        };
        let here = self.nodes[place].tunnel;
        for node in &self.nodes {
            let is_here = node.tunnel == here;
            let there = Place::There(here);
            let at = if is_here { Place::Here(pod.host_side.clone()) } else { there };
            let mut plan = node.plan.lock().unwrap();
            for addr in pod.addrs() {
                plan.endpoints.insert(addr, Endpoint { mac: pod.mac, place: at.clone() });
            }
            if is_here {
                plan.interfaces.insert(pod.host_side.clone(), pod.interface());
            }
        }
        pod
    }

    /// A pod of another node than the fabric's only one, which knows that node and it.
    pub(crate) fn pod_there(&self, node: IpAddr, network: NetworkId, ip: &str) -> Pod {
        let pod = self.planned_pod(0, network, ip);
        {
            let mut plan = self.nodes[0].plan.lock().unwrap();
            plan.interfaces.remove(&pod.host_side);
            plan.peers.insert(node);
            for addr in pod.addrs() {
                plan.endpoints.insert(addr, Endpoint { mac: pod.mac, place: Place::There(node) });
            }
        }
        self.converge();
        pod
    }

    /// Takes a pod out of every plan and every kernel.
    pub(crate) fn remove(&self, pod: &Pod) {
        for node in &self.nodes {
            let mut plan = node.plan.lock().unwrap();
            plan.interfaces.remove(&pod.host_side);
            pod.addrs().iter().for_each(|addr| drop(plan.endpoints.remove(addr)));
        }
        self.converge();
    }

    /// A pod that can speak.
    pub(crate) fn pod(&self, place: usize, network: NetworkId, ip: &str) -> Pod {
        let pod = self.planned_pod(place, network, ip);
        self.converge();
        pod
    }

    pub(crate) fn converge(&self) {
        self.nodes.iter().for_each(|node| drop(node.converge()));
    }
}

fn underlay(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 168, 77, number)
}

fn underlay_ipv6(number: u8) -> Ipv6Addr {
    Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, number.into())
}

/// One node gets an uplink to nowhere, two get one to each other.
fn connect(namespaces: &[Namespace]) {
    let first = &namespaces[0];
    match namespaces {
        [_] => drop(first.ip("link add uplink type veth peer name nowhere")),
        [_, second] => {
            let other = second.path();
            let peer = format!("peer name uplink netns {}", other.display());
            first.ip(&format!("link add uplink type veth {peer}"));
        }
        _ => panic!("a fabric has one or two nodes"),
    }
    for (number, namespace) in (1..).zip(namespaces) {
        address(number, namespace);
    }
    if namespaces.len() > 1 {
        namespaces.iter().for_each(Namespace::await_links);
    }
}

fn address(number: u8, namespace: &Namespace) {
    namespace.ip(&format!("address add {}/24 dev uplink", underlay(number)));
    namespace.ip(&format!("address add {}/64 dev uplink nodad", underlay_ipv6(number)));
    namespace.ip("link set uplink up");
}

fn start(number: u8, tunnel: IpAddr, namespace: Namespace, attachment: Attachment) -> Node {
    let underlay = underlay(number);
    let worker = Worker::start(&namespace, move || State::start(tunnel, attachment));
    Node { namespace, underlay, tunnel, plan: Mutex::default(), worker }
}
