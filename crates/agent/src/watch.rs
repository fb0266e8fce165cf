//! The API as this node needs it: all nodes, whose each namespace is, its own ports, the addresses of
//! the outside that it answers for, and of the networks it has the ports, services and EndpointSlices.
//!
//! The rule of this file: what a node watches grows with the tenants that are on it, not with the
//! cluster. What belongs to a network is watched from its first pod here to its last, and for as long as
//! the node answers for an address of it; its ports and services also while another network of its tenant
//! has a pod here, since services lead from one to the other.

mod follow;
mod objects;
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use atoll_model::export::ServiceName;
use atoll_types::{Label, NetworkId};
use kube::Client;
use tokio::sync::mpsc::Sender;
use tokio::task::JoinHandle;

pub(crate) use self::follow::{at_hand, deltas, follow};
pub(crate) use self::objects::{front, internal_ip, tenancy, zone};
use self::source::Source;
use crate::policy::Ward;
use crate::seen::{Change, Exposure, Quarter, Scope};

/// The running watches. They end with this value.
pub(crate) struct Watches {
    source: Source,
    _always: [Watch; 11],
    networks: BTreeMap<Followed<NetworkId>, Watch>,
    siblings: BTreeMap<Label, Watch>,
    held: BTreeMap<String, Watch>,
    dns: BTreeMap<String, Watch>,
    services: BTreeMap<Followed<Quarter>, Watch>,
    slices: BTreeMap<Followed<Quarter>, Watch>,
    targets: BTreeMap<ServiceName, Watch>,
    pods: BTreeMap<Ward, Watch>,
    policies: BTreeMap<Ward, Watch>,
}

/// What is followed, and whether its network has a pod here. With the first pod, more must hear of it
/// than did, and all of it: it is listed anew.
type Followed<T> = (T, bool);

/// A running watch, which ends with this value.
pub(crate) struct Watch(JoinHandle<()>);

impl Watch {
    pub(crate) fn start(watch: impl Future<Output = ()> + Send + 'static) -> Self {
        Watch(tokio::spawn(watch))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Watches {
    /// Starts with the nodes and this node's ports.
    pub(crate) fn start(
        client: &Client,
        node: &str,
        underlay: Option<IpAddr>,
        changes: Sender<Change>,
    ) -> Self {
        let source = Source::new(client, node, changes);
        Watches {
            _always: [
                source.nodes(underlay),
                source.own_ports(node),
                source.namespaces(),
                source.api(),
                source.exports(),
                source.cluster_policies(),
                source.probed(node),
                source.pools(),
                source.answered(node),
                source.exposed(Exposure::NodePort),
                source.exposed(Exposure::LoadBalancer),
            ],
            source,
            networks: BTreeMap::new(),
            siblings: BTreeMap::new(),
            held: BTreeMap::new(),
            dns: BTreeMap::new(),
            services: BTreeMap::new(),
            slices: BTreeMap::new(),
            targets: BTreeMap::new(),
            pods: BTreeMap::new(),
            policies: BTreeMap::new(),
        }
    }

    /// Watches exactly these networks and namespaces.
    pub(crate) fn follow(&mut self, scope: &Scope) {
        let (networks, quarters) = (followed_networks(scope), followed_quarters(scope));
        let tenants = scope.tenants();
        match_keys(&mut self.siblings, &tenants, |tenant| self.source.siblings(tenant));
        match_keys(&mut self.dns, &scope.names, |name| self.source.dns(name));
        match_keys(&mut self.held, &scope.holders, |name| self.source.held(name));
        match_keys(&mut self.networks, &networks, |(network, _)| self.source.ports(*network));
        match_keys(&mut self.services, &quarters, |(quarter, _)| self.source.services(quarter));
        match_keys(&mut self.slices, &quarters, |(quarter, _)| self.source.slices(quarter));
        match_keys(&mut self.pods, &scope.wards, |ward| self.source.pods(ward));
        match_keys(&mut self.policies, &scope.wards, |ward| self.source.policies(ward));
        match_keys(&mut self.targets, &scope.exports, |service| self.source.targets(service));
    }
}

fn followed_networks(scope: &Scope) -> BTreeSet<Followed<NetworkId>> {
    let with_pods: BTreeSet<NetworkId> = scope.networks.values().map(|it| it.id).collect();
    scope.all().map(|(_, it)| (it.id, with_pods.contains(&it.id))).collect()
}

/// A network that comes here is listed anew: its names begin with that.
fn followed_quarters(scope: &Scope) -> BTreeSet<Followed<Quarter>> {
    let has_pod = |quarter: &Quarter| scope.networks.contains_key(&quarter.0);
    scope.quarters().into_iter().map(|quarter| (quarter.clone(), has_pod(&quarter))).collect()
}

/// Ends the watches that are not wanted, and starts those that are missing.
pub(crate) fn match_keys<K: Ord + Clone>(
    running: &mut BTreeMap<K, Watch>,
    wanted: &BTreeSet<K>,
    start: impl Fn(&K) -> Watch,
) {
    running.retain(|key, _| wanted.contains(key));
    for key in wanted {
        running.entry(key.clone()).or_insert_with(|| start(key));
    }
}
