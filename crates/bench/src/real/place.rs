//! The cluster that is measured: three real nodes on this machine, first with one network, then
//! with another. It ends with this value.

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use atoll_api::{Network, NetworkPhase, Tenant};
use atoll_realnodes::{Cluster, UpOptions};
use futures::stream::{self, TryStreamExt};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ListParams, PostParams};
use kube::{Client, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::Extent;
use super::memory::Held;
use super::pods::{self, Waited, until};
use crate::interrupted::{Left, Noted};
use crate::node::client;

const NAME: &str = "bench";
const NODES: u8 = 3;
/// Where `make bench-build` puts the images around the programs that are measured, beside these.
const IMAGES: &str = "images";
/// How many requests are under way at once.
const AT_ONCE: usize = 32;

/// The cluster, and how to speak to it.
pub(super) struct Place {
    standing: Standing,
    atoll: PathBuf,
    client: Client,
    runtime: Runtime,
}

/// A cluster that goes down however the measurement ends.
struct Standing {
    cluster: Cluster,
    _noted: Noted,
}

impl Drop for Standing {
    fn drop(&mut self) {
        if let Err(error) = self.cluster.down() {
            eprintln!("real: not everything was removed: {error:#}");
        }
    }
}

impl Place {
    /// Three nodes without a network, with the images on them.
    pub(super) fn up(atoll: &Path) -> Result<Self> {
        let noted = Noted::new(Left::Nodes(NAME));
        let standing = Standing { cluster: Cluster::named(&NAME.parse()?), _noted: noted };
        let cluster = &standing.cluster;
        cluster.down()?;
        cluster.up(&UpOptions { nodes: NODES, port: 0, kubernetes: kubernetes()? })?;
        for image in ["pause", "atoll"] {
            let archive = atoll.with_file_name(IMAGES).join(format!("{image}.tar"));
            cluster.load(&archive).context("`make bench-build` makes the images")?;
        }
        let runtime = Runtime::new()?;
        let kubeconfig = std::fs::read_to_string(cluster.kubeconfig())?;
        let client = runtime.block_on(client(&kubeconfig))?;
        Ok(Place { standing, atoll: atoll.to_owned(), client, runtime })
    }

    /// Takes it down, and fails where something is left.
    pub(super) fn down(self) -> Result<()> {
        let Standing { cluster, .. } = &self.standing;
        cluster.down()?;
        let left = cluster.traces();
        ensure!(left.is_empty(), "of the cluster are left: {}", left.join(", "));
        Ok(())
    }

    pub(super) fn bring_bridge(&self) -> Result<()> {
        self.standing.cluster.bring_bridge()
    }

    pub(super) fn take_bridge_away(&self) -> Result<()> {
        self.standing.cluster.take_bridge_away()
    }

    /// As a user would; returns when everything runs and every node is Ready.
    pub(super) fn install(&self) -> Result<()> {
        let (host, port) = self.standing.cluster.api_endpoint();
        self.atoll(&["install", "--api-server", &format!("{host}:{port}")])
    }

    /// Takes everything away again.
    pub(super) fn uninstall(&self) -> Result<()> {
        self.atoll(&["uninstall"])
    }

    fn atoll(&self, arguments: &[&str]) -> Result<()> {
        let mut atoll = Command::new(&self.atoll);
        atoll.args(arguments).arg("--kubeconfig").arg(self.standing.cluster.kubeconfig());
        let output = atoll.stdin(Stdio::null()).output();
        let output = output.with_context(|| format!("cannot run {}", self.atoll.display()))?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "atoll {}: {}", arguments[0], said.trim());
        Ok(())
    }

    /// For each node, how long after the start of its agent's container it was Ready, by the API's
    /// own times, which are whole seconds.
    pub(super) fn nodes_ready_after_agents(&self) -> Result<Vec<Duration>> {
        let agents = ListParams::default().labels("app.kubernetes.io/component=agent");
        self.block_on(async {
            let agents = Api::<Pod>::all(self.client.clone()).list(&agents).await?;
            let nodes = Api::<Node>::all(self.client.clone()).list(&ListParams::default()).await?;
            let after = |agent: &Pod| {
                let started = started(agent)?;
                let name = agent.spec.as_ref()?.node_name.as_ref()?;
                let ready = ready_since(nodes.iter().find(|node| node.name_any() == *name)?)?;
                Some(Duration::try_from(ready.duration_since(started)).unwrap_or_default())
            };
            let all: Vec<Duration> = agents.iter().filter_map(after).collect();
            ensure!(all.len() == usize::from(NODES), "{} nodes have an agent", all.len());
            Ok(all)
        })
    }

    /// What our programs hold now.
    pub(super) fn held(&self) -> Result<Held> {
        Held::look(&self.standing.cluster)
    }

    /// So many namespaces of nobody.
    pub(super) fn namespaces(&self, prefix: &str, count: usize) -> Result<Vec<String>> {
        let names: Vec<String> = (0..count).map(|number| format!("{prefix}-{number}")).collect();
        self.make_namespaces(&names, |name| json!({"metadata": {"name": name}}))?;
        Ok(names)
    }

    /// The namespaces of so many tenants, each with a network of the same range.
    pub(super) fn tenants(&self, count: usize) -> Result<Vec<String>> {
        let names: Vec<String> = (0..count).map(tenant).collect();
        let tenants = names.iter().map(|name| {
            let network = json!({"type": "vpc", "cidrs": ["10.0.0.0/16"]});
            json!({"metadata": {"name": name}, "spec": {"defaultNetwork": network}})
        });
        self.create::<Tenant>(tenants.collect())?;
        self.make_namespaces(
            &names,
            |name| json!({"metadata": {"name": name, "labels": {"atoll.dev/tenant": name}}}),
        )?;
        self.await_networks(count)?;
        Ok(names)
    }

    /// More networks of the same tenants, until there are so many of all.
    pub(super) fn more_networks(&self, tenants: usize, all: usize) -> Result<()> {
        let networks = (tenants..all).map(|number| {
            let tenant = tenant(number % tenants);
            json!({"metadata": {"name": format!("{tenant}.n-{number}")},
                   "spec": {"tenant": tenant, "type": "vpc", "cidrs": ["10.0.0.0/16"]}})
        });
        self.create::<Network>(networks.collect())?;
        self.await_networks(all)
    }

    /// Pods over these namespaces, once for each number that is to be under way at once. The first,
    /// which have everything to load from disk, do not count. The last stay.
    pub(super) fn waited(&self, namespaces: &[String], extent: Extent) -> Result<Vec<Waited>> {
        let measure = |pods, at_once| {
            self.delete_pods()?;
            self.block_on(pods::measure(&self.client, namespaces, pods, at_once))
        };
        measure(2 * usize::from(NODES), usize::from(NODES))?;
        extent.at_once.iter().map(|at_once| measure(extent.pods, *at_once)).collect()
    }

    /// Takes away the pods that are there.
    pub(super) fn delete_pods(&self) -> Result<()> {
        self.block_on(pods::delete(&self.client))
    }

    fn make_namespaces(&self, names: &[String], object: impl Fn(&String) -> Value) -> Result<()> {
        self.create::<Namespace>(names.iter().map(object).collect())?;
        self.block_on(pods::await_accounts(&self.client, names))
    }

    fn await_networks(&self, count: usize) -> Result<()> {
        let networks = Api::<Network>::all(self.client.clone());
        self.block_on(until("networks to be active", async || {
            let there = networks.list(&ListParams::default()).await?;
            let is_active = |network: &&Network| {
                let status = network.status.as_ref();
                status.is_some_and(|status| status.phase == NetworkPhase::Active)
            };
            Ok(there.iter().filter(is_active).count() == count)
        }))
    }

    fn create<K>(&self, objects: Vec<Value>) -> Result<()>
    where
        K: kube::Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
    {
        let api = &Api::<K>::all(self.client.clone());
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

    fn block_on<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        self.runtime.block_on(work)
    }
}

