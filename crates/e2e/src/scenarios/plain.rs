//! Atoll as the only network: pods of no tenant have what Kubernetes promises to every pod.

use std::net::IpAddr;

use anyhow::{Context, Result, ensure};
use atoll_toolbox::{Answer, Outcome, Report};
use serde_json::{Value, json};

use crate::kubectl::{has_condition, items};
use crate::stage::Stage;
use crate::tenants;

pub(super) const NAMESPACE: &str = "plain";
const YESTERDAYS: &str = "atoll-of-yesterday";
/// A pod that uses its node's network.
pub(super) const HOST: &str = "host";

/// Nodes' numbers by the names of pods.
const PODS: [(&str, usize); 4] = [("one", 0), ("two", 0), ("three", 1), (HOST, 1)];

/// An upgrade keeps what was said before and adds this; what the version before had beside it goes.
pub(crate) fn upgraded(stage: &Stage) -> Result<()> {
    leave_something_of_yesterday(stage)?;
    let range = stage.plain_network().context("no range for plain pods was given")?;
    let said = stage.atoll(&["upgrade", "--plain-network", range])?;
    ensure!(said.contains("daemonset.apps/atoll-agent configured"), "it said {said}");
    ensure!(said.contains("deployment.apps/atoll-controller unchanged"), "it said {said}");
    let gone = format!("clusterrole.rbac.authorization.k8s.io/{YESTERDAYS} deleted");
    ensure!(said.contains(&gone), "it said {said}");
    let found = stage.kubectl.run(&["get", "clusterrole", YESTERDAYS]);
    ensure!(found.is_err(), "{YESTERDAYS} is still there");
    stage.kubectl.apply(&manifest(&tenants::nodes(&stage.kubectl)?))?;
    stage.kubectl.wait_for("plain pods to be Ready", &["pods", "--namespace", NAMESPACE], |pods| {
        items(pods).len() == PODS.len() && items(pods).iter().all(|pod| has_condition(pod, "Ready"))
    })
}

/// A role that is on the list of what is installed, as if an older version had brought it.
fn leave_something_of_yesterday(stage: &Stage) -> Result<()> {
    stage.kubectl.run(&["create", "clusterrole", YESTERDAYS, "--verb=get", "--resource=pods"])?;
    let settings = ["configmap", "--namespace=atoll-system", "atoll-settings"];
    let found = stage.kubectl.get(&settings)?;
    let listed = found["data"]["objects"].as_str().context("nothing is listed as installed")?;
    let mut listed: Vec<Value> = serde_json::from_str(listed)?;
    ensure!(listed.iter().any(|item| item["name"] == "atoll-agent"), "listed are {listed:?}");
    listed.push(json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                       "name": YESTERDAYS}));
    let patch = json!({"data": {"objects": json!(listed).to_string()}}).to_string();
    let patch = ["--type=merge", "--patch", &patch];
    stage.kubectl.run(&[&["patch"], &settings[..], &patch[..]].concat()).map(drop)
}

/// Pod to pod with their own addresses, on a node and across; pod to node; and no tenant's pod.
pub(crate) fn everybody_meets(stage: &Stage) -> Result<()> {
    let address = |pod: &str| address(stage, NAMESPACE, pod);
    let one = address("one")?;
    for pod in ["two", "three"] {
        let answer = answered(stage, "one", address(pod)?)?;
        ensure!(answer.pod == format!("{NAMESPACE}/{pod}"), "answered by {}", answer.pod);
        ensure!(answer.peer.ip().to_canonical() == one, "{pod} sees {}", answer.peer);
    }
    for pod in ["one", "two", "three"] {
        let answer = answered(stage, HOST, address(pod)?)?;
        ensure!(answer.pod == format!("{NAMESPACE}/{pod}"), "answered by {}", answer.pod);
        answered(stage, pod, address(HOST)?).with_context(|| format!("{pod} to a node"))?;
    }
    Ok(())
}

/// A tenant's pod beside one that reaches, and the other way round.
pub(crate) fn tenants_stay_apart(stage: &Stage) -> Result<()> {
    let (plain, tenants) = (address(stage, NAMESPACE, "one")?, address(stage, "acme", "db")?);
    ensure!(reaches(stage, (NAMESPACE, "two"), plain)?, "plain pods do not meet");
    ensure!(!reaches(stage, ("acme", "web"), plain)?, "a tenant's pod reaches a plain one");
    ensure!(reaches(stage, ("acme", "web"), tenants)?, "pods of a tenant do not meet");
    ensure!(!reaches(stage, (NAMESPACE, "two"), tenants)?, "a plain pod reaches a tenant's");
    stage.kubectl.run(&["delete", "namespace", NAMESPACE]).map(drop)
}

pub(super) fn address(stage: &Stage, namespace: &str, pod: &str) -> Result<IpAddr> {
    let found = stage.kubectl.get(&["pod", "--namespace", namespace, pod])?;
    let ip = found["status"]["podIP"].as_str().with_context(|| format!("{pod} has no address"))?;
    Ok(ip.parse()?)
}

fn answered(stage: &Stage, client: &str, server: IpAddr) -> Result<Answer> {
    let report = asked(stage, (NAMESPACE, client), server)?;
    match report.outcome {
        Outcome::Answered(answer) => Ok(answer),
        other => anyhow::bail!("{client} to {server}: {other:?}"),
    }
}

fn reaches(stage: &Stage, client: (&str, &str), server: IpAddr) -> Result<bool> {
    Ok(matches!(asked(stage, client, server)?.outcome, Outcome::Answered(_)))
}

fn asked(stage: &Stage, client: (&str, &str), server: IpAddr) -> Result<Report> {
    probed(stage, client, &format!("tcp/{server}"))
}

/// What a pod hears from a target.
pub(super) fn probed(
    stage: &Stage,
    (namespace, pod): (&str, &str),
    target: &str,
) -> Result<Report> {
    let ask = ["atoll", "toolbox", "probe", "--timeout", "2s", target];
    let output = stage.kubectl.exec(namespace, pod, &ask)?;
    let said = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).with_context(|| format!("{pod} cannot ask: {said}"))
}

fn manifest(nodes: &[String]) -> String {
    let pods = PODS.iter().map(|(name, node)| pod(name, &nodes[*node]));
    let namespace = format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {NAMESPACE}}}\n");
    [namespace].into_iter().chain(pods).collect::<Vec<_>>().join("---\n")
}

fn pod(name: &str, node: &str) -> String {
    let on_host = name == HOST;
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: {NAMESPACE}, labels: {{pod: {name}}}}}
spec:
  hostNetwork: {on_host}
  nodeSelector: {{kubernetes.io/hostname: {node}}}
  terminationGracePeriodSeconds: 2
  containers:
    - name: toolbox
      image: atoll.dev/atoll:0.1.0
      command: [atoll, toolbox, serve]
      env:
        - {{name: POD_NAME, valueFrom: {{fieldRef: {{fieldPath: metadata.name}}}}}}
        - {{name: POD_NAMESPACE, valueFrom: {{fieldRef: {{fieldPath: metadata.namespace}}}}}}
        - {{name: NODE_NAME, valueFrom: {{fieldRef: {{fieldPath: spec.nodeName}}}}}}
"
    )
}
