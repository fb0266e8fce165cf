//! How soon a change is answered anew: three nodes of a lab, a pod on each that asks without a
//! pause, and endpoints that change.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use atoll_api::Tenant;
use atoll_testkit::Namespace;
use atoll_testkit::names::{Listener, addresses, hear};
use k8s_openapi::api::core::v1::{Namespace as KubeNamespace, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Client;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::document::Judged;
use crate::goal::Goal;
use crate::node::client;
use crate::sample::Sample;
use crate::table::Table;

/// Milliseconds until the new answer, at most.
const SOON: Goal = Goal::AtMost(100.0);
const NODES: [&str; 3] = ["node1", "node2", "node3"];
const RESOLVER: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(10, 96, 0, 10)), 53);
const NAME: &str = "moving.acme.svc.cluster.local";
/// Where labs keep their state.
const LABS: &str = "/run/atoll/lab";
/// How long pods may take to start.
const PATIENCE: Duration = Duration::from_secs(120);

/// A lab that goes with this value.
struct Lab<'a> {
    atoll: &'a Path,
    name: String,
}

impl Lab<'_> {
    fn up(atoll: &Path) -> Result<Lab<'_>> {
        let lab = Lab { atoll, name: format!("bench-{}", std::process::id()) };
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

    fn kubeconfig(&self) -> Result<String> {
        let path = PathBuf::from(self.run(&["kubeconfig", "--name", &self.name])?);
        std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    /// The namespace of a pod.
    fn inside(&self, pod: &Pod) -> Result<Namespace> {
        let uid = pod.metadata.uid.as_deref().context("a pod has no uid")?;
        Ok(Namespace::at(&Path::new(LABS).join(&self.name).join(format!("netns/pod-{uid}"))))
    }
}

impl Drop for Lab<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.run(&["down", "--name", &self.name]) {
            eprintln!("{error:#}");
        }
    }
}

/// So many changes, one after the other: what each node's pod waited for the new answer.
pub(super) fn measure(atoll: &Path, changes: u16) -> Result<(Table, Vec<Judged>)> {
    eprintln!("dns: {changes} changes on {} nodes", NODES.len());
    let (lab, runtime) = (Lab::up(atoll)?, Runtime::new()?);
    let client = runtime.block_on(client(&lab.kubeconfig()?))?;
    runtime.block_on(fill(&client))?;
    let pods = runtime.block_on(ready_pods(&client))?;
    let mut listeners = vec![];
    for pod in &pods {
        listeners.push(Listener::start(&lab.inside(pod)?, RESOLVER, NAME));
    }
    let slices = Api::<EndpointSlice>::namespaced(client, "acme");
    let delays = hear(&listeners, 1..=changes, |version| {
        let patch = Patch::Merge(json!({"endpoints": endpoints(version)}));
        runtime.block_on(slices.patch("moving", &PatchParams::default(), &patch))?;
        Ok(())
    })?;
    drop(listeners);
    Ok(report(&delays))
}

fn report(delays: &[Vec<Duration>]) -> (Table, Vec<Judged>) {
    let mut table = Table::new(["node", "changes", "p50 ms", "p99 ms"]);
    let mut judged = vec![];
    for (node, delays) in NODES.iter().zip(delays) {
        let sample = Sample::new(delays.iter().map(|delay| delay.as_secs_f64() * 1e3));
        let (middle, most) = (sample.median(), sample.quantile(0.99));
        table.row([
            (*node).to_owned(),
            delays.len().to_string(),
            format!("{middle:.1}"),
            format!("{most:.1}"),
        ]);
        let what = format!("DNS: a change answered anew on {node}, p99 ms");
        let verdict = SOON.judge(&Sample::new([most]));
        judged.push(Judged { what, goal: SOON, verdict, median: most });
    }
    (table, judged)
}

fn endpoints(version: u16) -> Value {
    addresses(version).iter().map(|ip| json!({"addresses": [ip.to_string()]})).collect()
}

/// A tenant with a pod on every node, and a service whose endpoints are written by hand.
async fn fill(client: &Client) -> Result<()> {
    let cidrs = json!(["10.0.0.0/16"]);
    let spec = json!({"defaultNetwork": {"type": "vpc", "cidrs": cidrs}});
    create::<Tenant>(
        &Api::all(client.clone()),
        json!({"metadata": {"name": "acme"}, "spec": spec}),
    )
    .await?;
    let metadata = json!({"name": "acme", "labels": {"atoll.dev/tenant": "acme"}});
    create::<KubeNamespace>(&Api::all(client.clone()), json!({"metadata": metadata})).await?;
    let metadata = json!({"name": "moving", "labels": {"kubernetes.io/service-name": "moving"}});
    let ports = json!([{"name": "http", "protocol": "TCP", "port": 80}]);
    let service = json!({"metadata": metadata, "spec": {"clusterIP": "None", "ports": ports}});
    create::<Service>(&Api::namespaced(client.clone(), "acme"), service).await?;
    let slice = json!({"metadata": metadata, "addressType": "IPv4", "ports": ports,
                       "endpoints": endpoints(0)});
    create::<EndpointSlice>(&Api::namespaced(client.clone(), "acme"), slice).await?;
    for node in NODES {
        let containers =
            json!([{"name": "main", "image": "none", "command": ["sleep", "infinity"]}]);
        let spec = json!({"nodeSelector": {"kubernetes.io/hostname": node},
                          "terminationGracePeriodSeconds": 1, "containers": containers});
        let pod = json!({"metadata": {"name": format!("on-{node}")}, "spec": spec});
        create::<Pod>(&Api::namespaced(client.clone(), "acme"), pod).await?;
    }
    Ok(())
}

async fn create<K>(api: &Api<K>, object: Value) -> Result<()>
where
    K: Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    Ok(())
}

/// The pods in the order of their nodes, once all are ready.
async fn ready_pods(client: &Client) -> Result<Vec<Pod>> {
    let (pods, start) = (Api::<Pod>::namespaced(client.clone(), "acme"), Instant::now());
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
    use crate::goal::Verdict;

    #[test]
    fn each_node_is_judged_by_its_own_slowest_percent() {
        let fast = vec![Duration::from_millis(8); 200];
        let mut slow = fast.clone();
        slow[..3].fill(Duration::from_millis(130));
        let mut nearly = fast.clone();
        nearly[0] = Duration::from_secs(1);
        let (table, judged) = report(&[fast, slow, nearly]);
        let verdicts: Vec<Verdict> = judged.iter().map(|judged| judged.verdict).collect();
        assert_eq!(verdicts, [Verdict::Met, Verdict::Missed, Verdict::Met]);
        let text = table.to_string();
        assert!(text.contains("130.0") && text.contains("8.0"), "{text}");
    }

    #[test]
    fn a_pod_is_ready_by_its_condition() {
        let pod = |status: &str| {
            let conditions = json!([{"type": "Ready", "status": status}]);
            serde_json::from_value::<Pod>(json!({"status": {"conditions": conditions}})).unwrap()
        };
        assert!(is_ready(&pod("True")) && !is_ready(&pod("False")) && !is_ready(&Pod::default()));
    }
}
