//! A cluster for one case: an API server, the CRDs, and controllers that end with it.

use std::fmt::Debug;
use std::future::Future;
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use atoll_api::{Claim, Network, Port, Tenant};
use atoll_apiserver::{ApiConfig, ApiServer};
use atoll_controller::ControllerConfig;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::conditions::{is_crd_established, is_deleted};
use kube::runtime::wait::{Condition, await_condition};
use kube::{Client, Config, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard, oneshot};
use tokio::task::JoinHandle;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Cases that share a real cluster come one after the other.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

/// A cluster for one case.
pub(crate) struct Subject {
    pub(crate) client: Client,
    prefix: String,
    _server: Option<(JoinHandle<()>, tempfile::TempDir)>,
    _turn: Option<MutexGuard<'static, ()>>,
}

/// A running controller. It ends with this value.
pub(crate) struct Running {
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<anyhow::Result<()>>,
}

impl Running {
    pub(crate) async fn stop(self) {
        self.tell_to_end().await;
    }

    /// Tells the controller to end, as SIGTERM does; done when it has.
    pub(crate) fn tell_to_end(mut self) -> impl Future<Output = ()> {
        self.stop.take().unwrap().send(()).unwrap();
        async move { (&mut self.task).await.unwrap().unwrap() }
    }

    /// Ends the controller as SIGKILL would.
    pub(crate) fn kill(self) {
        self.task.abort();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Subject {
    /// A cluster with our CRDs and no controller.
    pub(crate) async fn new(case: &str) -> Subject {
        let log = tracing_subscriber::EnvFilter::from_default_env();
        let _ = tracing_subscriber::fmt().with_env_filter(log).with_test_writer().try_init();
        let subject = match std::env::var_os("CONTRACT_KUBECONFIG") {
            Some(path) => Subject {
                client: client(Kubeconfig::read_from(Path::new(&path)).unwrap()).await,
                prefix: format!("{case}-{}", std::process::id()),
                _server: None,
                _turn: Some(ONE_AT_A_TIME.lock().await),
            },
            None => Subject::embedded(case).await,
        };
        subject.apply_crds().await;
        subject
    }

    async fn embedded(case: &str) -> Subject {
        let dir = tempfile::tempdir().unwrap();
        let config = ApiConfig {
            store: dir.path().join("store.redb"),
            tls_dir: dir.path().join("tls"),
            names: vec!["127.0.0.1".to_owned()],
        };
        let server = ApiServer::open(&config).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig(&url)).unwrap();
        let serving = tokio::spawn(async move {
            server.serve(vec![listener], std::future::pending()).await.unwrap();
        });
        Subject {
            client: client(kubeconfig).await,
            prefix: case.to_owned(),
            _server: Some((serving, dir)),
            _turn: None,
        }
    }

    async fn apply_crds(&self) {
        let api = Api::<CustomResourceDefinition>::all(self.client.clone());
        for crd in atoll_api::crds() {
            let params = PatchParams::apply("atoll-tests").force();
            api.patch(&crd.name_any(), &params, &Patch::Apply(&crd)).await.unwrap();
            until(&api, &crd.name_any(), is_crd_established()).await;
        }
    }

    /// Starts a controller.
    pub(crate) fn start(&self, config: ControllerConfig) -> Running {
        Subject::start_with(self.client.clone(), config)
    }

    /// Starts a controller that reaches the API in this way.
    pub(crate) fn start_with(client: Client, config: ControllerConfig) -> Running {
        let (stop, stopped) = oneshot::channel();
        let run = atoll_controller::run(client, config, async {
            let _ = stopped.await;
        });
        Running { stop: Some(stop), task: tokio::spawn(run) }
    }

    /// A name that no other case uses.
    pub(crate) fn unique(&self, name: &str) -> String {
        format!("{}-{name}", self.prefix)
    }

    pub(crate) fn all<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = ()>,
    {
        Api::all(self.client.clone())
    }

    pub(crate) fn inside<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), namespace)
    }

    pub(crate) fn pods(&self, namespace: &str) -> Api<Pod> {
        Api::namespaced(self.client.clone(), namespace)
    }

    pub(crate) fn ports(&self, namespace: &str) -> Api<Port> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// A tenant with a default network of this range, and a namespace of the same name.
    pub(crate) async fn make_tenant(&self, name: &str, cidr: &str) {
        let network = json!({"type": "vpc", "cidrs": [cidr]});
        make(&self.all::<Tenant>(), tenant(name, Some(&network))).await;
        let labels = json!({"atoll.dev/tenant": name});
        let namespace = json!({"metadata": {"name": name, "labels": labels}});
        make(&self.all::<Namespace>(), namespace).await;
    }

    pub(crate) async fn network_in_phase(&self, name: &str, phase: &str) -> Network {
        let wanted = phase.to_owned();
        let reached = move |network: Option<&Network>| {
            let status = network.and_then(|network| network.status.as_ref());
            status.is_some_and(|status| format!("{:?}", status.phase) == wanted)
        };
        until(&self.all::<Network>(), name, reached).await.unwrap()
    }

    /// The port of a pod's `eth0`, once it is there.
    pub(crate) async fn port_of(&self, namespace: &str, pod: &str) -> Port {
        let there = |port: Option<&Port>| port.is_some();
        until(&self.ports(namespace), &format!("{pod}.eth0"), there).await.unwrap()
    }

    /// The message of the first event with this reason about an object.
    pub(crate) async fn event(&self, name: &str, reason: &str) -> String {
        eventually(|| async {
            let events = self.all::<Event>().list(&ListParams::default()).await.unwrap();
            let about = |event: &Event| {
                event.reason.as_deref() == Some(reason)
                    && event.regarding.as_ref().is_some_and(|it| it.name.as_deref() == Some(name))
            };
            events.into_iter().find(about).and_then(|event| event.note)
        })
        .await
    }

    pub(crate) async fn claims(&self) -> Vec<Claim> {
        self.all::<Claim>().list(&ListParams::default()).await.unwrap().items
    }

    /// Deletes a tenant, its namespace and its pods, and waits until all is gone.
    pub(crate) async fn remove_tenant(&self, name: &str) {
        remove_pods(&self.pods(name)).await;
        remove(&self.all::<Namespace>(), name).await;
        remove(&self.all::<Tenant>(), name).await;
    }
}

