//! A node with the real agent: the atoll program as a process, the embedded API in this one, and
//! ports that were made beforehand, as the controller would have.
//!
//! The rule: the agent does all that it does on a node. It answers names, and ports have an address
//! of each family.

use std::collections::BTreeSet;
use std::fs::File;
use std::net::{IpAddr, Ipv6Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use atoll_api::{Port, PortSpec, marks};
use atoll_apiserver::{ApiConfig, ApiServer};
use atoll_cni::wire::{AgentReply, AgentRequest, ask};
use atoll_testkit::{BpfFileSystem, Namespace, Worker};
use atoll_types::MacAddr;
use k8s_openapi::api::core::v1::{Namespace as KubeNamespace, Node, Pod};
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::interrupted::{Left, Noted, start_writer};
use crate::pinned::Ended;

/// Its name.
pub(crate) const NAME: &str = "node1";
/// Another node, of which there is nothing but its object.
const ANOTHER: &str = "node2";
const UNDERLAY: &str = "192.168.77.1";
/// Where pods ask for names.
pub(crate) const CLUSTER_DNS: &str = "10.96.0.10";
/// Where the agent keeps its state on a node, too: in memory.
const RUN: &str = "/run";
/// The kubeconfig of whoever is outside of the node.
const OUTSIDE: &str = "outside-kubeconfig";
/// How long the agent may take to see everything.
const PATIENCE: Duration = Duration::from_secs(120);

/// A pod that the node will be asked to attach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlannedPod {
    pub(crate) name: String,
    pub(crate) network: u32,
    pub(crate) ip: std::net::Ipv4Addr,
}

impl PlannedPod {
    /// The tenant whose it is, and the namespace it is in.
    pub(crate) fn tenant(&self) -> String {
        format!("tenant-{}", self.network)
    }

    /// Its addresses, one of each family.
    fn ips(&self) -> [IpAddr; 2] {
        let six =
            u128::from(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0)) | u128::from(self.ip.to_bits());
        [self.ip.into(), Ipv6Addr::from_bits(six).into()]
    }
}

/// The node. Everything of it ends with this value.
pub(crate) struct AgentNode {
    /// The agent ends before its folder goes.
    agent: Ended,
    noted_agent: Noted,
    folder: TempDir,
    _noted: Noted,
    thread: Worker<BpfFileSystem>,
    pub(crate) namespace: Namespace,
    /// Speaks to the API from outside of the node.
    pub(crate) client: Client,
    api: Option<Runtime>,
}

impl Drop for AgentNode {
    fn drop(&mut self) {
        if let Some(api) = self.api.take() {
            api.shutdown_background();
        }
    }
}

impl AgentNode {
    /// Starts API and agent, and waits until the agent has seen all pods' ports.
    pub(crate) fn start(atoll: &Path, pods: &[PlannedPod]) -> Result<Self> {
        Self::start_beside(atoll, pods, &[])
    }

    /// The same in a cluster that has other pods on another node.
    pub(crate) fn start_beside(
        atoll: &Path,
        pods: &[PlannedPod],
        elsewhere: &[PlannedPod],
    ) -> Result<Self> {
        let prefix = format!("atoll-bench-{}-", std::process::id());
        let folder = tempfile::Builder::new().prefix(&prefix).tempdir_in(RUN);
        let folder = folder.context("cannot make a folder")?;
        let noted = Noted::new(Left::Folder(folder.path().to_owned()));
        let namespace = Namespace::new();
        namespace.ip("link add uplink type veth peer name nowhere");
        namespace.ip(&format!("address add {UNDERLAY}/24 dev uplink"));
        namespace.ip("link set uplink up");
        let api = Runtime::new()?;
        let kubeconfig = serve_api(&api, folder.path(), &namespace)?;
        std::fs::write(folder.path().join(OUTSIDE), &kubeconfig)?;
        let client = api.block_on(client(&kubeconfig))?;
        api.block_on(fill(&client, pods, elsewhere))?;
        let thread = Worker::start(&namespace, BpfFileSystem::mount_for_this_thread);
        let (agent, noted_agent) = start_on(&thread, atoll, folder.path())?;
        let mut node = AgentNode {
            agent,
            noted_agent,
            folder,
            _noted: noted,
            thread,
            namespace,
            client,
            api: Some(api),
        };
        node.wait_until_ready()?;
        Ok(node)
    }

