//! Atoll installed, looked at and removed the way a user would: by `atoll`.

use anyhow::Result;

use crate::stage::Stage;

pub(crate) const NAMESPACE: &str = "atoll-system";

/// Brings everything, and waits until it runs and the nodes are ready.
pub(crate) fn apply(stage: &Stage) -> Result<String> {
    apply_with(stage, &[])
}

fn apply_with(stage: &Stage, options: &[&str]) -> Result<String> {
    let settings = stage.settings();
    let settings = settings.iter().map(String::as_str).chain(options.iter().copied());
    stage.atoll(&["install"].into_iter().chain(settings).collect::<Vec<_>>())
}

/// What a lab tells its controller and its agents: tenants get only the networks that they ask for, agents
/// count where tests read it, and the cluster's own services are nowhere outside.
const AS_THE_LAB: [&str; 6] = [
    "--default-network-template-path",
    "",
    "--agent-metrics-address",
    "127.0.0.1:9965",
    "--egress-deny",
    "10.96.0.0/16",
];

/// The same, told what a lab is told.
pub(crate) fn apply_as_the_lab(stage: &Stage) -> Result<String> {
    apply_with(stage, &AS_THE_LAB)
}

/// Waits until every part of Atoll runs.
pub(crate) fn await_parts(stage: &Stage) -> Result<()> {
    for part in ["deployment/atoll-controller", "daemonset/atoll-agent"] {
        let status = ["rollout", "status", "--namespace", NAMESPACE, "--timeout=240s", part];
        stage.kubectl.run(&status)?;
    }
    Ok(())
}

/// Removes everything again, whatever is left of tenants.
pub(crate) fn remove(stage: &Stage) -> Result<()> {
    stage.atoll(&["uninstall", "--purge", "--force"]).map(drop)
}
