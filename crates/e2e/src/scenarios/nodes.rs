//! Nodes, and what Atoll may do on them.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::install::{self, NAMESPACE};
use crate::kubectl::items;
use crate::stage::Stage;

pub(crate) fn become_ready(stage: &Stage) -> Result<()> {
    install::apply(stage)?;
    install::await_nodes(stage)?;
    install::await_parts(stage)
}

/// As the API has it, after every default was filled in.
pub(crate) fn least_privilege(stage: &Stage) -> Result<()> {
    let pods = stage.kubectl.get(&["pods", "--namespace", NAMESPACE])?;
    for pod in items(&pods) {
        let may = &pod["spec"]["containers"][0]["securityContext"];
        let name = &pod["metadata"]["name"];
        ensure!(may["privileged"] != true, "{name} is privileged");
        ensure!(may["readOnlyRootFilesystem"] == true, "{name} may write to its image");
        ensure!(may["capabilities"]["drop"] == json!(["ALL"]), "{name} keeps capabilities");
        ensure!(!is_controller(pod) || has_nothing(pod), "{name} has powers");
    }
    Ok(())
}

fn is_controller(pod: &Value) -> bool {
    pod["metadata"]["labels"]["app.kubernetes.io/component"] == "controller"
}

fn has_nothing(pod: &Value) -> bool {
    let container = &pod["spec"]["containers"][0]["securityContext"];
    let own_volumes = pod["spec"]["volumes"]
        .as_array()
        .map_or(0, |volumes| volumes.iter().filter(|volume| !volume["hostPath"].is_null()).count());
    container["capabilities"]["add"].is_null()
        && pod["spec"]["securityContext"]["runAsNonRoot"] == true
        && own_volumes == 0
}
