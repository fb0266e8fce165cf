//! Nodes that lose power. Only nodes of our own can.

use anyhow::{Context, Result, ensure};
use atoll_realnodes::{Node, wait_until};

use crate::kubectl::PATIENCE;
use crate::scenarios::reach;
use crate::stage::Stage;
use crate::tenants;

/// The node of acme/db and globex/cache.
const VICTIM: &str = "node2";

pub(crate) fn node_comes_back(stage: &Stage) -> Result<()> {
    let cluster = stage.own_cluster().context("these nodes are not ours to kill")?;
    let node: Node = VICTIM.parse()?;
    let before = tenants::pods(&stage.kubectl)?;
    cluster.kill_node(node)?;
    ensure!(!reaches_victim(stage)?, "a pod answers on a node without power");
    cluster.start_node(node)?;
    wait_until("the pods of the node to answer again", PATIENCE, || reaches_victim(stage))?;
    let mut after = Vec::new();
    let same = wait_until("the API to have the same pods at the same addresses", PATIENCE, || {
        after = tenants::pods(&stage.kubectl)?;
        Ok(after == before)
    });
    same.with_context(|| format!("there were {before:?}, and there are {after:?}"))?;
    reach::isolated(stage).context("after the node came back")
}

fn reaches_victim(stage: &Stage) -> Result<bool> {
    let connect = |server| ["atoll", "toolbox", "connect", "tcp", server];
    let acme = stage.kubectl.exec("acme", "web", &connect("10.0.0.6"))?;
    let globex = stage.kubectl.exec("globex", "web", &connect("10.0.0.7"))?;
    Ok(acme.status.success() && globex.status.success())
}
