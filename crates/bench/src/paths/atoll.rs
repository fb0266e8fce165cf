//! Atoll's own path: two nodes whose kernels are programmed by the same compiler, diff and
//! datapath as in a cluster. Every tenant has pods with the very same addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use atoll_datapath::{Datapath, DatapathConfig};
use atoll_model::compile::{Attachment, NodeView, PlacedPort, compile};
use atoll_plan::{NodePlan, Observed, Service, ServiceKey, Step, diff, diff_services};
use atoll_policy::Tables;
use atoll_testkit::{BpfFileSystem, Namespace, Worker};
use atoll_types::{MacAddr, NetworkId, PodRef};
use aya::programs::loaded_programs;
use tokio::runtime::Runtime;

use super::everything::{policies, services};
use super::peers::pair;
use super::{Ends, Place};
use crate::profile::Programs;

const NODES: [(&str, Ipv4Addr); 2] =
    [("node1", Ipv4Addr::new(192, 168, 77, 1)), ("node2", Ipv4Addr::new(192, 168, 77, 2))];
const UNDERLAY_MTU: u32 = 1500;
const OVERLAY_PORT: u16 = 4789;

/// The pods of every tenant: the last number of the address, and the node.
const PODS: [(u8, usize); 3] = [(1, 0), (2, 0), (3, 1)];

/// What the cluster holds beside the measured pods and their service.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting<'a> {
    /// The networks, one of each tenant.
    pub(crate) networks: &'a [u32],
    /// So many more endpoints in the first network, and so many other networks with one each.
    pub(crate) more: u32,
    /// So many more services in each network.
    pub(crate) services: u32,
    /// Whether policies deny all but what is measured; if not, there are none.
    pub(crate) policy: bool,
}

impl<'a> Setting<'a> {
    /// All that Atoll does is in force, with as many services as nft has beside it.
    pub(crate) fn everything(networks: &'a [u32]) -> Self {
        Setting { networks, more: 0, services: 500, policy: true }
    }
}

/// Two nodes with the pods of some tenants.
pub(crate) struct Cluster {
    nodes: Vec<Node>,
    pods: Vec<Pod>,
}

struct Node {
    _namespace: Namespace,
    worker: Worker<Programmed>,
}

/// What lives on a node's own thread.
struct Programmed {
    runtime: Runtime,
    bpf: BpfFileSystem,
    datapath: Datapath,
    plan: NodePlan,
    observed: Observed,
}

struct Pod {
    namespace: Arc<Namespace>,
    port: PlacedPort,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cluster({} nodes, {} pods)", self.nodes.len(), self.pods.len())
    }
}

impl Cluster {
    /// A cluster with three pods of each tenant.
    pub(crate) fn new(setting: &Setting<'_>) -> Result<Self> {
        let namespaces = NODES.map(|_| Namespace::new());
        let [first, second] = &namespaces;
        pair(first, "uplink", second, "uplink", UNDERLAY_MTU);
        let nodes = NODES.iter().zip(namespaces).map(|((_, ip), namespace)| start(*ip, namespace));
        let pods = setting
            .networks
            .iter()
            .flat_map(|network| PODS.map(|pod| (network, pod)))
            .map(|(network, (last, node))| {
                let port = port(*network, [10, 0, 0, last].into(), NODES[node].0)?;
                Ok(Pod { namespace: Arc::new(Namespace::new()), port })
            })
            .collect::<Result<_>>()?;
        let cluster = Cluster { nodes: nodes.collect::<Result<_>>()?, pods };
        cluster.program(setting)?;
        if setting.policy {
            let ips = PODS.map(|(last, _)| Ipv4Addr::new(10, 0, 0, last));
            cluster.write_policy(policies(setting.networks, &ips)?.tables())?;
        }
        Ok(cluster)
    }

    /// A client and a server of every tenant.
    pub(crate) fn ends(&self, place: Place) -> Vec<Ends> {
        let server = match place {
            Place::SameNode => 1,
            Place::AcrossNodes => 2,
        };
        let of_tenant = |pods: &[Pod]| Ends {
            client: pods[0].namespace.clone(),
            server: pods[server].namespace.clone(),
            target: pods[server].port.ips[0],
        };
        self.pods.chunks(PODS.len()).map(of_tenant).collect()
    }

