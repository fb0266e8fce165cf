//! An API filled with tenants, and the controller, each in processes of its own.

use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use atoll_api::{Network, Port, Tenant};
use futures::stream::{self, TryStreamExt};
use k8s_openapi::api::core::v1::{Namespace, Pod, ServiceAccount};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ListParams, PostParams};
use kube::runtime::conditions::is_crd_established;
use kube::runtime::wait::await_condition;
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::metrics::Page;
use crate::api::Server;
use crate::node::{client, resident_bytes};
use crate::pinned::{Ended, cpu_of};

/// How many requests are under way at once.
const AT_ONCE: usize = 64;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(1800);

/// How long a controller must do nothing to be quiet: longer than anything is put off.
const QUIET: Duration = Duration::from_secs(2);

/// How much of a core an API takes that is at rest, and how long it may take to come to rest.
const RESTING: f64 = 0.2;
const DIGESTION: Duration = Duration::from_secs(30);

/// A cluster's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) tenants: usize,
    /// Of each tenant.
    pub(super) networks: usize,
    /// Of each network.
    pub(super) pods: usize,
}

impl Size {
    pub(super) fn all_networks(self) -> usize {
        self.tenants * self.networks
    }

    pub(super) fn all_pods(self) -> usize {
        self.all_networks() * self.pods
    }
}

/// Whose API the controller works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// The lab's.
    Embedded,
    /// kube-apiserver with etcd.
    Real,
}

impl Whose {
    pub(super) const BOTH: [Whose; 2] = [Whose::Embedded, Whose::Real];

    /// What it is called in tables.
    pub(super) fn name(self) -> &'static str {
        match self {
            Whose::Embedded => "embedded",
            Whose::Real => "kube-apiserver",
        }
    }
}

/// The API and its objects. All of it ends with this value.
pub(crate) struct Plane {
    server: Server,
    folder: TempDir,
    pub(crate) client: Client,
    runtime: Runtime,
    /// How many controllers were started.
    started: AtomicUsize,
}

/// A controller at work.
pub(crate) struct Controller {
    process: Ended,
    metrics: SocketAddr,
}

impl Plane {
    /// An empty cluster with our definitions.
    pub(crate) fn start(whose: Whose) -> Result<Self> {
        let server = match whose {
            Whose::Embedded => Server::embedded()?,
            Whose::Real => Server::real()?,
        };
        let folder = tempfile::tempdir().context("cannot make a folder")?;
        let runtime = Runtime::new()?;
        let kubeconfig = std::fs::read_to_string(&server.kubeconfig)?;
        let client = runtime.block_on(client(&kubeconfig))?;
        let plane = Plane { server, folder, client, runtime, started: AtomicUsize::new(0) };
        let definitions = atoll_api::crds().into_iter().map(|it| json!(it)).collect();
        plane.create(&plane.all::<CustomResourceDefinition>(), definitions)?;
        plane.await_definitions()?;
        Ok(plane)
    }

    /// How it is reached.
    pub(crate) fn kubeconfig(&self) -> Result<String> {
        let path = &self.server.kubeconfig;
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
    }

    /// Waits until objects of our kinds can be made.
    fn await_definitions(&self) -> Result<()> {
        let definitions = self.all::<CustomResourceDefinition>();
        self.block_on(async {
            for crd in atoll_api::crds() {
                let name = crd.metadata.name.unwrap_or_default();
                await_condition(definitions.clone(), &name, is_crd_established()).await?;
            }
            Ok(())
        })
    }

    /// Makes tenants, networks and pods.
    pub(super) fn make(&self, size: Size) -> Result<()> {
        let tenants: Vec<String> = (0..size.tenants).map(|number| format!("t-{number}")).collect();
        let named = |name: &String| json!({"metadata": {"name": name}, "spec": {}});
        self.create(&self.all::<Tenant>(), tenants.iter().map(named).collect())?;
        let labelled = |name: &String| json!({"metadata": {"name": name, "labels": {"atoll.dev/tenant": name}}});
        self.create(&self.all::<Namespace>(), tenants.iter().map(labelled).collect())?;
        self.make_service_accounts(&tenants)?;
        let networks = tenants.iter().flat_map(|tenant| {
            (0..size.networks).map(move |number| network(tenant, &format!("n-{number}")))
        });
        self.create(&self.all::<Network>(), networks.collect())?;
        self.make_pods_of_all(&tenants, size)
    }

