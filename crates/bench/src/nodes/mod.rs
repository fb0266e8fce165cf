//! A cluster of a thousand nodes: as many agents as it has, each with a kernel made of maps, against
//! a real kube-apiserver. What one change costs, and how that grows with the nodes.

mod agents;
mod cluster;
mod kernel;
mod relay;

use std::time::Duration;

use anyhow::Result;

use self::agents::Agents;
use self::cluster::Cluster;
use crate::control::{Plane, Whose};
use crate::document::{Judged, Section};
use crate::goal::Goal;
use crate::plot::{Line, Plot};
use crate::sample::Sample;
use crate::table::Table;

const NOTES: &str = "\
Agents in one process, each as on a node but with a kernel made of maps, against a real kube-apiserver \
with etcd on the same machine. Every tenant has a network with two pods on each of ten nodes; there \
are as many tenants as tenths of nodes. Agents are started 25 at a time, as a cluster grows, not all \
at one moment. *One change*: a pod's port is made, until the nine other nodes \
of its tenant have programmed its address; bytes are all that the API server sends to all agents for \
it, with encryption, less what they are told at rest: a watch is told now and then how far the server \
is. *At once*: ports made all at once over all tenants, by address programmed.";

/// What was measured with so many nodes.
struct Measured {
    nodes: usize,
    start: Duration,
    connections: f64,
    start_kib: f64,
    resident_kib: f64,
    /// The bytes that an agent is told in a second when nothing changes.
    at_rest: f64,
    change_bytes: Sample,
    change_ms: Sample,
    programmed_each_second: f64,
}

/// Measures with ever more nodes.
pub(crate) fn measure(quick: bool) -> Result<Section> {
    let (sizes, count): (&[usize], usize) = match quick {
        true => (&[10, 100], 10),
        false => (&[10, 100, 1000], 30),
    };
    let measured = sizes.iter().map(|nodes| measure_size(*nodes, count));
    let measured: Vec<Measured> = measured.collect::<Result<_>>()?;
    Ok(Section {
        title: "Simulated nodes",
        notes: NOTES.into(),
        tables: vec![
            ("Agents as they start".into(), starts(&measured)),
            ("Changes".into(), changes(&measured)),
        ],
        plots: vec![bytes_plot(&measured), rate_plot(&measured)],
        judged: judge(&measured),
    })
}

fn starts(measured: &[Measured]) -> Table {
    let columns = [
        "nodes",
        "all started s",
        "connections each",
        "KiB read each",
        "resident KiB each",
        "bytes a second at rest, each",
    ];
    let mut table = Table::new(columns);
    for it in measured {
        table.row([
            it.nodes.to_string(),
            format!("{:.1}", it.start.as_secs_f64()),
            format!("{:.1}", it.connections),
            format!("{:.0}", it.start_kib),
            format!("{:.0}", it.resident_kib),
            format!("{:.0}", it.at_rest),
        ]);
    }
    table
}

fn changes(measured: &[Measured]) -> Table {
    let columns = [
        "nodes",
        "bytes of one change",
        "one change p50 ms",
        "p99 ms",
        "at once: addresses programmed a second",
    ];
    let mut table = Table::new(columns);
    for it in measured {
        table.row([
            it.nodes.to_string(),
            format!("{:.0}", it.change_bytes.median()),
            format!("{:.1}", it.change_ms.median()),
            format!("{:.1}", it.change_ms.quantile(0.99)),
            format!("{:.0}", it.programmed_each_second),
        ]);
    }
    table
}

fn bytes_plot(measured: &[Measured]) -> Plot {
    Plot {
        file: "nodes.svg",
        title: "What the API sends to all agents for one change".into(),
        across: "nodes",
        up: "KiB",
        lines: vec![line("one new port", measured, |it| it.change_bytes.median() / 1024.0)],
    }
}

fn rate_plot(measured: &[Measured]) -> Plot {
    Plot {
        file: "nodes-at-once.svg",
        title: "Addresses that all agents program, of ports made at once".into(),
        across: "nodes",
        up: "a second",
        lines: vec![line("addresses", measured, |it| it.programmed_each_second)],
    }
}

fn line(name: &str, measured: &[Measured], value: fn(&Measured) -> f64) -> Line {
    let points = measured.iter().map(|it| (it.nodes as f64, value(it)));
    Line { name: name.into(), points: points.collect() }
}

/// What is sent for a change hangs on who needs it, not on how many nodes there are.
fn judge(measured: &[Measured]) -> Vec<Judged> {
    let (Some(least), Some(most)) = (measured.first(), measured.last()) else { return vec![] };
    let middle = least.change_bytes.median();
    let ratios = Sample::new(most.change_bytes.values().map(|bytes| bytes / middle));
    let what = format!("bytes of one change, {} nodes against {}", most.nodes, least.nodes);
    vec![Judged::new(what, Goal::AtMost(1.5), &ratios)]
}

fn measure_size(nodes: usize, changes: usize) -> Result<Measured> {
    eprintln!("nodes: {nodes} agents against kube-apiserver");
    let plane = Plane::start(Whose::Real)?;
    let kubeconfig = plane.kubeconfig()?;
    plane.block_on(async {
        let cluster = Cluster { client: plane.client.clone(), nodes };
        cluster.fill().await?;
        let agents = Agents::start(&kubeconfig, nodes).await?;
        agents.measure(&cluster, changes).await
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goal::Verdict;

    fn measured(nodes: usize, bytes: f64) -> Measured {
        Measured {
            nodes,
            start: Duration::ZERO,
            connections: 1.0,
            start_kib: 1.0,
            resident_kib: 1.0,
            at_rest: 1.0,
            change_bytes: Sample::new([bytes]),
            change_ms: Sample::new([1.0]),
            programmed_each_second: 1.0,
        }
    }

    #[test]
    fn a_change_that_is_told_to_every_node_is_a_missed_goal() {
        let verdict = |bytes| judge(&[measured(10, 1000.0), measured(1000, bytes)])[0].verdict;
        assert_eq!(verdict(1100.0), Verdict::Met);
        assert_eq!(verdict(100_000.0), Verdict::Missed);
    }
}