    fn program(&self, setting: &Setting<'_>) -> Result<()> {
        let others = elsewhere(setting.networks[0], setting.more)?;
        for (node, (name, _)) in self.nodes.iter().zip(NODES) {
            let mut plan = self.plan(name, &others);
            for pods in self.pods.chunks(PODS.len()) {
                let server = &pods[1].port;
                plan.services.extend(services(server.network, server.ips[0], setting.services)?);
            }
            node.worker.run(move |programmed| programmed.converge(plan))?;
        }
        Ok(())
    }

    /// Adds these services on the first node, as an agent that starts; gives how long that took.
    pub(crate) fn serve(&self, services: BTreeMap<ServiceKey, Service>) -> Result<Duration> {
        self.nodes[0].worker.run(move |programmed| {
            let mut plan = programmed.plan.clone();
            plan.services.extend(services);
            let begun = Instant::now();
            programmed.converge(plan)?;
            Ok(begun.elapsed())
        })
    }

    /// Changes one service on the first node, as an agent does; gives how long that took.
    pub(crate) fn change(&self, key: ServiceKey, service: Service) -> Result<Duration> {
        self.nodes[0].worker.run(move |programmed| {
            let begun = Instant::now();
            programmed.change(key, service)?;
            Ok(begun.elapsed())
        })
    }

    fn plan(&self, node: &str, others: &[PlacedPort]) -> NodePlan {
        let attachments: Vec<Attachment> = self.pods.iter().map(attachment).collect();
        let pods = self.pods.iter().map(|pod| &pod.port);
        let view = NodeView {
            node,
            pod_mtu: UNDERLAY_MTU - 50,
            nodes: NODES.map(|(name, ip)| (name, IpAddr::V4(ip))).into(),
            ports: pods.chain(others).collect(),
            attachments: attachments.iter().collect(),
            ..NodeView::default()
        };
        compile(&view).plan
    }

    /// Puts these tables of policy into force on every node; gives how long the first took.
    pub(crate) fn write_policy(&self, tables: &Tables) -> Result<Duration> {
        let networks: BTreeSet<NetworkId> = self.pods.iter().map(|pod| pod.port.network).collect();
        let write = |node: &Node| {
            let (tables, networks) = (tables.clone(), networks.clone());
            node.worker.run(move |programmed| -> Result<Duration> {
                let begun = Instant::now();
                programmed.datapath.replace_policy(&tables)?;
                programmed.datapath.decide_anew(&networks)?;
                Ok(begun.elapsed())
            })
        };
        let took: Vec<Duration> = self.nodes.iter().map(write).collect::<Result<_>>()?;
        took.first().copied().context("a cluster has nodes")
    }

    /// How often the programs of all nodes ran until now, by name. A program is a node's when it
    /// has a map of it.
    pub(crate) fn programs(&self) -> Result<Programs> {
        let own = |node: &Node| node.worker.run(|it| maps_behind(&it.bpf.files()));
        let maps: BTreeSet<u32> = self.nodes.iter().flat_map(own).collect();
        let mut programs = Programs::new();
        // Somebody else's program may go while all are listed.
        for program in loaded_programs().flatten() {
            let used = program.map_ids().ok().flatten().unwrap_or_default();
            if used.iter().any(|map| maps.contains(map)) {
                let name = program.name_as_str().context("a program of ours has no name")?;
                let ran = programs.entry(name.to_owned()).or_default();
                ran.runs += program.run_count();
                ran.time += program.run_time();
            }
        }
        Ok(programs)
    }

    /// The pins of the first node's maps, by name, with the kernel memory behind each.
    pub(crate) fn map_memory(&self) -> Result<BTreeMap<String, u64>> {
        self.nodes[0].worker.run(|programmed| {
            let pins = programmed.bpf.files();
            let maps =
                pins.iter().filter(|pin| pin.parent().is_some_and(|it| it.ends_with("maps")));
            maps.map(|pin| Ok((file_name(pin), memory_of_map(pin)?))).collect()
        })
    }
}

