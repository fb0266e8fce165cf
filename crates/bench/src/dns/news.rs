//! How soon a change is answered anew: three nodes of a lab, a pod on each that asks without a
//! pause, and endpoints that change.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use atoll_testkit::names::{Listener, addresses, hear};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Client;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::document::Judged;
use crate::goal::Goal;
use crate::lab::{self, Lab, NODES};
use crate::node::client;
use crate::sample::Sample;
use crate::table::Table;

/// Milliseconds until the new answer, at most.
const SOON: Goal = Goal::AtMost(100.0);
const RESOLVER: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(10, 96, 0, 10)), 53);
const NAME: &str = "moving.acme.svc.cluster.local";

/// So many changes, one after the other: what each node's pod waited for the new answer.
pub(super) fn measure(atoll: &Path, changes: u16) -> Result<(Table, Vec<Judged>)> {
    eprintln!("dns: {changes} changes on {} nodes", NODES.len());
    let (lab, runtime) = (Lab::up(atoll, "names")?, Runtime::new()?);
    let client = runtime.block_on(client(&lab.kubeconfig()?))?;
    runtime.block_on(lab::fill(&client))?;
    runtime.block_on(serve(&client))?;
    let pods = runtime.block_on(lab::ready_pods(&client))?;
    let mut listeners = vec![];
    for pod in &pods {
        listeners.push(Listener::start(&lab.inside(pod)?, RESOLVER, NAME));
    }
    let slices = lab::namespaced::<EndpointSlice>(&client);
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
        judged.push(Judged::new(what, SOON, &Sample::new([most])));
    }
    (table, judged)
}

fn endpoints(version: u16) -> Value {
    addresses(version).iter().map(|ip| json!({"addresses": [ip.to_string()]})).collect()
}

/// A service whose endpoints are written by hand.
async fn serve(client: &Client) -> Result<()> {
    let metadata = json!({"name": "moving", "labels": {"kubernetes.io/service-name": "moving"}});
    let ports = json!([{"name": "http", "protocol": "TCP", "port": 80}]);
    let service = json!({"metadata": metadata, "spec": {"clusterIP": "None", "ports": ports}});
    lab::create::<Service>(&lab::namespaced(client), service).await?;
    let slice = json!({"metadata": metadata, "addressType": "IPv4", "ports": ports,
                       "endpoints": endpoints(0)});
    lab::create::<EndpointSlice>(&lab::namespaced(client), slice).await?;
    Ok(())
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
}
