//! The API as this node needs it: all nodes, whose each namespace is, its own ports, and the ports
//! of the networks it has.
//!
//! The rule of this file: what a node watches grows with what is on it, not with the cluster.
//! A network's ports are watched from its first pod here to its last.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::net::IpAddr;

use atoll_api::{Port, marks};
use atoll_model::compile::PlacedPort;
use atoll_types::NetworkId;
use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::Sender;
use tokio::task::JoinHandle;

use crate::seen::{Change, Delta, PortKey, Tenancy};

/// The running watches. They end with this value.
pub(crate) struct Watches {
    client: Client,
    changes: Sender<Change>,
    always: Vec<JoinHandle<()>>,
    networks: BTreeMap<NetworkId, JoinHandle<()>>,
}

impl Watches {
    /// Starts with the nodes and this node's ports.
    pub(crate) fn start(
        client: &Client,
        node: &str,
        underlay: Option<IpAddr>,
        changes: Sender<Change>,
    ) -> Self {
        let nodes = follow::<Node, _, _>(
            Api::all(client.clone()),
            watcher::Config::default(),
            move |node| Some((node.name_any(), internal_ip(node, underlay)?)),
            Node::name_any,
            (changes.clone(), Change::Nodes),
        );
        let own = follow::<Port, _, _>(
            Api::all(client.clone()),
            watcher::Config::default().fields(&format!("spec.node={node}")),
            |port| Some((key(port), placed(port)?.network)),
            key,
            (changes.clone(), Change::OwnPorts),
        );
        let namespaces = follow::<PartialObjectMeta<Namespace>, _, _>(
            Api::all(client.clone()),
            watcher::Config::default(),
            tenancy,
            ResourceExt::name_any,
            (changes.clone(), Change::Namespaces),
        );
        let always = vec![tokio::spawn(nodes), tokio::spawn(own), tokio::spawn(namespaces)];
        Watches { client: client.clone(), changes, always, networks: BTreeMap::new() }
    }

    /// Watches the ports of exactly these networks.
    pub(crate) fn follow_networks(&mut self, present: &BTreeSet<NetworkId>) {
        self.networks.retain(|network, watch| {
            let stays = present.contains(network);
            if !stays {
                watch.abort();
            }
            stays
        });
        for network in present {
            if !self.networks.contains_key(network) {
                self.networks.insert(*network, self.follow_network(*network));
            }
        }
    }

    fn follow_network(&self, network: NetworkId) -> JoinHandle<()> {
        tokio::spawn(follow::<Port, _, _>(
            Api::all(self.client.clone()),
            watcher::Config::default().fields(&format!("spec.networkID={network}")),
            |port| Some((key(port), placed(port)?)),
            key,
            (self.changes.clone(), move |delta| Change::NetworkPorts(network, delta)),
        ))
    }
}

impl Drop for Watches {
    fn drop(&mut self) {
        for watch in self.always.iter().chain(self.networks.values()) {
            watch.abort();
        }
    }
}

/// The underlay address of a node: the one of the same family as `own`, where that is known, or
/// else the first.
pub(crate) fn internal_ip(node: &Node, own: Option<IpAddr>) -> Option<IpAddr> {
    let addresses = node.status.as_ref()?.addresses.as_ref()?;
    let internal = addresses.iter().filter(|address| address.type_ == "InternalIP");
    let mut ips = internal.filter_map(|address| address.address.parse::<IpAddr>().ok());
    let first = ips.clone().next();
    ips.find(|ip| own.is_some_and(|own| own.is_ipv4() == ip.is_ipv4())).or(first)
}

fn key(port: &Port) -> PortKey {
    (port.namespace().unwrap_or_default(), port.name_any())
}

/// A port that cannot be parsed is as good as absent, and said once for each change of it.
fn placed(port: &Port) -> Option<PlacedPort> {
    PlacedPort::try_from(port)
        .inspect_err(|error| {
            tracing::warn!(port = ?key(port), %error, "port passed over");
        })
        .ok()
}

/// Watches for good and sends every change. `read` turns an object into its entry, or into `None`
/// where it has nothing to say; `key` names it.
async fn follow<R, K, V>(
    api: Api<R>,
    config: watcher::Config,
    read: impl Fn(&R) -> Option<(K, V)> + Send,
    key: impl Fn(&R) -> K + Send,
    (changes, wrap): (Sender<Change>, impl Fn(Delta<K, V>) -> Change + Send),
) where
    R: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    K: Ord,
{
    let mut deltas = std::pin::pin!(deltas(watcher(api, config).default_backoff(), read, key));
    while let Some(delta) = deltas.next().await {
        if changes.send(wrap(delta)).await.is_err() {
            return;
        }
    }
}

/// Whose a namespace is, by the label that only administrators may set.
fn tenancy(namespace: &PartialObjectMeta<Namespace>) -> Option<(String, Tenancy)> {
    let is_tenants = namespace.labels().contains_key(marks::TENANT);
    let tenancy = if is_tenants { Tenancy::Tenant } else { Tenancy::Nobody };
    Some((namespace.name_any(), tenancy))
}

/// Events as deltas: a list comes out whole, once it is complete.
fn deltas<R, K: Ord, V>(
    events: impl Stream<Item = watcher::Result<Event<R>>>,
    read: impl Fn(&R) -> Option<(K, V)>,
    key: impl Fn(&R) -> K,
) -> impl Stream<Item = Delta<K, V>>
where
    R: Resource<DynamicType = ()>,
{
    let mut listing = BTreeMap::new();
    events.filter_map(move |event| {
        let delta = match event {
            Ok(Event::Init) => {
                listing.clear();
                None
            }
            Ok(Event::InitApply(object)) => {
                listing.extend(read(&object));
                None
            }
            Ok(Event::InitDone) => Some(Delta::All(std::mem::take(&mut listing))),
            Ok(Event::Apply(object)) => Some(match read(&object) {
                Some((key, value)) => Delta::Put(key, value),
                None => Delta::Gone(key(&object)),
            }),
            Ok(Event::Delete(object)) => Some(Delta::Gone(key(&object))),
            Err(error) => {
                tracing::warn!(kind = %R::kind(&()), %error, "watch interrupted, trying again");
                None
            }
        };
        std::future::ready(delta)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_nodes_addresses_the_one_of_our_own_family_counts() {
        let addresses = serde_json::json!([
            {"type": "Hostname", "address": "node1"},
            {"type": "InternalIP", "address": "192.0.2.1"},
            {"type": "InternalIP", "address": "2001:db8::1"},
        ]);
        let node = serde_json::json!({"metadata": {}, "status": {"addresses": addresses}});
        let node: Node = serde_json::from_value(node).unwrap();
        let ip = |text: &str| text.parse().ok();
        assert_eq!(internal_ip(&node, None), ip("192.0.2.1"));
        assert_eq!(internal_ip(&node, ip("192.0.2.9")), ip("192.0.2.1"));
        assert_eq!(internal_ip(&node, ip("2001:db8::9")), ip("2001:db8::1"));
        assert_eq!(internal_ip(&Node::default(), None), None);
    }
}