    /// Makes the pods of all networks, as many at once as anything else.
    fn make_pods_of_all(&self, tenants: &[String], size: Size) -> Result<()> {
        let networks = tenants.iter().flat_map(|tenant| {
            (0..size.networks).map(move |number| (tenant, format!("n-{number}")))
        });
        let pods = networks.flat_map(|network| vec![network; size.pods]).map(anyhow::Ok);
        let made =
            stream::iter(pods).try_for_each_concurrent(AT_ONCE, |(tenant, network)| async move {
                let api = Api::<Pod>::namespaced(self.client.clone(), tenant);
                api.create(&PostParams::default(), &serde_json::from_value(pod(&network))?).await?;
                Ok(())
            });
        self.block_on(made)
    }

    /// Pods of a real API need the account `default` of their namespace, which somebody else may
    /// have made in the meantime.
    fn make_service_accounts(&self, namespaces: &[String]) -> Result<()> {
        let account = &json!({"metadata": {"name": "default"}});
        self.block_on(stream::iter(namespaces.iter().map(Ok)).try_for_each_concurrent(
            AT_ONCE,
            |namespace| async move {
                let api = Api::<ServiceAccount>::namespaced(self.client.clone(), namespace);
                let account = serde_json::from_value(account.clone())?;
                match api.create(&PostParams::default(), &account).await {
                    Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
                    made => made.map(drop).map_err(anyhow::Error::from),
                }
            },
        ))
    }

    /// Makes pods in one network of a tenant.
    pub(super) fn make_pods(&self, tenant: &str, network: &str, count: usize) -> Result<()> {
        let pods = Api::<Pod>::namespaced(self.client.clone(), tenant);
        self.create(&pods, vec![pod(network); count])
    }

    /// The network and the address of every port.
    pub(super) fn addresses(&self) -> Result<Vec<(String, String)>> {
        let ports =
            self.block_on(async { Ok(self.all::<Port>().list(&ListParams::default()).await?) })?;
        let address = |port: Port| Some((port.spec.network, port.spec.ips.into_iter().next()?));
        Ok(ports.into_iter().filter_map(address).collect())
    }

    /// Starts a controller, which asks nobody whether it is the one that works.
    pub(super) fn controller(&self, atoll: &Path) -> Result<Controller> {
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        let log = self.folder.path().join(format!("controller-{number}.log"));
        Controller::start(atoll, &self.server.kubeconfig, &log)
    }

    /// Seconds of CPU that the API has had.
    pub(super) fn cpu_seconds(&self) -> Result<f64> {
        self.server.cpu_seconds()
    }

    /// Waits until the API has digested what it was given, for as long as that may take.
    pub(super) fn await_rest(&self) -> Result<()> {
        let begun = Instant::now();
        while begun.elapsed() < DIGESTION {
            let (since, before) = (Instant::now(), self.cpu_seconds()?);
            std::thread::sleep(QUIET);
            let taken = self.cpu_seconds()? - before;
            if taken < RESTING * since.elapsed().as_secs_f64() {
                return Ok(());
            }
        }
        Ok(())
    }

    fn all<K: Resource<DynamicType = ()>>(&self) -> Api<K> {
        Api::all(self.client.clone())
    }

    fn create<K>(&self, api: &Api<K>, objects: Vec<Value>) -> Result<()>
    where
        K: Clone + std::fmt::Debug + Serialize + DeserializeOwned,
    {
        let made = stream::iter(objects.into_iter().map(Ok)).try_for_each_concurrent(
            AT_ONCE,
            |object| async move {
                let object: K = serde_json::from_value(object)?;
                api.create(&PostParams::default(), &object).await?;
                anyhow::Ok(())
            },
        );
        self.block_on(made)
    }

