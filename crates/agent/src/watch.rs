//! The API as this node needs it: all nodes, whose each namespace is, its own ports, the addresses of
//! the outside that it answers for, and of the networks it has the ports, services and EndpointSlices.
//!
//! The rule of this file: what a node watches grows with the tenants that are on it, not with the
//! cluster. What belongs to a network is watched from its first pod here to its last, and for as long as
//! the node answers for an address of it; its ports and services also while another network of its tenant
//! has a pod here, since services lead from one to the other.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::net::IpAddr;
use std::sync::Arc;

use atoll_api::{AddressPool, Claim, Network, NetworkIsolation, Port, marks};
use atoll_model::compile::{EndpointGroup, Outlet, PlacedPort, ServiceFront};
use atoll_model::export::{Export, ExportError, ServiceName, TargetSlice};
use atoll_model::intent::DnsPlan;
use atoll_model::outside::Held;
use atoll_types::{Cidr, Label, NetworkId};
use atoll_zones::Slice;
use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::Sender;
use tokio::task::JoinHandle;

use crate::policy::{Ward, watch as policy};
use crate::probe::{PodName, Probed};
use crate::seen::{
    Change, Delta, Exported, Exposure, Joined, NetworkDns, Outside, PortKey, Quarter, Scope,
    SeenNamespace, SeenNode, Sibling, Tenancy, Upstreams,
};

/// The label by which a slice names its service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

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

/// Where watches begin, and where what they see goes.
struct Source {
    client: Client,
    reporter: policy::Reporter,
    changes: Sender<Change>,
}

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
        let reporter = policy::Reporter::start(client.clone(), node);
        let source = Source { client: client.clone(), reporter, changes };
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
        match_keys(&mut self.held, &scope.names, |name| self.source.held(name));
        match_keys(&mut self.networks, &networks, |(network, _)| self.source.ports(*network));
        match_keys(&mut self.services, &quarters, |(quarter, _)| self.source.services(quarter));
        match_keys(&mut self.slices, &quarters, |(quarter, _)| self.source.slices(quarter));
        match_keys(&mut self.pods, &scope.wards, |ward| self.source.pods(ward));
        match_keys(&mut self.policies, &scope.wards, |ward| self.source.policies(ward));
        match_keys(&mut self.targets, &scope.exports, |service| self.source.targets(service));
    }
}

impl Source {
    fn nodes(&self, underlay: Option<IpAddr>) -> Watch {
        Watch::start(follow_twofold::<Node, _, _, _>(
            Api::all(self.client.clone()),
            at_hand(),
            move |node| {
                let facts = atoll_policy::read_node(node);
                let pod_ranges = pod_ranges(node);
                let seen = internal_ip(node, underlay);
                (seen.map(|underlay| SeenNode { underlay, facts, pod_ranges }), zone(node))
            },
            Node::name_any,
            (self.changes.clone(), Change::Nodes, Change::Zones),
        ))
    }

    fn own_ports(&self, node: &str) -> Watch {
        Watch::start(follow::<Port, _, _>(
            Api::all(self.client.clone()),
            at_hand().fields(&format!("spec.node={node}")),
            |port| Some((key(port), joined(port)?)),
            key,
            (self.changes.clone(), Change::OwnPorts),
        ))
    }

    fn namespaces(&self) -> Watch {
        Watch::start(follow::<PartialObjectMeta<Namespace>, _, _>(
            Api::all(self.client.clone()),
            watcher::Config::default(),
            |namespace| Some((namespace.name_any(), seen_namespace(namespace))),
            ResourceExt::name_any,
            (self.changes.clone(), Change::Namespaces),
        ))
    }

    fn ports(&self, network: NetworkId) -> Watch {
        Watch::start(follow::<Port, _, _>(
            Api::all(self.client.clone()),
            at_hand().fields(&format!("spec.networkID={network}")),
            |port| Some((key(port), placed(port)?)),
            key,
            (self.changes.clone(), move |delta| Change::NetworkPorts(network, delta)),
        ))
    }

