//! Waiting for a cluster to do what it was told, with a line for each change and a reason for what
//! is late.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Node, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};

use super::manifests::NAMESPACE;

/// How long between two looks.
const PACE: Duration = Duration::from_millis(500);
/// How long the API may take to serve a new kind.
const DEFINITION: Duration = Duration::from_secs(60);

/// So many of so many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) ready: i32,
    pub(crate) wanted: i32,
}

impl Share {
    pub(crate) fn is_whole(self) -> bool {
        self.wanted > 0 && self.ready >= self.wanted
    }
}

impl std::fmt::Display for Share {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.ready, self.wanted)
    }
}

/// Waits until the API serves a kind.
pub(crate) async fn await_definition(client: &Client, name: &str) -> Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let patience = Patience::new(DEFINITION);
    loop {
        let conditions = definitions.get(name).await?.status.and_then(|status| status.conditions);
        let mut conditions = conditions.into_iter().flatten();
        if conditions.any(|it| it.type_ == "Established" && it.status == "True") {
            return Ok(());
        }
        if patience.is_over() {
            bail!("the API does not serve {name}");
        }
        patience.pause().await;
    }
}

/// Waits until the controllers and agents run and every node is ready.
pub(crate) async fn await_everything(client: &Client, limit: Duration) -> Result<()> {
    let patience = Patience::new(limit);
    let mut said = String::new();
    loop {
        let controllers = controllers(client).await?;
        let agents = daemons(client, "atoll-agent").await?.unwrap_or_default();
        let nodes = ready_nodes(client).await?;
        let now = format!("controllers {controllers}, agents {agents}, nodes Ready {nodes}");
        patience.tell(&mut said, &now);
        if [controllers, agents, nodes].into_iter().all(Share::is_whole) {
            return Ok(());
        }
        if patience.is_over() {
            let reasons = late_pods(client).await?;
            bail!("not everything runs after {} s: {now}{reasons}", limit.as_secs());
        }
        patience.pause().await;
    }
}

async fn controllers(client: &Client) -> Result<Share> {
    let api: Api<Deployment> = Api::namespaced(client.clone(), NAMESPACE);
    let found = api.get("atoll-controller").await.context("cannot read the controllers")?;
    Ok(share_of_deployment(&found))
}

/// Old pods count for nothing.
fn share_of_deployment(found: &Deployment) -> Share {
    let wanted = found.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let status = found.status.clone().unwrap_or_default();
    let is_seen = status.observed_generation >= found.metadata.generation;
    let ready = status.updated_replicas.min(status.available_replicas).unwrap_or_default();
    Share { ready: if is_seen { ready } else { 0 }, wanted }
}

/// The pods of a DaemonSet of ours, once it is known how many there are to be.
pub(crate) async fn daemons(client: &Client, name: &str) -> Result<Option<Share>> {
    let api: Api<DaemonSet> = Api::namespaced(client.clone(), NAMESPACE);
    let found = api.get(name).await.with_context(|| format!("cannot read daemonset {name}"))?;
    Ok(share_of_daemons(&found))
}

fn share_of_daemons(found: &DaemonSet) -> Option<Share> {
    let status = found.status.clone().unwrap_or_default();
    if status.observed_generation < found.metadata.generation {
        return None;
    }
    let updated = status.updated_number_scheduled.unwrap_or_default();
    Some(Share { ready: status.number_ready.min(updated), wanted: status.desired_number_scheduled })
}

async fn ready_nodes(client: &Client) -> Result<Share> {
    let nodes = Api::<Node>::all(client.clone()).list(&ListParams::default()).await?;
    let ready = nodes.iter().filter(|node| is_ready(node)).count();
    Ok(Share { ready: i32::try_from(ready)?, wanted: i32::try_from(nodes.items.len())? })
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|all| all.iter().any(|it| it.type_ == "Ready" && it.status == "True"))
}

/// Our pods that are not ready, each with its node and what it waits for.
pub(crate) async fn late_pods(client: &Client) -> Result<String> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let pods = pods.list(&ListParams::default()).await?;
    Ok(pods.iter().filter_map(lateness).map(|late| format!("\n  {late}")).collect())
}

