//! A node for a test: the real agent as a process, the embedded API in this one, ports made by hand
//! as the controller would. Everything ends with the value.

use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;

use atoll_api::{Port, PortSpec, marks};
use atoll_apiserver::{ApiConfig, ApiServer};
use atoll_cni::wire::{AgentReply, AgentRequest, ask};
use atoll_testkit::{BpfFileSystem, Namespace, Worker, eventually};
use atoll_types::MacAddr;
use k8s_openapi::api::core::v1::{Namespace as KubeNamespace, Node as KubeNode, Pod as KubePod};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;

const UNDERLAY: &str = "192.168.77.1";
/// A namespace of a tenant, and one of nobody.
pub(crate) const TENANTS: &str = "acme";
pub(crate) const NOBODYS: &str = "plain";

/// A node with its agent.
pub(crate) struct Node {
    agent: Child,
    pub(crate) namespace: Namespace,
    thread: Worker<BpfFileSystem>,
    client: Client,
    api: Option<Runtime>,
    folder: TempDir,
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill_agent();
        if let Some(api) = self.api.take() {
            api.shutdown_background();
        }
    }
}

/// A pod's namespace, its name, and the UID that the API gave it.
pub(crate) struct Pod {
    pub(crate) name: String,
    uid: OnceLock<String>,
    pub(crate) kube_namespace: &'static str,
    pub(crate) namespace: Namespace,
}

impl Pod {
    pub(crate) fn new(kube_namespace: &'static str, name: impl Into<String>) -> Self {
        let (name, namespace) = (name.into(), Namespace::new());
        Pod { name, uid: OnceLock::new(), kube_namespace, namespace }
    }

    /// Whether it has an interface `eth0`.
    pub(crate) fn is_attached(&self) -> bool {
        self.namespace.ip("-br link").contains("eth0")
    }

    /// The id of its container.
    pub(crate) fn container(&self) -> String {
        format!("container-{}", self.name)
    }

    pub(crate) fn arguments(&self) -> String {
        format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE={};K8S_POD_NAME={};K8S_POD_UID={}",
            self.kube_namespace,
            self.name,
            self.uid.get().unwrap_or(&self.name)
        )
    }
}

