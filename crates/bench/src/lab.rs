//! A lab of three nodes, as `atoll lab` makes it: for what needs a whole cluster. It goes with its
//! value.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use atoll_api::Tenant;
use atoll_testkit::Namespace;
use k8s_openapi::api::core::v1::{Namespace as KubeNamespace, Pod};
use kube::Client;
use kube::api::{Api, ListParams, PostParams};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::interrupted::{Left, Noted};

/// Its nodes.
pub(crate) const NODES: [&str; 3] = ["node1", "node2", "node3"];
/// Its tenant, and the namespace of its pods.
pub(crate) const TENANT: &str = "acme";
/// Where labs keep their state.
const LABS: &str = "/run/atoll/lab";
/// How long pods may take to start.
const PATIENCE: Duration = Duration::from_secs(120);

/// A lab.
pub(crate) struct Lab<'a> {
    atoll: &'a Path,
    name: String,
    _noted: Noted,
}

impl Lab<'_> {
    /// Starts one; `purpose` makes its name.
    pub(crate) fn up<'a>(atoll: &'a Path, purpose: &str) -> Result<Lab<'a>> {
        let name = format!("bench-{purpose}-{}", std::process::id());
        let noted = Noted::new(Left::Lab(atoll.to_owned(), name.clone()));
        let lab = Lab { atoll, name, _noted: noted };
        let nodes = NODES.len().to_string();
        lab.run(&["up", "--name", &lab.name, "--nodes", &nodes])?;
        Ok(lab)
    }

    fn run(&self, arguments: &[&str]) -> Result<String> {
        let output = Command::new(self.atoll).arg("lab").args(arguments).output();
        let output = output.with_context(|| format!("cannot run {}", self.atoll.display()))?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "atoll lab {arguments:?} failed: {said}");
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// How its API is reached.
    pub(crate) fn kubeconfig(&self) -> Result<String> {
        let path = PathBuf::from(self.run(&["kubeconfig", "--name", &self.name])?);
        std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    /// The process of a node's agent.
    pub(crate) fn agent(&self, node: &str) -> Result<i32> {
        let said = self.run(&["status", "--name", &self.name, "-o", "json"])?;
        let status: Value = serde_json::from_str(&said)?;
        let nodes = status["nodes"].as_array().context("a lab has nodes")?;
        let node = nodes.iter().find(|it| it["name"] == node).context("a lab has that node")?;
        let pid = node["agent"]["pid"].as_i64().context("the agent does not run")?;
        Ok(i32::try_from(pid)?)
    }

    /// The namespace of a pod.
    pub(crate) fn inside(&self, pod: &Pod) -> Result<Namespace> {
        let uid = pod.metadata.uid.as_deref().context("a pod has no uid")?;
        Ok(self.namespace(&format!("pod-{uid}")))
    }

    /// The wires between the nodes, which are the outside.
    pub(crate) fn outside(&self) -> Namespace {
        self.namespace("fabric")
    }

    fn namespace(&self, of: &str) -> Namespace {
        Namespace::at(&Path::new(LABS).join(&self.name).join("netns").join(of))
    }
}

impl Drop for Lab<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.run(&["down", "--name", &self.name]) {
            eprintln!("{error:#}");
        }
    }
}

/// The tenant with a network, and a pod on every node, each at an address that its number says.
pub(crate) async fn fill(client: &Client) -> Result<()> {
    let cidrs = json!(["10.0.0.0/16"]);
    let spec = json!({"defaultNetwork": {"type": "vpc", "cidrs": cidrs}});
    let tenant = json!({"metadata": {"name": TENANT}, "spec": spec});
    create::<Tenant>(&Api::all(client.clone()), tenant).await?;
    let metadata = json!({"name": TENANT, "labels": {"atoll.dev/tenant": TENANT}});
    create::<KubeNamespace>(&Api::all(client.clone()), json!({"metadata": metadata})).await?;
    for (number, node) in NODES.iter().enumerate() {
        create::<Pod>(&namespaced(client), pod(number, node)).await?;
    }
    Ok(())
}

/// The address of the pod on a node.
pub(crate) fn address_on(number: usize) -> String {
    format!("10.0.0.{}", 11 + number)
}

/// The name of the pod on a node.
pub(crate) fn pod_on(node: &str) -> String {
    format!("on-{node}")
}

fn pod(number: usize, node: &str) -> Value {
    let containers = json!([{"name": "main", "image": "none", "command": ["sleep", "infinity"]}]);
    let spec = json!({"nodeSelector": {"kubernetes.io/hostname": node},
                      "terminationGracePeriodSeconds": 1, "containers": containers});
    let nics = json!([{"ip": address_on(number)}]).to_string();
    let metadata = json!({"name": pod_on(node), "annotations": {"atoll.dev/nics": nics}});
    json!({"metadata": metadata, "spec": spec})
}

/// The API of the tenant's namespace.
pub(crate) fn namespaced<K>(client: &Client) -> Api<K>
where
    K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
{
    Api::namespaced(client.clone(), TENANT)
}

/// Makes an object.
pub(crate) async fn create<K>(api: &Api<K>, object: Value) -> Result<K>
where
    K: Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    Ok(api.create(&PostParams::default(), &serde_json::from_value(object)?).await?)
}

/// The pods in the order of their nodes, once all are ready.
pub(crate) async fn ready_pods(client: &Client) -> Result<Vec<Pod>> {
    let (pods, start) = (namespaced::<Pod>(client), Instant::now());
    loop {
        let mut all = pods.list(&ListParams::default()).await?.items;
        all.sort_by(|one, other| one.metadata.name.cmp(&other.metadata.name));
        if all.iter().filter(|pod| is_ready(pod)).count() == NODES.len() {
            return Ok(all);
        }
        ensure!(start.elapsed() < PATIENCE, "the pods were not ready within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|it| it.type_ == "Ready" && it.status == "True")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_ready_by_its_condition() {
        let pod = |status: &str| {
            let conditions = json!([{"type": "Ready", "status": status}]);
            serde_json::from_value::<Pod>(json!({"status": {"conditions": conditions}})).unwrap()
        };
        assert!(is_ready(&pod("True")) && !is_ready(&pod("False")) && !is_ready(&Pod::default()));
    }

    #[test]
    fn each_pod_is_on_its_node_at_an_address_of_its_own() {
        let pods: Vec<Value> = (0..).zip(NODES).map(|(number, node)| pod(number, node)).collect();
        assert_eq!(pods[2]["metadata"]["name"], "on-node3");
        assert_eq!(pods[2]["spec"]["nodeSelector"]["kubernetes.io/hostname"], "node3");
        let nics = pods[2]["metadata"]["annotations"]["atoll.dev/nics"].as_str().unwrap();
        assert_eq!(nics, r#"[{"ip":"10.0.0.13"}]"#);
    }
}
