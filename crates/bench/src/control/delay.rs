//! How long a pod waits for its port while pods come steadily.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use atoll_api::Port;
use futures::{StreamExt, pin_mut};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use super::plane::Plane;
use crate::sample::Sample;

/// Pods a second.
pub(super) const RATE: usize = 200;

/// How long one may wait at the end.
const PATIENCE: Duration = Duration::from_secs(120);

/// What was measured.
pub(super) struct Delay {
    /// Pods that were made a second.
    pub(super) rate: f64,
    /// Milliseconds from the request for a pod until somebody else saw its port.
    pub(super) milliseconds: Sample,
}

/// Makes so many pods at a steady rate in a tenant's network, and watches their ports come.
pub(super) fn measure(plane: &Plane, tenant: &str, network: &str, pods: usize) -> Result<Delay> {
    plane.block_on(async {
        let ports = Api::<Port>::namespaced(plane.client.clone(), tenant);
        let seen = tokio::spawn(watch_ports(ports, pods));
        let (asked, rate) = make_steadily(&plane.client, tenant, network, pods).await?;
        let seen = tokio::time::timeout(PATIENCE, seen).await.context("ports are missing")??;
        let waited = asked.iter().map(|(pod, at)| {
            let there = seen.get(pod).with_context(|| format!("pod {pod} has no port"))?;
            Ok(there.duration_since(*at).as_secs_f64() * 1e3)
        });
        let waited = waited.collect::<Result<Vec<f64>>>()?;
        ensure!(waited.len() == pods, "{} of {pods} pods were made", waited.len());
        Ok(Delay { rate, milliseconds: Sample::new(waited) })
    })
}

/// When the ports of so many pods were seen, by pod.
async fn watch_ports(ports: Api<Port>, count: usize) -> HashMap<String, Instant> {
    let events = watcher(ports, watcher::Config::default()).default_backoff().applied_objects();
    pin_mut!(events);
    let mut seen = HashMap::new();
    while seen.len() < count
        && let Some(event) = events.next().await
    {
        if let Ok(port) = event {
            seen.entry(port.spec.pod).or_insert_with(Instant::now);
        }
    }
    seen
}

/// When each pod was asked for, and how many were made a second.
async fn make_steadily(
    client: &Client,
    tenant: &str,
    network: &str,
    count: usize,
) -> Result<(HashMap<String, Instant>, f64)> {
    let pods = Api::<Pod>::namespaced(client.clone(), tenant);
    let mut ticks = interval(Duration::from_secs(1) / u32::try_from(RATE)?);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let (mut requests, start) = (JoinSet::new(), Instant::now());
    for number in 0..count {
        ticks.tick().await;
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": format!("steady-{number}"),
                         "labels": {"atoll.dev/network": network}},
            "spec": {"containers": [{"name": "main", "image": "none"}]}}))?;
        let (pods, at) = (pods.clone(), Instant::now());
        requests.spawn(async move {
            let made = pods.create(&PostParams::default(), &pod).await?;
            anyhow::Ok((made.metadata.name.unwrap_or_default(), at))
        });
    }
    let mut asked = HashMap::new();
    while let Some(made) = requests.join_next().await {
        let (pod, at) = made??;
        asked.insert(pod, at);
    }
    Ok((asked, count as f64 / start.elapsed().as_secs_f64()))
}
