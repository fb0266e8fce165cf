//! From a request to a packet: how long it takes until what was asked of the API holds for packets.

mod pods;
mod scene;

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;

use self::pods::Stages;
use self::scene::{Scene, VIP_PORT};
use crate::document::{Judged, Section};
use crate::goal::Goal;
use crate::node::AgentNode;
use crate::sample::Sample;
use crate::table::Table;
use crate::volley::Volley;

const NOTES: &str = "\
A node with the real agent and the real kernel, the controller, and the embedded API, all on this machine. \
Every time begins with the request to the API.

*A pod*: as the kubelet would, its plugin is called as soon as the pod is made, its namespace being \
there. *Port bound*: another client sees its port, with its address. *CNI done*: the plugin ended; the \
pod is attached. *First packet*: a datagram of the pod was answered by another pod of its network on \
the node; it is sent again after five milliseconds. *At once*: all of them are asked for together.

*Network*: until another client sees it `Active`. *Policy* and *endpoint*: until the last datagram that \
passed though it should not, did not pass though it should, or was answered by the pod before; one is \
sent every two milliseconds, from a port of its own, to a pod or to a service. *Among services*: the \
same when the network has so many other services, each with an endpoint. The goal for packets is 50 ms \
for 99 of 100 changes; of fewer than a hundred, the p99 is the slowest.";

/// How soon a change of a policy or an endpoint must hold for packets, for 99 of 100.
const LIMIT_MS: f64 = 50.0;

/// How much is measured.
#[derive(Clone, Copy)]
struct Extent {
    /// Pods one after the other.
    alone: usize,
    /// Pods at once.
    burst: usize,
    networks: usize,
    /// Policies that come and go, and endpoints that change.
    changes: usize,
    /// Other services of the network.
    services: usize,
}

impl Extent {
    fn new(quick: bool) -> Self {
        match quick {
            true => Extent { alone: 10, burst: 20, networks: 10, changes: 5, services: 500 },
            false => Extent { alone: 40, burst: 100, networks: 50, changes: 30, services: 10_000 },
        }
    }
}

/// Measures all of it on one node.
pub(crate) fn measure(atoll: &Path, quick: bool) -> Result<Section> {
    let extent = Extent::new(quick);
    let node = AgentNode::start(atoll, &[])?;
    let scene = Scene::set(atoll, &node)?;
    eprintln!("changes: {} pods, then {} at once", extent.alone, extent.burst);
    let alone = pods::one_by_one(&scene, extent.alone)?;
    let burst = pods::at_once(&scene, extent.burst)?;
    eprintln!("changes: networks, policies, endpoints");
    let made = networks(&scene, extent.networks)?;
    let mut changes = policies(&scene, extent.changes)?.to_vec();
    changes.push(endpoints(
        &scene,
        extent.changes,
        "endpoint changed until its pod answers alone",
    )?);
    eprintln!("changes: among {} services", extent.services);
    scene.make_crowd(extent.services)?;
    let what = format!("the same among {} services", extent.services);
    changes.push(endpoints(&scene, extent.changes, what)?);
    let judged = changes.iter().map(judge).collect();
    changes.insert(0, made);
    Ok(Section {
        title: "From a request to a packet",
        notes: NOTES.into(),
        tables: vec![
            ("A pod, milliseconds".into(), pods_table(&alone, &burst)),
            ("Changes, milliseconds".into(), changes_table(&changes)),
        ],
        plots: vec![],
        judged,
    })
}

/// What was changed, and the milliseconds until it held.
type Change = (String, Vec<f64>);

