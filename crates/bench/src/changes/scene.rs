//! Where changes are measured: a tenant with a pod that asks and two that answer, on one node, with the
//! controller at work.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use atoll_api::{Network, NetworkPhase, Port, Tenant};
use atoll_testkit::Namespace;
use futures::stream::{self, TryStreamExt};
use k8s_openapi::api::core::v1::{Namespace as KubeNamespace, Pod as KubePod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cni::{self, Pod};
use crate::control::Controller;
use crate::node::{self, AgentNode};
use crate::volley::Answers;

const TENANT: &str = "changing";
/// Whose networks are made one after the other. Each service of a tenant is known in all its networks: the
/// other tenant's many services shall meet one.
const GROWING: &str = "growing";
/// Where pods answer, and the port of the service.
const PORT: u16 = 7000;
pub(super) const VIP_PORT: u16 = 80;
/// How many requests are under way at once.
const AT_ONCE: usize = 32;
/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
const SERVICE: &str = "moving";
const POLICY: &str = "closed";

/// A node, and what is on it.
pub(super) struct Scene<'a> {
    pub(super) node: &'a AgentNode,
    /// The address of a service, the endpoint of which can be changed.
    pub(super) vip: IpAddr,
    plugin: cni::Runtime<'a>,
    asker: Arc<Namespace>,
    /// The agent has their namespaces by a path that is there as long as these are.
    servers: Vec<(Arc<Namespace>, IpAddr)>,
    answers: Vec<Answers>,
    _controller: Controller,
    _log: TempDir,
}

/// What the answering pods say.
pub(super) fn word(number: usize) -> u8 {
    [b'a', b'b'][number % 2]
}

impl<'a> Scene<'a> {
    pub(super) fn set(atoll: &Path, node: &'a AgentNode) -> Result<Self> {
        let log = tempfile::tempdir()?;
        let controller =
            Controller::start(atoll, &node.kubeconfig(), &log.path().join("controller.log"))?;
        let mut scene = Scene {
            node,
            vip: IpAddr::from([0; 4]),
            plugin: cni::Runtime::of(atoll, node)?,
            asker: Arc::new(Namespace::new()),
            servers: vec![],
            answers: vec![],
            _controller: controller,
            _log: log,
        };
        scene.make_tenant()?;
        scene.people()?;
        scene.vip = scene.make_service()?;
        Ok(scene)
    }

    fn make_tenant(&self) -> Result<()> {
        let spec = json!({"defaultNetwork": {"type": "vpc", "cidrs": ["10.0.0.0/16"]}});
        for name in [TENANT, GROWING] {
            self.create::<Tenant>(
                &self.all(),
                json!({"metadata": {"name": name}, "spec": spec.clone()}),
            )?;
        }
        let metadata = json!({"name": TENANT, "labels": {"atoll.dev/tenant": TENANT}});
        self.create::<KubeNamespace>(&self.all(), json!({"metadata": metadata}))?;
        self.await_active(&format!("{TENANT}.default"))
    }

    /// One that asks and two that answer.
    fn people(&mut self) -> Result<()> {
        self.asker = self.run("asker")?.0;
        for (number, name) in ["server-a", "server-b"].into_iter().enumerate() {
            let (namespace, ip) = self.run(name)?;
            self.answers.push(Answers::start(&namespace, PORT, move |_| word(number))?);
            self.servers.push((namespace, ip));
        }
        Ok(())
    }

    /// Makes a pod and attaches it; gives its namespace and address.
    fn run(&self, name: &str) -> Result<(Arc<Namespace>, IpAddr)> {
        let pod = Pod::named(name, TENANT);
        self.make_pod(name)?;
        self.attach(&pod)?;
        let port = self.node.runtime().block_on(port_of(&self.node.client, name))?;
        let ip = port.spec.ips.first().context("a port has an address")?.parse()?;
        Ok((pod.namespace, ip))
    }

    fn make_service(&self) -> Result<IpAddr> {
        let ports = json!([{"protocol": "UDP", "port": VIP_PORT, "targetPort": PORT}]);
        let service = json!({"metadata": {"name": SERVICE}, "spec": {"ports": ports}});
        let made = self.create::<Service>(&self.own(), service)?;
        let metadata = json!({"name": SERVICE, "labels": {"kubernetes.io/service-name": SERVICE}});
        let slice = json!({"metadata": metadata, "addressType": "IPv4",
                           "ports": [{"protocol": "UDP", "port": PORT}], "endpoints": []});
        self.create::<EndpointSlice>(&self.own(), slice)?;
        let ip = made.spec.and_then(|spec| spec.cluster_ip).context("a service has an address")?;
        Ok(ip.parse()?)
    }

    /// So many more services, each with the first server as its endpoint.
    pub(super) fn make_crowd(&self, count: usize) -> Result<()> {
        let (services, slices) = (&self.own::<Service>(), &self.own::<EndpointSlice>());
        let endpoint = &self.endpoint(0);
        let made = stream::iter((0..count).map(Ok)).try_for_each_concurrent(
            AT_ONCE,
            |number| async move {
                let [service, slice] = one_of_a_crowd(number, endpoint);
                let parameters = PostParams::default();
                services.create(&parameters, &serde_json::from_value(service)?).await?;
                slices.create(&parameters, &serde_json::from_value(slice)?).await?;
                anyhow::Ok(())
            },
        );
        self.node.runtime().block_on(made)
    }

    /// One of both servers, as a slice names it.
    fn endpoint(&self, number: usize) -> Value {
        let name = ["server-a", "server-b"][number % 2];
        let pod = json!({"kind": "Pod", "namespace": TENANT, "name": name});
        json!({"addresses": [self.servers[number % 2].1.to_string()],
               "conditions": {"ready": true}, "targetRef": pod})
    }

