//! A small scheduler: gives every pod without a node one, through the Binding subresource.

mod choice;

use std::collections::HashMap;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Binding, Node, ObjectReference, Pod};
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use kube::runtime::events::{EventType, Recorder, Reporter};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, Resource, ResourceExt};
use serde_json::json;

use crate::event;
use crate::roll::{Change, Roll};
use choice::{Decision, Ledger};

/// How long a pod that could not be bound waits for the next try.
const RETRY: Duration = Duration::from_secs(1);

/// Schedules until the future is dropped.
pub(crate) async fn run(client: Client) {
    let reporter = Reporter { controller: "default-scheduler".into(), instance: None };
    let mut scheduler = Scheduler {
        recorder: Recorder::new(client.clone(), reporter),
        client: client.clone(),
        ledger: Ledger::default(),
        complaints: HashMap::new(),
    };
    let config = watcher::Config::default;
    let pods = Api::<Pod>::all(client.clone());
    let nodes = Api::<Node>::all(client);
    let mut pods = std::pin::pin!(watcher(pods, config()).default_backoff());
    let mut nodes = std::pin::pin!(watcher(nodes, config()).default_backoff());
    let (mut pod_roll, mut node_roll) = (Roll::default(), Roll::default());
    loop {
        tokio::select! {
            Some(event) = pods.next() => match event {
                Ok(event) => scheduler.pods(pod_roll.take_in(event)),
                Err(error) => tracing::warn!(%error, "the watch of pods broke and starts again"),
            },
            Some(event) = nodes.next() => match event {
                Ok(event) => scheduler.nodes(node_roll.take_in(event)),
                Err(error) => tracing::warn!(%error, "the watch of nodes broke and starts again"),
            },
            () = tokio::time::sleep(RETRY) => {}
        }
        scheduler.settle().await;
    }
}

struct Scheduler {
    client: Client,
    recorder: Recorder,
    ledger: Ledger,
    /// What was said last about each pod that fits nowhere, so that it is said once.
    complaints: HashMap<String, String>,
}

impl Scheduler {
    fn pods(&mut self, changes: Vec<Change<Pod>>) {
        for change in changes {
            match change {
                Change::Seen(pod) => self.ledger.pod_seen(*pod),
                Change::Gone(uid) => {
                    self.complaints.remove(&uid);
                    self.ledger.pod_gone(&uid);
                }
            }
        }
    }

    fn nodes(&mut self, changes: Vec<Change<Node>>) {
        for change in changes {
            match change {
                Change::Seen(node) => self.ledger.node_seen(*node),
                Change::Gone(uid) => self.ledger.node_gone(&uid),
            }
        }
    }

    async fn settle(&mut self) {
        for Decision { pod, node } in self.ledger.decide() {
            match node {
                Ok(node) => self.place(pod, &node).await,
                Err(reason) => self.complain(&pod, reason).await,
            }
        }
    }

    async fn place(&mut self, pod: Pod, node: &str) {
        let name = pod.name_any();
        match self.bind(&pod, node).await {
            Ok(_) => {
                let note = format!("Successfully assigned {} to {node}", full_name(&pod));
                let scheduled = event::new(EventType::Normal, "Scheduled", "Binding", &note);
                event::publish(&self.recorder, scheduled, pod.object_ref(&()));
            }
            // A pod that is gone, or has a node already, needs none.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            Err(error) => {
                tracing::warn!(pod = name, node, %error, "cannot bind the pod");
                self.ledger.undo(pod);
            }
        }
    }

    async fn bind(&self, pod: &Pod, node: &str) -> kube::Result<serde_json::Value> {
        let metadata = ObjectMeta {
            name: pod.metadata.name.clone(),
            namespace: pod.metadata.namespace.clone(),
            uid: pod.metadata.uid.clone(),
            ..ObjectMeta::default()
        };
        let target = ObjectReference {
            kind: Some("Node".into()),
            name: Some(node.to_owned()),
            ..ObjectReference::default()
        };
        let api = self.api(pod);
        let binding = Binding { metadata, target };
        api.create_subresource("binding", &pod.name_any(), &PostParams::default(), &binding).await
    }

    async fn complain(&mut self, pod: &Pod, reason: String) {
        let uid = pod.uid().unwrap_or_default();
        if self.complaints.get(&uid) == Some(&reason) {
            return;
        }
        let failed = event::new(EventType::Warning, "FailedScheduling", "Scheduling", &reason);
        event::publish(&self.recorder, failed, pod.object_ref(&()));
        let condition = json!({
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": reason,
        });
        let patch = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
        let api = self.api(pod);
        if let Err(error) = api.patch_status(&pod.name_any(), &PatchParams::default(), &patch).await
        {
            tracing::warn!(pod = full_name(pod), %error, "cannot say that the pod fits nowhere");
        }
        self.complaints.insert(uid, reason);
    }

    fn api(&self, pod: &Pod) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default())
    }
}

fn full_name(pod: &Pod) -> String {
    format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any())
}
