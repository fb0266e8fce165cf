//! How many instructions a round trip is as things grow: networks and endpoints, services, policies.
//!
//! The rule: a curve is compared with its own beginning, in the same machine. Its ends are enough: what
//! is measured in time has all of it, up to ten thousand, which this machine would take many minutes to
//! fill.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::datapath::{round, start_servers};
use crate::document::Judged;
use crate::goal::Goal;
use crate::paths::{Cluster, Ends, Place, Setting, VIP};
use crate::plot::{Line, Plot};
use crate::policy;
use crate::rounds::Length;
use crate::sample::Sample;
use crate::table::Table;
use crate::traffic::Kind;

const NETWORK: u32 = 100;

/// What grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Thing {
    /// As many other networks with an endpoint each, and endpoints in the measured network.
    Networks,
    /// Services in the measured network; the round trip is through one of them.
    Services,
    /// Policies over as many pods.
    Policies,
}

/// One point of a curve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Point {
    thing: Thing,
    size: u32,
    thousands: Vec<f64>,
}

impl Thing {
    const ALL: [Thing; 3] = [Thing::Networks, Thing::Services, Thing::Policies];

    fn name(self) -> &'static str {
        match self {
            Thing::Networks => "networks, and endpoints",
            Thing::Services => "services",
            Thing::Policies => "policies, and pods",
        }
    }

    fn sizes(self) -> &'static [u32] {
        match self {
            Thing::Networks | Thing::Services => &[1, 1_000],
            Thing::Policies => &[3, 300],
        }
    }

    fn cluster(self, size: u32) -> Result<Cluster> {
        let alone = Setting { services: 0, ..Setting::everything(&[NETWORK]) };
        match self {
            Thing::Networks => Cluster::new(&Setting { more: size, ..alone }),
            Thing::Services => Cluster::new(&Setting { services: size, ..alone }),
            Thing::Policies => {
                let cluster = Cluster::new(&Setting { policy: false, ..alone })?;
                policy::enforce(&cluster, size)?;
                Ok(cluster)
            }
        }
    }

    fn ends(self, cluster: &Cluster) -> Result<Ends> {
        let ends = cluster.ends(Place::SameNode).into_iter().next();
        let ends = ends.context("a cluster has pods")?;
        Ok(match self {
            Thing::Services => Ends { target: VIP.into(), ..ends },
            Thing::Networks | Thing::Policies => ends,
        })
    }

    fn point(self, size: u32, rounds: usize) -> Result<Point> {
        eprintln!("counted: {size} {}", self.name());
        let cluster = self.cluster(size)?;
        let ends = self.ends(&cluster)?;
        let servers = start_servers([&ends].into_iter())?;
        let thousands = (0..rounds).map(|_| round(&ends, Kind::RoundTrip, Length::Brief));
        let thousands = thousands.collect::<Result<_>>()?;
        drop(servers);
        Ok(Point { thing: self, size, thousands })
    }
}

/// Counts every point, inside the machine.
pub(super) fn count(rounds: usize) -> Result<Vec<Point>> {
    let sizes = |thing: Thing| thing.sizes().iter().map(move |size| (thing, *size));
    let points = Thing::ALL.into_iter().flat_map(sizes);
    points.map(|(thing, size)| thing.point(size, rounds)).collect()
}

fn curve(points: &[Point], thing: Thing) -> Vec<&Point> {
    points.iter().filter(|point| point.thing == thing).collect()
}

/// A row for each point, with its ratio to the first of its curve.
pub(super) fn table(points: &[Point]) -> Table {
    let mut table = Table::new(["what grows", "how many", "thousand instructions", "to the first"]);
    for thing in Thing::ALL {
        let curve = curve(points, thing);
        for point in &curve {
            let (value, ratio) = (middle(point), middle(point) / middle(curve[0]));
            let size = point.size.to_string();
            table.row([thing.name().into(), size, format!("{value:.1}"), format!("{ratio:.3}")]);
        }
    }
    table
}

fn middle(point: &Point) -> f64 {
    Sample::new(point.thousands.iter().copied()).median()
}

/// The curves.
pub(super) fn plot(points: &[Point]) -> Plot {
    let line = |thing: Thing| Line {
        name: thing.name().into(),
        points: curve(points, thing).iter().map(|it| (f64::from(it.size), middle(it))).collect(),
    };
    Plot {
        file: "growth.svg",
        title: "A round trip on one node, as things grow".into(),
        across: "how many",
        up: "thousand instructions",
        lines: Thing::ALL.map(line).into(),
    }
}

/// Flat: with the most, at most 2 % more than with the least.
pub(super) fn judge(points: &[Point]) -> Vec<Judged> {
    let goal = Goal::AtMost(1.02);
    let judged = |thing: Thing| {
        let curve = curve(points, thing);
        let (first, last) = (curve.first()?, curve.last()?);
        let ratios = Sample::ratios(&last.thousands, &first.thousands);
        let what = format!("round trip with {} {}", last.size, thing.name());
        Some(Judged::new(what, goal, &ratios))
    };
    Thing::ALL.into_iter().filter_map(judged).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goal::Verdict;

    fn points(last: f64) -> Vec<Point> {
        let point = |thing, size, value| Point { thing, size, thousands: vec![value; 3] };
        let curve = |thing| [point(thing, 1, 30.0), point(thing, 1000, last)];
        Thing::ALL.into_iter().flat_map(curve).collect()
    }

    #[test]
    fn a_curve_that_rises_is_a_missed_goal() {
        let verdicts = |last| judge(&points(last)).iter().map(|it| it.verdict).collect::<Vec<_>>();
        assert_eq!(verdicts(30.3), [Verdict::Met; 3]);
        assert_eq!(verdicts(31.0), [Verdict::Missed; 3]);
    }

    #[test]
    fn every_point_is_a_row_and_a_mark() {
        let points = points(30.3);
        let text = table(&points).to_string();
        assert_eq!(text.matches("1.010").count(), Thing::ALL.len());
        assert_eq!(plot(&points).lines.len(), Thing::ALL.len());
    }
}