    fn siblings(&self, tenant: &Label) -> Watch {
        let of = tenant.clone();
        Watch::start(follow::<Network, _, _>(
            Api::all(self.client.clone()),
            at_hand().fields(&format!("spec.tenant={tenant}")),
            |network| Some((network.name_any(), sibling(network)?)),
            Network::name_any,
            (self.changes.clone(), move |delta| Change::Siblings(of.clone(), delta)),
        ))
    }

    fn cluster_policies(&self) -> Watch {
        let (client, reporter) = (self.client.clone(), self.reporter.clone());
        Watch::start(policy::cluster_policies(client, reporter, self.changes.clone()))
    }

    fn pods(&self, ward: &Ward) -> Watch {
        Watch::start(policy::pods(self.client.clone(), ward.clone(), self.changes.clone()))
    }

    fn policies(&self, ward: &Ward) -> Watch {
        let (client, reporter) = (self.client.clone(), self.reporter.clone());
        Watch::start(policy::policies(client, reporter, ward.clone(), self.changes.clone()))
    }

    fn dns(&self, network: &str) -> Watch {
        let (names, outside) = (network.to_owned(), network.to_owned());
        Watch::start(follow_twofold::<Network, _, _, _>(
            Api::all(self.client.clone()),
            at_hand().fields(&format!("metadata.name={network}")),
            |network| (Some(network_dns(network)), Some(Outlet::read(network))),
            Network::name_any,
            (
                self.changes.clone(),
                move |delta| Change::Network(names.clone(), delta),
                move |delta| Change::Outlet(outside.clone(), delta),
            ),
        ))
    }

    fn held(&self, network: &str) -> Watch {
        let name = network.to_owned();
        Watch::start(follow::<Claim, _, _>(
            Api::all(self.client.clone()),
            at_hand().fields(&format!("spec.network={network}")),
            |claim| Some((claim.name_any(), Held::read(claim)?)),
            Claim::name_any,
            (self.changes.clone(), move |delta| Change::Held(name.clone(), delta)),
        ))
    }

    /// The services of a type that every node leads the outside to: where they are, and no more.
    fn exposed(&self, exposure: Exposure) -> Watch {
        let of_type = format!("spec.type={}", exposure.type_of_service());
        Watch::start(follow::<Service, _, _>(
            Api::all(self.client.clone()),
            at_hand().fields(&of_type),
            |service| Exposure::is_everywhere(service).then(|| (service_name(service), ())),
            service_name,
            (self.changes.clone(), move |delta| Change::Exposed(exposure, delta)),
        ))
    }

    /// The addresses of the outside that this node answers for.
    fn answered(&self, node: &str) -> Watch {
        let own = node.to_owned();
        Watch::start(follow::<Claim, _, _>(
            Api::all(self.client.clone()),
            at_hand().fields(&format!("spec.node={node}")),
            move |claim| {
                let held = Held::read(claim).filter(|held| held.node == own)?;
                Some((claim.name_any(), held))
            },
            Claim::name_any,
            (self.changes.clone(), Change::Answered),
        ))
    }

    fn services(&self, quarter: &Quarter) -> Watch {
        let (names, fronts) = (quarter.clone(), quarter.clone());
        Watch::start(follow_twofold::<Service, _, _, _>(
            Api::namespaced(self.client.clone(), &quarter.1),
            at_hand(),
            |service| (named(service), front(service)),
            Service::name_any,
            (
                self.changes.clone(),
                move |delta| Change::Services(names.clone(), delta),
                move |delta| Change::Fronts(fronts.clone(), delta),
            ),
        ))
    }

    /// The one service of every cluster that leads to its API.
    fn api(&self) -> Watch {
        Watch::start(follow::<Service, _, _>(
            Api::namespaced(self.client.clone(), "default"),
            at_hand().fields("metadata.name=kubernetes"),
            |service| exported(service, Export::api(service)),
            service_name,
            (self.changes.clone(), Change::Api),
        ))
    }

