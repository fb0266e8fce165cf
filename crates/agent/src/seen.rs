//! What the agent has seen of the API so far.
//!
//! The rule of this file: it knows what it has *not* seen yet. Nothing may be taken away from the
//! kernel before the nodes, this node's ports, and every network on this node have been listed
//! once.

mod change;
mod exports;
mod exposed;
mod guests;
mod listed;
mod network_dns;
mod opened;
mod outside;
mod scope;
mod tenants;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use atoll_model::compile::{Attachment, NodeView, Outlet, PlacedPort};
use atoll_model::export::{ServiceName, TargetSlice};
use atoll_model::outside::Held;
use atoll_plan::Resolver;
use atoll_types::{Cidr, Label, NetworkId};

use self::listed::{Listed, absorb, absorb_followed, absorb_known, says};
use self::tenants::{quarters, wards};
use crate::probe::{PodName, Probed};
pub(crate) use crate::seen::change::{Change, Delta, PortKey};
pub(crate) use crate::seen::exports::Exported;
pub(crate) use crate::seen::exposed::{Exposed, Exposure};
pub(crate) use crate::seen::network_dns::{NetworkDns, Outside, Upstreams};
pub(crate) use crate::seen::scope::{Presence, Quarter, Scope};
pub(crate) use crate::seen::tenants::{SeenNamespace, Sibling, Tenancy};

/// A network that a port is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Joined {
    /// Its number.
    pub(crate) network: NetworkId,
    /// Its object name.
    pub(crate) name: String,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SeenNode {
    /// Its address for tunnel packets.
    pub(crate) underlay: IpAddr,
    /// What policy knows of it.
    pub(crate) facts: atoll_policy::Node,
    /// The addresses that it has itself.
    pub(crate) internal: Vec<IpAddr>,
    /// The ranges of its pods that are of no tenant.
    pub(crate) pod_ranges: Vec<Cidr>,
}

/// What the agent has seen of the API.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    nodes: Listed<String, SeenNode>,
    pools: Listed<String, Vec<Cidr>>,
    own_ports: Listed<PortKey, Joined>,
    networks: BTreeMap<NetworkId, Listed<PortKey, PlacedPort>>,
    /// What each network that is here says of its names, by object name.
    dns: BTreeMap<String, Listed<String, NetworkDns>>,
    /// And of the outside.
    outlets: BTreeMap<String, Listed<String, Outlet>>,
    /// The addresses of the outside that are for it.
    held: BTreeMap<String, Listed<String, Held>>,
    /// Those that this node answers for.
    answered: Listed<String, Held>,
    /// Services that every node leads the outside to or says something of, or that are open to others.
    exposed: BTreeMap<Exposure, BTreeMap<ServiceName, Exposed>>,
    /// The networks of each tenant that has a pod here.
    siblings: BTreeMap<Label, Listed<String, Sibling>>,
    namespaces: Listed<String, SeenNamespace>,
    /// The namespaces of each network, by its object name.
    quarters: BTreeMap<String, BTreeSet<String>>,
    api: Listed<ServiceName, Exported>,
    exports: Listed<ServiceName, Exported>,
    targets: BTreeMap<ServiceName, BTreeMap<String, TargetSlice>>,
    /// The namespaces of each tenant.
    wards: BTreeMap<Label, BTreeSet<String>>,
    probed: BTreeMap<PodName, Probed>,
}

impl Seen {
    /// Takes in a change. One of a network that has left is passed over.
    pub(crate) fn absorb(&mut self, change: Change) {
        let (moves_networks, moves_exports) = (change.moves_networks(), change.moves_exports());
        self.take_in(change);
        if moves_networks {
            self.follow_networks();
        }
        if moves_exports {
            let exports: BTreeSet<ServiceName> = self.exported().into_keys().cloned().collect();
            self.targets.retain(|service, _| exports.contains(service));
        }
    }

    fn take_in(&mut self, change: Change) {
        match change {
            Change::Nodes(delta) => absorb(&mut self.nodes, delta),
            Change::Pools(delta) => absorb(&mut self.pools, delta),
            Change::OwnPorts(delta) => absorb(&mut self.own_ports, delta),
            Change::Answered(delta) => absorb(&mut self.answered, delta),
            Change::Exposed(exposure, delta) => self.absorb_exposed(exposure, delta),
            Change::Namespaces(delta) => {
                absorb(&mut self.namespaces, delta);
                self.quarters = quarters(self.namespaces.iter().flatten());
                self.wards = wards(self.namespaces.iter().flatten());
            }
            Change::NetworkPorts(network, delta) => {
                absorb_followed(self.networks.get_mut(&network), delta);
            }
            Change::Siblings(tenant, delta) => {
                absorb_followed(self.siblings.get_mut(&tenant), delta);
            }
            Change::Network(name, delta) => absorb_followed(self.dns.get_mut(&name), delta),
            Change::Outlet(name, delta) => absorb_followed(self.outlets.get_mut(&name), delta),
            Change::Held(name, delta) => absorb_followed(self.held.get_mut(&name), delta),
            Change::Api(delta) => absorb(&mut self.api, delta),
            Change::Exports(delta) => absorb(&mut self.exports, delta),
            Change::Targets(service, delta) => {
                absorb_known(self.targets.entry(service).or_default(), delta);
            }
            Change::Probed(delta) => absorb_known(&mut self.probed, delta),
            Change::Zones(_)
            | Change::Policy(_)
            | Change::Services(..)
            | Change::Slices(..)
            | Change::Fronts(..)
            | Change::Groups(..) => {}
        }
    }

