//! What the programs of Atoll hold in memory on a node, as the node itself sees them.

use anyhow::{Context, Result, ensure};
use atoll_realnodes::{Cluster, Node};

/// A line for each of our processes: its words, a bar, and what of it is resident.
const LOOK: &str = r#"for process in $(pgrep -x atoll); do
  echo "$(tr '\0' ' ' < /proc/$process/cmdline)|$(grep VmRSS /proc/$process/status)"
done"#;

/// Bytes, of one node or of several.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) agents: Vec<u64>,
    pub(super) controllers: Vec<u64>,
}

impl Held {
    /// On every node.
    pub(super) fn look(cluster: &Cluster) -> Result<Held> {
        let mut all = Held::default();
        for node in cluster.nodes() {
            all.add(&looked(cluster, node)?);
        }
        let nodes = cluster.nodes().len();
        ensure!(all.agents.len() == nodes, "{} agents run on {nodes} nodes", all.agents.len());
        ensure!(!all.controllers.is_empty(), "no controller runs");
        Ok(all)
    }

    /// What ended while it was looked at says nothing.
    fn add(&mut self, lines: &str) {
        for (words, resident) in lines.lines().filter_map(|line| line.split_once('|')) {
            let Some(bytes) = crate::node::resident_bytes(resident) else { continue };
            match words.split(' ').nth(1) {
                Some("agent") => self.agents.push(bytes),
                Some("controller") => self.controllers.push(bytes),
                _ => {}
            }
        }
    }
}

fn looked(cluster: &Cluster, node: Node) -> Result<String> {
    let output = cluster.on_node(node, "sh")?.args(["-c", LOOK]).output();
    let output = output.with_context(|| format!("cannot look at {node}"))?;
    Ok(String::from_utf8(output.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_and_controllers_are_told_apart_and_others_are_left_out() {
        let mut held = Held::default();
        held.add(
            "/usr/local/bin/atoll agent --cni-bin-dir=/x |VmRSS:\t    2048 kB\n\
             /usr/local/bin/atoll controller |VmRSS:\t    1024 kB\n\
             atoll drops |VmRSS:\t    512 kB\n\
             /usr/local/bin/atoll agent |\n",
        );
        assert_eq!(held, Held { agents: vec![2048 << 10], controllers: vec![1024 << 10] });
    }
}