    fn exports(&self) -> Watch {
        Watch::start(follow::<Service, _, _>(
            Api::all(self.client.clone()),
            at_hand().labels(marks::EXPORT),
            |service| exported(service, Export::labelled(service)),
            service_name,
            (self.changes.clone(), Change::Exports),
        ))
    }

    fn pools(&self) -> Watch {
        Watch::start(follow::<AddressPool, _, _>(
            Api::all(self.client.clone()),
            at_hand(),
            |pool| Some((pool.name_any(), read_ranges(&pool.spec.cidrs))),
            ResourceExt::name_any,
            (self.changes.clone(), Change::Pools),
        ))
    }

    /// Of the pods of this node only what is written on them: their specs are the kubelet's matter.
    fn probed(&self, node: &str) -> Watch {
        Watch::start(follow::<PartialObjectMeta<Pod>, _, _>(
            Api::all(self.client.clone()),
            at_hand().fields(&format!("spec.nodeName={node}")),
            probed,
            |pod| (pod.namespace().unwrap_or_default(), pod.name_any()),
            (self.changes.clone(), Change::Probed),
        ))
    }

    fn targets(&self, service: &ServiceName) -> Watch {
        let service = service.clone();
        Watch::start(follow::<EndpointSlice, _, _>(
            Api::namespaced(self.client.clone(), &service.0),
            at_hand().labels(&format!("{SERVICE_NAME}={}", service.1)),
            |slice| Some((slice.name_any(), TargetSlice::read(slice))),
            EndpointSlice::name_any,
            (self.changes.clone(), move |delta| Change::Targets(service.clone(), delta)),
        ))
    }

