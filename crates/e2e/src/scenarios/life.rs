//! What a cluster goes through: its API away, its controllers killed, a runtime started again.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use atoll_realnodes::{Node, wait_until};
use serde_json::{Value, json};

use crate::install::{self, NAMESPACE};
use crate::kubectl::{PATIENCE, has_condition, items};
use crate::scenarios::agents;
use crate::stage::Stage;

/// How long the API stays away. Five minutes would show no more: an agent's watches fail within
/// seconds, and from then on nothing changes.
const AWAY: Duration = Duration::from_secs(20);
/// How many pods come and go at once; as many as three nodes on two cores start in good time.
const BURST: usize = 60;

/// Pods go on talking, and everything goes on when it is back. Who talks is a pod of its own: what
/// kubectl runs in others ends with its connection to the API.
pub(crate) fn api_is_away(stage: &Stage) -> Result<()> {
    let cluster = stage.own_cluster().context("this API is not ours to stop")?;
    let seconds = (AWAY.as_secs() + 20).to_string();
    let talk = ["atoll", "toolbox", "flow", "--udp", "10.0.0.6", "--rate", "200"];
    let talk = [&talk[..], &["--under-way", "64", "--seconds", &seconds]].concat();
    stage.kubectl.apply(&pod("talker", &talk))?;
    let talker = ["pod", "--namespace=acme", "talker"];
    stage.kubectl.wait_for("talker to run", &talker, |pod| pod["status"]["phase"] == "Running")?;
    cluster.stop_api()?;
    ensure!(stage.kubectl.run(&["get", "nodes"]).is_err(), "the API answers");
    std::thread::sleep(AWAY);
    cluster.start_api()?;
    wait_until("the API to answer again", PATIENCE, || {
        Ok(stage.kubectl.run(&["get", "--raw=/readyz"]).is_ok())
    })?;
    stage.kubectl.wait_for("talker to end", &talker, |pod| {
        matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
    })?;
    agents::nothing_was_lost(&stage.kubectl.run(&["logs", "--namespace=acme", "talker"])?)?;
    stage.kubectl.run(&["delete", "pod", "--namespace=acme", "talker"])?;
    starts_a_pod(stage, "after-api").context("after the API came back")
}

/// Both at once; their successors take over what they wrote. Until one of them answers, the API
/// refuses pods of tenants, and whoever makes them tries again.
pub(crate) fn controllers_are_killed(stage: &Stage) -> Result<()> {
    let select = "--selector=app.kubernetes.io/component=controller";
    let kill = ["delete", "pods", "--namespace", NAMESPACE, "--grace-period=0", "--force", select];
    stage.kubectl.run(&kill)?;
    starts_a_pod(stage, "after-controllers")?;
    install::await_parts(stage)
}

/// On the node of acme/db, which goes on, and a new pod starts beside it.
pub(crate) fn runtime_is_started_again(stage: &Stage) -> Result<()> {
    let cluster = stage.own_cluster().context("these nodes are not ours")?;
    let node: Node = "node2".parse()?;
    let mut flow = agents::flow(stage, "10.0.0.6", 20)?;
    let killed = cluster.on_node(node, "sh")?.args(["-c", "kill $(pidof containerd)"]).status()?;
    ensure!(killed.success(), "containerd was not there");
    starts_a_pod(stage, "after-runtime")?;
    agents::whole(&mut flow)
}

/// Many come and go at once, and none leaves a port or a claim.
pub(crate) fn burst_leaves_nothing(stage: &Stage) -> Result<()> {
    let counted = |kind: &[&str]| Ok::<_, anyhow::Error>(items(&stage.kubectl.get(kind)?).len());
    let (ports, claims) = (["ports", "--all-namespaces"], ["claims"]);
    let before = (counted(&ports)?, counted(&claims)?);
    stage.kubectl.apply(&burst())?;
    stage.kubectl.run(&[
        "rollout",
        "status",
        "--namespace=acme",
        "--timeout=140s",
        "deployment/burst",
    ])?;
    let with = counted(&ports)?;
    ensure!(with >= before.0 + BURST, "{with} ports are too few");
    stage.kubectl.run(&["delete", "--namespace=acme", "deployment/burst"])?;
    wait_until("ports and claims of the burst to be gone", PATIENCE, || {
        Ok((counted(&ports)?, counted(&claims)?) == before)
    })
}

/// A pod of acme comes to run, and goes again.
fn starts_a_pod(stage: &Stage, name: &str) -> Result<()> {
    wait_until(&format!("{name} to be admitted"), PATIENCE, || {
        stage.kubectl.apply(&pod(name, &["atoll", "toolbox", "serve"])).map(|_| true)
    })?;
    let is_ready = |found: &Value| has_condition(found, "Ready");
    stage.kubectl.wait_for(
        &format!("{name} to be Ready"),
        &["pod", "--namespace=acme", name],
        is_ready,
    )?;
    stage.kubectl.run(&["delete", "pod", "--namespace=acme", name]).map(drop)
}

/// On node2, beside acme/db.
fn pod(name: &str, command: &[&str]) -> String {
    let mut spec = spec(command);
    spec["nodeName"] = "node2".into();
    spec["restartPolicy"] = "Never".into();
    let metadata = json!({"name": name, "namespace": "acme"});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}).to_string()
}

fn burst() -> String {
    let labels = json!({"app": "burst"});
    let template =
        json!({"metadata": {"labels": labels}, "spec": spec(&["atoll", "toolbox", "serve"])});
    let spec =
        json!({"replicas": BURST, "selector": {"matchLabels": labels}, "template": template});
    let metadata = json!({"name": "burst", "namespace": "acme"});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec})
        .to_string()
}

fn spec(command: &[&str]) -> Value {
    let container =
        json!({"name": "toolbox", "image": "atoll.dev/atoll:0.1.0", "command": command});
    json!({"terminationGracePeriodSeconds": 1, "containers": [container]})
}
