//! Pods and policies as this node needs them: those of its tenants' namespaces, and the cluster's.
//!
//! The rule of this file: a deletion of a policy is passed on only after its namespace was asked
//! whether it is being deleted. Pods of a namespace that goes may outlive its policies, and must
//! not be opened by that.

use std::time::Duration;

use atoll_policy::{ClusterNetworkPolicy, read_cluster_policy, read_network_policy, read_pod};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use tokio::sync::mpsc::Sender;

pub(crate) use super::report::Reporter;
use super::{News, SeenPod, Ward};
use crate::seen::{Change, Delta};
use crate::watch::{deltas, follow};

/// How long after a failure the API is asked again.
const AGAIN: Duration = Duration::from_millis(500);

/// Follows the policies of administrators for good.
pub(crate) async fn cluster_policies(client: Client, reporter: Reporter, changes: Sender<Change>) {
    follow::<ClusterNetworkPolicy, _, _>(
        Api::all(client),
        watcher::Config::default(),
        move |policy| {
            let read = reporter.tell(&policy.object_ref(&()), read_cluster_policy(policy));
            Some((policy.name_any(), read))
        },
        ResourceExt::name_any,
        (changes, |delta| Change::Policy(News::Cluster(delta))),
    )
    .await;
}

/// Follows the pods of a ward for good.
pub(crate) async fn pods(client: Client, ward: Ward, changes: Sender<Change>) {
    follow::<Pod, _, _>(
        Api::namespaced(client, &ward.1.clone()),
        watcher::Config::default(),
        |pod| {
            let uid = pod.uid().unwrap_or_default();
            Some((pod.name_any(), SeenPod { uid, pod: read_pod(pod) }))
        },
        Pod::name_any,
        (changes, move |delta| Change::Policy(News::Pods(ward.clone(), delta))),
    )
    .await;
}

/// Follows the policies of a ward for good.
pub(crate) async fn policies(
    client: Client,
    reporter: Reporter,
    ward: Ward,
    changes: Sender<Change>,
) {
    let api = Api::<NetworkPolicy>::namespaced(client.clone(), &ward.1);
    let events = watcher(api, watcher::Config::default()).default_backoff();
    let tenant = ward.0.clone();
    let read = move |policy: &NetworkPolicy| {
        let read = read_network_policy(&tenant, policy);
        Some((policy.name_any(), reporter.tell(&policy.object_ref(&()), read)))
    };
    let mut deltas = std::pin::pin!(deltas(events, read, NetworkPolicy::name_any));
    while let Some(delta) = deltas.next().await {
        let may_take_away = !matches!(delta, Delta::Put(..));
        if may_take_away && is_ending(&client, &ward.1).await {
            let ending = Change::Policy(News::Ending(ward.clone()));
            if changes.send(ending).await.is_err() {
                return;
            }
        }
        let change = Change::Policy(News::Policies(ward.clone(), delta));
        if changes.send(change).await.is_err() {
            return;
        }
    }
}

/// Whether a namespace is being deleted or is gone. The API is asked until it answers.
async fn is_ending(client: &Client, namespace: &str) -> bool {
    let api = Api::<Namespace>::all(client.clone());
    loop {
        match api.get_metadata_opt(namespace).await {
            Ok(found) => {
                return found.is_none_or(|found| found.metadata.deletion_timestamp.is_some());
            }
            Err(error) => {
                tracing::warn!(namespace, %error, "cannot ask whether a namespace is being deleted");
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}