fn tenant(number: usize) -> String {
    format!("tenant-{number}")
}

/// The folder of Kubernetes' programs, which are built the first time.
fn kubernetes() -> Result<PathBuf> {
    let built = Command::new("real/build").stderr(Stdio::inherit()).output();
    let built = built.context("cannot run real/build; run this in the clone's folder")?;
    ensure!(built.status.success(), "Kubernetes could not be built");
    Ok(String::from_utf8(built.stdout)?.trim().into())
}

/// Since when the pod's container runs.
fn started(pod: &Pod) -> Option<Timestamp> {
    let containers = pod.status.as_ref()?.container_statuses.as_ref()?;
    let running = containers.first()?.state.as_ref()?.running.as_ref()?;
    Some(running.started_at.as_ref()?.0)
}

fn ready_since(node: &Node) -> Option<Timestamp> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    let ready = conditions.iter().find(|it| it.type_ == "Ready" && it.status == "True")?;
    Some(ready.last_transition_time.as_ref()?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_of_nodes_and_agents_are_read_from_where_the_api_has_them() {
        let at = "2026-11-16T10:00:07Z";
        let pod: Pod = serde_json::from_value(json!({"status": {"containerStatuses": [
            {"name": "agent", "image": "", "imageID": "", "ready": true, "restartCount": 0,
             "state": {"running": {"startedAt": at}}}]}}))
        .unwrap();
        let node = |status: &str| -> Node {
            serde_json::from_value(json!({"status": {"conditions": [
                {"type": "Ready", "status": status, "lastTransitionTime": at}]}}))
            .unwrap()
        };
        assert_eq!(started(&pod).unwrap().to_string(), at);
        assert_eq!(ready_since(&node("True")).unwrap().to_string(), at);
        assert_eq!(ready_since(&node("False")), None, "it is not ready");
        assert_eq!(started(&Pod::default()), None);
    }
}
