//! What an installation gives to whoever asks for nothing: a tenant's default network, and metrics.

use anyhow::{Context, Result, ensure};
use atoll_realnodes::wait_until;
use serde_json::Value;

use crate::install::NAMESPACE;
use crate::kubectl::{PATIENCE, has_condition, items};
use crate::stage::Stage;

/// A tenant that says nothing of networks, and a pod of it that does not either.
const MODEST: &str = "apiVersion: atoll.dev/v1alpha1
kind: Tenant
metadata: {name: modest}
spec: {}
---
apiVersion: v1
kind: Namespace
metadata: {name: modest, labels: {atoll.dev/tenant: modest}}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: modest}
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - {name: web, image: \"atoll.dev/atoll:0.1.0\", command: [atoll, toolbox, serve]}
";
const NETWORK: [&str; 2] = ["network", "modest.default"];

/// The template that was installed gives the network, and the pod gets an address of it. Then
/// everything goes.
pub(crate) fn network_comes_from_the_template(stage: &Stage) -> Result<()> {
    wait_until("the pod to be admitted", PATIENCE, || stage.kubectl.apply(MODEST).map(|_| true))?;
    let web = ["pod", "--namespace=modest", "web"];
    stage.kubectl.wait_for("modest/web to be Ready", &web, |pod| has_condition(pod, "Ready"))?;
    let network = stage.kubectl.get(&NETWORK)?;
    let (kind, ranges) = (&network["spec"]["type"], &network["spec"]["cidrs"]);
    ensure!(kind == "vpc" && ranges[0] == "10.0.0.0/16", "the network is {network}");
    let pod = stage.kubectl.get(&web)?;
    let ip = pod["status"]["podIP"].as_str().unwrap_or_default();
    ensure!(ip.starts_with("10.0."), "the pod has {ip:?}");
    stage.kubectl.run(&["delete", "--wait=false", "namespace", "modest"])?;
    stage.kubectl.run(&["delete", "--wait=false", "tenant", "modest"])?;
    wait_until("the tenant to be gone", PATIENCE, || {
        Ok(stage.kubectl.run(&["get", "tenant", "modest"]).is_err())
    })
}

/// One of the controllers says that it leads, and all of them how many networks there are.
pub(crate) fn metrics_are_served(stage: &Stage) -> Result<()> {
    let select = "--selector=app.kubernetes.io/component=controller";
    wait_until("a controller that leads to say so", PATIENCE, || {
        let pods = stage.kubectl.get(&["pods", "--namespace", NAMESPACE, select])?;
        let pages: Vec<_> =
            items(&pods).iter().map(|pod| page(stage, pod)).collect::<Result<_>>()?;
        ensure!(pages.iter().all(|page| page.contains("\natoll_exhausted_subnets ")));
        Ok(pages.iter().any(|page| page.contains("\natoll_leading 1\n")))
    })
}

/// The metrics of a controller, through the API, at the port that its annotation names.
fn page(stage: &Stage, pod: &Value) -> Result<String> {
    let name = pod["metadata"]["name"].as_str().context("a pod has no name")?;
    let port = pod["metadata"]["annotations"]["prometheus.io/port"].as_str();
    let port = port.with_context(|| format!("{name} does not say where its metrics are"))?;
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}:{port}/proxy/metrics");
    stage.kubectl.run(&["get", "--raw", &path])
}
