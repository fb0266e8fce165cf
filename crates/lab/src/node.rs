//! A node's Node object: made once, and its readiness kept true to what its agent says.

use std::time::{Duration, Instant};

use atoll_cni::wire::{AgentReply, AgentRequest, ask};
use k8s_openapi::api::core::v1::{Node, NodeAddress, NodeCondition, NodeStatus, NodeSystemInfo};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::json;
use tokio::sync::watch;

use crate::fabric::NodeAddresses;
use crate::home::NodeHome;

/// How often the agent is asked; short, because users wait for it.
const LOOK_AGAIN: Duration = Duration::from_millis(250);
/// How often a readiness that stays the same is told again.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// Makes the Node object, unless it is there.
pub(crate) async fn register(
    client: &Client,
    name: &str,
    addresses: NodeAddresses,
) -> kube::Result<()> {
    let nodes = Api::<Node>::all(client.clone());
    let node = object(name);
    match nodes.create(&PostParams::default(), &node).await {
        Ok(_) => {}
        Err(kube::Error::Api(refusal)) if refusal.code == 409 => {}
        Err(error) => return Err(error),
    }
    let status = json!({"status": status(name, addresses, &Readiness::unknown())});
    // Merged by their type, as a strategic patch has it, two addresses of one type would be one.
    patch_status(&nodes, &node.name_any(), &Patch::Merge(status)).await
}

/// Whether a node can take pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Readiness {
    pub(crate) ready: bool,
    /// Why, in a sentence.
    pub(crate) message: String,
}

impl Readiness {
    pub(crate) fn unknown() -> Self {
        Readiness { ready: false, message: "the node's agent has not answered yet".into() }
    }

    /// What the agent's answer means.
    fn from_reply(reply: Result<AgentReply, impl std::fmt::Display>) -> Self {
        match reply {
            Ok(AgentReply::Failed(error)) => Readiness { ready: false, message: error.to_string() },
            Ok(_) => Readiness { ready: true, message: "the node's agent is ready".into() },
            Err(error) => Readiness { ready: false, message: error.to_string() },
        }
    }
}

