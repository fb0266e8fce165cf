//! What a cluster goes through: its controllers killed, a runtime started again, a node drained, many
//! pods at once.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use atoll_realnodes::{Node, wait_until};
use serde_json::{Value, json};

use crate::install::{self, NAMESPACE};
use crate::kubectl::{PATIENCE, has_condition, items};
use crate::scenarios::{agents, names, reach, services};
use crate::stage::Stage;
use crate::tenants;

/// How many pods come and go at once, and how long that may take on a busy machine.
const BURST: usize = 200;
const BURST_PATIENCE: Duration = Duration::from_secs(900);

/// Both at once; their successors take over what they wrote. Until one of them answers, the API
/// refuses pods of tenants, and whoever makes them tries again. Packets need none of them, on a node
/// and across.
pub(crate) fn controllers_are_killed(stage: &Stage) -> Result<()> {
    let mut flows = [agents::flow(stage, "10.0.0.6")?, agents::flow(stage, "10.0.0.7")?];
    let select = "--selector=app.kubernetes.io/component=controller";
    let kill = ["delete", "pods", "--namespace", NAMESPACE, "--grace-period=0", "--force", select];
    stage.kubectl.run(&kill)?;
    starts_a_pod(stage, "after-controllers")?;
    install::await_parts(stage)?;
    agents::went_on(&mut flows).context("while controllers were killed")
}

/// On the node of acme/db, which goes on, and a new pod starts beside it.
pub(crate) fn runtime_is_started_again(stage: &Stage) -> Result<()> {
    let cluster = stage.own_cluster().context("these nodes are not ours")?;
    let node: Node = "node2".parse()?;
    let mut flows = [agents::flow(stage, "10.0.0.6")?];
    let killed = cluster.on_node(node, "sh")?.args(["-c", "kill $(pidof containerd)"]).status()?;
    ensure!(killed.success(), "containerd was not there");
    starts_a_pod(stage, "after-runtime")?;
    agents::went_on(&mut flows).context("while a runtime was started again")
}

/// Many come and go at once, and none leaves a port, a claim or an interface.
pub(crate) fn burst_leaves_nothing(stage: &Stage) -> Result<()> {
    let before = Left::of(stage)?;
    stage.kubectl.apply(&burst())?;
    let deployment = ["deployment", "--namespace=acme", "burst"];
    wait_until("all pods of the burst to be ready", BURST_PATIENCE, || {
        Ok(stage.kubectl.get(&deployment)?["status"]["readyReplicas"] == BURST)
    })?;
    let with = Left::of(stage)?;
    ensure!(with.ports == before.ports + BURST, "there are {} ports", with.ports);
    stage.kubectl.run(&["delete", "--namespace=acme", "--wait=false", "deployment/burst"])?;
    let mut left = with;
    let gone = wait_until("everything of the burst to be gone", BURST_PATIENCE, || {
        left = Left::of(stage)?;
        Ok(left == before)
    });
    gone.with_context(|| format!("{before:?} is to be left, and there is {left:?}"))
}

/// What pods could leave behind.
#[derive(Debug, PartialEq)]
struct Left {
    ports: usize,
    claims: usize,
    /// On nodes of our own.
    links: Vec<usize>,
}

impl Left {
    fn of(stage: &Stage) -> Result<Left> {
        let counted =
            |kind: &[&str]| Ok::<_, anyhow::Error>(items(&stage.kubectl.get(kind)?).len());
        let cluster = stage.own_cluster();
        let nodes = cluster
            .into_iter()
            .flat_map(|cluster| cluster.nodes().into_iter().map(move |node| (cluster, node)));
        let links = nodes.map(|(cluster, node)| {
            let listed = cluster.on_node(node, "ip")?.args(["-o", "link"]).output()?;
            Ok(String::from_utf8(listed.stdout)?.lines().count())
        });
        Ok(Left {
            ports: counted(&["ports", "--all-namespaces"])?,
            claims: counted(&["claims"])?,
            links: links.collect::<Result<_>>()?,
        })
    }
}

/// The node of a StatefulSet's pod is drained of everything: that pod and those of a Deployment come to
/// run elsewhere, the first at the address that it had, and the service leads there. Pods that nobody
/// makes again are made by us.
pub(crate) fn node_is_drained(stage: &Stage) -> Result<()> {
    let queue = ["pod", "--namespace=acme", "queue-0"];
    let before = stage.kubectl.get(&queue)?;
    let node = before["spec"]["nodeName"].as_str().context("queue-0 is on no node")?;
    let drain = ["drain", node, "--ignore-daemonsets", "--force", "--timeout=280s"];
    stage.kubectl.run(&drain)?;
    let moved = are_elsewhere(stage, node);
    let after = stage.kubectl.get(&queue);
    stage.kubectl.run(&["uncordon", node])?;
    moved?;
    let (before, after) = (&before["status"]["podIP"], &after?["status"]["podIP"]);
    ensure!(before == after, "queue-0 had {before} and has {after}");
    reach::pods_run(stage).context("after the node was drained")?;
    services::label_backends(stage)?;
    wait_until("the shop to serve", PATIENCE, || {
        let found = names::resolve(stage, "acme", "shop")?.unwrap_or_default();
        let shop = format!("{}:80", found.first().context("the shop has no name")?);
        let ask = ["atoll", "toolbox", "connect", "tcp", &shop, "--timeout", "2s"];
        Ok(stage.kubectl.exec("acme", "web", &ask)?.status.success())
    })
}

/// Waits until no pod of tenants is on a node, and those that somebody makes again are Ready elsewhere.
fn are_elsewhere(stage: &Stage, node: &str) -> Result<()> {
    let of = "--selector=app in (shop, queue)";
    let pods = ["pods", "--namespace=acme", of];
    stage.kubectl.wait_for("the pods of the node to be elsewhere", &pods, |pods| {
        let elsewhere =
            |pod: &Value| pod["spec"]["nodeName"] != node && has_condition(pod, "Ready");
        items(pods).len() == 3 && items(pods).iter().all(elsewhere)
    })?;
    for tenant in tenants::TENANTS {
        let left = stage.kubectl.get(&["pods", "--namespace", tenant])?;
        let mut pods = items(&left).iter();
        ensure!(pods.all(|pod| pod["spec"]["nodeName"] != node), "pods of {tenant} stay on {node}");
    }
    Ok(())
}

/// A pod of acme comes to run, and goes again.
pub(crate) fn starts_a_pod(stage: &Stage, name: &str) -> Result<()> {
    wait_until(&format!("{name} to be admitted"), PATIENCE, || {
        let pod = pod(stage, name, &["atoll", "toolbox", "serve"])?;
        stage.kubectl.apply(&pod).map(|_| true)
    })?;
    let is_ready = |found: &Value| has_condition(found, "Ready");
    stage.kubectl.wait_for(
        &format!("{name} to be Ready"),
        &["pod", "--namespace=acme", name],
        is_ready,
    )?;
    stage.kubectl.run(&["delete", "pod", "--namespace=acme", name]).map(drop)
}

/// On the second node, beside acme/db.
pub(crate) fn pod(stage: &Stage, name: &str, command: &[&str]) -> Result<String> {
    let mut spec = spec(command);
    let second = &tenants::nodes(&stage.kubectl)?[1];
    spec["nodeSelector"] = json!({"kubernetes.io/hostname": second});
    spec["restartPolicy"] = "Never".into();
    let metadata = json!({"name": name, "namespace": "acme"});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec});
    Ok(pod.to_string())
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