fn judge((what, times): &Change) -> Judged {
    let slowest = Sample::new(times.iter().copied()).quantile(0.99);
    let what = format!("{what}, p99 against 50 ms");
    Judged::new(what, Goal::AtMost(1.0), &Sample::new([slowest / LIMIT_MS]))
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn networks(scene: &Scene<'_>, count: usize) -> Result<Change> {
    let each = (0..count).map(|number| scene.make_network(&format!("n-{number}")));
    let times = each.map(|took| took.map(milliseconds)).collect::<Result<_>>()?;
    Ok(("network made until it is Active".into(), times))
}

/// A policy that denies everything to the answering pod comes, and goes.
fn policies(scene: &Scene<'_>, count: usize) -> Result<[Change; 2]> {
    let volley = Volley::start(scene.asker(), scene.server(0));
    volley.settles(Instant::now(), |it| it.is_some())?;
    let (mut denied, mut allowed) = (vec![], vec![]);
    for _ in 0..count {
        let since = Instant::now();
        scene.deny()?;
        denied.push(milliseconds(volley.settles(since, |it| it.is_none())?));
        let since = Instant::now();
        scene.allow()?;
        allowed.push(milliseconds(volley.settles(since, |it| it.is_some())?));
    }
    Ok([
        ("policy made until nothing passes".into(), denied),
        ("policy deleted until everything passes".into(), allowed),
    ])
}

/// The one endpoint of a service is one pod, then the other. What comes before is over when the
/// first change is: it does not count.
fn endpoints(scene: &Scene<'_>, count: usize, what: impl Into<String>) -> Result<Change> {
    let vip = SocketAddr::new(scene.vip, VIP_PORT);
    let volley = Volley::start(scene.asker(), vip);
    scene.lead_to(1)?;
    volley.settles(Instant::now(), |it| it == Some(scene::word(1)))?;
    let mut times = vec![];
    for number in 0..count {
        let (which, since) = (number % 2, Instant::now());
        scene.lead_to(which)?;
        times.push(milliseconds(volley.settles(since, |it| it == Some(scene::word(which)))?));
    }
    Ok((what.into(), times))
}

fn changes_table(changes: &[Change]) -> Table {
    let mut table = Table::new(["what", "times", "p50", "p99"]);
    for (what, times) in changes {
        let sample = Sample::new(times.iter().copied());
        table.row([
            what.clone(),
            sample.len().to_string(),
            format!("{:.1}", sample.median()),
            format!("{:.1}", sample.quantile(0.99)),
        ]);
    }
    table
}

fn pods_table(alone: &[Stages], burst: &[Stages]) -> Table {
    let columns = ["pods", "port bound p50 / p99", "CNI done p50 / p99", "first packet p50 / p99"];
    let mut table = Table::new(columns);
    let at_once = format!("{} at once", burst.len());
    let one_by_one = format!("{} one after the other", alone.len());
    for (name, stages) in [(one_by_one, alone), (at_once, burst)] {
        let cell = |of: fn(&Stages) -> Duration| {
            let sample = Sample::new(stages.iter().map(of).map(milliseconds));
            format!("{:.1} / {:.1}", sample.median(), sample.quantile(0.99))
        };
        table.row([name, cell(|it| it.port), cell(|it| it.attached), cell(|it| it.answered)]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goal::Verdict;

    #[test]
    fn each_stage_of_a_pod_has_its_column_and_each_crowd_its_row() {
        let stages = |factor| Stages {
            port: Duration::from_millis(factor),
            attached: Duration::from_millis(2 * factor),
            answered: Duration::from_millis(3 * factor),
        };
        let table = pods_table(&[stages(1), stages(1)], &[stages(10), stages(10), stages(90)]);
        let text = table.to_string();
        for part in
            ["2 one after the other", "1.0 / 1.0", "3 at once", "20.0 / 180.0", "30.0 / 270.0"]
        {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
    }

    #[test]
    fn a_change_is_told_by_its_middle_and_its_slowest() {
        let text = changes_table(&[("network".into(), vec![3.0, 1.0, 2.0])]).to_string();
        let row = text.lines().last().unwrap();
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        assert_eq!(cells, ["network", "3", "2.0", "3.0"]);
    }

    #[test]
    fn a_change_is_judged_by_its_slowest_percent() {
        let mut times = vec![3.0; 200];
        times[0] = 900.0;
        assert_eq!(judge(&("policy".into(), times.clone())).verdict, Verdict::Met);
        times[..3].fill(51.0);
        assert_eq!(judge(&("policy".into(), times)).verdict, Verdict::Missed);
    }
}