/// Keeps the object's condition, and `readiness`, true until the future is dropped.
pub(crate) async fn keep_true(client: Client, node: NodeHome, readiness: watch::Sender<Readiness>) {
    let nodes = Api::<Node>::all(client);
    let mut told = Told { readiness: None, since: Timestamp::now(), at: Instant::now() };
    loop {
        let now = look(&node).await;
        readiness.send_if_modified(|before| std::mem::replace(before, now.clone()) != now);
        if told.needs_telling(&now) {
            let since = told.since_when(&now);
            let conditions = json!({"status": {"conditions": [condition(&now, since)]}});
            match patch_status(&nodes, &node.name, &Patch::Strategic(conditions)).await {
                Ok(()) => told = Told { readiness: Some(now), since, at: Instant::now() },
                Err(error) => {
                    tracing::warn!(node = node.name, %error, "cannot tell the node's state");
                }
            }
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// What the API was told last.
struct Told {
    readiness: Option<Readiness>,
    /// When the node turned ready or not ready.
    since: Timestamp,
    at: Instant,
}

impl Told {
    fn needs_telling(&self, now: &Readiness) -> bool {
        self.readiness.as_ref() != Some(now) || self.at.elapsed() >= HEARTBEAT
    }

    fn since_when(&self, now: &Readiness) -> Timestamp {
        let same = self.readiness.as_ref().is_some_and(|before| before.ready == now.ready);
        if same { self.since } else { Timestamp::now() }
    }
}

async fn look(node: &NodeHome) -> Readiness {
    let socket = node.agent_socket();
    let asked = tokio::task::spawn_blocking(move || ask(&socket, &AgentRequest::Status)).await;
    asked.map_or_else(|_| Readiness::unknown(), Readiness::from_reply)
}

async fn patch_status(
    nodes: &Api<Node>,
    name: &str,
    patch: &Patch<serde_json::Value>,
) -> kube::Result<()> {
    nodes.patch_status(name, &PatchParams::default(), patch).await.map(drop)
}

fn object(name: &str) -> Node {
    let labels = [
        ("kubernetes.io/hostname", name),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", kubernetes_arch()),
    ];
    let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
    Node {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(labels.into()),
            ..ObjectMeta::default()
        },
        ..Node::default()
    }
}

/// The processor as Kubernetes names it.
fn kubernetes_arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn condition(readiness: &Readiness, since: Timestamp) -> NodeCondition {
    let (state, reason) = match readiness.ready {
        true => ("True", "KubeletReady"),
        false => ("False", "AgentNotReady"),
    };
    NodeCondition {
        type_: "Ready".into(),
        status: state.into(),
        reason: Some(reason.into()),
        message: Some(readiness.message.clone()),
        last_heartbeat_time: Some(Time(Timestamp::now())),
        last_transition_time: Some(Time(since)),
    }
}

fn status(name: &str, addresses: NodeAddresses, readiness: &Readiness) -> NodeStatus {
    let internal = addresses.iter().map(|address| ("InternalIP", address.to_string()));
    let all = internal.chain([("Hostname", name.to_owned())]);
    let all = all.map(|(kind, address)| NodeAddress { type_: kind.into(), address });
    NodeStatus {
        addresses: Some(all.collect()),
        conditions: Some(vec![condition(readiness, Timestamp::now())]),
        node_info: Some(NodeSystemInfo {
            architecture: kubernetes_arch().into(),
            operating_system: "linux".into(),
            kubelet_version: format!("v{}-atoll-lab", env!("CARGO_PKG_VERSION")),
            container_runtime_version: format!("atoll://{}", env!("CARGO_PKG_VERSION")),
            os_image: "this machine".into(),
            ..NodeSystemInfo::default()
        }),
        ..NodeStatus::default()
    }
}

#[cfg(test)]
mod tests {
    use atoll_cni::{CniError, ErrorCode};

    use super::*;
    use crate::args::Underlay;

    #[test]
    fn a_node_carries_the_labels_and_the_addresses_that_others_look_for() {
        let node = object("node1");
        assert_eq!(node.labels()["kubernetes.io/hostname"], "node1");
        assert_eq!(node.labels()["kubernetes.io/os"], "linux");
        let own = NodeAddresses::of(1, Underlay::Ipv6);
        let addresses = status("node1", own, &Readiness::unknown()).addresses.unwrap();
        let internal = addresses.iter().filter(|address| address.type_ == "InternalIP");
        let internal: Vec<_> = internal.map(|address| address.address.as_str()).collect();
        assert_eq!(internal, ["fd30::11", "172.30.0.11"], "the first is where nodes meet");
    }

    #[test]
    fn a_change_is_told_at_once_and_dated_only_when_the_node_turns() {
        let ready = Readiness { ready: true, message: "ready".into() };
        let long_ago = Timestamp::UNIX_EPOCH;
        let told = Told { readiness: Some(ready.clone()), since: long_ago, at: Instant::now() };
        assert!(!told.needs_telling(&ready));
        let reworded = Readiness { message: "still ready".into(), ..ready };
        assert!(told.needs_telling(&reworded));
        assert_eq!(told.since_when(&reworded), long_ago);
        assert!(told.since_when(&Readiness::unknown()) > long_ago);
    }

    #[test]
    fn a_node_is_ready_when_its_agent_says_so() {
        let ready = |reply| Readiness::from_reply(reply);
        assert!(ready(Ok::<_, String>(AgentReply::Done)).ready);
        let silent = ready(Err("cannot reach the agent".to_owned()));
        assert_eq!((silent.ready, silent.message.as_str()), (false, "cannot reach the agent"));
        let failed = CniError::new(ErrorCode::TryAgainLater, "not yet");
        assert!(!ready(Ok::<_, String>(AgentReply::Failed(failed))).ready);
    }
}
