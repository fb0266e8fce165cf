//! The plain network: what pods of no tenant have where Atoll is the only network of a cluster.
//!
//! It is Kubernetes' own model with nothing added: every pod has an address of its node's podCIDR,
//! the reference plugins make its interface, and nodes route to each other's ranges. The rule of
//! this file: nothing of a tenant's network is in it, and nothing of it reaches one.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use atoll_datapath::Datapath;
use atoll_types::Cidr;
use futures::{Stream, StreamExt, stream};
use k8s_openapi::api::core::v1::Node;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::{Map, Value, json};

use crate::watch::{at_hand, internal_ip, zone};

/// What the network is called among the node's.
const NETWORK: &str = "atoll-plain";
/// The plugins that it is made of.
const PLUGINS: [&str; 2] = ["ptp", "host-local"];
/// One that is used where it is there: ports of the node that lead to pods.
const PORTS: &str = "portmap";
/// Where addresses in use are written; pods do not outlive a reboot, so neither does it.
pub(crate) const LEASES: &str = "/run/atoll/plain";

/// The plain network of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plain {
    /// This node's ranges, each with the range of all nodes that it is a part of.
    ranges: Vec<(Cidr, Cidr)>,
    /// The zone that the node is in.
    zone: Option<String>,
}

impl Plain {
    /// The network as this node has it, if one is wanted. `all` is what the podCIDRs of all nodes
    /// are parts of.
    pub(crate) async fn find(client: &Client, node: &str, all: &[Cidr]) -> Result<Option<Self>> {
        if all.is_empty() {
            return Ok(None);
        }
        let object = Api::<Node>::all(client.clone()).get(node).await;
        let object = object.with_context(|| format!("cannot read node {node}"))?;
        Plain::of(&object, all).map(Some)
    }

    fn of(node: &Node, all: &[Cidr]) -> Result<Self> {
        let own = ranges_of(node);
        let name = node.name_any();
        ensure!(
            !own.is_empty(),
            "node {name} has no podCIDR, which --plain-network needs; does kube-controller-manager \
             run with --allocate-node-cidrs?"
        );
        let within = |own: Cidr| match all.iter().find(|all| all.contains_cidr(&own)) {
            Some(all) => Ok((own, *all)),
            None => bail!("podCIDR {own} of node {name} is not within --plain-network"),
        };
        let ranges = own.into_iter().map(within).collect::<Result<_>>()?;
        Ok(Plain { ranges, zone: zone(node) })
    }

    /// The ranges of this node's pods.
    pub(crate) fn own_ranges(&self) -> Vec<Cidr> {
        self.ranges.iter().map(|(own, _)| *own).collect()
    }

    /// The zone that the node is in.
    pub(crate) fn zone(&self) -> Option<String> {
        self.zone.clone()
    }

    /// The list of plugins, for a node whose plugins are in `programs`.
    pub(crate) fn list(&self, programs: &Path) -> Result<Map<String, Value>> {
        for plugin in PLUGINS {
            let there = has(programs, plugin);
            ensure!(
                there,
                "--plain-network needs the reference plugin {plugin} in {}",
                programs.display()
            );
        }
        let has_ports = has(programs, PORTS);
        let ports = json!({"type": PORTS, "capabilities": {"portMappings": true}});
        let plugins: Vec<_> =
            [self.interface()].into_iter().chain(has_ports.then_some(ports)).collect();
        let list = json!({"cniVersion": "1.0.0", "name": NETWORK, "plugins": plugins});
        list.as_object().cloned().context("a list is an object")
    }

    /// A pod's addresses have the mask of the whole cluster: what leaves that is translated to the
    /// node's address, and what stays within is not.
    fn interface(&self) -> Value {
        let range = |(own, all): &(Cidr, Cidr)| json!([{"subnet": all, "rangeStart": own.nth(1), "rangeEnd": own.nth(own.size().saturating_sub(2))}]);
        let every = |(own, _): &(Cidr, Cidr)| json!({"dst": if own.is_ipv4() { "0.0.0.0/0" } else { "::/0" }});
        let ipam = json!({
            "type": "host-local",
            "dataDir": LEASES,
            "ranges": self.ranges.iter().map(range).collect::<Vec<_>>(),
            "routes": self.ranges.iter().map(every).collect::<Vec<_>>(),
        });
        json!({"type": "ptp", "ipMasq": true, "ipam": ipam})
    }
}

/// Whether a plugin is there. A link counts: where it leads to may be out of this container's sight.
fn has(programs: &Path, plugin: &str) -> bool {
    std::fs::symlink_metadata(programs.join(plugin)).is_ok()
}

