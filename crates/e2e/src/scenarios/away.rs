//! The API is away: pods go on talking and being answered, containers that end are started again,
//! and everything goes on when it is back.

use std::process::Output;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use atoll_realnodes::{Cluster, Node, wait_until};
use serde_json::{Value, json};

use crate::kubectl::{PATIENCE, has_condition};
use crate::scenarios::{agents, life};
use crate::stage::Stage;

/// The node of acme/web, globex/web, and of the pod that ends.
const NODE: &str = "node1";
/// How often a question is asked that nobody said a word to.
const TRIES: usize = 5;
/// A port that only the pod that ends serves, so that its process can be told from all others.
const MORTAL_PORT: &str = "8077";

/// Who talks is a pod of its own: what kubectl runs in others ends with its connection to the API.
pub(crate) fn pods_go_on(stage: &Stage) -> Result<()> {
    let cluster = stage.own_cluster().context("this API is not ours to stop")?;
    let seconds = (stage.api_away().as_secs() + 20).to_string();
    let talk = ["atoll", "toolbox", "flow", "--udp", "10.0.0.6", "--rate", "200"];
    let talk = [&talk[..], &["--under-way", "64", "--seconds", &seconds]].concat();
    stage.kubectl.apply(&life::pod(stage, "talker", &talk)?)?;
    let talker = ["pod", "--namespace=acme", "talker"];
    stage.kubectl.wait_for("talker to run", &talker, |pod| pod["status"]["phase"] == "Running")?;
    stage.kubectl.apply(&mortal())?;
    let mortal = ["pod", "--namespace=acme", "mortal"];
    let ready = |pod: &Value| has_condition(pod, "Ready");
    stage.kubectl.wait_for("mortal to be Ready", &mortal, ready)?;
    let web = Inside::of(stage, cluster, "acme", "web")?;
    cluster.stop_api()?;
    let outcome = without_api(stage, cluster, &web);
    cluster.start_api()?;
    wait_until("the API to answer again", PATIENCE, || {
        Ok(stage.kubectl.run(&["get", "--raw=/readyz"]).is_ok())
    })?;
    outcome.context("while the API was away")?;
    stage.kubectl.wait_for("talker to end", &talker, |pod| {
        matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
    })?;
    agents::nothing_was_lost(&stage.kubectl.run(&["logs", "--namespace=acme", "talker"])?)?;
    stage.kubectl.wait_for("the API to know of the restart", &mortal, |pod| {
        pod["status"]["containerStatuses"][0]["restartCount"] == 1
    })?;
    stage.kubectl.run(&["delete", "pods", "--namespace=acme", "talker", "mortal"])?;
    life::starts_a_pod(stage, "after-api").context("after the API came back")
}

/// For as long as it is away: new connections, names, and a container that ends.
fn without_api(stage: &Stage, cluster: &Cluster, web: &Inside) -> Result<()> {
    let began = Instant::now();
    ensure!(stage.kubectl.run(&["get", "nodes"]).is_err(), "the API answers");
    let node: Node = NODE.parse()?;
    let before = mortal_process(cluster, node)?.context("mortal has no process")?;
    let killed = cluster.on_node(node, "kill")?.args(["-9", &before]).status()?;
    ensure!(killed.success(), "mortal was not there");
    while began.elapsed() < stage.api_away() {
        web.asks(&["connect", "tcp", "10.0.0.6"], Some("acme/db"))?;
        web.asks(&["connect", "tcp", "10.0.0.22", "--timeout", "1s"], None)?;
        web.asks(&["resolve", "twin"], Some("10.0.0.6"))?;
    }
    wait_until("mortal to be started again", PATIENCE, || {
        Ok(mortal_process(cluster, node)?.is_some_and(|now| now != before))
    })?;
    web.asks(&["connect", "tcp", &format!("10.0.0.41:{MORTAL_PORT}")], Some("acme/mortal"))
}

/// A pod whose process will be ended, and started again by its kubelet.
fn mortal() -> String {
    let field = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let container = json!({
        "name": "mortal", "image": "atoll.dev/atoll:0.1.0",
        "command": ["atoll", "toolbox", "serve", "--port", MORTAL_PORT],
        "env": [field("POD_NAME", "metadata.name"), field("POD_NAMESPACE", "metadata.namespace")],
    });
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "mortal", "namespace": "acme",
                     "annotations": {"atoll.dev/nics": "[{\"ip\":\"10.0.0.41\"}]"}},
        "spec": {"nodeName": NODE, "terminationGracePeriodSeconds": 1, "containers": [container]},
    })
    .to_string()
}

/// Its number, as its node knows it.
fn mortal_process(cluster: &Cluster, node: Node) -> Result<Option<String>> {
    let wanted = format!("^atoll toolbox serve --port {MORTAL_PORT}$");
    let output = cluster.on_node(node, "pgrep")?.args(["--full", &wanted]).output()?;
    let found = String::from_utf8(output.stdout)?;
    Ok(found.lines().next().map(str::to_owned))
}

/// A container, entered by its runtime: the way that needs no API.
struct Inside<'a> {
    cluster: &'a Cluster,
    node: Node,
    container: String,
}

impl<'a> Inside<'a> {
    fn of(stage: &Stage, cluster: &'a Cluster, namespace: &str, pod: &str) -> Result<Inside<'a>> {
        let pod = stage.kubectl.get(&["pod", "--namespace", namespace, pod])?;
        let node = pod["spec"]["nodeName"].as_str().context("the pod is on no node")?.parse()?;
        let id = pod["status"]["containerStatuses"][0]["containerID"].as_str();
        let id = id.and_then(|id| id.strip_prefix("containerd://"));
        let container = id.context("the pod has no container")?.to_owned();
        Ok(Inside { cluster, node, container })
    }

    /// Asks again where nobody said a word, neither the program nor `ctr`, which on a busy machine
    /// lets go of what a program said in its last moment.
    fn toolbox(&self, arguments: &[&str]) -> Result<Output> {
        let is_silent = |output: &Output| output.stdout.is_empty() && output.stderr.is_empty();
        let mut output = self.run(arguments)?;
        for _ in 1..TRIES {
            if !is_silent(&output) {
                break;
            }
            output = self.run(arguments)?;
        }
        Ok(output)
    }

    fn run(&self, arguments: &[&str]) -> Result<Output> {
        let mut exec = self.cluster.on_node(self.node, "ctr")?;
        exec.args(["--namespace=k8s.io", "tasks", "exec", "--exec-id=asks", &self.container]);
        Ok(exec.args(["atoll", "toolbox"]).args(arguments).output()?)
    }

    /// What it hears has these words in it, or it hears nothing where nobody may answer.
    fn asks(&self, arguments: &[&str], wanted: Option<&str>) -> Result<()> {
        let output = self.toolbox(arguments)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (said, complaint) = (text(&output.stdout), text(&output.stderr));
        let good = match wanted {
            Some(words) => output.status.success() && said.contains(words),
            None => !output.status.success() && said.is_empty(),
        };
        ensure!(good, "{arguments:?} ended with {}: {said}{complaint}", output.status);
        Ok(())
    }
}
