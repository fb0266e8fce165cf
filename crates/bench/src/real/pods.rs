//! Pods that are made, so many under way at once, and how long each waited until it was Ready.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::pin_mut;
use futures::stream::{self, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use serde_json::json;
use tokio::sync::watch;

use crate::sample::Sample;

/// How long anything may take on a busy machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(600);
/// What all of them have.
const LABEL: &str = "bench=real";

/// What pods waited.
pub(super) struct Waited {
    pub(super) at_once: usize,
    pub(super) seconds: Sample,
    /// Until the last was Ready.
    pub(super) whole: Duration,
}

/// Who was seen Ready, and when, by namespace and name.
type Seen = HashMap<(String, String), Instant>;

/// Makes so many pods in turns over the namespaces, and waits until all are Ready.
pub(super) async fn measure(
    client: &Client,
    namespaces: &[String],
    pods: usize,
    at_once: usize,
) -> Result<Waited> {
    let (tell, seen) = watch::channel(Seen::new());
    let watching = tokio::spawn(watch_ready(Api::all(client.clone()), tell));
    let start = Instant::now();
    let planned = (0..pods).map(|number| (namespaces[number % namespaces.len()].clone(), number));
    let waits = planned.map(|(namespace, number)| {
        let pods = Api::<Pod>::namespaced(client.clone(), &namespace);
        one(pods, namespace, format!("pod-{number}"), seen.clone())
    });
    let seconds: Vec<f64> = stream::iter(waits).buffer_unordered(at_once).try_collect().await?;
    let whole = start.elapsed();
    watching.abort();
    Ok(Waited { at_once, seconds: Sample::new(seconds), whole })
}

/// Makes a pod; gives the seconds until it was seen Ready.
async fn one(
    pods: Api<Pod>,
    namespace: String,
    name: String,
    mut seen: watch::Receiver<Seen>,
) -> Result<f64> {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {"bench": "real"}},
        "spec": {"terminationGracePeriodSeconds": 1,
                 "containers": [{"name": "main", "image": "atoll.dev/pause:1"}]}}))?;
    let asked = Instant::now();
    pods.create(&PostParams::default(), &pod).await?;
    let key = (namespace, name);
    let there = tokio::time::timeout(PATIENCE, seen.wait_for(|seen| seen.contains_key(&key)));
    let there = there.await.with_context(|| format!("pod {}/{} is not Ready", key.0, key.1))??;
    Ok(there[&key].duration_since(asked).as_secs_f64())
}

async fn watch_ready(pods: Api<Pod>, tell: watch::Sender<Seen>) {
    let config = watcher::Config::default().labels(LABEL);
    let events = watcher(pods, config).default_backoff().applied_objects();
    pin_mut!(events);
    while let Some(event) = events.next().await {
        if let Ok(pod) = event
            && is_ready(&pod)
        {
            let key = (pod.namespace().unwrap_or_default(), pod.name_any());
            tell.send_modify(|seen| {
                seen.entry(key).or_insert_with(Instant::now);
            });
        }
    }
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|it| it.type_ == "Ready" && it.status == "True")
}

/// Deletes them, and waits until they are gone.
pub(super) async fn delete(client: &Client) -> Result<()> {
    let all = Api::<Pod>::all(client.clone());
    let ours = ListParams::default().labels(LABEL);
    for pod in all.list(&ours).await? {
        let pods = Api::<Pod>::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
        pods.delete(&pod.name_any(), &DeleteParams::default()).await?;
    }
    until("pods to be gone", async || Ok(all.list(&ours).await?.items.is_empty())).await
}

/// Pods need the account `default` of their namespace, which the controller manager makes.
pub(super) async fn await_accounts(client: &Client, namespaces: &[String]) -> Result<()> {
    let accounts = Api::<ServiceAccount>::all(client.clone());
    let called_default = ListParams::default().fields("metadata.name=default");
    until("the accounts of namespaces", async || {
        let there = accounts.list(&called_default).await?;
        let there: BTreeSet<String> = there.iter().filter_map(ResourceExt::namespace).collect();
        Ok(namespaces.iter().all(|namespace| there.contains(namespace)))
    })
    .await
}

/// Asks until it is so.
pub(super) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
    let asking = async {
        while !is_so().await? {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        Ok(())
    };
    let asked = tokio::time::timeout(PATIENCE, asking).await;
    asked.with_context(|| format!("waited {} s for {what}", PATIENCE.as_secs()))?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(conditions: &serde_json::Value) -> Pod {
        serde_json::from_value(json!({"status": {"conditions": conditions}})).unwrap()
    }

    #[test]
    fn a_pod_is_ready_by_its_condition_and_not_by_others() {
        assert!(is_ready(&pod(&json!([{"type": "Ready", "status": "True"}]))));
        assert!(!is_ready(&pod(&json!([{"type": "Ready", "status": "False"}]))));
        assert!(!is_ready(&pod(&json!([{"type": "Initialized", "status": "True"}]))));
        assert!(!is_ready(&Pod::default()));
    }
}
