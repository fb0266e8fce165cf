//! Atoll beside a network that was there before it: the reference `bridge` plugin, with routes
//! between nodes, as a stand-in for any other. What is its own stays as it is, byte for byte and
//! packet for packet, while Atoll comes, serves tenants, and goes.

use std::net::IpAddr;

use anyhow::{Context, Result, ensure};
use atoll_realnodes::{BRIDGE_CONFIGURATION, Cluster, Node, wait_until};
use atoll_toolbox::Answer;
use serde_json::{Value, json};

use crate::install;
use crate::kubectl::{PATIENCE, Running, has_condition};
use crate::scenarios::{agents, reach};
use crate::stage::Stage;
use crate::tenants;

const NAMESPACE: &str = "elsewhere";
/// Pods of the other network: before Atoll, with Atoll, and after it.
const BEFORE: [(&str, usize); 3] = [("old", 0), ("older", 0), ("oldest", 1)];
const DURING: [(&str, usize); 1] = [("newcomer", 0)];
const AFTER: [(&str, usize); 1] = [("late", 1)];

/// What a node has of the other network.
#[derive(Debug, PartialEq)]
struct Look {
    configuration: String,
    links: String,
    addresses: Vec<String>,
}

/// The other network serves its pods; then Atoll comes, and tenants beside them.
pub(crate) fn comes_beside(stage: &Stage) -> Result<()> {
    let cluster = stage.own_cluster().context("these nodes are not ours")?;
    cluster.bring_bridge()?;
    stage
        .kubectl
        .apply(&format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {NAMESPACE}}}\n"))?;
    start(stage, &BEFORE)?;
    let before = looks(stage, cluster)?;
    let mut talk = talks(stage)?;
    install::apply(stage)?;
    agents::went_on(&mut talk).context("while Atoll came")?;
    let with = looks(stage, cluster)?;
    ensure!(before == with, "the other network was {before:?} and is {with:?}");
    start(stage, &DURING)?;
    meets(stage, "newcomer", "old").context("a new pod of the other network")?;
    reach::pods_run(stage)?;
    reach::isolated(stage)?;
    strangers(stage)
}

/// Atoll goes; the other network serves whom it served, and whoever comes.
pub(crate) fn goes_again(stage: &Stage) -> Result<()> {
    let cluster = stage.own_cluster().context("these nodes are not ours")?;
    reach::nothing_is_left(stage)?;
    let before = looks(stage, cluster)?;
    let mut talk = talks(stage)?;
    stage.atoll(&["uninstall", "--purge"])?;
    agents::went_on(&mut talk).context("while Atoll went")?;
    let after = looks(stage, cluster)?;
    ensure!(before == after, "the other network was {before:?} and is {after:?}");
    start(stage, &AFTER)?;
    meets(stage, "late", "old").context("a pod that came after Atoll")?;
    stage.kubectl.run(&["delete", "namespace", NAMESPACE]).map(drop)
}

fn on_node(cluster: &Cluster, node: Node, script: &str) -> Result<String> {
    let output = cluster.on_node(node, "sh")?.args(["-c", script]).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{node}: {script}: {said}");
    Ok(String::from_utf8(output.stdout)?)
}

/// The configuration, what hangs on the bridge, and the addresses of its first pods.
fn looks(stage: &Stage, cluster: &Cluster) -> Result<Vec<Look>> {
    let addresses: Vec<_> = BEFORE
        .iter()
        .map(|(pod, _)| address(stage, pod).map(|ip| ip.to_string()))
        .collect::<Result<_>>()?;
    let look = |node| {
        // A node without a pod of the other network has no bridge yet. An address is the same after
        // the kernel has found out that nobody else has it.
        let bridge = "ip link show br0 2>/dev/null || exit 0; \
            ip -o addr show br0 | sed 's/ tentative//'; ip route show dev br0";
        Ok(Look {
            configuration: on_node(cluster, node, &format!("cat {BRIDGE_CONFIGURATION}"))?,
            links: on_node(cluster, node, bridge)?,
            addresses: addresses.clone(),
        })
    };
    cluster.nodes().into_iter().map(look).collect()
}

/// Across nodes and on one, for as long as Atoll takes to come or to go.
fn talks(stage: &Stage) -> Result<[Running; 2]> {
    let talk = |server: &str| {
        let server = address(stage, server)?.to_string();
        agents::flow_from(stage, (NAMESPACE, "old"), &["--udp", &server, "--under-way", "64"])
    };
    Ok([talk("older")?, talk("oldest")?])
}

/// Both reach each other by the addresses that the other network gave them.
fn meets(stage: &Stage, one: &str, other: &str) -> Result<()> {
    for (client, server) in [(one, other), (other, one)] {
        let to = address(stage, server)?.to_string();
        let ask = ["atoll", "toolbox", "connect", "tcp", &to, "--timeout", "5s"];
        let answer: Answer =
            serde_json::from_str(&stage.kubectl.exec_well(NAMESPACE, client, &ask)?)?;
        ensure!(answer.pod == format!("{NAMESPACE}/{server}"), "answered by {}", answer.pod);
        let seen = answer.peer.ip().to_canonical();
        ensure!(seen == address(stage, client)?, "{client} is seen as {seen}");
    }
    Ok(())
}

/// A tenant's pod and one of the other network, each beside one that it does reach.
fn strangers(stage: &Stage) -> Result<()> {
    let old = address(stage, "old")?.to_string();
    let reaches = |namespace: &str, pod: &str, to: &str| {
        let ask = ["atoll", "toolbox", "connect", "tcp", to, "--timeout", "2s"];
        Ok::<_, anyhow::Error>(stage.kubectl.exec(namespace, pod, &ask)?.status.success())
    };
    let tenants = "10.0.0.6";
    ensure!(reaches(NAMESPACE, "older", &old)?, "pods of the other network do not meet");
    ensure!(!reaches("acme", "web", &old)?, "a tenant's pod reaches the other network");
    ensure!(reaches("acme", "web", tenants)?, "pods of a tenant do not meet");
    ensure!(!reaches(NAMESPACE, "older", tenants)?, "the other network reaches a tenant");
    Ok(())
}

fn start(stage: &Stage, pods: &[(&str, usize)]) -> Result<()> {
    let nodes = tenants::nodes(&stage.kubectl)?;
    for (name, node) in pods {
        stage.kubectl.apply(&pod(name, &nodes[*node]).to_string())?;
    }
    for (name, _) in pods {
        let found = ["pod", "--namespace", NAMESPACE, name];
        let ready = |pod: &Value| has_condition(pod, "Ready");
        stage.kubectl.wait_for(&format!("{name} to be Ready"), &found, ready)?;
    }
    Ok(())
}

fn pod(name: &str, node: &str) -> Value {
    let field = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let container = json!({
        "name": "toolbox", "image": "atoll.dev/atoll:0.1.0",
        "command": ["atoll", "toolbox", "serve"],
        "env": [field("POD_NAME", "metadata.name"), field("POD_NAMESPACE", "metadata.namespace")],
    });
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"nodeSelector": {"kubernetes.io/hostname": node},
                 "terminationGracePeriodSeconds": 1, "containers": [container]},
    })
}

fn address(stage: &Stage, pod: &str) -> Result<IpAddr> {
    let mut found = None;
    wait_until(&format!("{pod} to have an address"), PATIENCE, || {
        let object = stage.kubectl.get(&["pod", "--namespace", NAMESPACE, pod])?;
        found = object["status"]["podIP"].as_str().and_then(|ip| ip.parse().ok());
        Ok(found.is_some())
    })?;
    found.context("a pod has no address")
}
