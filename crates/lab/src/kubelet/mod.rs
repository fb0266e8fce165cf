//! A small kubelet: runs the pods of one node as processes in namespaces.
//!
//! `lifecycle` decides, `worker` does; `status`, `cni` and `launch_plan` are the words in which the
//! outside is told and asked.

mod cni;
mod container;
mod etc_files;
mod launch_plan;
mod lifecycle;
mod readiness;
mod sandbox;
mod status;
mod worker;

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::events::{Recorder, Reporter};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use tokio::sync::watch;
use tokio::task::JoinSet;

pub(crate) use cni::PLUGIN;
pub(crate) use etc_files::CLUSTER_DNS;

use crate::home::{Home, NodeHome};
use crate::roll::{Change, Roll};
use worker::Seen;

/// What all pods of a node share.
pub(crate) struct NodeContext {
    pub(crate) home: Home,
    pub(crate) node: NodeHome,
    /// The node's address.
    pub(crate) host: IpAddr,
    /// The `atoll` executable.
    pub(crate) program: PathBuf,
    pub(crate) client: Client,
    pub(crate) recorder: Recorder,
}

impl NodeContext {
    pub(crate) fn new(
        home: &Home,
        node: &NodeHome,
        host: IpAddr,
        program: &Path,
        client: &Client,
    ) -> Self {
        let reporter = Reporter { controller: "kubelet".into(), instance: Some(node.name.clone()) };
        NodeContext {
            home: home.clone(),
            node: node.clone(),
            host,
            program: program.to_owned(),
            client: client.clone(),
            recorder: Recorder::new(client.clone(), reporter),
        }
    }

    fn program_directory(&self) -> &Path {
        self.program.parent().unwrap_or(Path::new("/"))
    }
}

/// Runs the pods that are bound to the node, until the future is dropped.
pub(crate) async fn run(context: Arc<NodeContext>) {
    let mine = watcher::Config::default().fields(&format!("spec.nodeName={}", context.node.name));
    let pods = Api::<Pod>::all(context.client.clone());
    let mut events = std::pin::pin!(watcher(pods, mine).default_backoff());
    let mut roll = Roll::default();
    let mut workers = Workers { context, seen: HashMap::new(), running: JoinSet::new() };
    loop {
        tokio::select! {
            Some(event) = events.next() => match event {
                Ok(event) => roll.take_in(event).into_iter().for_each(|change| workers.take_in(change)),
                Err(error) => tracing::warn!(%error, "the watch of pods broke and starts again"),
            },
            Some(Ok(uid)) = workers.running.join_next() => drop(workers.seen.remove(&uid)),
        }
    }
}

/// One worker for each pod, by uid.
struct Workers {
    context: Arc<NodeContext>,
    seen: HashMap<String, watch::Sender<Seen>>,
    running: JoinSet<String>,
}

impl Workers {
    fn take_in(&mut self, change: Change<Pod>) {
        match change {
            Change::Seen(pod) => {
                let uid = pod.uid().unwrap_or_default();
                match self.seen.get(&uid) {
                    Some(sender) => drop(sender.send_replace(Seen::Pod(pod))),
                    None if is_over(&pod) => {}
                    None => self.begin(uid, *pod),
                }
            }
            Change::Gone(uid) => {
                if let Some(sender) = self.seen.get(&uid) {
                    sender.send_replace(Seen::Vanished);
                }
            }
        }
    }

    fn begin(&mut self, uid: String, pod: Pod) {
        let (sender, receiver) = watch::channel(Seen::Pod(Box::new(pod.clone())));
        let work = worker::run(self.context.clone(), pod, receiver);
        self.seen.insert(uid.clone(), sender);
        self.running.spawn(async move {
            work.await;
            uid
        });
    }
}

/// A pod that ended before, and that nobody has deleted.
fn is_over(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    pod.metadata.deletion_timestamp.is_none() && matches!(phase, Some("Succeeded" | "Failed"))
}