fn lateness(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let container = status.container_statuses.iter().flatten().next();
    if container.is_some_and(|container| container.ready) {
        return None;
    }
    let why = container.map(reasons).filter(|why| !why.is_empty());
    let why = why.unwrap_or_else(|| "not ready".to_owned());
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or("no node");
    Some(format!("{} on {node}: {why}", pod.name_any()))
}

/// What a container waits for, and the last words of the one before it.
fn reasons(container: &ContainerStatus) -> String {
    let states = [container.state.as_ref(), container.last_state.as_ref()];
    let told = states.into_iter().flatten().filter_map(reason);
    told.collect::<Vec<_>>().join("; before that ")
}

fn reason(state: &ContainerState) -> Option<String> {
    let waiting = state.waiting.as_ref().map(|it| (it.reason.clone(), it.message.clone()));
    let ended = state.terminated.as_ref().map(|it| (it.reason.clone(), it.message.clone()));
    let (reason, message) = waiting.or(ended)?;
    let words = [reason, message].into_iter().flatten().map(|words| words.trim().to_owned());
    Some(words.collect::<Vec<_>>().join(": "))
}

/// A limit of time, and the pace of looking.
pub(crate) struct Patience {
    began: Instant,
    limit: Duration,
}

impl Patience {
    pub(crate) fn new(limit: Duration) -> Self {
        Patience { began: Instant::now(), limit }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.began.elapsed() >= self.limit
    }

    pub(crate) async fn pause(&self) {
        tokio::time::sleep(PACE).await;
    }

    /// Says it, unless it was said already.
    pub(crate) fn tell(&self, said: &mut String, now: &str) {
        if said != now {
            println!("[{:4} s] {now}", self.began.elapsed().as_secs());
            now.clone_into(said);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_pods_of_the_newest_generation_count() {
        let daemons = |generation, updated| {
            let status = json!({"observedGeneration": 2, "desiredNumberScheduled": 3,
                "currentNumberScheduled": 3, "numberMisscheduled": 0, "numberReady": 3,
                "updatedNumberScheduled": updated});
            let set = json!({"metadata": {"generation": generation}, "status": status});
            share_of_daemons(&serde_json::from_value(set).unwrap())
        };
        assert!(daemons(2, 3).unwrap().is_whole());
        assert_eq!(daemons(2, 1), Some(Share { ready: 1, wanted: 3 }));
        assert_eq!(daemons(3, 3), None);
        let deployment = |generation, updated| {
            let status = json!({"observedGeneration": 2, "availableReplicas": 2,
                "updatedReplicas": updated});
            let one = json!({"metadata": {"generation": generation},
                "spec": {"replicas": 2, "selector": {}, "template": {}}, "status": status});
            share_of_deployment(&serde_json::from_value(one).unwrap())
        };
        assert!(deployment(2, 2).is_whole());
        assert_eq!(deployment(2, 1), Share { ready: 1, wanted: 2 });
        assert!(!deployment(3, 2).is_whole());
    }

    #[test]
    fn a_cluster_without_nodes_is_not_ready() {
        assert!(!Share::default().is_whole());
    }

    #[test]
    fn a_late_pod_is_told_with_its_node_and_its_reason() {
        let state = json!({"waiting": {"reason": "ErrImagePull", "message": "no such image"}});
        let container = json!({"name": "agent", "image": "", "imageID": "", "ready": false,
            "restartCount": 1, "state": state,
            "lastState": {"terminated": {"exitCode": 1, "reason": "Error", "message": "no plugin\n"}}});
        let pod = json!({"metadata": {"name": "atoll-agent-x"},
            "spec": {"nodeName": "node2", "containers": []},
            "status": {"containerStatuses": [container]}});
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let told = lateness(&pod).unwrap();
        assert_eq!(
            told,
            "atoll-agent-x on node2: ErrImagePull: no such image; before that Error: no plugin"
        );
    }
}
