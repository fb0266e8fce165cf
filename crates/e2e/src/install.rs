//! Atoll installed the way a user would: the manifests of `deploy/`, nothing else.

use anyhow::Result;

use crate::kubectl::{has_condition, items};
use crate::stage::{Stage, in_tree};

pub(crate) const NAMESPACE: &str = "atoll-system";

/// Applies everything, and waits until the nodes are ready.
pub(crate) fn apply(stage: &Stage) -> Result<()> {
    let namespace = in_tree("deploy/namespace.yaml");
    stage.kubectl.run(&["apply".as_ref(), "-f".as_ref(), namespace.as_os_str()])?;
    if let Some((host, port)) = stage.api_server() {
        stage.kubectl.apply(&api_server(host, port))?;
    }
    stage.kubectl.apply_folder(&in_tree("deploy"))?;
    Ok(())
}

fn api_server(host: &str, port: &str) -> String {
    format!(
        "apiVersion: v1
kind: ConfigMap
metadata: {{name: atoll-api-server, namespace: {NAMESPACE}}}
data: {{KUBERNETES_SERVICE_HOST: \"{host}\", KUBERNETES_SERVICE_PORT: \"{port}\"}}
"
    )
}

/// Waits until every node says that it is ready.
pub(crate) fn await_nodes(stage: &Stage) -> Result<()> {
    stage.kubectl.wait_for("all nodes to be Ready", &["nodes"], |nodes| {
        !items(nodes).is_empty() && items(nodes).iter().all(|node| has_condition(node, "Ready"))
    })
}

/// Waits until every part of Atoll runs.
pub(crate) fn await_parts(stage: &Stage) -> Result<()> {
    for part in ["deployment/atoll-controller", "daemonset/atoll-agent"] {
        let status = ["rollout", "status", "--namespace", NAMESPACE, "--timeout=120s", part];
        stage.kubectl.run(&status)?;
    }
    Ok(())
}

/// Removes everything again.
pub(crate) fn remove(stage: &Stage) -> Result<()> {
    let folder = in_tree("deploy");
    let all = ["delete".as_ref(), "--ignore-not-found".as_ref(), "-k".as_ref(), folder.as_os_str()];
    stage.kubectl.run(&all)?;
    Ok(())
}