/// The ranges of a node's pods.
fn ranges_of(node: &Node) -> Vec<Cidr> {
    let spec = node.spec.clone().unwrap_or_default();
    let all = spec.pod_cidrs.unwrap_or_else(|| spec.pod_cidr.into_iter().collect());
    all.iter().filter_map(|range| range.parse().ok()).collect()
}

/// How often routes are looked at anew: the kernel takes them away when their link goes down.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// Keeps this node's routes to all others, for good.
pub(crate) async fn keep_routes(client: Client, own: &str) -> Result<()> {
    let nodes = watcher(Api::<Node>::all(client), at_hand()).default_backoff();
    let changes = std::pin::pin!(route_changes(nodes, own));
    let mut wanted = std::pin::pin!(repeated(changes, LOOK_AGAIN));
    while let Some(routes) = wanted.next().await {
        if let Err(error) = Datapath::set_plain_routes(&routes).await {
            tracing::warn!(%error, cause = ?std::error::Error::source(&error).map(ToString::to_string), "plain routes are not as they should be");
        }
    }
    bail!("the watch of nodes ended")
}

/// Each as it comes, and the last one once more whenever none came for so long.
fn repeated<T: Clone>(
    items: impl Stream<Item = T> + Unpin,
    period: Duration,
) -> impl Stream<Item = T> {
    stream::unfold((items, None), move |(mut items, last): (_, Option<T>)| async move {
        let next = match last {
            None => items.next().await,
            Some(last) => {
                let next = tokio::time::timeout(period, items.next()).await;
                next.unwrap_or(Some(last))
            }
        }?;
        Some((next.clone(), (items, Some(next))))
    })
}

/// All routes, after each change of them, once all nodes were seen.
fn route_changes(
    events: impl Stream<Item = watcher::Result<Event<Node>>>,
    own: &str,
) -> impl Stream<Item = BTreeMap<Cidr, IpAddr>> {
    let mut nodes: BTreeMap<String, Node> = BTreeMap::new();
    let (mut told, mut is_whole) = (None, false);
    events.filter_map(move |event| {
        match event {
            Ok(Event::Init) => {
                nodes.clear();
                is_whole = false;
            }
            Ok(Event::InitApply(node) | Event::Apply(node)) => {
                nodes.insert(node.name_any(), node);
            }
            Ok(Event::Delete(node)) => {
                nodes.remove(&node.name_any());
            }
            Ok(Event::InitDone) => is_whole = true,
            Err(error) => tracing::warn!(%error, "watch of nodes interrupted, trying again"),
        }
        let routes = routes(nodes.values(), own);
        let is_new = is_whole && told.as_ref() != Some(&routes);
        if is_new {
            told = Some(routes.clone());
        }
        std::future::ready(is_new.then_some(routes))
    })
}