    /// Whether a change says of a port or a network nothing but what is known of it: most often, it is
    /// the word of a status that this agent has written itself.
    pub(crate) fn knows(&self, change: &Change) -> bool {
        match change {
            Change::OwnPorts(Delta::Put(key, port)) => says(&self.own_ports, key, port),
            Change::NetworkPorts(network, Delta::Put(key, port)) => {
                self.networks.get(network).is_some_and(|known| says(known, key, port))
            }
            Change::Siblings(tenant, Delta::Put(name, sibling)) => {
                self.siblings.get(tenant).is_some_and(|known| says(known, name, sibling))
            }
            _ => false,
        }
    }

    /// The pods of this node that have a sheet of probes.
    pub(crate) fn probed(&self) -> &BTreeMap<PodName, Probed> {
        &self.probed
    }

    fn follow_networks(&mut self) {
        self.follow_tenants();
        let names = self.names();
        self.dns.retain(|name, _| names.contains(name));
        self.outlets.retain(|name, _| names.contains(name));
        for name in names {
            self.dns.entry(name.clone()).or_default();
            self.outlets.entry(name).or_default();
        }
        let holders = self.holders();
        self.held.retain(|name, _| holders.contains(name));
        for name in holders {
            self.held.entry(name).or_default();
        }
        let present = self.with_pods().into_values().chain(self.guests().into_values());
        let known: BTreeSet<NetworkId> = present.chain(self.kin().into_values()).collect();
        self.networks.retain(|network, _| known.contains(network));
        for network in known {
            self.networks.entry(network).or_default();
        }
    }

    /// Whether everything has been listed once.
    pub(crate) fn is_complete(&self) -> bool {
        self.nodes.is_some()
            && self.pools.is_some()
            && self.own_ports.is_some()
            && self.answered.is_some()
            && self.has_seen_exposed()
            && self.held.values().all(Option::is_some)
            && self.siblings.values().all(Option::is_some)
            && self.networks.values().all(Option::is_some)
            && self.dns.values().all(Option::is_some)
            && self.outlets.values().all(Option::is_some)
    }

    /// The ports with this network number, once they were listed.
    pub(crate) fn ports_of(&self, network: NetworkId) -> Option<&BTreeMap<PortKey, PlacedPort>> {
        self.networks.get(&network)?.as_ref()
    }

    /// Every port of every network on this node, and of those that services lead to from them.
    pub(crate) fn ports(&self) -> impl Iterator<Item = (&PortKey, &PlacedPort)> {
        self.networks.values().flatten().flatten()
    }

    /// The ports on `node` of the pod that `attachment` is for, the one it names first; none
    /// before all of them are there.
    pub(crate) fn ports_for(
        &self,
        node: &str,
        attachment: &Attachment,
    ) -> Option<Vec<(&PortKey, &PlacedPort)>> {
        let here = || self.ports().filter(|(_, port)| port.node.as_deref() == Some(node));
        let first = here().find(|(_, port)| attachment.is_for(port))?;
        let brought = here().filter(|(_, port)| first.1.brings(port));
        let all: Vec<_> = std::iter::once(first).chain(brought).collect();
        (all.len() > first.1.others.len()).then_some(all)
    }

    /// The object name of a network, where this node has it.
    pub(crate) fn network_name(&self, network: NetworkId) -> Option<&str> {
        let ports = self.networks.get(&network)?.as_ref()?;
        ports.values().next().map(|port| port.network_name.as_str())
    }

    /// What the compiler is given.
    pub(crate) fn view<'a>(
        &'a self,
        node: &'a str,
        pod_mtu: u32,
        attachments: impl Iterator<Item = &'a Attachment>,
        cluster_dns: Resolver,
        led: &BTreeSet<NetworkId>,
    ) -> NodeView<'a> {
        let nodes = self.nodes.iter().flatten().map(|(name, it)| (name.as_str(), it.underlay));
        let with_pods: BTreeSet<NetworkId> = self.with_pods().into_values().collect();
        NodeView {
            node,
            pod_mtu,
            nodes: nodes.collect(),
            ports: self.ports().map(|(_, port)| port).collect(),
            attachments: attachments.collect(),
            cluster_dns,
            own_dns: self.own_dns(led),
            outlets: self.outlets(),
            guests: self.guests().into_values().filter(|id| !with_pods.contains(id)).collect(),
            held: self.answers_for(),
            denied: self.own_of_cluster(),
            opened: self.opened(),
            node_ips: self.node_ips(node),
            ..NodeView::default()
        }
    }
}