/// The numbers of the maps behind these pins.
fn maps_behind(pins: &[PathBuf]) -> BTreeSet<u32> {
    let maps = pins.iter().filter(|pin| pin.parent().is_some_and(|it| it.ends_with("maps")));
    maps.filter_map(|pin| Some(aya::maps::MapInfo::from_pin(pin).ok()?.id())).collect()
}

fn file_name(path: &std::path::Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The kernel says in a descriptor's facts how much memory is behind it.
fn memory_of_map(pin: &PathBuf) -> Result<u64> {
    use std::os::fd::{AsFd, AsRawFd};
    let info = aya::maps::MapInfo::from_pin(pin)?;
    let descriptor = info.fd()?;
    let number = descriptor.as_fd().as_raw_fd();
    let facts = std::fs::read_to_string(format!("/proc/thread-self/fdinfo/{number}"))?;
    let memory = facts.lines().find_map(|line| line.strip_prefix("memlock:"));
    let memory = memory.with_context(|| format!("the kernel tells no memory of {pin:?}"))?;
    Ok(memory.trim().parse()?)
}

fn start(underlay: Ipv4Addr, namespace: Namespace) -> Result<Node> {
    namespace.ip(&format!("address add {underlay}/24 dev uplink"));
    let worker = Worker::start(&namespace, move || Programmed::open(underlay));
    Ok(Node { _namespace: namespace, worker })
}

impl Programmed {
    /// # Panics
    /// When the datapath cannot be opened: nothing can be measured.
    fn open(underlay: Ipv4Addr) -> Self {
        let bpf = BpfFileSystem::mount_for_this_thread();
        let config = DatapathConfig {
            bpf_root: bpf.path().join("node"),
            underlay: underlay.into(),
            overlay_port: OVERLAY_PORT,
            pod_questions: 8_000,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("start a runtime");
        let datapath = runtime.block_on(Datapath::open(&config)).expect("open the datapath");
        let (plan, observed) = (NodePlan::default(), Observed::default());
        Programmed { runtime, bpf, datapath, plan, observed }
    }

    fn converge(&mut self, plan: NodePlan) -> Result<()> {
        self.observed = self.runtime.block_on(self.datapath.observe())?;
        self.apply(&diff(&plan, &self.observed))?;
        self.plan = plan;
        Ok(())
    }

    fn change(&mut self, key: ServiceKey, service: Service) -> Result<()> {
        self.plan.services.insert(key, service);
        self.apply(&diff_services([&key], &self.plan.services, &self.observed.services))
    }

    fn apply(&mut self, steps: &[Step]) -> Result<()> {
        for step in steps {
            self.runtime.block_on(self.datapath.apply(step))?;
            self.observed.note(step);
        }
        Ok(())
    }
}

fn attachment(pod: &Pod) -> Attachment {
    Attachment {
        container_id: pod.port.pod_uid.clone(),
        sandbox: pod.namespace.path(),
        interface: "eth0".into(),
        pod: pod.port.pod.clone(),
        pod_uid: Some(pod.port.pod_uid.clone()),
    }
}

/// The port of a pod at this address.
pub(crate) fn port(network: u32, ip: IpAddr, node: &str) -> Result<PlacedPort> {
    Ok(PlacedPort {
        network: NetworkId::try_from(network)?,
        network_name: format!("tenant-{network}.default"),
        ips: vec![ip],
        mac: MacAddr::for_ip(ip),
        pod: PodRef::new(format!("tenant-{network}"), format!("pod-{ip}")),
        pod_uid: format!("{network}-{ip}"),
        interface: "eth0".into(),
        device: atoll_plan::Device::Veth,
        node: Some(node.to_owned()),
        others: BTreeSet::new(),
        routes: BTreeSet::new(),
    })
}

/// Endpoints on the second node: as many in `network` as in other networks, one in each of those.
fn elsewhere(network: u32, count: u32) -> Result<Vec<PlacedPort>> {
    let address = |number: u32| IpAddr::V4(Ipv4Addr::from_bits(0x0a01_0000 + number));
    let inside = (0..count).map(|number| port(network, address(number), NODES[1].0));
    let others = (0..count).map(|number| port(10_000 + number, address(0), NODES[1].0));
    inside.chain(others).collect()
}
