//! Real Kubernetes: how long a pod waits until it is Ready, beside the reference `bridge` plugin on
//! the same three nodes, and what Atoll holds in memory there.

mod memory;
mod place;
mod pods;

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use self::memory::Held;
use self::place::Place;
use self::pods::Waited;
use crate::document::{Judged, Section};
use crate::goal::Goal;
use crate::sample::Sample;
use crate::table::Table;

/// How soon a node must be Ready after its agent was started.
const READY_LIMIT: Duration = Duration::from_secs(10);

const NOTES: &str = "\
Unmodified etcd, kube-apiserver, controller manager and scheduler, and three nodes with kubelet, \
containerd and runc, all on this machine. *Waits*: from the request for a pod until another client \
sees it Ready, its image being there; starting containers is most of it. Pods are spread over nodes \
by the scheduler, and two are in each network; with the bridge plugin, which has one network for \
all, they are in as many namespaces. The bridge plugin has the cluster first and for itself, then \
Atoll does: **one run** of each, not in turns, so that differences of some tenths should not be \
believed, and none of them is judged. *Memory*: resident, of the agent of each node, and of both controllers.";

/// How much is measured.
#[derive(Clone, Copy)]
struct Extent {
    /// Networks with pods.
    networks: usize,
    pods: usize,
    /// How many pods are under way at once.
    at_once: &'static [usize],
    /// Networks in the end, most of them without a pod.
    all_networks: usize,
}

impl Extent {
    fn new(quick: bool) -> Self {
        match quick {
            true => Extent { networks: 12, pods: 24, at_once: &[24], all_networks: 100 },
            false => Extent { networks: 50, pods: 100, at_once: &[4, 100], all_networks: 1_000 },
        }
    }

    fn with_networks(self, count: usize) -> String {
        format!("{count} networks, {} pods in {} of them", self.pods, self.networks)
    }
}

/// What was measured of one network plugin.
struct Measured {
    name: &'static str,
    waited: Vec<Waited>,
}

/// Measures both plugins, one after the other, on one cluster.
pub(crate) fn measure(atoll: &Path, quick: bool) -> Result<Section> {
    let extent = Extent::new(quick);
    eprintln!("real: three nodes");
    let place = Place::up(atoll)?;
    let ready_after = on_fresh_nodes(&place)?;
    let bridge = with_bridge(&place, extent)?;
    eprintln!("real: Atoll");
    place.install()?;
    let mut held = vec![("no tenant".to_owned(), place.held()?)];
    let ours = with_atoll(&place, extent)?;
    held.push((extent.with_networks(extent.networks), place.held()?));
    eprintln!("real: {} networks", extent.all_networks);
    place.more_networks(extent.networks, extent.all_networks)?;
    held.push((extent.with_networks(extent.all_networks), place.held()?));
    place.down()?;
    Ok(Section {
        title: "Real Kubernetes",
        notes: format!("{NOTES}\n\n{}", told(&ready_after)),
        tables: vec![
            (title(extent), waits(&[bridge, ours])),
            ("Memory on three nodes".into(), memory(&held)),
        ],
        plots: vec![],
        judged: vec![judge(&ready_after)],
    })
}

/// How soon nodes that had no network before are Ready. A kubelet tells at once that its node is Ready
/// for the first time; later, it may wait ten seconds until it tells.
fn on_fresh_nodes(place: &Place) -> Result<Vec<Duration>> {
    place.install()?;
    let ready_after = place.nodes_ready_after_agents()?;
    place.uninstall()?;
    Ok(ready_after)
}

fn title(extent: Extent) -> String {
    let Extent { networks, pods, .. } = extent;
    format!(
        "From a pod's creation until it is Ready: {pods} pods over {networks} networks, seconds"
    )
}

fn with_bridge(place: &Place, extent: Extent) -> Result<Measured> {
    eprintln!("real: the bridge plugin");
    place.bring_bridge()?;
    let namespaces = place.namespaces("plain", extent.networks)?;
    let waited = place.waited(&namespaces, extent)?;
    place.delete_pods()?;
    place.take_bridge_away()?;
    Ok(Measured { name: "bridge + host-local", waited })
}

fn with_atoll(place: &Place, extent: Extent) -> Result<Measured> {
    let namespaces = place.tenants(extent.networks)?;
    let waited = place.waited(&namespaces, extent)?;
    Ok(Measured { name: "**Atoll**", waited })
}

fn waits(all: &[Measured]) -> Table {
    let columns = ["plugin", "under way at once", "p50", "p99", "until all are Ready"];
    let mut table = Table::new(columns);
    let seconds = |value: f64| format!("{value:.1}");
    for Measured { name, waited } in all {
        for Waited { at_once, seconds: sample, whole } in waited {
            table.row([
                (*name).to_owned(),
                at_once.to_string(),
                seconds(sample.median()),
                seconds(sample.quantile(0.99)),
                seconds(whole.as_secs_f64()),
            ]);
        }
    }
    table
}

fn memory(held: &[(String, Held)]) -> Table {
    let mut table = Table::new(["the cluster has", "agents, MiB", "controllers, MiB"]);
    let listed = |bytes: &[u64]| {
        let each = bytes.iter().map(|bytes| format!("{:.1}", *bytes as f64 / f64::from(1 << 20)));
        each.collect::<Vec<_>>().join(", ")
    };
    for (what, held) in held {
        table.row([what.clone(), listed(&held.agents), listed(&held.controllers)]);
    }
    table
}

/// The API tells whole seconds.
fn told(ready_after: &[Duration]) -> String {
    let seconds: Vec<_> = ready_after.iter().map(|it| it.as_secs().to_string()).collect();
    format!("New nodes were Ready {} s after their agents were started.", seconds.join(", "))
}

fn judge(ready_after: &[Duration]) -> Judged {
    let latest = ready_after.iter().max().copied().unwrap_or_default();
    let ratio = latest.as_secs_f64() / READY_LIMIT.as_secs_f64();
    let what = "node Ready after its agent was started, against 10 s";
    Judged::new(what, Goal::AtMost(1.0), &Sample::new([ratio]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goal::Verdict;

    #[test]
    fn the_node_that_was_ready_last_decides() {
        let seconds =
            |all: &[u64]| all.iter().map(|it| Duration::from_secs(*it)).collect::<Vec<_>>();
        assert_eq!(judge(&seconds(&[3, 10, 4])).verdict, Verdict::Met);
        assert_eq!(judge(&seconds(&[3, 11, 4])).verdict, Verdict::Missed);
        assert!(told(&seconds(&[3, 11])).contains("3, 11 s"));
    }

    #[test]
    fn each_plugin_has_a_row_for_each_number_of_pods_under_way() {
        let waited = |at_once| Waited {
            at_once,
            seconds: Sample::new([1.0, 2.0, 3.0]),
            whole: Duration::from_secs(7),
        };
        let measured = [
            Measured { name: "one", waited: vec![waited(4), waited(100)] },
            Measured { name: "two", waited: vec![waited(4), waited(100)] },
        ];
        let table = waits(&measured).to_string();
        assert_eq!(table.lines().filter(|line| line.contains("2.0")).count(), 4, "{table}");
    }
}
