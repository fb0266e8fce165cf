//! What a network costs the agent of a node that has it, and of one that has not: bytes that it holds,
//! and processor time until it is ready.

use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::Result;

use crate::node::{AgentNode, PlannedPod};
use crate::pinned::cpu_of;
use crate::table::Table;

pub(super) const NOTES: &str = "\
The agent is the real one, started on a cluster that is filled already. *Processor time* is what it \
took from its start until it was ready, *each* what one more network or pod adds to both. A pod on \
another node is in a network that this node has no pod of.";

/// What there is of networks and pods, besides the one network with one pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Filled {
    /// A pod of each of so many networks is on the node.
    Networks,
    /// So many pods of one network are on the node.
    Pods,
    /// So many networks have their pods elsewhere.
    Elsewhere,
}

impl Filled {
    const ALL: [Filled; 3] = [Filled::Networks, Filled::Pods, Filled::Elsewhere];

    fn told(self, count: u32) -> String {
        match self {
            Filled::Networks => format!("{count} networks more, a pod of each here"),
            Filled::Pods => format!("{count} pods more here, in one network"),
            Filled::Elsewhere => format!("{count} networks more, a pod of each on another node"),
        }
    }

    /// The pods on the node, and those elsewhere.
    fn pods(self, count: u32) -> [Vec<PlannedPod>; 2] {
        let first = pod(1, 0);
        let others = (0..count).map(|number| match self {
            Filled::Networks | Filled::Elsewhere => pod(number + 2, 0),
            Filled::Pods => pod(1, number + 1),
        });
        match self {
            Filled::Networks | Filled::Pods => {
                [std::iter::once(first).chain(others).collect(), vec![]]
            }
            Filled::Elsewhere => [vec![first], others.collect()],
        }
    }
}

fn pod(network: u32, number: u32) -> PlannedPod {
    let ip = Ipv4Addr::from_bits(0x0a00_0005 + number);
    PlannedPod { name: format!("pod-{number}"), network, ip }
}

/// What an agent took.
#[derive(Clone, Copy)]
struct Cost {
    bytes: u64,
    nanoseconds: u64,
}

/// Starts an agent for each size of each kind.
pub(super) fn measure(atoll: &Path, sizes: &[u32]) -> Result<Table> {
    let columns = ["the cluster has", "resident MiB", "KiB each", "processor time ms", "µs each"];
    let mut table = Table::new(columns);
    let alone = cost(atoll, Filled::Networks, 0)?;
    let [resident, time] = shown(alone);
    table.row([
        "one network, a pod of it here".into(),
        resident,
        String::new(),
        time,
        String::new(),
    ]);
    for filled in Filled::ALL {
        for size in sizes {
            let cost = cost(atoll, filled, *size)?;
            let [resident, time] = shown(cost);
            let [bytes, microseconds] = each(cost, alone, *size);
            table.row([filled.told(*size), resident, bytes, time, microseconds]);
        }
    }
    Ok(table)
}

fn cost(atoll: &Path, filled: Filled, count: u32) -> Result<Cost> {
    eprintln!("curve: an agent, {}", filled.told(count));
    let [here, elsewhere] = filled.pods(count);
    let node = AgentNode::start_beside(atoll, &here, &elsewhere)?;
    Ok(Cost { bytes: node.resident_bytes()?, nanoseconds: cpu_of(node.agent())? })
}

fn shown(cost: Cost) -> [String; 2] {
    let mebibytes = cost.bytes as f64 / f64::from(1 << 20);
    [format!("{mebibytes:.1}"), format!("{:.0}", cost.nanoseconds as f64 / 1e6)]
}

/// KiB and microseconds of one more.
fn each(cost: Cost, alone: Cost, count: u32) -> [String; 2] {
    let more = |with: u64, without: u64| (with as f64 - without as f64) / f64::from(count);
    let kibibytes = more(cost.bytes, alone.bytes) / 1024.0;
    let microseconds = more(cost.nanoseconds, alone.nanoseconds) / 1e3;
    [format!("{kibibytes:.1}"), format!("{microseconds:.0}")]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_network_has_one_pod_and_all_have_the_same_address() {
        let [here, elsewhere] = Filled::Networks.pods(3);
        assert_eq!(here.iter().map(|pod| pod.network).collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert!(here.iter().all(|pod| pod.ip == here[0].ip));
        assert!(elsewhere.is_empty());
    }

    #[test]
    fn pods_of_one_network_have_addresses_of_their_own() {
        let [here, _] = Filled::Pods.pods(3);
        assert!(here.iter().all(|pod| pod.network == 1));
        assert_eq!(here.iter().map(|pod| pod.ip).collect::<BTreeSet<_>>().len(), 4);
    }

    #[test]
    fn what_is_elsewhere_is_in_no_network_that_the_node_has() {
        let [here, elsewhere] = Filled::Elsewhere.pods(3);
        assert_eq!((here.len(), elsewhere.len()), (1, 3));
        assert!(elsewhere.iter().all(|pod| pod.network != here[0].network));
    }

    #[test]
    fn what_one_more_costs_is_told_beside_the_agent_that_has_one() {
        let cost = |mebibytes: u64, milliseconds: u64| Cost {
            bytes: mebibytes << 20,
            nanoseconds: milliseconds * 1_000_000,
        };
        assert_eq!(each(cost(50, 300), cost(40, 100), 100), ["102.4", "2000"]);
        assert_eq!(each(cost(40, 90), cost(40, 100), 100), ["0.0", "-100"]);
    }
}