/// Every other node's ranges by way of its address of the same family.
fn routes<'a>(nodes: impl Iterator<Item = &'a Node>, own: &str) -> BTreeMap<Cidr, IpAddr> {
    let others = nodes.filter(|node| node.name_any() != own);
    others
        .flat_map(|node| {
            ranges_of(node).into_iter().filter_map(|range| {
                let via = internal_ip(node, Some(range.first()))?;
                (via.is_ipv4() == range.is_ipv4()).then_some((range, via))
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, address: &str, ranges: &[&str]) -> Node {
        let status = json!({"addresses": [{"type": "InternalIP", "address": address}]});
        let node =
            json!({"metadata": {"name": name}, "spec": {"podCIDRs": ranges}, "status": status});
        serde_json::from_value(node).unwrap()
    }

    fn all() -> Vec<Cidr> {
        vec!["10.244.0.0/16".parse().unwrap()]
    }

    fn programs(names: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in names {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        folder
    }

    #[test]
    fn pods_get_addresses_of_their_node_with_the_mask_of_the_cluster() {
        let plain = Plain::of(&node("node1", "192.0.2.1", &["10.244.1.0/24"]), &all()).unwrap();
        let list = plain.list(programs(&["ptp", "host-local"]).path()).unwrap();
        assert_eq!(list["plugins"].as_array().unwrap().len(), 1);
        let ranges = &list["plugins"][0]["ipam"]["ranges"];
        let wanted = json!([[{"subnet": "10.244.0.0/16", "rangeStart": "10.244.1.1",
            "rangeEnd": "10.244.1.254"}]]);
        assert_eq!(*ranges, wanted);
    }

    #[test]
    fn the_plugin_tells_of_links_where_their_services_are_led() {
        let plain = Plain::of(&node("node1", "192.0.2.1", &["10.244.1.0/24"]), &all()).unwrap();
        let folder = programs(&["ptp", "host-local", "program"]);
        for plain_services in [true, false] {
            let places = crate::PluginPlaces {
                cni_bin_dir: Some(folder.path().to_owned()),
                cni_conf_dir: Some(folder.path().to_owned()),
                plain_services,
                ..crate::PluginPlaces::default()
            };
            let program = folder.path().join("program");
            places.install(&program, Path::new("/run/agent.sock"), Some(&plain)).unwrap();
            let text = std::fs::read(folder.path().join("05-atoll.conflist")).unwrap();
            let list: Value = serde_json::from_slice(&text).unwrap();
            let told = list["plugins"][0].get("plainServices").cloned();
            assert_eq!(told, plain_services.then_some(json!(true)));
        }
    }

    #[test]
    fn a_plugin_may_be_a_link_to_where_only_the_node_sees() {
        let folder = programs(&["host-local"]);
        std::os::unix::fs::symlink("/nowhere/ptp", folder.path().join("ptp")).unwrap();
        let plain = Plain::of(&node("node1", "192.0.2.1", &["10.244.1.0/24"]), &all()).unwrap();
        plain.list(folder.path()).unwrap();
    }

    #[test]
    fn ports_of_the_node_are_led_to_pods_where_the_plugin_is_there() {
        let plain = Plain::of(&node("node1", "192.0.2.1", &["10.244.1.0/24"]), &all()).unwrap();
        let list = plain.list(programs(&["ptp", "host-local", "portmap"]).path()).unwrap();
        assert_eq!(list["plugins"][1]["capabilities"], json!({"portMappings": true}));
    }

    #[test]
    fn a_node_without_a_range_or_plugins_or_with_a_strange_range_is_refused_by_name() {
        let without = Plain::of(&node("node1", "192.0.2.1", &[]), &all()).unwrap_err();
        assert!(without.to_string().starts_with("node node1 has no podCIDR"), "{without}");
        let strange = Plain::of(&node("node1", "192.0.2.1", &["10.9.0.0/24"]), &all()).unwrap_err();
        assert!(strange.to_string().contains("10.9.0.0/24 of node node1"), "{strange}");
        let plain = Plain::of(&node("node1", "192.0.2.1", &["10.244.1.0/24"]), &all()).unwrap();
        let refused = plain.list(programs(&["ptp"]).path()).unwrap_err();
        assert!(refused.to_string().contains("reference plugin host-local"), "{refused}");
    }

    #[test]
    fn routes_lead_to_every_other_node_that_has_a_range() {
        let nodes = [
            node("node1", "192.0.2.1", &["10.244.1.0/24"]),
            node("node2", "192.0.2.2", &["10.244.2.0/24", "fd00:2::/64"]),
            node("node3", "192.0.2.3", &[]),
        ];
        let wanted = [("10.244.2.0/24".parse().unwrap(), "192.0.2.2".parse().unwrap())];
        assert_eq!(routes(nodes.iter(), "node1"), wanted.into());
    }

    #[tokio::test]
    async fn routes_are_set_again_and_again_so_that_what_others_took_away_comes_back() {
        let (send, sent) = tokio::sync::mpsc::unbounded_channel();
        let sent = stream::unfold(sent, |mut sent| async { Some((sent.recv().await?, sent)) });
        let often = Duration::from_millis(1);
        let mut wanted = std::pin::pin!(repeated(Box::pin(sent), often));
        for routes in [1, 2] {
            send.send(routes).unwrap();
            for _ in 0..3 {
                assert_eq!(wanted.next().await, Some(routes));
            }
        }
        drop(send);
        assert_eq!(wanted.next().await, None, "they end with the watch");
    }

    #[tokio::test]
    async fn routes_are_told_once_all_nodes_were_seen_and_then_with_each_change() {
        let range = |number: u8| format!("10.244.{number}.0/24");
        let at = |number: u8| {
            node(&format!("node{number}"), &format!("192.0.2.{number}"), &[&range(number)])
        };
        let events = [
            Event::Init,
            Event::InitApply(at(1)),
            Event::InitApply(at(2)),
            Event::InitDone,
            Event::Apply(at(2)),
            Event::Apply(at(3)),
            Event::Delete(at(2)),
        ];
        let told = route_changes(stream::iter(events.map(Ok)), "node1");
        let told: Vec<usize> = told.map(|routes| routes.len()).collect().await;
        assert_eq!(told, [1, 2, 1]);
    }
}
