//! The API is given back what it had a while ago, as after a disaster. It has forgotten pods that
//! still run and addresses that they still have, and gives both to others.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use atoll_realnodes::{Cluster, wait_until};
use atoll_toolbox::Answer;
use serde_json::{Value, json};

use crate::install::{self, NAMESPACE};
use crate::kubectl::{PATIENCE, has_condition, items};
use crate::scenarios::reach;
use crate::stage::Stage;
use crate::tenants;

/// Pods that the API forgets, and pods that it makes afterwards, with a port that only they serve.
const FORGOTTEN: (&str, &str) = ("forgotten", "8078");
const LATER: (&str, &str) = ("later", "8079");

/// Nobody of those that came before the backup notices; those that came after it end; and of all
/// who run, no two have one address.
pub(crate) fn no_address_is_given_twice(stage: &Stage) -> Result<()> {
    let cluster = stage.own_cluster().context("this store is not ours")?;
    let before = tenants::pods(&stage.kubectl)?;
    cluster.save_store()?;
    bring(stage, FORGOTTEN)?;
    cluster.restore_store()?;
    ensure!(of(stage, FORGOTTEN)?.is_empty(), "the API knows of pods that came after its backup");
    start_atoll_again(stage)?;
    bring(stage, LATER)?;
    addresses_are_distinct(stage)?;
    each_answers_for_itself(stage)?;
    wait_until("pods that the API forgot to end", PATIENCE, || {
        nobody_serves(cluster, FORGOTTEN.1)
    })?;
    stage.kubectl.run(&["delete", "pods", "--namespace=acme", "--selector=app=later"])?;
    let mut after = Vec::new();
    let same = wait_until("the pods of before to be all there are", PATIENCE, || {
        after = tenants::pods(&stage.kubectl)?;
        Ok(after == before)
    });
    same.with_context(|| format!("there were {before:?}, and there are {after:?}"))?;
    reach::isolated(stage).context("after the store was brought back")
}

/// One on each node, with addresses that Atoll chooses; returns when all are Ready.
fn bring(stage: &Stage, (app, port): (&str, &str)) -> Result<()> {
    let nodes = tenants::nodes(&stage.kubectl)?;
    for node in &nodes {
        let pod = pod(&format!("{app}-{node}"), node, app, port).to_string();
        wait_until(&format!("{app} to be admitted"), PATIENCE, || {
            stage.kubectl.apply(&pod).map(|_| true)
        })?;
    }
    let select = format!("--selector=app={app}");
    let found = ["pods", "--namespace=acme", &select];
    stage.kubectl.wait_for(&format!("the pods {app} to be Ready"), &found, |pods| {
        items(pods).len() == nodes.len()
            && items(pods).iter().all(|pod| has_condition(pod, "Ready"))
    })
}

fn of(stage: &Stage, (app, _): (&str, &str)) -> Result<Vec<Value>> {
    let select = format!("--selector=app={app}");
    Ok(items(&stage.kubectl.get(&["pods", "--namespace=acme", &select])?).to_vec())
}

/// As everything that remembers more than the API does: the documentation of Kubernetes asks for it.
fn start_atoll_again(stage: &Stage) -> Result<()> {
    for part in ["deployment/atoll-controller", "daemonset/atoll-agent"] {
        stage.kubectl.run(&["rollout", "restart", "--namespace", NAMESPACE, part])?;
    }
    install::await_parts(stage)
}

/// By what the API has of every port.
fn addresses_are_distinct(stage: &Stage) -> Result<()> {
    let ports = stage.kubectl.get(&["ports", "--all-namespaces"])?;
    let mut holders: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for port in items(&ports) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let network = text(&port["spec"]["network"]);
        for ip in port["spec"]["ips"].as_array().into_iter().flatten() {
            let holder = text(&port["metadata"]["name"]);
            holders.entry((network.clone(), text(ip))).or_default().push(holder);
        }
    }
    ensure!(!holders.is_empty(), "no port has an address");
    let twice: Vec<_> = holders.iter().filter(|(_, holders)| holders.len() > 1).collect();
    ensure!(twice.is_empty(), "given twice: {twice:?}");
    Ok(())
}

/// Whoever is asked at the address of one of them is that one.
fn each_answers_for_itself(stage: &Stage) -> Result<()> {
    for pod in of(stage, LATER)? {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        let ip = pod["status"]["podIP"].as_str().context("a pod has no address")?;
        let address = format!("{ip}:{}", LATER.1);
        let ask = ["atoll", "toolbox", "connect", "tcp", &address, "--timeout", "5s"];
        let mut first: Option<Answer> = None;
        wait_until(&format!("{name} to answer at {ip}"), PATIENCE, || {
            first = Some(serde_json::from_str(&stage.kubectl.exec_well("acme", "web", &ask)?)?);
            Ok(true)
        })?;
        let answer = first.context("nobody answered")?;
        ensure!(answer.pod == format!("acme/{name}"), "{ip} answered by {}", answer.pod);
    }
    Ok(())
}

/// Whether no process serves this port on any node.
fn nobody_serves(cluster: &Cluster, port: &str) -> Result<bool> {
    let wanted = format!("^atoll toolbox serve --port {port}$");
    for node in cluster.nodes() {
        let found = cluster.on_node(node, "pgrep")?.args(["--full", &wanted]).output()?;
        if !found.stdout.is_empty() {
            return Ok(false);
        }
    }
    Ok(true)
}

fn pod(name: &str, node: &str, app: &str, port: &str) -> Value {
    let field = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let container = json!({
        "name": "toolbox", "image": "atoll.dev/atoll:0.1.0",
        "command": ["atoll", "toolbox", "serve", "--port", port],
        "env": [field("POD_NAME", "metadata.name"), field("POD_NAMESPACE", "metadata.namespace")],
    });
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "acme", "labels": {"app": app}},
        "spec": {"nodeSelector": {"kubernetes.io/hostname": node},
                 "terminationGracePeriodSeconds": 1, "containers": [container]},
    })
}