async fn client(kubeconfig: Kubeconfig) -> Client {
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
    Client::try_from(config).unwrap()
}

pub(crate) fn tenant(name: &str, default_network: Option<&Value>) -> Value {
    json!({"apiVersion": "atoll.dev/v1alpha1", "kind": "Tenant", "metadata": {"name": name},
           "spec": {"defaultNetwork": default_network}})
}

pub(crate) fn network(name: &str, type_: &str, vpc: Option<&str>, cidrs: &[&str]) -> Value {
    let tenant = name.split('.').next();
    let mut spec = json!({"tenant": tenant, "type": type_, "cidrs": cidrs});
    if let Some(vpc) = vpc {
        spec["vpcID"] = json!(vpc);
    }
    json!({"apiVersion": "atoll.dev/v1alpha1", "kind": "Network", "metadata": {"name": name},
           "spec": spec})
}

pub(crate) fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {}, "annotations": {}},
           "spec": {"containers": [{"name": "main", "image": "none"}]}})
}

pub(crate) fn pod_asking(name: &str, nics: &str) -> Value {
    let mut pod = pod(name);
    pod["metadata"]["annotations"]["atoll.dev/nics"] = json!(nics);
    pod
}

pub(crate) async fn try_make<K>(api: &Api<K>, manifest: Value) -> kube::Result<K>
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned,
{
    api.create(&PostParams::default(), &serde_json::from_value(manifest).unwrap()).await
}

pub(crate) async fn make<K>(api: &Api<K>, manifest: Value) -> K
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned,
{
    try_make(api, manifest).await.unwrap()
}

/// Waits until an object meets a condition.
pub(crate) async fn until<K>(api: &Api<K>, name: &str, condition: impl Condition<K>) -> Option<K>
where
    K: Resource + Clone + Debug + Send + DeserializeOwned + 'static,
{
    let reached = tokio::time::timeout(PATIENCE, await_condition(api.clone(), name, condition));
    match reached.await {
        Ok(object) => object.unwrap(),
        Err(_) => panic!("{name} did not get there: {:?}", api.get_opt(name).await.unwrap()),
    }
}

/// Waits until something that no single object shows is there.
pub(crate) async fn eventually<T, F>(mut look: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let looking = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, looking).await.expect("it did not come")
}

/// Deletes an object and waits until it is gone.
pub(crate) async fn remove<K>(api: &Api<K>, name: &str)
where
    K: Resource + Clone + Debug + Send + DeserializeOwned + 'static,
{
    let uid = api.get(name).await.unwrap().meta().uid.clone().unwrap();
    api.delete(name, &DeleteParams::default()).await.unwrap();
    until(api, name, is_deleted(&uid)).await;
}

/// Deletes all pods of a namespace, as when their kubelets had ended them.
pub(crate) async fn remove_pods(api: &Api<Pod>) {
    let at_once = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    for pod in api.list(&ListParams::default()).await.unwrap() {
        api.delete(&pod.name_any(), &at_once).await.unwrap();
    }
}

/// Reason and message of an object's condition Ready.
pub(crate) fn ready(network: &Network) -> (String, String) {
    let conditions = &network.status.as_ref().unwrap().conditions;
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready").unwrap();
    (ready.reason.clone(), ready.message.clone())
}

/// A controller that gives forgotten claims back soon.
pub(crate) fn hasty() -> ControllerConfig {
    ControllerConfig { claim_grace: 1, address_rest: 1, ..ControllerConfig::default() }
}