impl Node {
    /// Starts API and agent, and waits until the agent is ready.
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir_in("/run").unwrap();
        let namespace = Namespace::new();
        namespace.ip("link add uplink type veth peer name nowhere");
        namespace.ip(&format!("address add {UNDERLAY}/24 dev uplink"));
        namespace.ip("link set uplink up");
        for name in ["bin", "conf", "var"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        symlink(env!("CARGO_BIN_EXE_atoll"), folder.path().join("bin/atoll-cni")).unwrap();
        let api = Runtime::new().unwrap();
        let kubeconfig = serve_api(&api, folder.path(), &namespace);
        let client = api.block_on(client(&kubeconfig));
        api.block_on(fill(&client));
        let thread = Worker::start(&namespace, BpfFileSystem::mount_for_this_thread);
        let agent = start_agent(&thread, folder.path());
        let node = Node { agent, namespace, thread, client, api: Some(api), folder };
        node.wait_until_ready();
        node
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn kill_agent(&mut self) {
        // It may have been killed before.
        let _ = self.agent.kill();
        let _ = self.agent.wait();
    }

    /// The agent's process number.
    pub(crate) fn agent_number(&self) -> u32 {
        self.agent.id()
    }

    pub(crate) fn start_agent(&mut self) {
        self.agent = start_agent(&self.thread, self.folder.path());
        self.wait_until_ready();
    }

    fn wait_until_ready(&self) {
        eventually("the agent is ready", || {
            let status = ask(&self.path("agent.sock"), &AgentRequest::Status);
            matches!(status, Ok(AgentReply::Done)).then_some(())
        });
    }

    /// Makes a tenant's pod and its port, whose address is the `number`th.
    pub(crate) fn port(&self, pod: &Pod, number: u8) {
        let pods = Api::<KubePod>::namespaced(self.client.clone(), pod.kube_namespace);
        let ports = Api::<Port>::namespaced(self.client.clone(), pod.kube_namespace);
        let document = json!({"metadata": {"name": pod.name}, "spec": {
            "nodeName": "node1", "containers": [{"name": "main", "image": "none"}]}});
        let document = serde_json::from_value(document).unwrap();
        self.api.as_ref().unwrap().block_on(async {
            let made = pods.create(&PostParams::default(), &document).await.unwrap();
            let uid = pod.uid.get_or_init(|| made.metadata.uid.unwrap());
            ports.create(&PostParams::default(), &port(&pod.name, uid, number)).await.unwrap();
        });
    }

    /// The plugin's own configuration with more keys.
    pub(crate) fn configuration(&self, version: &str, more: &Value) -> Value {
        let mut configuration = json!({
            "cniVersion": version, "name": "atoll", "type": "atoll-cni",
            "agentSocket": self.path("agent.sock"),
        });
        let map = configuration.as_object_mut().unwrap();
        map.extend(more.as_object().unwrap().clone());
        configuration
    }

    /// Calls the plugin as a runtime does.
    pub(crate) fn call(&self, command: &str, pod: &Pod) -> Output {
        let configuration = self.configuration("1.1.0", &json!({})).to_string();
        let input = self.path(&format!("{}-{}.in", pod.name, command));
        fs::write(&input, configuration).unwrap();
        let plugin = || {
            Command::new(self.path("bin/atoll-cni"))
                .env_clear()
                .env("CNI_COMMAND", command)
                .env("CNI_CONTAINERID", pod.container())
                .env("CNI_NETNS", pod.namespace.path())
                .env("CNI_IFNAME", "eth0")
                .env("CNI_PATH", self.path("bin"))
                .env("CNI_ARGS", pod.arguments())
                .stdin(File::open(&input).unwrap())
                .output()
                .unwrap()
        };
        self.namespace.run(plugin)
    }

    /// The host sides of pods' interfaces.
    pub(crate) fn links(&self) -> usize {
        self.namespace.ip("-br link").lines().filter(|line| line.starts_with("atl")).count()
    }
}

fn serve_api(runtime: &Runtime, folder: &Path, node: &Namespace) -> String {
    let server = ApiServer::open(&ApiConfig {
        store: folder.join("store.redb"),
        tls_dir: folder.join("tls"),
        names: vec!["127.0.0.1".to_owned()],
    })
    .unwrap();
    let inside = node.run(|| TcpListener::bind("127.0.0.1:0").unwrap());
    let outside = TcpListener::bind("127.0.0.1:0").unwrap();
    let kubeconfig = |listener: &TcpListener| {
        server.kubeconfig(&format!("https://{}", listener.local_addr().unwrap()))
    };
    fs::write(folder.join("kubeconfig"), kubeconfig(&inside)).unwrap();
    let ours = kubeconfig(&outside);
    runtime.spawn(server.serve(vec![inside, outside], std::future::pending()));
    ours
}

async fn client(kubeconfig: &str) -> Client {
    let parsed = Kubeconfig::from_yaml(kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default()).await;
    Client::try_from(config.unwrap()).unwrap()
}

/// Makes the definitions, both namespaces and the node.
async fn fill(client: &Client) {
    for definition in atoll_api::crds() {
        Api::all(client.clone()).create(&PostParams::default(), &definition).await.unwrap();
    }
    for (name, labels) in [(TENANTS, json!({marks::TENANT: TENANTS})), (NOBODYS, json!({}))] {
        let namespace = json!({"metadata": {"name": name, "labels": labels}});
        let namespace: KubeNamespace = serde_json::from_value(namespace).unwrap();
        Api::all(client.clone()).create(&PostParams::default(), &namespace).await.unwrap();
    }
    let nodes = Api::<KubeNode>::all(client.clone());
    let node = serde_json::from_value(json!({"metadata": {"name": "node1"}})).unwrap();
    nodes.create(&PostParams::default(), &node).await.unwrap();
    let addresses = json!([{"type": "InternalIP", "address": UNDERLAY}]);
    let status = Patch::Merge(json!({"status": {"addresses": addresses}}));
    nodes.patch_status("node1", &PatchParams::default(), &status).await.unwrap();
}

fn port(pod: &str, uid: &str, number: u8) -> Port {
    let ip = std::net::IpAddr::from([10, 0, 0, number]);
    let spec = PortSpec {
        network: "acme.default".into(),
        network_id: 100,
        subnet: "acme.default".into(),
        ips: vec![ip.to_string()],
        mac: MacAddr::for_ip(ip).to_string(),
        pod: pod.into(),
        pod_uid: uid.into(),
        interface: "eth0".into(),
        node: Some("node1".into()),
        primary: true,
        ..PortSpec::default()
    };
    Port::new(&format!("{pod}.eth0"), spec)
}

/// On the node's thread, so that the agent is in its namespace and ends with it.
fn start_agent(thread: &Worker<BpfFileSystem>, folder: &Path) -> Child {
    let folder = folder.to_owned();
    thread.run(move |bpf| {
        let log = File::options().create(true).append(true).open(folder.join("agent.log")).unwrap();
        Command::new("setpriv")
            .args(["--pdeathsig", "KILL", env!("CARGO_BIN_EXE_atoll")])
            .args(["agent", "--node-name", "node1", "--underlay", UNDERLAY])
            .arg("--kubeconfig")
            .arg(folder.join("kubeconfig"))
            .arg("--socket")
            .arg(folder.join("agent.sock"))
            .arg("--state-dir")
            .arg(folder.join("state"))
            .arg("--bpf-root")
            .arg(bpf.path().join("node"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap()
    })
}
