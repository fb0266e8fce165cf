//! The two tenants of `examples/two-tenants.yaml`, on the nodes that the cluster has.

use std::net::IpAddr;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::kubectl::{Kubectl, items};
use crate::stage::in_tree;

/// The namespaces, which are called as their tenants.
pub(crate) const TENANTS: [&str; 2] = ["acme", "globex"];

/// A pod that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pod {
    pub(crate) tenant: String,
    pub(crate) name: String,
    pub(crate) ip: IpAddr,
    pub(crate) node: String,
}

impl Pod {
    /// `namespace/name`, as its server calls itself.
    pub(crate) fn full_name(&self) -> String {
        format!("{}/{}", self.tenant, self.name)
    }
}

/// The example, with the cluster's nodes in the place of node1, node2 and node3.
pub(crate) fn manifest(kubectl: &Kubectl) -> Result<String> {
    let path = in_tree("examples/two-tenants.yaml");
    let text = std::fs::read_to_string(&path).context("cannot read the example")?;
    Ok(on_nodes(&text, &nodes(kubectl)?))
}

/// The names by which pods choose their node, three at least.
pub(crate) fn nodes(kubectl: &Kubectl) -> Result<Vec<String>> {
    let nodes = kubectl.get(&["nodes"])?;
    let label = |node: &Value| node["metadata"]["labels"]["kubernetes.io/hostname"].clone();
    let mut names: Vec<_> =
        items(&nodes).iter().filter_map(|node| Some(label(node).as_str()?.to_owned())).collect();
    names.sort();
    ensure!(names.len() >= 3, "the suite needs three nodes, and there are {}", names.len());
    Ok(names)
}

fn on_nodes(manifest: &str, names: &[String]) -> String {
    let placed = manifest.lines().map(|line| match line.split_once("hostname: node") {
        Some((before, number)) => match number.trim().parse::<usize>() {
            Ok(number) if (1..=names.len()).contains(&number) => {
                format!("{before}hostname: {}", names[number - 1])
            }
            _ => line.to_owned(),
        },
        None => line.to_owned(),
    });
    placed.collect::<Vec<_>>().join("\n")
}

/// Every running pod of both tenants, without those that are about to go.
pub(crate) fn pods(kubectl: &Kubectl) -> Result<Vec<Pod>> {
    let mut pods = Vec::new();
    for tenant in TENANTS {
        let list = kubectl.get(&["pods", "--namespace", tenant])?;
        for item in items(&list).iter().filter(|item| stays(item)) {
            pods.push(pod(tenant, item)?);
        }
    }
    Ok(pods)
}

fn stays(item: &Value) -> bool {
    item["metadata"]["deletionTimestamp"].is_null()
}

fn pod(tenant: &str, item: &Value) -> Result<Pod> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let name = text(&item["metadata"]["name"]);
    let ip = text(&item["status"]["podIP"]);
    let ip = ip.parse().with_context(|| format!("pod {tenant}/{name} has no address"))?;
    Ok(Pod { tenant: tenant.to_owned(), name, ip, node: text(&item["spec"]["nodeName"]) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_is_placed_on_the_nodes_that_are_there() {
        let names = ["alpha", "beta", "gamma"].map(String::from);
        let text = "a:\n  kubernetes.io/hostname: node3\n  b: node1";
        assert_eq!(on_nodes(text, &names), "a:\n  kubernetes.io/hostname: gamma\n  b: node1");
        assert_eq!(on_nodes("hostname: node9", &names), "hostname: node9");
    }

    #[test]
    fn a_pod_that_is_being_deleted_does_not_stay() {
        assert!(stays(&serde_json::json!({"metadata": {"name": "web"}})));
        let going = serde_json::json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
        assert!(!stays(&going));
    }
}
