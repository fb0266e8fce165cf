//! As networks grow: the round trip must not, and memory must grow only with what the node has.

use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::{Context, Result};

use crate::datapath::{cell, round, start_servers};
use crate::document::{Judged, Section};
use crate::goal::Goal;
use crate::node::{AgentNode, PlannedPod};
use crate::paths::{Cluster, Place, Setting};
use crate::sample::Sample;
use crate::table::Table;
use crate::traffic::Kind;

/// How many other networks, and endpoints in the own one, are programmed.
const SIZES: [u32; 4] = [1, 100, 1_000, 10_000];
const PLACES: [Place; 2] = [Place::SameNode, Place::AcrossNodes];

const NOTES: &str = "\
A round trip as in the first table, on nodes whose kernel holds *n* other networks with an \
endpoint each and *n* more endpoints in the measured network. Ratios are to *n* = 1 in the same \
round. Kernel memory is what the kernel says of the maps of endpoints and of interfaces.

The agent: its resident memory when the node has a pod in each of *n* networks (a node holds and \
watches nothing of networks that it has no pod of).";

/// One size: its cluster, and for each place a value for each round.
struct Sized {
    size: u32,
    cluster: Cluster,
    rounds: [Vec<f64>; 2],
}

/// Measures the curve.
pub(crate) fn measure(atoll: &Path, rounds: usize, quick: bool) -> Result<Section> {
    let mut sizes = SIZES.into_iter().map(Sized::new).collect::<Result<Vec<_>>>()?;
    let ends: Vec<_> =
        sizes.iter().flat_map(|it| PLACES.map(|place| it.cluster.ends(place))).flatten().collect();
    let servers = start_servers(ends.iter())?;
    for number in 0..rounds {
        eprint!("\rcurve: round {} of {rounds}", number + 1);
        sizes.iter_mut().try_for_each(Sized::add_round)?;
    }
    eprintln!();
    drop(servers);
    let agents: &[u32] = if quick { &[1, 100] } else { &[1, 100, 400] };
    Ok(Section {
        title: "As networks grow",
        notes: format!("{NOTES}\n\n{rounds} rounds."),
        tables: vec![
            ("Round trip, µs, and kernel memory".into(), round_trips(&sizes)?),
            ("The agent's memory".into(), memory_of_agents(atoll, agents)?),
        ],
        plots: vec![],
        judged: judge(&sizes),
    })
}

impl Sized {
    fn new(size: u32) -> Result<Self> {
        let cluster = Cluster::new(&Setting { more: size, ..Setting::everything(&[100]) })
            .with_context(|| format!("cannot program {size} networks"))?;
        Ok(Sized { size, cluster, rounds: [vec![], vec![]] })
    }

    fn add_round(&mut self) -> Result<()> {
        for (place, values) in PLACES.into_iter().zip(&mut self.rounds) {
            values.push(round(&self.cluster.ends(place)[0], Kind::RoundTrip)?);
        }
        Ok(())
    }
}

fn round_trips(sizes: &[Sized]) -> Result<Table> {
    let columns = ["n", "same node", "across nodes", "maps KiB", "bytes per endpoint"];
    let mut table = Table::new(columns);
    let smallest = memory(&sizes[0].cluster)?;
    for sized in sizes {
        let place = |place: usize| {
            let ratios = Sample::ratios(&sized.rounds[place], &sizes[0].rounds[place]);
            cell(&sized.rounds[place], &ratios)
        };
        let bytes = memory(&sized.cluster)?;
        let more = f64::from(2 * (sized.size - sizes[0].size));
        let each = if more > 0.0 {
            format!("{:.0}", (bytes - smallest) as f64 / more)
        } else {
            String::new()
        };
        let size = sized.size.to_string();
        table.row([size, place(0), place(1), (bytes >> 10).to_string(), each]);
    }
    Ok(table)
}

fn memory(cluster: &Cluster) -> Result<u64> {
    let maps = cluster.map_memory()?;
    Ok(["endpoints", "interfaces"].iter().filter_map(|name| maps.get(*name)).sum())
}

/// Flat: with the most, at least 0.98 of the speed with one.
fn judge(sizes: &[Sized]) -> Vec<Judged> {
    let (Some(least), Some(most)) = (sizes.first(), sizes.last()) else { return vec![] };
    let goal = Goal::AtMost(1.0 / 0.98);
    let judged = PLACES.into_iter().zip(least.rounds.iter().zip(&most.rounds));
    judged
        .map(|(place, (least, with_most))| {
            let ratios = Sample::ratios(with_most, least);
            let what = format!("{place}, round trip with {} against 1", most.size);
            Judged { what, goal, verdict: goal.judge(&ratios), median: ratios.median() }
        })
        .collect()
}

fn memory_of_agents(atoll: &Path, sizes: &[u32]) -> Result<Table> {
    let mut table = Table::new(["networks on the node", "resident MiB", "KiB per network"]);
    let mut smallest = None;
    for size in sizes {
        eprint!("\rcurve: an agent with {size} networks   ");
        let bytes = AgentNode::start(atoll, &pods_of(*size))?.resident_bytes()?;
        let (first_size, first_bytes) = *smallest.get_or_insert((*size, bytes));
        let more = f64::from(size - first_size);
        let each = if more > 0.0 {
            format!("{:.1}", bytes.saturating_sub(first_bytes) as f64 / more / 1024.0)
        } else {
            String::new()
        };
        table.row([size.to_string(), format!("{:.1}", bytes as f64 / f64::from(1 << 20)), each]);
    }
    eprintln!();
    Ok(table)
}

fn pods_of(networks: u32) -> Vec<PlannedPod> {
    let ip = Ipv4Addr::new(10, 0, 0, 5);
    (1..=networks)
        .map(|network| PlannedPod { name: format!("pod-{network}"), network, ip })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_network_has_one_pod_and_all_have_the_same_address() {
        let pods = pods_of(3);
        assert_eq!(pods.iter().map(|pod| pod.network).collect::<Vec<_>>(), [1, 2, 3]);
        assert!(pods.iter().all(|pod| pod.ip == pods[0].ip));
    }
}
