//! The reference `bridge` plugin as the network of a cluster, with routes between its nodes: what
//! other networks are tried beside, and measured against.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::cluster::Cluster;
use crate::fabric::Node;
use crate::patience::wait_until;

/// Its configuration, where every CNI plugin has its own.
pub const BRIDGE_CONFIGURATION: &str = "/etc/cni/net.d/10-bridge.conflist";

/// How long nodes may take to see that a network came or went, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(240);

/// A node, and the range of its pods.
type Range = (Node, String);

/// A bridge on each node with addresses of its podCIDR, and the ways to the others; returns when
/// every node is Ready.
pub(crate) fn bring(cluster: &Cluster) -> Result<()> {
    let mut ranges = Vec::new();
    wait_until("every node to have its podCIDR", PATIENCE, || {
        ranges = read_ranges(&asked(cluster, RANGES)?)?;
        Ok(ranges.len() == cluster.nodes().len())
    })?;
    for (node, range) in &ranges {
        let routes = routes(&ranges, *node);
        let write = format!(
            "echo 1 > /proc/sys/net/ipv4/ip_forward; {routes} cat > {BRIDGE_CONFIGURATION} <<'END'\n{}\nEND",
            configuration(range)
        );
        on_node(cluster, *node, &write)?;
    }
    await_nodes(cluster, "True")
}

/// Takes it from every node; returns when none is Ready any more.
pub(crate) fn take_away(cluster: &Cluster) -> Result<()> {
    let remove = format!(
        "rm {BRIDGE_CONFIGURATION}; ip link delete br0 2>/dev/null; \
         for range in $(ip route | grep ' via ' | cut -d' ' -f1); do ip route delete $range; done"
    );
    cluster.nodes().into_iter().try_for_each(|node| on_node(cluster, node, &remove))?;
    await_nodes(cluster, "False")
}

const RANGES: &str = "jsonpath={range .items[*]}{.metadata.name} {.spec.podCIDR}{\"\\n\"}{end}";
const READINESS: &str =
    "jsonpath={range .items[*]}{.status.conditions[?(@.type==\"Ready\")].status}{\"\\n\"}{end}";

fn asked(cluster: &Cluster, how: &str) -> Result<String> {
    let output = cluster.kubectl().args(["get", "nodes", "-o", how]).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "kubectl get nodes: {}", said.trim());
    Ok(String::from_utf8(output.stdout)?)
}

fn await_nodes(cluster: &Cluster, readiness: &str) -> Result<()> {
    wait_until(&format!("nodes whose Ready is {readiness}"), PATIENCE, || {
        Ok(asked(cluster, READINESS)?.lines().all(|line| line == readiness))
    })
}

/// Nodes that have a range already.
fn read_ranges(lines: &str) -> Result<Vec<Range>> {
    let words = lines.lines().filter_map(|line| line.split_once(' '));
    let there = words.filter(|(_, range)| !range.is_empty());
    there.map(|(node, range)| Ok((node.parse()?, range.to_owned()))).collect()
}

fn routes(ranges: &[Range], own: Node) -> String {
    let others = ranges.iter().filter(|(node, _)| *node != own);
    let route =
        |(node, range): &Range| format!("ip route replace {range} via {}; ", node.address());
    others.map(route).collect()
}

fn configuration(range: &str) -> String {
    format!(
        r#"{{"cniVersion": "0.4.0", "name": "elsewhere",
 "plugins": [{{"type": "bridge", "bridge": "br0", "isGateway": true, "hairpinMode": true,
  "ipam": {{"type": "host-local", "ranges": [[{{"subnet": "{range}"}}]],
            "routes": [{{"dst": "0.0.0.0/0"}}]}}}}]}}"#
    )
}

fn on_node(cluster: &Cluster, node: Node, script: &str) -> Result<()> {
    let output = cluster.on_node(node, "sh")?.args(["-c", script]).output();
    let output = output.with_context(|| format!("cannot run anything on {node}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{node}: {script}: {}", said.trim());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_leads_to_the_ranges_of_all_others_and_not_to_its_own() {
        let ranges = read_ranges("node1 10.244.0.0/24\nnode2 10.244.1.0/24\nnode3 \n").unwrap();
        assert_eq!(ranges.len(), 2, "a node without a range waits");
        let routes = routes(&ranges, ranges[0].0);
        assert_eq!(routes, "ip route replace 10.244.1.0/24 via 172.30.0.12; ");
    }
}
