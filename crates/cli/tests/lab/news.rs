//! How soon a change is answered anew, on each of three nodes at once: in order and whole.

use std::time::Duration;

use atoll_testkit::names::{Listener, addresses, hear};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::documents::{nics, pod, tenant, yaml};
use crate::fixture::Lab;
use crate::records::{RESOLVER, inside};

const NODES: [&str; 3] = ["node1", "node2", "node3"];
const NAME: &str = "moving.acme.svc.cluster.local";
const CHANGES: u16 = 60;

fn endpoints(version: u16) -> Value {
    addresses(version).iter().map(|ip| json!({"addresses": [ip.to_string()]})).collect()
}

/// A pod on every node, and a service whose endpoints are written by hand.
fn lab_with_a_moving_service() -> Lab {
    let lab = Lab::up(3);
    lab.apply(&tenant("acme")).good();
    let on = |(node, last): (&str, u8)| {
        pod(&format!("acme/on-{node}"), node, &json!({}), &nics("default", last))
    };
    let mut documents: Vec<Value> = NODES.into_iter().zip(5..).map(on).collect();
    let metadata = json!({"name": "moving", "namespace": "acme",
                          "labels": {"kubernetes.io/service-name": "moving"}});
    let ports = json!([{"name": "http", "protocol": "TCP", "port": 80}]);
    documents.push(json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata,
                          "spec": {"clusterIP": "None", "ports": ports}}));
    documents.push(json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
                          "metadata": metadata, "addressType": "IPv4", "ports": ports,
                          "endpoints": endpoints(0)}));
    lab.apply(&yaml(&documents)).good();
    lab.wait_for_pods();
    lab
}

/// The slices of the tenant, without the time that it takes to start a program.
async fn slices(lab: &Lab) -> Api<EndpointSlice> {
    let kubeconfig = Kubeconfig::read_from(lab.kubeconfig()).unwrap();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
    Api::namespaced(Client::try_from(config).unwrap(), "acme")
}

/// The delay that this share of all does not exceed.
fn quantile(delays: &[Duration], percent: usize) -> Duration {
    let mut sorted = delays.to_vec();
    sorted.sort_unstable();
    sorted[(sorted.len() * percent).div_ceil(100) - 1]
}

#[test]
fn endpoints_that_change_are_answered_anew_on_three_nodes_in_order_and_never_by_halves() {
    let lab = lab_with_a_moving_service();
    let runtime = Runtime::new().unwrap();
    let slices = runtime.block_on(slices(&lab));
    let listeners = NODES
        .map(|node| Listener::start(&inside(&lab, &format!("acme/on-{node}")), RESOLVER, NAME));
    let change = |version| {
        let patch = Patch::Merge(json!({"endpoints": endpoints(version)}));
        runtime.block_on(slices.patch("moving", &PatchParams::default(), &patch))?;
        Ok(())
    };
    let delays = hear(&listeners, 1..=CHANGES, change).unwrap();
    for (node, delays) in NODES.iter().zip(&delays) {
        assert_eq!(delays.len(), usize::from(CHANGES));
        let [middle, most] = [50, 99].map(|percent| quantile(delays, percent));
        println!("{node}: {CHANGES} changes, answered anew after {middle:?} (p50), {most:?} (p99)");
    }
}
