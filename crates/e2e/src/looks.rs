//! What a cluster's nodes have of what a network could touch, so that before can be compared with after.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use atoll_realnodes::{Cluster, Node};

/// Of a node: links, addresses, routes and rules, filters of packets and at links, settings of the
/// network, and the files of shared folders.
const OF_NODE: &str = include_str!("look.sh");

/// The namespaces of pods are there because of pods, and go with them.
const NOT_OURS: [&str; 1] = ["file /run/netns"];

/// A look at every node.
#[derive(Debug)]
pub(crate) struct Looks(Vec<BTreeSet<String>>);

impl Looks {
    pub(crate) fn at(cluster: &Cluster) -> Result<Looks> {
        let nodes = cluster.nodes().into_iter().map(|node| look(cluster, node));
        Ok(Looks(nodes.collect::<Result<_>>()?))
    }

    /// Whether each node has more than it had here.
    pub(crate) fn are_fewer_than(&self, other: &Looks) -> bool {
        let mut pairs = self.0.iter().zip(&other.0);
        pairs.all(|(here, there)| there.difference(here).count() > 4)
    }

    /// Nodes have again what they had here.
    pub(crate) fn are_back(&self, cluster: &Cluster) -> Result<()> {
        for (before, after) in self.0.iter().zip(Looks::at(cluster)?.0) {
            let new: Vec<_> = after.difference(before).collect();
            let gone: Vec<_> = before.difference(&after).collect();
            ensure!(
                new.is_empty() && gone.is_empty(),
                "left behind: {new:?}; taken along: {gone:?}"
            );
        }
        Ok(())
    }
}

fn look(cluster: &Cluster, node: Node) -> Result<BTreeSet<String>> {
    let output = cluster.on_node(node, "sh")?.args(["-c", OF_NODE]).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cannot look at {node}: {said}");
    let text = String::from_utf8(output.stdout)?;
    let ours = text.lines().filter(|line| !NOT_OURS.contains(line));
    Ok(ours.map(str::to_owned).collect())
}