    pub(crate) fn block_on<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        self.runtime.block_on(work)
    }
}

impl Controller {
    /// Starts one on the API that a kubeconfig names.
    pub(crate) fn start(atoll: &Path, kubeconfig: &Path, log: &Path) -> Result<Self> {
        let metrics = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let process = Command::new("setpriv")
            .args(["--pdeathsig", "TERM"])
            .arg(atoll)
            .args(["controller", "--metrics-address", &metrics.to_string(), "--kubeconfig"])
            .arg(kubeconfig)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(log)?)
            .spawn()
            .with_context(|| format!("cannot start {}; is it built?", atoll.display()))?;
        Ok(Controller { process: Ended(process), metrics })
    }

    /// Waits until so many networks are Active.
    pub(super) fn wait_for_networks(&self, count: usize) -> Result<()> {
        self.wait_for("networks", |page| {
            page.with_label("atoll_networks", "phase=\"active\"") >= Some(count as f64)
        })
    }

    /// Waits until it has seen so many ports.
    pub(super) fn wait_for_ports(&self, count: usize) -> Result<()> {
        self.wait_for("ports", |page| {
            page.with_label("atoll_objects", "kind=\"port\"") >= Some(count as f64)
        })
    }

    /// Waits until everything was listed and nothing is left to do.
    pub(super) fn wait_until_idle(&self, ports: usize) -> Result<()> {
        self.wait_for("idleness", |page| {
            let seen = page.with_label("atoll_objects", "kind=\"port\"");
            seen == Some(ports as f64) && page.sum("atoll_queue_depth") == 0.0
        })
    }

    fn wait_for(&self, what: &str, there: impl Fn(&Page) -> bool) -> Result<()> {
        wait(what, || Ok(Page::read(self.metrics).is_ok_and(|page| there(&page))))
    }

    /// Waits until the controller has looked at nothing for a while.
    pub(super) fn wait_until_quiet(&self) -> Result<()> {
        let (mut since, mut last) = (Instant::now(), self.decisions()?);
        wait("rest", || {
            let now = self.decisions()?;
            if now != last {
                (since, last) = (Instant::now(), now);
            }
            Ok(since.elapsed() > QUIET)
        })
    }

    /// How often it has looked at an object.
    pub(super) fn decisions(&self) -> Result<f64> {
        Ok(Page::read(self.metrics)?.sum("atoll_decisions_total"))
    }

    /// Seconds of CPU that it has had.
    pub(super) fn cpu_seconds(&self) -> Result<f64> {
        Ok(cpu_of(self.process.0.id())? as f64 / 1e9)
    }

    /// Its resident memory.
    pub(super) fn resident_bytes(&self) -> Result<u64> {
        resident(self.process.0.id())
    }
}

/// The resident memory of a process.
pub(crate) fn resident(process: u32) -> Result<u64> {
    let path = format!("/proc/{process}/status");
    let status = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    resident_bytes(&status).with_context(|| format!("{path} tells no memory"))
}

/// A pod of a network, which the API names.
fn pod(network: &str) -> Value {
    json!({"metadata": {"generateName": format!("{network}-"),
                        "labels": {"atoll.dev/network": network}},
           "spec": {"containers": [{"name": "main", "image": "none"}]}})
}

fn network(tenant: &str, name: &str) -> Value {
    json!({"metadata": {"name": format!("{tenant}.{name}")},
           "spec": {"tenant": tenant, "type": "vpc", "cidrs": ["10.0.0.0/16"]}})
}

fn wait(what: &str, mut there: impl FnMut() -> Result<bool>) -> Result<()> {
    let start = Instant::now();
    while !there()? {
        if start.elapsed() > PATIENCE {
            bail!("{what} did not come within {} s", PATIENCE.as_secs());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}
