//! Nodes, and what Atoll may do on them.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::install::{self, NAMESPACE};
use crate::kubectl::items;
use crate::stage::Stage;

/// How many seconds a node may take to be Ready from the start of its agent's pod.
const SOON: i64 = 10;

/// Installed once, there is nothing to do a second time.
pub(crate) fn become_ready(stage: &Stage) -> Result<()> {
    stage.look_first()?;
    install::apply(stage)?;
    let again = install::apply(stage)?;
    let changed: Vec<_> = again
        .lines()
        .filter(|line| line.ends_with("created") || line.ends_with("configured"))
        .collect();
    ensure!(changed.is_empty(), "a second installation changed {changed:?}");
    Ok(())
}

/// A node was Ready soon after its agent's pod started. Of nodes that share a machine and come at once,
/// the first tells how long it takes, and the others how busy the machine is.
pub(crate) fn in_time(stage: &Stage) -> Result<()> {
    let mut soonest = i64::MAX;
    let nodes = stage.kubectl.get(&["nodes"])?;
    let agents = ["pods", "--namespace", NAMESPACE, "--selector=app.kubernetes.io/component=agent"];
    for agent in items(&stage.kubectl.get(&agents)?) {
        let is_its = |node: &&Value| node["metadata"]["name"] == agent["spec"]["nodeName"];
        let node = items(&nodes).iter().find(is_its).context("an agent is on no node")?;
        let conditions = node["status"]["conditions"].as_array();
        let ready = conditions.into_iter().flatten().find(|it| it["type"] == "Ready");
        let ready =
            seconds(&ready.context("a node says nothing of itself")?["lastTransitionTime"])?;
        soonest = soonest.min(ready - seconds(&agent["status"]["startTime"])?);
    }
    ensure!(soonest <= SOON, "the first node was Ready after {soonest} s");
    Ok(())
}

/// A time of the API in seconds.
fn seconds(time: &Value) -> Result<i64> {
    let time = time.as_str().context("there is no time")?;
    let output = Command::new("date").args(["+%s", "--date", time]).output()?;
    Ok(String::from_utf8(output.stdout)?.trim().parse()?)
}

/// As the API has it, after every default was filled in.
pub(crate) fn least_privilege(stage: &Stage) -> Result<()> {
    let needed = [
        ("controller", Value::Null),
        ("agent", json!(["NET_ADMIN", "NET_RAW", "SYS_ADMIN", "BPF"])),
    ];
    for (component, capabilities) in needed {
        let select = format!("--selector=app.kubernetes.io/component={component}");
        let pods = stage.kubectl.get(&["pods", "--namespace", NAMESPACE, &select])?;
        ensure!(!items(&pods).is_empty(), "there is no {component}");
        items(&pods).iter().try_for_each(|pod| holds_only(pod, &capabilities))?;
    }
    Ok(())
}

fn holds_only(pod: &Value, capabilities: &Value) -> Result<()> {
    let (name, spec) = (&pod["metadata"]["name"], &pod["spec"]);
    let may = &spec["containers"][0]["securityContext"];
    ensure!(may["privileged"] != true, "{name} is privileged");
    ensure!(may["readOnlyRootFilesystem"] == true, "{name} may write to its image");
    ensure!(may["capabilities"]["drop"] == json!(["ALL"]), "{name} keeps capabilities");
    ensure!(may["capabilities"]["add"] == *capabilities, "{name} has {}", may["capabilities"]);
    let powerless = capabilities.is_null();
    ensure!(!powerless || spec["securityContext"]["runAsNonRoot"] == true, "{name} runs as root");
    ensure!(!powerless || !sees_node(spec), "{name} sees its node's files");
    Ok(())
}

fn sees_node(spec: &Value) -> bool {
    let volumes = spec["volumes"].as_array();
    volumes.is_some_and(|volumes| volumes.iter().any(|volume| !volume["hostPath"].is_null()))
}