    fn slices(&self, quarter: &Quarter) -> Watch {
        let (names, groups) = (quarter.clone(), quarter.clone());
        Watch::start(follow_twofold::<EndpointSlice, _, _, _>(
            Api::namespaced(self.client.clone(), &quarter.1),
            at_hand(),
            |slice| (Slice::read(slice), EndpointGroup::read(slice)),
            EndpointSlice::name_any,
            (
                self.changes.clone(),
                move |delta| Change::Slices(names.clone(), delta),
                move |delta| Change::Groups(groups.clone(), delta),
            ),
        ))
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

/// The underlay address of a node: the one of the same family as `own`, where that is known, or
/// else the first.
pub(crate) fn internal_ip(node: &Node, own: Option<IpAddr>) -> Option<IpAddr> {
    let addresses = node.status.as_ref()?.addresses.as_ref()?;
    let internal = addresses.iter().filter(|address| address.type_ == "InternalIP");
    let mut ips = internal.filter_map(|address| address.address.parse::<IpAddr>().ok());
    let first = ips.clone().next();
    ips.find(|ip| own.is_some_and(|own| own.is_ipv4() == ip.is_ipv4())).or(first)
}

/// The ranges of a node's pods that are of no tenant, where it has any.
fn pod_ranges(node: &Node) -> Vec<Cidr> {
    let spec = node.spec.iter();
    let all = spec.flat_map(|spec| spec.pod_cidrs.iter().flatten().chain(&spec.pod_cidr));
    read_ranges(all)
}

/// The ranges among these that can be read.
fn read_ranges<'a>(ranges: impl IntoIterator<Item = &'a String>) -> Vec<Cidr> {
    ranges.into_iter().filter_map(|range| range.parse().ok()).collect()
}

/// A network that has no number yet has no pods either.
fn sibling(network: &Network) -> Option<Sibling> {
    let id = network.status.as_ref()?.id?.try_into().ok()?;
    let is_shared = network.spec.isolation == Some(NetworkIsolation::Open);
    Some(Sibling { id, is_shared })
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

/// The network of a port.
fn joined(port: &Port) -> Option<Joined> {
    let placed = placed(port)?;
    Some(Joined { network: placed.network, name: placed.network_name })
}

/// What a network says of its names. One that cannot be understood asks nobody outside.
fn network_dns(network: &Network) -> NetworkDns {
    let status = network.status.clone().unwrap_or_default();
    let addresses = status.dns_service_ips.iter().filter_map(|ip| ip.parse::<IpAddr>().ok());
    let outside = DnsPlan::parse(network.spec.dns.as_ref()).map(|plan| Outside {
        upstreams: plan.upstreams.map_or(Upstreams::OfNode, Upstreams::Own),
        refuse_private: plan.refuse_private,
    });
    let outside = outside.unwrap_or_else(|malformed| {
        let (network, error) = (network.name_any(), malformed.message);
        tracing::warn!(network, error, "the network asks nobody outside");
        Outside::default()
    });
    let service = network.spec.dns.as_ref().and_then(|dns| dns.service.clone());
    NetworkDns {
        addresses: addresses.collect(),
        mode: status.dns_mode,
        service: service.map(|it| (it.namespace, it.name)),
        outside,
    }
}

/// A service that cannot be named has no name, and that is said once for each change of it.
fn named(service: &Service) -> Option<atoll_zones::Service> {
    atoll_zones::Service::read(service)
        .inspect_err(|error| {
            let (namespace, name) = (service.namespace(), service.name_any());
            tracing::warn!(?namespace, name, %error, "service without a name");
        })
        .ok()
}

/// A service that cannot be served is not, and that is said once for each change of it.
pub(crate) fn front(service: &Service) -> Option<ServiceFront> {
    ServiceFront::read(service)
        .inspect_err(|error| {
            let (namespace, name) = (service.namespace(), service.name_any());
            tracing::warn!(?namespace, name, %error, "service passed over");
        })
        .ok()
}

/// The label of a node that names its zone.
const ZONE: &str = "topology.kubernetes.io/zone";

pub(crate) fn zone(node: &Node) -> Option<String> {
    node.labels().get(ZONE).cloned()
}

/// Watches for good objects that say two things, and sends every change as a change of each.
async fn follow_twofold<R, A, B, F>(
    api: Api<R>,
    config: watcher::Config,
    read: impl Fn(&R) -> (Option<A>, Option<B>) + Send,
    name: F,
    (changes, first, second): (
        Sender<Change>,
        impl Fn(Delta<String, A>) -> Change + Send,
        impl Fn(Delta<String, B>) -> Change + Send,
    ),
) where
    R: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    F: Fn(&R) -> String + Send + Copy,
{
    let events = watcher(api, config).default_backoff();
    let read = |object: &R| Some((name(object), read(object)));
    let mut deltas = std::pin::pin!(deltas(events, read, name));
    while let Some(delta) = deltas.next().await {
        let (one, other) = split(delta);
        for change in [first(one), second(other)] {
            if changes.send(change).await.is_err() {
                return;
            }
        }
    }
}

/// What has nothing to say in one respect is gone there.
fn split<K: Ord + Clone, A, B>(
    delta: Delta<K, (Option<A>, Option<B>)>,
) -> (Delta<K, A>, Delta<K, B>) {
    match delta {
        Delta::All(all) => {
            let (mut ones, mut others) = (BTreeMap::new(), BTreeMap::new());
            for (key, (a, b)) in all {
                ones.extend(a.map(|a| (key.clone(), a)));
                others.extend(b.map(|b| (key, b)));
            }
            (Delta::All(ones), Delta::All(others))
        }
        Delta::Put(key, (a, b)) => (put_or_gone(key.clone(), a), put_or_gone(key, b)),
        Delta::Gone(key) => (Delta::Gone(key.clone()), Delta::Gone(key)),
    }
}

fn put_or_gone<K, V>(key: K, value: Option<V>) -> Delta<K, V> {
    match value {
        Some(value) => Delta::Put(key, value),
        None => Delta::Gone(key),
    }
}

/// A pod with a sheet of probes. One that cannot be read is none, and its probes fail.
fn probed(pod: &PartialObjectMeta<Pod>) -> Option<(PodName, Probed)> {
    let name = (pod.namespace()?, pod.name_any());
    let sheet = serde_json::from_str(pod.annotations().get(marks::PROBES)?)
        .inspect_err(|error| tracing::warn!(pod = ?name, %error, "unreadable sheet of probes"));
    Some((name, Probed { uid: pod.uid()?, sheet: Arc::new(sheet.ok()?) }))
}

fn service_name(service: &Service) -> ServiceName {
    (service.namespace().unwrap_or_default(), service.name_any())
}

/// A service that cannot be exported is not, and that is said once for each change of it.
fn exported(
    service: &Service,
    read: Result<Export, ExportError>,
) -> Option<(ServiceName, Exported)> {
    let name = service_name(service);
    let export = read
        .inspect_err(|error| tracing::warn!(service = ?name, %error, "service not exported"))
        .ok()?;
    let named = named(service)?;
    Some((name, Exported { export, named }))
}

/// How objects are listed before they are followed: as the API server has them in its memory, which may
/// be a moment ago. It never has to wait, nor to read and decode what is stored, however many nodes
/// start at once; what happened in that moment is told next. Policies, and the pods and namespaces that
/// they speak of, are listed in their newest state: none that is in force may be missing for a moment.
pub(crate) fn at_hand() -> watcher::Config {
    watcher::Config::default().any_semantic()
}

/// Watches for good and sends every change. `read` turns an object into its entry, or into `None`
/// where it has nothing to say; `key` names it.
pub(crate) async fn follow<R, K, V>(
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

/// Whose a namespace is, by the label that only administrators may set, and the network of its
/// services: the one that it names, else the tenant's `default`.
pub(crate) fn tenancy(namespace: &PartialObjectMeta<Namespace>) -> Tenancy {
    let mark = |name: &str| namespace.labels().get(name).filter(|text| !text.is_empty());
    let network = mark(marks::NETWORK).map_or("default", String::as_str);
    match namespace.labels().get(marks::TENANT) {
        Some(tenant) => Tenancy::Tenant(format!("{tenant}.{network}")),
        None => Tenancy::Nobody,
    }
}

fn seen_namespace(namespace: &PartialObjectMeta<Namespace>) -> SeenNamespace {
    SeenNamespace {
        tenancy: tenancy(namespace),
        labels: namespace.labels().clone(),
        is_ending: namespace.metadata.deletion_timestamp.is_some(),
    }
}

/// Events as deltas: a list comes out whole, once it is complete.
pub(crate) fn deltas<R, K: Ord, V>(
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

    #[test]
    fn what_says_two_things_is_split_and_silence_means_gone() {
        let (one, other) = split(Delta::Put("web", (Some(1), None::<u8>)));
        assert!(matches!((one, other), (Delta::Put("web", 1), Delta::Gone("web"))));
        let all = [("web", (Some(1), None)), ("db", (Some(2), Some('b')))];
        let (Delta::All(ones), Delta::All(others)) = split(Delta::All(all.into())) else {
            panic!("a list stays a list")
        };
        assert_eq!(ones, [("db", 2), ("web", 1)].into());
        assert_eq!(others, [("db", 'b')].into());
    }

    fn whose(labels: &serde_json::Value) -> Tenancy {
        let namespace = serde_json::json!({"metadata": {"name": "shop", "labels": labels}});
        let namespace: PartialObjectMeta<Namespace> = serde_json::from_value(namespace).unwrap();
        tenancy(&namespace)
    }

    #[test]
    fn a_namespaces_services_are_in_the_network_it_names_or_in_its_tenants_default() {
        let of_acme = serde_json::json!({"atoll.dev/tenant": "acme"});
        assert_eq!(whose(&of_acme), Tenancy::Tenant("acme.default".into()));
        let in_data = serde_json::json!({"atoll.dev/tenant": "acme", "atoll.dev/network": "data"});
        assert_eq!(whose(&in_data), Tenancy::Tenant("acme.data".into()));
        let of_nobody = serde_json::json!({"atoll.dev/network": "data"});
        assert_eq!(whose(&of_nobody), Tenancy::Nobody);
    }
}
