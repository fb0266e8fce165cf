//! Another version comes while pods talk. Here it is the same program under another name, which is
//! enough for a cluster to replace every part of Atoll.

use anyhow::{Context, Result, ensure};

use crate::install::NAMESPACE;
use crate::kubectl::items;
use crate::scenarios::{agents, life, reach, services};
use crate::stage::Stage;

const IMAGE: &str = "atoll.dev/atoll:0.1.0";
const NEXT: &str = "atoll.dev/atoll:next";

/// Datagrams across nodes and on one, and a connection through a service, while controllers and
/// agents are replaced; then back to the version before.
pub(crate) fn under_traffic(stage: &Stage) -> Result<()> {
    name_the_next(stage)?;
    let service = format!("{}:{}", std::net::IpAddr::from(services::VIP), services::PORT);
    let mut flows = [
        agents::flow(stage, "10.0.0.6")?,
        agents::flow(stage, "10.0.0.7")?,
        agents::stream(stage, &service)?,
    ];
    runs(stage, IMAGE)?;
    let said = stage.atoll(&["upgrade", "--image", NEXT])?;
    for part in ["deployment.apps/atoll-controller", "daemonset.apps/atoll-agent"] {
        ensure!(said.contains(&format!("{part} configured")), "it said {said}");
    }
    runs(stage, NEXT)?;
    life::starts_a_pod(stage, "after-upgrade")?;
    agents::went_on(&mut flows).context("while Atoll was upgraded")?;
    reach::isolated(stage).context("after the upgrade")?;
    stage.atoll(&["upgrade", "--image", IMAGE])?;
    runs(stage, IMAGE)
}

/// Every node has the image by its other name, too.
fn name_the_next(stage: &Stage) -> Result<()> {
    let cluster = stage.own_cluster().context("these nodes are not ours")?;
    for node in cluster.nodes() {
        let tag = ["--namespace=k8s.io", "images", "tag", "--force", IMAGE, NEXT];
        let output = cluster.on_node(node, "ctr")?.args(tag).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{node} does not name {NEXT}: {}", said.trim());
    }
    Ok(())
}

/// Every part that is not about to end has this image.
fn runs(stage: &Stage, image: &str) -> Result<()> {
    let pods = ["pods", "--namespace", NAMESPACE];
    stage.kubectl.wait_for(&format!("every part to be {image}"), &pods, |pods| {
        let mut parts =
            items(pods).iter().filter(|it| it["metadata"]["deletionTimestamp"].is_null());
        let is_there = |it: &serde_json::Value| it["spec"]["containers"][0]["image"] == image;
        !items(pods).is_empty() && parts.all(is_there)
    })
}
