//! The wires: one bridge in a namespace of its own, and an `eth0` for the control plane and for
//! each node. The same addresses serve every cluster, because no fabric touches another's or the
//! host's. They are those of the lab's fabric, so that its tests find here what they look for there:
//! nodes, and at the bridge a machine that is none.

use std::fmt;
use std::io::Write;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::str::FromStr;

use anyhow::{Context, Result, ensure};

use crate::home::Home;
use crate::namespace;

/// The namespace with the bridge.
const FABRIC: &str = "fabric";
/// The namespace of the control plane.
pub(crate) const CONTROL: &str = "control";
/// The address of the control plane.
pub(crate) const CONTROL_ADDRESS: Ipv4Addr = Ipv4Addr::new(172, 30, 0, 2);
/// Nodes that the addresses have room for.
pub(crate) const MOST_NODES: u8 = 200;

/// A node: `node1`, `node2` and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Node {
    number: u8,
}

impl Node {
    /// The first `count` nodes.
    pub(crate) fn first(count: u8) -> Vec<Node> {
        (1..=count).map(|number| Node { number }).collect()
    }

    pub(crate) fn address(self) -> Ipv4Addr {
        Ipv4Addr::new(172, 30, 0, 10 + self.number)
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node{}", self.number)
    }
}

impl FromStr for Node {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> Result<Self> {
        let number = name.strip_prefix("node").and_then(|number| number.parse().ok());
        let number = number.filter(|number| (1..=MOST_NODES).contains(number));
        let number = number.with_context(|| format!("{name:?} is not a node such as node1"))?;
        Ok(Node { number })
    }
}

/// Makes all namespaces and links of a cluster.
pub(crate) fn create(home: &Home, nodes: &[Node]) -> Result<()> {
    let fabric = home.namespace(FABRIC);
    namespace::create(&fabric)?;
    ip(&fabric, BRIDGE)?;
    plug(home, CONTROL, CONTROL_ADDRESS)?;
    nodes.iter().try_for_each(|node| plug(home, &node.to_string(), node.address()))
}

const BRIDGE: &str = "link set lo up
link add fabric0 type bridge mcast_snooping 0
address add 172.30.0.1/24 dev fabric0
link set fabric0 up
";

fn plug(home: &Home, place: &str, address: Ipv4Addr) -> Result<()> {
    let path = home.namespace(place);
    namespace::create(&path)?;
    ip(&home.namespace(FABRIC), &wire(place, &path))?;
    ip(&path, &uplink(address)).with_context(|| format!("cannot give {place} its address"))
}

fn wire(place: &str, namespace: &Path) -> String {
    format!(
        "link add {place} type veth peer name eth0 netns {}
link set {place} master fabric0 up
",
        namespace.display()
    )
}

fn uplink(address: Ipv4Addr) -> String {
    format!(
        "link set lo up
link set eth0 up
address add {address}/24 dev eth0
"
    )
}

/// Runs lines of `ip` in the namespace kept at `path`.
fn ip(path: &Path, lines: &str) -> Result<()> {
    let output = namespace::within(path, || {
        let mut child = Command::new("ip")
            .args(["-batch", "-"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot run ip (package iproute2)")?;
        child.stdin.take().context("ip has no input")?.write_all(lines.as_bytes())?;
        Ok(child.wait_with_output()?)
    })?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ip failed in {}: {}", path.display(), said.trim());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_read_back_from_its_name() {
        for node in Node::first(MOST_NODES) {
            assert_eq!(node.to_string().parse::<Node>().unwrap(), node);
        }
    }

    #[test]
    fn other_names_are_refused_by_name() {
        for name in ["", "node", "node0", "node201", "node999", "control"] {
            let said = name.parse::<Node>().unwrap_err().to_string();
            assert_eq!(said, format!("{name:?} is not a node such as node1"));
        }
    }
}
