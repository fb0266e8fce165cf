//! Nodes, and what Atoll may do on them.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::install::{self, NAMESPACE};
use crate::kubectl::items;
use crate::stage::Stage;

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

/// As the API has it, after every default was filled in.
pub(crate) fn least_privilege(stage: &Stage) -> Result<()> {
    let needed = [("controller", Value::Null), ("agent", json!(["NET_ADMIN", "SYS_ADMIN", "BPF"]))];
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
