//! As networks grow: the round trip and the throughput must not change, and memory must grow only with
//! what the node has.

mod agents;

use std::path::Path;

use anyhow::{Context, Result};

use crate::datapath::{cell, round, start_servers};
use crate::document::{Judged, Section};
use crate::goal::Goal;
use crate::paths::{Cluster, Place, Setting};
use crate::plot::{Line, Plot};
use crate::rounds::{Length, Rounds};
use crate::sample::Sample;
use crate::table::Table;
use crate::traffic::Kind;

/// How many other networks, and endpoints in the own one, are programmed, in a full run and in a
/// quick one.
const SIZES: (&[u32], &[u32]) = (&[1, 100, 1_000, 10_000], &[1, 100, 1_000]);
const PLACES: [Place; 2] = [Place::SameNode, Place::AcrossNodes];
const KINDS: [Kind; 2] = [Kind::RoundTrip, Kind::Bulk];

const NOTES: &str = "\
A round trip and blocks as in the first table, on nodes whose kernel holds *n* other networks with an \
endpoint each and *n* more endpoints in the measured network. Ratios are to *n* = 1 in the same \
round. Kernel memory is what the kernel says of the maps of endpoints and of interfaces.";

/// One size: its cluster, and for each place and kind a value for each round.
struct Sized {
    size: u32,
    cluster: Cluster,
    rounds: [[Vec<f64>; 2]; 2],
}

/// Measures the curve.
pub(crate) fn measure(atoll: &Path, rounds: Rounds, quick: bool) -> Result<Section> {
    let sizes = if quick { SIZES.1 } else { SIZES.0 };
    let mut sizes = sizes.iter().copied().map(Sized::new).collect::<Result<Vec<_>>>()?;
    let ends: Vec<_> =
        sizes.iter().flat_map(|it| PLACES.map(|place| it.cluster.ends(place))).flatten().collect();
    let servers = start_servers(ends.iter())?;
    let mut going = rounds.begin("curve");
    while going.next(|| flat(&sizes).map(|(_, _, ratios)| ratios).collect()).is_some() {
        sizes.iter_mut().try_for_each(|sized| sized.add_round(rounds.length))?;
    }
    drop(servers);
    let (agents, agents_plot) = agents::measure(atoll, &agents::Extent::new(quick))?;
    Ok(Section {
        title: "As networks grow",
        notes: format!("{NOTES}\n\n{}\n\n{}", agents::NOTES, going.told()),
        tables: vec![
            ("Packets, and kernel memory".into(), packets(&sizes)?),
            ("What a network costs an agent".into(), agents),
        ],
        plots: vec![plot(&sizes), agents_plot],
        judged: judge(&sizes),
    })
}

impl Sized {
    fn new(size: u32) -> Result<Self> {
        let cluster = Cluster::new(&Setting { more: size, ..Setting::everything(&[100]) })
            .with_context(|| format!("cannot program {size} networks"))?;
        Ok(Sized { size, cluster, rounds: Default::default() })
    }

    fn add_round(&mut self, length: Length) -> Result<()> {
        for (place, rounds) in PLACES.into_iter().zip(&mut self.rounds) {
            for (kind, values) in KINDS.into_iter().zip(rounds) {
                values.push(round(&self.cluster.ends(place)[0], kind, length)?);
            }
        }
        Ok(())
    }
}

fn packets(sizes: &[Sized]) -> Result<Table> {
    let kinds = PLACES.iter().flat_map(|place| {
        KINDS.map(|kind| format!("{}, {}", place.to_string().to_lowercase(), kind.heading()))
    });
    let memories = ["maps KiB", "bytes per endpoint"].map(ToOwned::to_owned);
    let mut table = Table::new(["n".to_owned()].into_iter().chain(kinds).chain(memories));
    let smallest = memory(&sizes[0].cluster)?;
    for sized in sizes {
        let values = sized.rounds.iter().flatten();
        let cells = values.zip(sizes[0].rounds.iter().flatten());
        let cells = cells.map(|(values, limits)| cell(values, &Sample::ratios(values, limits)));
        let bytes = memory(&sized.cluster)?;
        let more = f64::from(2 * (sized.size - sizes[0].size));
        let each = match more > 0.0 {
            true => format!("{:.0}", (bytes - smallest) as f64 / more),
            false => String::new(),
        };
        let memories = [(bytes >> 10).to_string(), each];
        table.row([sized.size.to_string()].into_iter().chain(cells).chain(memories));
    }
    Ok(table)
}

fn memory(cluster: &Cluster) -> Result<u64> {
    let maps = cluster.map_memory()?;
    Ok(["endpoints", "interfaces"].iter().filter_map(|name| maps.get(*name)).sum())
}

/// The most against the least, of each place and kind.
fn flat(sizes: &[Sized]) -> impl Iterator<Item = (Place, Kind, Sample)> {
    let (least, most) = (&sizes[0], &sizes[sizes.len() - 1]);
    PLACES.into_iter().enumerate().flat_map(move |(at, place)| {
        KINDS.into_iter().enumerate().map(move |(number, kind)| {
            let [values, limits] = [most, least].map(|sized| &sized.rounds[at][number]);
            (place, kind, Sample::ratios(values, limits))
        })
    })
}

/// Flat: with the most, at least 0.98 of the speed with one.
fn judge(sizes: &[Sized]) -> Vec<Judged> {
    let most = sizes[sizes.len() - 1].size;
    let judged = |(place, kind, ratios): (Place, Kind, Sample)| {
        let goal = match kind {
            Kind::Bulk => Goal::AtLeast(0.98),
            _ => Goal::AtMost(1.0 / 0.98),
        };
        Judged::new(format!("{place}, {} with {most} against 1", kind.name()), goal, &ratios)
    };
    flat(sizes).map(judged).collect()
}

fn plot(sizes: &[Sized]) -> Plot {
    let line = |(at, place): (usize, Place)| {
        let point = |sized: &Sized| {
            let values = sized.rounds[at][0].iter().copied();
            (f64::from(sized.size), Sample::new(values).median())
        };
        Line { name: place.to_string(), points: sizes.iter().map(point).collect() }
    };
    Plot {
        file: "networks.svg",
        title: "A round trip, as networks and endpoints grow".into(),
        across: "networks, and endpoints",
        up: "µs",
        lines: PLACES.into_iter().enumerate().map(line).collect(),
    }
}
