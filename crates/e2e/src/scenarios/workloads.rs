//! Ordinary manifests in a tenant's namespace, as people bring them from elsewhere.

use std::net::IpAddr;

use anyhow::{Context, Result, ensure};
use atoll_realnodes::wait_until;
use serde_json::Value;

use crate::kubectl::{PATIENCE, has_condition, items};
use crate::scenarios::names;
use crate::stage::Stage;

/// Nothing in it is Atoll's, but that the namespace is a tenant's.
const MANIFESTS: &str = include_str!("workloads.yaml");
const TENANT: &str = "acme";

/// A Deployment with its Service, a StatefulSet with a headless one, and a Job.
pub(crate) fn run_unchanged(stage: &Stage) -> Result<()> {
    stage.kubectl.apply(MANIFESTS)?;
    let rollout = |what| ["rollout", "status", "--namespace", TENANT, "--timeout=240s", what];
    stage.kubectl.run(&rollout("deployment/shop"))?;
    stage.kubectl.run(&rollout("statefulset/queue"))?;
    let job = ["wait", "--namespace", TENANT, "--timeout=240s", "--for=condition=Complete"];
    stage.kubectl.run(&[&job[..], &["job/greeting"]].concat())?;
    let pods = of_app(stage, "shop")?;
    ensure!(pods.len() == 2, "the deployment has {} pods", pods.len());
    wait_until("the headless service to name its pods", PATIENCE, || {
        let found = names::resolve(stage, TENANT, "queue-0.queue")?;
        Ok(found == Some(vec![address_of(stage, "queue-0")?]))
    })
}

/// A StatefulSet's pod that is deleted is there again, by the same address and name.
pub(crate) fn stateful_pods_keep_their_address(stage: &Stage) -> Result<()> {
    let before = stage.kubectl.get(&["pod", "--namespace", TENANT, "queue-0"])?;
    stage.kubectl.run(&["delete", "pod", "--namespace", TENANT, "queue-0"])?;
    let uid = before["metadata"]["uid"].clone();
    stage.kubectl.wait_for(
        "queue-0 to be Ready again",
        &["pods", "--namespace", TENANT, "--selector=app=queue"],
        |pods| {
            let mut pods = items(pods).iter();
            pods.any(|pod| pod["metadata"]["uid"] != uid && has_condition(pod, "Ready"))
        },
    )?;
    let after = stage.kubectl.get(&["pod", "--namespace", TENANT, "queue-0"])?;
    let (before, after) = (&before["status"]["podIP"], &after["status"]["podIP"]);
    ensure!(before == after, "queue-0 had {before} and has {after}");
    Ok(())
}

/// Two pods with an interface each in a second network meet there. Then everything goes.
pub(crate) fn several_interfaces(stage: &Stage) -> Result<()> {
    let pods = of_app(stage, "twohomed")?;
    let [one, other] = pods.as_slice() else { anyhow::bail!("there are {} pods", pods.len()) };
    let name = |pod: &Value| pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let second = second_address(other)?;
    let ask = ["atoll", "toolbox", "connect", "tcp", &second.to_string()];
    let answer = stage.kubectl.exec_well(TENANT, &name(one), &ask)?;
    let answer: atoll_toolbox::Answer = serde_json::from_str(&answer)?;
    ensure!(answer.pod == format!("{TENANT}/{}", name(other)), "answered by {}", answer.pod);
    let seen = answer.peer.ip().to_canonical();
    ensure!(seen == second_address(one)?, "seen as {seen}");
    let refused = stage.kubectl.exec(TENANT, "web", &ask)?;
    ensure!(!refused.status.success(), "a pod that is not in the second network reaches it");
    stage.kubectl.delete(MANIFESTS)?;
    stage.kubectl.wait_for(
        "pods of workloads to be gone",
        &["pods", "--namespace", TENANT],
        |pods| items(pods).iter().all(|pod| pod["metadata"]["labels"]["app"].is_null()),
    )
}

/// A virtual machine's pod starts, which it does not before its tap is there.
pub(crate) fn tap_is_made(stage: &Stage) -> Result<()> {
    stage.kubectl.apply(MACHINE)?;
    let machine = ["pod", "--namespace", TENANT, "machine"];
    stage.kubectl.wait_for("machine to be Ready", &machine, |pod| has_condition(pod, "Ready"))?;
    stage.kubectl.delete(MACHINE).map(drop)
}

const MACHINE: &str = r#"apiVersion: v1
kind: Pod
metadata:
  name: machine
  namespace: acme
  annotations: {atoll.dev/nics: '[{"type": "tap"}]'}
spec:
  terminationGracePeriodSeconds: 2
  containers:
    - {name: machine, image: "atoll.dev/atoll:0.1.0", command: [atoll, toolbox, serve]}
"#;

/// The address in the second network, as the pod's annotation tells it.
fn second_address(pod: &Value) -> Result<IpAddr> {
    let told = pod["metadata"]["annotations"]["k8s.v1.cni.cncf.io/network-status"].as_str();
    let told: Value = serde_json::from_str(told.context("a pod is not told its interfaces")?)?;
    let ip = told[1]["ips"][0].as_str().context("a pod has no second interface")?;
    Ok(ip.parse()?)
}

fn of_app(stage: &Stage, app: &str) -> Result<Vec<Value>> {
    let select = format!("--selector=app={app}");
    stage.kubectl.wait_for(
        &format!("the pods of {app} to be Ready"),
        &["pods", "--namespace", TENANT, &select],
        |pods| !items(pods).is_empty() && items(pods).iter().all(|pod| has_condition(pod, "Ready")),
    )?;
    Ok(items(&stage.kubectl.get(&["pods", "--namespace", TENANT, &select])?).to_vec())
}

fn address_of(stage: &Stage, pod: &str) -> Result<IpAddr> {
    let found = stage.kubectl.get(&["pod", "--namespace", TENANT, pod])?;
    Ok(found["status"]["podIP"].as_str().unwrap_or_default().parse()?)
}