    /// Kills the agent, starts `atoll` in its place and waits until it is ready.
    pub(crate) fn restart(&mut self, atoll: &Path) -> Result<()> {
        self.agent.0.kill().context("cannot kill the agent")?;
        self.agent.0.wait()?;
        (self.agent, self.noted_agent) = start_on(&self.thread, atoll, self.folder.path())?;
        self.wait_until_ready()
    }

    /// Asks the agent to end, and waits until it did.
    pub(crate) fn end_agent(&mut self) -> Result<()> {
        let agent = Pid::from_raw(i32::try_from(self.agent.0.id())?);
        kill(agent, Signal::SIGTERM).context("cannot ask the agent to end")?;
        self.agent.0.wait()?;
        Ok(())
    }

    /// How the API is reached from outside of the node.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join(OUTSIDE)
    }

    /// Where the API runs.
    ///
    /// # Panics
    /// Never: it ends with this value alone.
    pub(crate) fn runtime(&self) -> &Runtime {
        self.api.as_ref().expect("the API runs as long as the node")
    }

    /// The agent's process.
    pub(crate) fn agent(&self) -> u32 {
        self.agent.0.id()
    }

    /// Where the agent listens.
    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("agent.sock")
    }

    /// The agent's resident memory.
    pub(crate) fn resident_bytes(&self) -> Result<u64> {
        let path = format!("/proc/{}/status", self.agent.0.id());
        let status = std::fs::read_to_string(path).context("cannot read the agent's memory")?;
        resident_bytes(&status).context("the kernel does not tell the agent's memory")
    }

    /// The last lines of the agent's log, for whoever has to tell why something failed.
    pub(crate) fn last_words(&self) -> String {
        let log = std::fs::read_to_string(self.folder.path().join("agent.log")).unwrap_or_default();
        let last: Vec<_> = log.lines().rev().take(5).collect();
        format!("the agent's last lines, newest first: {last:?}")
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let start = Instant::now();
        while !matches!(ask(&self.socket(), &AgentRequest::Status), Ok(AgentReply::Done)) {
            let ended = self.agent.0.try_wait()?.is_some();
            if ended || start.elapsed() > PATIENCE {
                bail!("the agent did not get ready; {}", self.last_words());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

/// The resident memory that the kernel tells of a process.
pub(crate) fn resident_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kilobytes| kilobytes << 10)
}

/// Serves the API on the node's loopback for the agent and on the machine's for us. Gives our
/// kubeconfig; the agent's lies beside it.
fn serve_api(runtime: &Runtime, folder: &Path, node: &Namespace) -> Result<String> {
    let server = open_api(folder)?;
    let inside = node.run(|| TcpListener::bind("127.0.0.1:0"))?;
    let outside = TcpListener::bind("127.0.0.1:0")?;
    let kubeconfig = |listener: &TcpListener| -> Result<String> {
        Ok(server.kubeconfig(&format!("https://{}", listener.local_addr()?)))
    };
    std::fs::write(folder.join("kubeconfig"), kubeconfig(&inside)?)?;
    let ours = kubeconfig(&outside)?;
    runtime.spawn(server.serve(vec![inside, outside], std::future::pending()));
    Ok(ours)
}

fn open_api(folder: &Path) -> Result<ApiServer> {
    let config = ApiConfig {
        store: folder.join("store.redb"),
        tls_dir: folder.join("tls"),
        names: vec!["127.0.0.1".to_owned()],
    };
    Ok(ApiServer::open(&config)?)
}

/// A client of the cluster that a kubeconfig names.
pub(crate) async fn client(kubeconfig: &str) -> Result<Client> {
    let parsed = Kubeconfig::from_yaml(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

/// Makes the definitions, the nodes, and every pod with its port.
async fn fill(client: &Client, pods: &[PlannedPod], elsewhere: &[PlannedPod]) -> Result<()> {
    let definitions = Api::all(client.clone());
    for definition in atoll_api::crds() {
        definitions.create(&PostParams::default(), &definition).await?;
    }
    make_node(client, NAME, UNDERLAY).await?;
    make_node(client, ANOTHER, "192.168.77.2").await?;
    let tenants: BTreeSet<String> = pods.iter().chain(elsewhere).map(PlannedPod::tenant).collect();
    for tenant in tenants {
        Api::all(client.clone()).create(&PostParams::default(), &namespace_of(&tenant)).await?;
    }
    for pod in pods {
        create(client, pod, NAME).await?;
    }
    for pod in elsewhere {
        create(client, pod, ANOTHER).await?;
    }
    Ok(())
}

async fn make_node(client: &Client, name: &str, address: &str) -> Result<()> {
    let nodes = Api::<Node>::all(client.clone());
    let node = Node { metadata: named(name), ..Node::default() };
    nodes.create(&PostParams::default(), &node).await?;
    let addresses: Value = json!([{"type": "InternalIP", "address": address}]);
    let status = Patch::Merge(json!({"status": {"addresses": addresses}}));
    nodes.patch_status(name, &PatchParams::default(), &status).await?;
    Ok(())
}

fn namespace_of(tenant: &str) -> KubeNamespace {
    let labels = [(marks::TENANT.to_owned(), tenant.to_owned())].into();
    let metadata = ObjectMeta { labels: Some(labels), ..named(tenant) };
    KubeNamespace { metadata, ..KubeNamespace::default() }
}

async fn create(client: &Client, planned: &PlannedPod, node: &str) -> Result<()> {
    let tenant = planned.tenant();
    let containers = json!([{"name": "main", "image": "none"}]);
    let pod = json!({"metadata": {"name": planned.name},
                     "spec": {"nodeName": node, "containers": containers}});
    let pod: Pod = serde_json::from_value(pod)?;
    let pods = Api::<Pod>::namespaced(client.clone(), &tenant);
    let made = pods.create(&PostParams::default(), &pod).await?;
    let port = port(planned, made.metadata.uid.unwrap_or_default(), node);
    let ports = Api::<Port>::namespaced(client.clone(), &tenant);
    ports.create(&PostParams::default(), &port).await?;
    Ok(())
}

fn named(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }
}

fn port(pod: &PlannedPod, pod_uid: String, node: &str) -> Port {
    let network = format!("{}.default", pod.tenant());
    Port::new(
        &pod.name,
        PortSpec {
            subnet: network.clone(),
            network,
            network_id: pod.network,
            ips: pod.ips().map(|ip| ip.to_string()).into(),
            mac: MacAddr::for_ip(pod.ip.into()).to_string(),
            pod: pod.name.clone(),
            pod_uid,
            interface: "eth0".into(),
            node: Some(node.to_owned()),
            ..PortSpec::default()
        },
    )
}

fn start_on(thread: &Worker<BpfFileSystem>, atoll: &Path, folder: &Path) -> Result<(Ended, Noted)> {
    let (program, place) = (atoll.to_owned(), folder.to_owned());
    let (agent, noted) = thread.run(move |bpf| start_agent(&program, &place, bpf.path()))?;
    Ok((Ended(agent), noted))
}

/// Runs on the node's thread, so that the agent is in its namespace, sees its BPF file system, and
/// ends with it however this program ends.
fn start_agent(atoll: &Path, folder: &Path, bpf: &Path) -> Result<(Child, Noted)> {
    let log = File::create(folder.join("agent.log"))?;
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "TERM"])
        .arg(atoll)
        .args(["agent", "--node-name", NAME, "--underlay", UNDERLAY])
        .args(["--cluster-dns", CLUSTER_DNS])
        .arg("--kubeconfig")
        .arg(folder.join("kubeconfig"))
        .arg("--socket")
        .arg(folder.join("agent.sock"))
        .arg("--state-dir")
        .arg(folder.join("state"))
        .arg("--bpf-root")
        .arg(bpf.join("node"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log);
    let agent = start_writer(&mut command);
    agent.with_context(|| format!("cannot start {}; is it built?", atoll.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_read_in_bytes() {
        assert_eq!(resident_bytes("VmSize:\t 9 kB\nVmRSS:\t    2048 kB\n"), Some(2 << 20));
        assert_eq!(resident_bytes("VmSize:\t 9 kB\n"), None);
    }

    #[test]
    fn a_port_names_its_pod_and_the_node() {
        let pod = PlannedPod { name: "web".into(), network: 7, ip: [10, 0, 0, 5].into() };
        let spec = port(&pod, "uid".into(), NAME).spec;
        assert_eq!((spec.pod.as_str(), spec.network_id), ("web", 7));
        assert_eq!(spec.ips, ["10.0.0.5", "fd00::a00:5"]);
        assert_eq!(spec.node.as_deref(), Some(NAME));
    }
}