    /// A pod that sends nothing by itself.
    pub(super) fn asker(&self) -> &Namespace {
        &self.asker
    }

    /// Where one of both answers.
    pub(super) fn server(&self, number: usize) -> SocketAddr {
        SocketAddr::new(self.servers[number].1, PORT)
    }

    /// A pod that is not made yet.
    pub(super) fn planned(&self, name: String) -> Pod {
        Pod::named(name, TENANT)
    }

    /// The ports of the tenant.
    pub(super) fn ports(&self) -> Api<Port> {
        self.own()
    }

    /// Asks for a pod on the node.
    pub(super) fn make_pod(&self, name: &str) -> Result<()> {
        let metadata = json!({"name": name, "labels": {"app": name}});
        let containers = json!([{"name": "main", "image": "none"}]);
        let spec = json!({"nodeName": node::NAME, "containers": containers});
        self.create::<KubePod>(&self.own(), json!({"metadata": metadata, "spec": spec})).map(drop)
    }

    /// Calls the plugin as the kubelet does.
    pub(super) fn attach(&self, pod: &Pod) -> Result<()> {
        let added = self.plugin.add(pod).map(drop);
        added.with_context(|| format!("cannot attach {}; {}", pod.name, self.node.last_words()))
    }

    /// Takes a pod away, before its namespace goes.
    pub(super) fn remove(&self, pod: &Pod) -> Result<()> {
        self.plugin.del(pod).with_context(|| format!("cannot detach {}", pod.name))?;
        let (pods, at_once) = (self.own::<KubePod>(), DeleteParams::default().grace_period(0));
        self.node.runtime().block_on(pods.delete(&pod.name, &at_once))?;
        Ok(())
    }

    /// Makes a network; gives how long it took until it was Active.
    pub(super) fn make_network(&self, name: &str) -> Result<Duration> {
        let name = format!("{GROWING}.{name}");
        let spec = json!({"tenant": GROWING, "type": "vpc", "cidrs": ["10.0.0.0/16"]});
        let since = Instant::now();
        let network = json!({"metadata": {"name": name}, "spec": spec});
        self.create::<Network>(&self.all(), network)?;
        self.await_active(&name)?;
        Ok(since.elapsed())
    }

    fn await_active(&self, name: &str) -> Result<()> {
        let networks = self.all::<Network>();
        let is_active = |network: Option<&Network>| {
            let status = network.and_then(|network| network.status.as_ref());
            status.is_some_and(|status| status.phase == NetworkPhase::Active)
        };
        self.node.runtime().block_on(async {
            let waiting = await_condition(networks, name, is_active);
            let waiting = tokio::time::timeout(PATIENCE, waiting);
            waiting.await.with_context(|| format!("network {name} is not Active"))??;
            Ok(())
        })
    }

    /// Nobody reaches the first server any more.
    pub(super) fn deny(&self) -> Result<()> {
        let spec = json!({"podSelector": {"matchLabels": {"app": "server-a"}},
                          "policyTypes": ["Ingress"]});
        let policy = json!({"metadata": {"name": POLICY}, "spec": spec});
        self.create::<NetworkPolicy>(&self.own(), policy).map(drop)
    }

    /// Everybody does again.
    pub(super) fn allow(&self) -> Result<()> {
        let policies = self.own::<NetworkPolicy>();
        self.node.runtime().block_on(policies.delete(POLICY, &DeleteParams::default()))?;
        Ok(())
    }

    /// The service leads to this server and to no other.
    pub(super) fn lead_to(&self, number: usize) -> Result<()> {
        let patch = Patch::Merge(json!({"endpoints": [self.endpoint(number)]}));
        let slices = self.own::<EndpointSlice>();
        let parameters = PatchParams::default();
        self.node.runtime().block_on(slices.patch(SERVICE, &parameters, &patch))?;
        Ok(())
    }

    fn all<K: Resource<DynamicType = ()>>(&self) -> Api<K> {
        Api::all(self.node.client.clone())
    }

    fn own<K>(&self) -> Api<K>
    where
        K: Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.node.client.clone(), TENANT)
    }

    fn create<K>(&self, api: &Api<K>, object: Value) -> Result<K>
    where
        K: Clone + std::fmt::Debug + Serialize + DeserializeOwned,
    {
        let object = serde_json::from_value(object)?;
        Ok(self.node.runtime().block_on(api.create(&PostParams::default(), &object))?)
    }
}

/// A service and its slice.
fn one_of_a_crowd(number: usize, endpoint: &Value) -> [Value; 2] {
    let name = format!("crowd-{number}");
    let ports = json!([{"protocol": "UDP", "port": VIP_PORT, "targetPort": PORT}]);
    let service = json!({"metadata": {"name": name}, "spec": {"ports": ports}});
    let metadata = json!({"name": name, "labels": {"kubernetes.io/service-name": name}});
    let slice = json!({"metadata": metadata, "addressType": "IPv4",
                       "ports": [{"protocol": "UDP", "port": PORT}], "endpoints": [endpoint]});
    [service, slice]
}

/// The port of a pod that was attached, which is named by its pod and perhaps more.
async fn port_of(client: &Client, pod: &str) -> Result<Port> {
    let ports = Api::<Port>::namespaced(client.clone(), TENANT);
    let all = ports.list(&kube::api::ListParams::default()).await?;
    let own = all.into_iter().find(|port| port.spec.pod == pod);
    own.with_context(|| format!("pod {pod} has no port"))
}
