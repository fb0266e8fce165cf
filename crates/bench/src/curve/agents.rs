//! What a network costs the agent of a node that has it, and of one that has not: bytes that it holds,
//! and processor time until it is ready.

use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::Result;

use crate::node::{AgentNode, PlannedPod};
use crate::pinned::cpu_of;
use crate::plot::{Line, Plot};
use crate::sample::Sample;
use crate::table::Table;

pub(super) const NOTES: &str = "\
The agent is the real one, started on a cluster that is filled already. *Processor time* is what it \
took from its start until it was ready, *each* what one more network or pod adds to both: the middle \
of some agents, in turns with one that has nothing more, and between which these are. *Within noise*: \
some of them took no more than that one. A pod on another node is in a network that this node has no pod of.";

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

    fn name(self) -> &'static str {
        match self {
            Filled::Networks => "networks with a pod here",
            Filled::Pods => "pods here",
            Filled::Elsewhere => "networks elsewhere",
        }
    }

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

/// How many agents are started, and with how much.
pub(super) struct Extent {
    rounds: usize,
    filled: &'static [(Filled, u32)],
}

impl Extent {
    pub(super) fn new(quick: bool) -> Self {
        use Filled::{Elsewhere, Networks, Pods};
        match quick {
            true => Extent { rounds: 2, filled: &[(Networks, 50), (Elsewhere, 50)] },
            false => Extent {
                rounds: 3,
                filled: &[(Networks, 100), (Networks, 400), (Pods, 400), (Elsewhere, 400)],
            },
        }
    }
}

/// Starts an agent for each size of each kind, in turns.
pub(super) fn measure(atoll: &Path, extent: &Extent) -> Result<(Table, Plot)> {
    let (mut alone, mut costs) = (vec![], vec![vec![]; extent.filled.len()]);
    for _ in 0..extent.rounds {
        alone.push(cost(atoll, Filled::Networks, 0)?);
        for ((filled, size), costs) in extent.filled.iter().zip(&mut costs) {
            costs.push(cost(atoll, *filled, *size)?);
        }
    }
    Ok((table(extent, &alone, &costs), plot(extent, &alone, &costs)))
}

fn table(extent: &Extent, alone: &[Cost], costs: &[Vec<Cost>]) -> Table {
    let columns = ["the cluster has", "resident MiB", "KiB each", "processor time ms", "µs each"];
    let mut table = Table::new(columns);
    let [resident, time] = shown(alone);
    table.row([
        "one network, a pod of it here".into(),
        resident,
        String::new(),
        time,
        String::new(),
    ]);
    for ((filled, size), costs) in extent.filled.iter().zip(costs) {
        let [resident, time] = shown(costs);
        let [bytes, microseconds] = each(costs, alone, *size);
        table.row([filled.told(*size), resident, bytes, time, microseconds]);
    }
    table
}

/// Memory against how many more there are, a line for each kind.
fn plot(extent: &Extent, alone: &[Cost], costs: &[Vec<Cost>]) -> Plot {
    let line = |kind: Filled| {
        let sizes = extent.filled.iter().zip(costs).filter(|((filled, _), _)| *filled == kind);
        let points = sizes.map(|((_, size), costs)| (f64::from(*size), mebibytes(costs)));
        let points = std::iter::once((1.0, mebibytes(alone))).chain(points).collect();
        Line { name: kind.name().into(), points }
    };
    let measured = |kind: &Filled| extent.filled.iter().any(|(filled, _)| filled == kind);
    Plot {
        file: "agents.svg",
        title: "Memory of an agent, as networks and pods grow".into(),
        across: "networks, or pods",
        up: "MiB",
        lines: Filled::ALL.into_iter().filter(measured).map(line).collect(),
    }
}

fn mebibytes(costs: &[Cost]) -> f64 {
    Sample::new(costs.iter().map(|cost| cost.bytes as f64 / f64::from(1 << 20))).median()
}

fn cost(atoll: &Path, filled: Filled, count: u32) -> Result<Cost> {
    eprintln!("curve: an agent, {}", filled.told(count));
    let [here, elsewhere] = filled.pods(count);
    let node = AgentNode::start_beside(atoll, &here, &elsewhere)?;
    Ok(Cost { bytes: node.resident_bytes()?, nanoseconds: cpu_of(node.agent())? })
}

fn shown(costs: &[Cost]) -> [String; 2] {
    let time = Sample::new(costs.iter().map(|cost| cost.nanoseconds as f64 / 1e6));
    [format!("{:.1}", mebibytes(costs)), format!("{:.0}", time.median())]
}

/// KiB and microseconds of one more.
fn each(costs: &[Cost], alone: &[Cost], count: u32) -> [String; 2] {
    let more = |of: fn(&Cost) -> u64, unit: f64| {
        let pairs = costs.iter().zip(alone).map(|(with, without)| [with, without].map(of));
        let each = pairs.map(|[with, without]| (with as f64 - without as f64) / f64::from(count));
        Sample::new(each.map(|each| each / unit))
    };
    let kibibytes = more(|cost| cost.bytes, 1024.0);
    let microseconds = more(|cost| cost.nanoseconds, 1e3);
    [beyond_noise(&kibibytes, 1), beyond_noise(&microseconds, 0)]
}

/// What more costs, where it costs more in every pair: nothing costs less for there being more.
fn beyond_noise(differences: &Sample, digits: usize) -> String {
    let (low, high) = (differences.quantile(0.0), differences.quantile(1.0));
    match low <= 0.0 {
        true => "within noise".into(),
        false => format!("{:.digits$} ({low:.digits$}–{high:.digits$})", differences.median()),
    }
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
        let more = [cost(50, 300), cost(52, 310)];
        let alone = [cost(40, 100), cost(40, 100)];
        assert_eq!(each(&more, &alone, 100), ["102.4 (102.4–122.9)", "2000 (2000–2100)"]);
        let unsteady = [cost(40, 90), cost(41, 110)];
        assert_eq!(each(&unsteady, &alone, 100), ["within noise", "within noise"]);
        let less = [cost(39, 90), cost(39, 95)];
        assert_eq!(each(&less, &alone, 100), ["within noise", "within noise"]);
    }
}
