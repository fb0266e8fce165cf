//! What the agent has seen of the API so far.
//!
//! The rule of this file: it knows what it has *not* seen yet. Nothing may be taken away from the
//! kernel before the nodes, this node's ports, and every network on this node have been listed
//! once.

mod guests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use atoll_api::DnsMode;
use atoll_model::compile::{
    Answers, Attachment, EndpointGroup, NodeView, Outlet, OutletOf, OwnResolver, PlacedPort,
    ServiceFront, never_outside, only,
};
use atoll_model::export::{Export, ServiceName, TargetSlice};
use atoll_model::outside::Held;
use atoll_plan::Resolver;
use atoll_policy::Labels;
use atoll_types::{Cidr, Label, NetworkId, NetworkName};
use atoll_zones::{Service, Slice};

use crate::infra::Backed;
use crate::policy::{News, Ward};
use crate::probe::{PodName, Probed};
pub(crate) use crate::seen::guests::Exposure;

/// A port object by namespace and name.
pub(crate) type PortKey = (String, String);

/// A change to a set of watched things.
#[derive(Clone, Debug)]
pub(crate) enum Delta<K, V> {
    /// The whole set, listed anew.
    All(BTreeMap<K, V>),
    /// One is there, or is another.
    Put(K, V),
    /// One is gone.
    Gone(K),
}

/// A change to what the agent has seen.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// Nodes and what is known of them.
    Nodes(Delta<String, SeenNode>),
    /// The zones of nodes, where they are in one.
    Zones(Delta<String, String>),
    /// Pools of addresses that nodes answer for, and the ranges of each.
    Pools(Delta<String, Vec<Cidr>>),
    /// Ports of this node, and the network of each.
    OwnPorts(Delta<PortKey, Joined>),
    /// Ports of a network that is present here.
    NetworkPorts(NetworkId, Delta<PortKey, PlacedPort>),
    /// A network that is present here, by object name: what it says of its names.
    Network(String, Delta<String, NetworkDns>),
    /// The same network: what it says of the outside.
    Outlet(String, Delta<String, Outlet>),
    /// All networks of a tenant that has a pod here.
    Siblings(Label, Delta<String, Sibling>),
    /// Namespaces, and whose each is.
    Namespaces(Delta<String, SeenNamespace>),
    /// Services of a namespace whose network is present here, by what names need of them.
    Services(Quarter, Delta<String, Service>),
    /// EndpointSlices of such a namespace, likewise.
    Slices(Quarter, Delta<String, Slice>),
    /// Services of such a namespace, by what the datapath needs of them.
    Fronts(Quarter, Delta<String, ServiceFront>),
    /// EndpointSlices, likewise.
    Groups(Quarter, Delta<String, EndpointGroup>),
    /// The service of the cluster's API.
    Api(Delta<ServiceName, Exported>),
    /// Services that an administrator exports to tenants.
    Exports(Delta<ServiceName, Exported>),
    /// EndpointSlices of such a service.
    Targets(ServiceName, Delta<String, TargetSlice>),
    /// What policy alone has to know of.
    Policy(News),
    /// Pods of this node that the agent probes.
    Probed(Delta<PodName, Probed>),
    /// Addresses of the outside that are for a network that is present here, by its object name.
    Held(String, Delta<String, Held>),
    /// Addresses of the outside that this node answers for, whatever network they are for.
    Answered(Delta<String, Held>),
    /// Services of any network that every node leads the outside to, by how they are exposed.
    Exposed(Exposure, Delta<ServiceName, ()>),
}

impl Change {
    /// Whether it can change what the kernel must look like, beside services, policy and what names mean.
    pub(crate) fn concerns_kernel(&self) -> bool {
        match self {
            Change::Nodes(_)
            | Change::Pools(_)
            | Change::OwnPorts(_)
            | Change::NetworkPorts(..)
            | Change::Network(..)
            | Change::Outlet(..)
            | Change::Siblings(..)
            | Change::Namespaces(_)
            | Change::Held(..)
            | Change::Answered(_)
            | Change::Exposed(..)
            | Change::Api(_)
            | Change::Exports(_)
            | Change::Targets(..) => true,
            Change::Zones(_)
            | Change::Policy(_)
            | Change::Probed(_)
            | Change::Services(..)
            | Change::Slices(..)
            | Change::Fronts(..)
            | Change::Groups(..) => false,
        }
    }
}

/// What a network says of its names. One that says nothing is answered by the agent, and asks
/// nobody outside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NetworkDns {
    /// The addresses at which its pods are answered, beside the one in their resolv.conf.
    pub(crate) addresses: Resolver,
    /// Who answers.
    pub(crate) mode: DnsMode,
    /// The service of the tenant's own resolver, by namespace and name.
    pub(crate) service: Option<(String, String)>,
    /// What it may ask outside.
    pub(crate) outside: Outside,
}

/// What a network may ask outside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outside {
    /// Whom.
    pub(crate) upstreams: Upstreams,
    /// Whether an answer that points inside is refused.
    pub(crate) refuse_private: bool,
}

/// Whom a network asks for names that are not its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Upstreams {
    /// Nobody.
    #[default]
    Nobody,
    /// Those that the agent was started with.
    OfNode,
    /// Its own.
    Own(Vec<SocketAddr>),
}

/// A service of the cluster's own, as callers and as askers of names know it.
#[derive(Clone, Debug)]
pub(crate) struct Exported {
    /// Who may call it, and where.
    pub(crate) export: Export,
    /// What its name stands for.
    pub(crate) named: Service,
}

/// A namespace as a part of a network, by the names of both. One that moves to another network is
/// another.
pub(crate) type Quarter = (String, String);

/// A network that a port is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Joined {
    /// Its number.
    pub(crate) network: NetworkId,
    /// Its object name.
    pub(crate) name: String,
}

/// A network of a tenant, whether it is present here or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sibling {
    /// Its number.
    pub(crate) id: NetworkId,
    /// Whether networks of other tenants have the same.
    pub(crate) is_shared: bool,
}

/// What of the cluster concerns this node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scope {
    /// The networks that have a pod here, by object name.
    pub(crate) networks: BTreeMap<String, Presence>,
    /// Those that have none, and that the outside reaches by this node.
    pub(crate) guests: BTreeMap<String, Presence>,
    /// All networks whose objects must be watched: these, and guests whose number is not known yet.
    pub(crate) names: BTreeSet<String>,
    /// Networks that are not, of tenants that are: services lead to their pods, and theirs here.
    pub(crate) kin: BTreeMap<String, Presence>,
    /// The networks among both whose number is their tenant's alone.
    pub(crate) own: BTreeSet<String>,
    /// The tenants whose networks were not listed yet.
    pub(crate) unlisted: BTreeSet<Label>,
    /// Whether all namespaces have been seen.
    pub(crate) is_whole: bool,
    /// The services of the cluster's own whose slices must be watched.
    pub(crate) exports: BTreeSet<ServiceName>,
    /// The namespaces of every tenant that has a network here.
    pub(crate) wards: BTreeSet<Ward>,
}

impl Scope {
    /// The networks that are present here, with pods or as guests, and those that services lead to
    /// from them.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&String, &Presence)> {
        self.networks.iter().chain(&self.guests).chain(&self.kin)
    }

    /// All namespaces of all networks.
    pub(crate) fn quarters(&self) -> BTreeSet<Quarter> {
        let of = |(name, presence): (&String, &Presence)| {
            let namespaces = presence.namespaces.iter();
            namespaces.map(|namespace| (name.clone(), namespace.clone())).collect::<Vec<_>>()
        };
        self.all().flat_map(of).collect()
    }

    /// The namespaces of the other networks whose services are seen from this one.
    pub(crate) fn quarters_seen_from(&self, network: &str) -> BTreeSet<Quarter> {
        let tenant = tenant_of(network).filter(|_| self.own.contains(network));
        let is_kin = |(name, _): &Quarter| {
            name != network && self.own.contains(name) && tenant_of(name) == tenant
        };
        match tenant {
            Some(_) => self.quarters().into_iter().filter(is_kin).collect(),
            None => BTreeSet::new(),
        }
    }

    /// Whether it is known which networks the tenant of this one has.
    pub(crate) fn knows_kin_of(&self, network: &str) -> bool {
        tenant_of(network).is_none_or(|tenant| !self.unlisted.contains(&tenant))
    }

    /// The tenants that have a network here.
    pub(crate) fn tenants(&self) -> BTreeSet<Label> {
        self.networks.keys().filter_map(|network| tenant_of(network)).collect()
    }

    /// The numbers of each tenant's networks.
    pub(crate) fn networks_of_tenants(&self) -> BTreeMap<Label, BTreeSet<NetworkId>> {
        let mut of_tenants: BTreeMap<Label, BTreeSet<NetworkId>> = BTreeMap::new();
        for (name, presence) in self.all() {
            if let Some(tenant) = tenant_of(name) {
                of_tenants.entry(tenant).or_default().insert(presence.id);
            }
        }
        of_tenants
    }
}

/// A network that is present on this node. Others may have the same number: those of one VPC do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Presence {
    /// Its number.
    pub(crate) id: NetworkId,
    /// The namespaces whose services are in it.
    pub(crate) namespaces: BTreeSet<String>,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SeenNode {
    /// Its address for tunnel packets.
    pub(crate) underlay: IpAddr,
    /// What policy knows of it.
    pub(crate) facts: atoll_policy::Node,
    /// The ranges of its pods that are of no tenant.
    pub(crate) pod_ranges: Vec<Cidr>,
}

/// A namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SeenNamespace {
    /// Whose it is.
    pub(crate) tenancy: Tenancy,
    /// Its labels.
    pub(crate) labels: Labels,
    /// Whether it is being deleted.
    pub(crate) is_ending: bool,
}

/// Whose pods a namespace has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Tenancy {
    /// A tenant's; its services are in this network, by object name.
    Tenant(String),
    /// No tenant's: they are none of our business.
    Nobody,
}

/// A watched set; `None` until it was listed once.
type Listed<K, V> = Option<BTreeMap<K, V>>;

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
    /// Services that every node leads the outside to.
    exposed: BTreeMap<Exposure, BTreeMap<ServiceName, ()>>,
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
        match change {
            Change::Nodes(delta) => absorb(&mut self.nodes, delta),
            Change::Pools(delta) => absorb(&mut self.pools, delta),
            Change::OwnPorts(delta) => {
                absorb(&mut self.own_ports, delta);
                self.follow_networks();
            }
            Change::Answered(delta) => {
                absorb(&mut self.answered, delta);
                self.follow_networks();
            }
            Change::Exposed(exposure, delta) => {
                self.absorb_exposed(exposure, delta);
                self.follow_networks();
            }
            Change::Namespaces(delta) => {
                absorb(&mut self.namespaces, delta);
                self.quarters = quarters(self.namespaces.iter().flatten());
                self.wards = wards(self.namespaces.iter().flatten());
                self.follow_networks();
            }
            Change::NetworkPorts(network, delta) => {
                absorb_followed(self.networks.get_mut(&network), delta);
            }
            Change::Siblings(tenant, delta) => {
                absorb_followed(self.siblings.get_mut(&tenant), delta);
                self.follow_networks();
            }
            Change::Network(name, delta) => {
                absorb_followed(self.dns.get_mut(&name), delta);
            }
            Change::Outlet(name, delta) => {
                absorb_followed(self.outlets.get_mut(&name), delta);
                self.follow_networks();
            }
            Change::Held(name, delta) => {
                absorb_followed(self.held.get_mut(&name), delta);
            }
            Change::Zones(_)
            | Change::Policy(_)
            | Change::Services(..)
            | Change::Slices(..)
            | Change::Fronts(..)
            | Change::Groups(..) => {}
            Change::Api(delta) => absorb(&mut self.api, delta),
            Change::Exports(delta) => absorb(&mut self.exports, delta),
            Change::Targets(service, delta) => {
                absorb_known(self.targets.entry(service).or_default(), delta);
            }
            Change::Probed(delta) => absorb_known(&mut self.probed, delta),
        }
        let exports: BTreeSet<ServiceName> = self.exported().into_keys().cloned().collect();
        self.targets.retain(|service, _| exports.contains(service));
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

    /// The services that tenants may call: the cluster's API, and those that are exported from
    /// namespaces known to be no tenant's.
    pub(crate) fn exported(&self) -> BTreeMap<&ServiceName, &Exported> {
        let exports = self.exports.iter().flatten();
        let infra = exports.filter(|(name, _)| self.is_nobodys(&name.0));
        infra.chain(self.api.iter().flatten()).collect()
    }

    /// Whether all of them have been seen.
    pub(crate) fn has_seen_exports(&self) -> bool {
        self.api.is_some() && self.exports.is_some() && self.namespaces.is_some()
    }

    /// They, and who stands behind each.
    pub(crate) fn backed(&self) -> BTreeMap<ServiceName, Backed<'_>> {
        self.exported()
            .into_iter()
            .map(|(name, exported)| {
                let slices = self.targets.get(name).into_iter().flat_map(BTreeMap::values);
                let slices = slices.collect();
                (name.clone(), Backed { export: &exported.export, slices })
            })
            .collect()
    }

    fn follow_networks(&mut self) {
        self.follow_tenants();
        let names = self.names();
        self.dns.retain(|name, _| names.contains(name));
        self.outlets.retain(|name, _| names.contains(name));
        self.held.retain(|name, _| names.contains(name));
        for name in names {
            self.dns.entry(name.clone()).or_default();
            self.outlets.entry(name.clone()).or_default();
            self.held.entry(name).or_default();
        }
        let present = self.with_pods().into_values().chain(self.guests().into_values());
        let known: BTreeSet<NetworkId> = present.chain(self.kin().into_values()).collect();
        self.networks.retain(|network, _| known.contains(network));
        for network in known {
            self.networks.entry(network).or_default();
        }
    }

    fn follow_tenants(&mut self) {
        let with_pods = self.with_pods();
        let tenants: BTreeSet<Label> =
            with_pods.keys().filter_map(|network| tenant_of(network)).collect();
        self.siblings.retain(|tenant, _| tenants.contains(tenant));
        for tenant in tenants {
            self.siblings.entry(tenant).or_default();
        }
    }

    /// The addresses of the outside that are for a network, once they were listed.
    pub(crate) fn held_of(&self, network: &str) -> Option<&BTreeMap<String, Held>> {
        self.held.get(network)?.as_ref()
    }

    /// The networks of one tenant that services may lead between, and are not shared with others.
    fn unshared(&self) -> BTreeMap<&String, NetworkId> {
        let all = self.siblings.values().flatten().flatten();
        all.filter(|(_, it)| !it.is_shared).map(|(name, it)| (name, it.id)).collect()
    }

    /// The networks that are not present here, of tenants that have one here that is not shared.
    fn kin(&self) -> BTreeMap<String, NetworkId> {
        let (with_pods, guests, unshared) = (self.with_pods(), self.guests(), self.unshared());
        let here = unshared.keys().filter(|name| with_pods.contains_key(name.as_str()));
        let tenants: BTreeSet<Label> = here.filter_map(|name| tenant_of(name)).collect();
        let is_kin = |name: &str| {
            let is_present = with_pods.contains_key(name) || guests.contains_key(name);
            !is_present && tenant_of(name).is_some_and(|it| tenants.contains(&it))
        };
        let kin = unshared.iter().filter(|(name, _)| is_kin(name));
        kin.map(|(name, id)| ((*name).clone(), *id)).collect()
    }

    /// What a network says of its names, once it was seen.
    pub(crate) fn dns_of(&self, network: &str) -> Option<NetworkDns> {
        let listed = self.dns.get(network)?.as_ref()?;
        Some(listed.get(network).cloned().unwrap_or_default())
    }

    /// The DNS addresses of each network that is here. Networks with one number have the same.
    /// A tenant's own answers where it is led to: without it, the agent does.
    fn own_dns(&self, led: &BTreeSet<NetworkId>) -> BTreeMap<NetworkId, OwnResolver> {
        let own = self.own_ports.iter().flat_map(BTreeMap::values);
        let resolver = |network: NetworkId, dns: NetworkDns| {
            let answers = match dns.mode {
                DnsMode::Dedicated => Answers::Pods,
                DnsMode::Tenant if led.contains(&network) => Answers::Pods,
                DnsMode::Shared | DnsMode::Tenant => Answers::Agent,
            };
            (network, OwnResolver { at: dns.addresses, answers })
        };
        own.filter_map(|own| Some(resolver(own.network, self.dns_of(&own.name)?))).collect()
    }

    /// What the networks that are here say of the outside.
    fn outlets(&self) -> Vec<OutletOf<'_>> {
        let outlet = |(name, network): (&str, NetworkId)| {
            let held = self.held.get(name)?.iter().flat_map(BTreeMap::values).collect();
            let (name, outlet) = self.outlets.get(name)?.as_ref()?.get_key_value(name)?;
            Some(OutletOf { name, network, outlet, held })
        };
        self.with_pods().into_iter().chain(self.guests()).filter_map(outlet).collect()
    }

    /// What nobody reaches by way of the outside, once it was seen whole.
    pub(crate) fn closed(&self) -> Option<BTreeSet<Cidr>> {
        let is_whole = self.nodes.is_some() && self.pools.is_some();
        is_whole.then(|| never_outside().chain(self.own_of_cluster()).collect())
    }

    /// What of the cluster nobody reaches by way of the outside: its nodes, also by the addresses of
    /// pools that they answer for, and the pods that are of no tenant.
    fn own_of_cluster(&self) -> BTreeSet<Cidr> {
        let nodes = self.nodes.iter().flat_map(BTreeMap::values);
        let ranges = |node: &SeenNode| {
            let ips = node.facts.ips.iter().copied().chain([node.underlay]);
            ips.filter_map(only).chain(node.pod_ranges.iter().copied()).collect::<Vec<_>>()
        };
        let pools = self.pools.iter().flat_map(BTreeMap::values).flatten();
        nodes.flat_map(ranges).chain(pools.copied()).collect()
    }

    /// The networks whose ports must be watched, and the namespaces whose services must be.
    pub(crate) fn scope(&self) -> Scope {
        let networks = self.with_pods();
        let presence = |(name, id): (&str, NetworkId)| {
            let namespaces = self.quarters.get(name).cloned().unwrap_or_default();
            (name.to_owned(), Presence { id, namespaces })
        };
        let tenants: BTreeSet<Label> =
            networks.keys().filter_map(|network| tenant_of(network)).collect();
        let unlisted = self.siblings.iter().filter(|(_, listed)| listed.is_none());
        Scope {
            wards: tenants.iter().flat_map(|tenant| self.wards_of(tenant)).collect(),
            networks: networks.into_iter().map(presence).collect(),
            guests: self.guests().into_iter().map(presence).collect(),
            names: self.names(),
            kin: self.kin().iter().map(|(name, id)| presence((name, *id))).collect(),
            own: self.unshared().into_keys().cloned().collect(),
            unlisted: unlisted.map(|(tenant, _)| tenant.clone()).collect(),
            is_whole: self.namespaces.is_some(),
            exports: self.exported().into_keys().cloned().collect(),
        }
    }

    fn wards_of(&self, tenant: &Label) -> impl Iterator<Item = Ward> {
        let namespaces = self.wards.get(tenant).into_iter().flatten();
        namespaces.map(|namespace| (tenant.clone(), namespace.clone()))
    }

    /// A namespace, where it has been listed.
    pub(crate) fn namespace(&self, name: &str) -> Option<&SeenNamespace> {
        self.namespaces.as_ref()?.get(name)
    }

    /// Every namespace that has been seen.
    pub(crate) fn namespaces(&self) -> impl Iterator<Item = (&String, &SeenNamespace)> {
        self.namespaces.iter().flatten()
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

    /// Whether a namespace is known to be no tenant's. One that is not known may be anybody's.
    pub(crate) fn is_nobodys(&self, namespace: &str) -> bool {
        self.namespace(namespace).is_some_and(|known| known.tenancy == Tenancy::Nobody)
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
            ..NodeView::default()
        }
    }
}

fn quarters<'a>(
    namespaces: impl Iterator<Item = (&'a String, &'a SeenNamespace)>,
) -> BTreeMap<String, BTreeSet<String>> {
    let mut quarters: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (namespace, seen) in namespaces {
        if let Tenancy::Tenant(network) = &seen.tenancy {
            quarters.entry(network.clone()).or_default().insert(namespace.clone());
        }
    }
    quarters
}

fn wards<'a>(
    namespaces: impl Iterator<Item = (&'a String, &'a SeenNamespace)>,
) -> BTreeMap<Label, BTreeSet<String>> {
    let mut wards: BTreeMap<Label, BTreeSet<String>> = BTreeMap::new();
    for (namespace, seen) in namespaces {
        if let Tenancy::Tenant(network) = &seen.tenancy
            && let Some(tenant) = tenant_of(network)
        {
            wards.entry(tenant).or_default().insert(namespace.clone());
        }
    }
    wards
}

/// The tenant in the object name of a network.
fn tenant_of(network: &str) -> Option<Label> {
    network.parse::<NetworkName>().ok().map(|name| name.tenant)
}

fn absorb_known<K: Ord, V>(known: &mut BTreeMap<K, V>, delta: Delta<K, V>) {
    match delta {
        Delta::All(all) => *known = all,
        Delta::Put(key, value) => drop(known.insert(key, value)),
        Delta::Gone(key) => drop(known.remove(&key)),
    }
}

/// What is not followed any more is passed over.
fn absorb_followed<K: Ord, V>(known: Option<&mut Listed<K, V>>, delta: Delta<K, V>) {
    if let Some(known) = known {
        absorb(known, delta);
    }
}

/// A watch begins with a list. What comes before it is a late word of an earlier watch, and must
/// not pass for a list of one.
fn absorb<K: Ord, V>(listed: &mut Listed<K, V>, delta: Delta<K, V>) {
    match (delta, listed) {
        (Delta::All(all), listed) => *listed = Some(all),
        (Delta::Put(key, value), Some(known)) => drop(known.insert(key, value)),
        (Delta::Gone(key), Some(known)) => drop(known.remove(&key)),
        (Delta::Put(..) | Delta::Gone(_), None) => {}
    }
}

/// Whether exactly this is listed.
fn says<K: Ord, V: PartialEq>(listed: &Listed<K, V>, key: &K, value: &V) -> bool {
    listed.as_ref().and_then(|known| known.get(key)) == Some(value)
}

/// For tests: nodes and namespaces of which nothing else is known.
#[cfg(test)]
mod plain {
    use super::*;

    impl From<[u8; 4]> for SeenNode {
        fn from(underlay: [u8; 4]) -> Self {
            let (underlay, facts) = (underlay.into(), atoll_policy::Node::default());
            SeenNode { underlay, facts, pod_ranges: Vec::new() }
        }
    }

    impl From<Tenancy> for SeenNamespace {
        fn from(tenancy: Tenancy) -> Self {
            SeenNamespace { tenancy, labels: Labels::new(), is_ending: false }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id() -> NetworkId {
        1.try_into().unwrap()
    }

    fn own_port(pod: &str, network: &str) -> (PortKey, Joined) {
        (("acme".into(), pod.into()), Joined { network: id(), name: network.into() })
    }

    /// Ports of two networks of one VPC, and namespaces of three networks and of nobody.
    fn seen() -> Seen {
        let mut seen = Seen::default();
        let own = [own_port("web", "acme.default"), own_port("db", "acme.data")];
        seen.absorb(Change::OwnPorts(Delta::All(own.into())));
        let tenants = [
            ("shop", "acme.default"),
            ("front", "acme.default"),
            ("back", "acme.data"),
            ("far", "globex.default"),
        ];
        let tenants = tenants.map(|(name, network)| (name, Tenancy::Tenant(network.into())));
        let all = tenants.into_iter().chain([("kube-system", Tenancy::Nobody)]);
        let all = all.map(|(name, tenancy)| (name.to_owned(), tenancy.into())).collect();
        seen.absorb(Change::Namespaces(Delta::All(all)));
        seen
    }

    fn quarters(scope: &Scope) -> Vec<String> {
        let quarters = scope.quarters();
        quarters.iter().map(|(network, namespace)| format!("{network}/{namespace}")).collect()
    }

    #[test]
    fn a_node_follows_the_namespaces_of_the_networks_it_has_and_no_others() {
        let mut seen = seen();
        let scope = seen.scope();
        let all = ["acme.data/back", "acme.default/front", "acme.default/shop"];
        assert_eq!(quarters(&scope), all);
        seen.absorb(Change::OwnPorts(Delta::Gone(own_port("db", "acme.data").0)));
        assert_eq!(quarters(&seen.scope()), all[1..]);
    }

    fn sibling(number: u32, is_shared: bool) -> Sibling {
        Sibling { id: number.try_into().unwrap(), is_shared }
    }

    fn siblings(tenant: &str, all: &[(&str, Sibling)]) -> Change {
        let all = all.iter().map(|(name, it)| ((*name).to_owned(), *it)).collect();
        Change::Siblings(tenant.parse().unwrap(), Delta::All(all))
    }

    #[test]
    fn the_other_networks_of_a_tenant_are_followed_while_it_has_one_here_that_is_its_own() {
        let mut seen = seen();
        let (own, far) = (sibling(1, false), sibling(2, false));
        assert!(seen.scope().unlisted.contains(&"acme".parse().unwrap()));
        assert!(!seen.scope().knows_kin_of("acme.default"));
        let all = [("acme.default", own), ("acme.data", own), ("acme.far", far)];
        seen.absorb(siblings("acme", &all));
        seen.absorb(siblings("globex", &[("globex.default", sibling(3, false))]));
        let scope = seen.scope();
        assert!(scope.knows_kin_of("acme.default"));
        assert_eq!(scope.kin.keys().collect::<Vec<_>>(), ["acme.far"], "and none of globex");
        assert!(seen.ports_of(far.id).is_none(), "not listed yet");
        assert!(seen.networks.contains_key(&far.id) && seen.networks.len() == 2);
        seen.absorb(Change::OwnPorts(Delta::All([].into())));
        assert!(seen.scope().kin.is_empty() && seen.networks.is_empty());
    }

    #[test]
    fn a_network_that_is_shared_with_other_tenants_has_no_kin_and_is_none() {
        let mut seen = seen();
        let shared = sibling(1, true);
        let all =
            [("acme.default", shared), ("acme.data", shared), ("acme.far", sibling(2, false))];
        seen.absorb(siblings("acme", &all));
        assert!(seen.scope().kin.is_empty(), "nothing leads there from here");
        let all = [("acme.default", sibling(1, false)), ("acme.far", sibling(2, true))];
        seen.absorb(siblings("acme", &all));
        assert!(seen.scope().kin.is_empty(), "nothing leads there at all");
    }

    #[test]
    fn the_namespaces_of_other_networks_are_seen_from_networks_of_the_same_tenant_alone() {
        let mut seen = seen();
        let own = sibling(1, false);
        seen.absorb(siblings("acme", &[("acme.default", own), ("acme.data", own)]));
        let scope = seen.scope();
        let names = |network: &str| {
            let quarters = scope.quarters_seen_from(network).into_iter();
            quarters.map(|(_, namespace)| namespace).collect::<Vec<_>>()
        };
        assert_eq!(names("acme.default"), ["back"]);
        assert_eq!(names("acme.data"), ["front", "shop"]);
        assert_eq!(names("globex.default"), Vec::<String>::new());
    }

    #[test]
    fn nodes_and_the_addresses_they_answer_for_are_the_clusters_own() {
        let mut seen = seen();
        let node = ("node1".to_owned(), [192, 0, 2, 1].into());
        seen.absorb(Change::Nodes(Delta::All([node].into())));
        assert_eq!(seen.closed(), None, "pools were not seen yet");
        let pool: Cidr = "192.0.2.16/28".parse().unwrap();
        seen.absorb(Change::Pools(Delta::All([("edge".to_owned(), vec![pool])].into())));
        let own: Vec<String> = seen.own_of_cluster().iter().map(ToString::to_string).collect();
        assert_eq!(own, ["192.0.2.1/32", "192.0.2.16/28"]);
        let closed = seen.closed().unwrap();
        assert!(closed.contains(&pool) && closed.contains(&"127.0.0.0/8".parse().unwrap()));
    }

    #[test]
    fn a_namespace_that_moves_to_another_network_is_followed_there() {
        let mut seen = seen();
        let moved = Tenancy::Tenant("acme.data".into());
        seen.absorb(Change::Namespaces(Delta::Put("shop".into(), moved.into())));
        let after = ["acme.data/back", "acme.data/shop", "acme.default/front"];
        assert_eq!(quarters(&seen.scope()), after);
    }

    fn exported(namespace: &str) -> (ServiceName, Exported) {
        let service = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "registry", "namespace": namespace},
            "spec": {"clusterIP": "10.96.0.7", "ports": [{"port": 80}]},
        }));
        let service = service.unwrap();
        let (export, named) = (Export::api(&service).unwrap(), Service::read(&service).unwrap());
        ((namespace.into(), "registry".into()), Exported { export, named })
    }

    #[test]
    fn a_service_of_a_tenants_namespace_is_exported_to_nobody() {
        let mut seen = seen();
        let all = ["kube-system", "shop", "unknown"].map(exported);
        seen.absorb(Change::Exports(Delta::All(all.into())));
        let [infra, of_tenant, _] = ["kube-system", "shop", "unknown"].map(|it| exported(it).0);
        assert_eq!(seen.scope().exports, [infra.clone()].into());
        assert_eq!(seen.backed().into_keys().collect::<Vec<_>>(), std::slice::from_ref(&infra));
        seen.absorb(Change::Targets(infra.clone(), Delta::All(BTreeMap::new())));
        seen.absorb(Change::Targets(of_tenant, Delta::All(BTreeMap::new())));
        assert_eq!(seen.targets.keys().collect::<Vec<_>>(), [&infra], "late words are forgotten");
    }

    #[test]
    fn a_node_follows_every_namespace_of_the_tenants_it_has_whatever_their_network() {
        let mut seen = seen();
        seen.absorb(Change::OwnPorts(Delta::Gone(own_port("db", "acme.data").0)));
        let wards: Vec<String> =
            seen.scope().wards.iter().map(|(tenant, name)| format!("{tenant}/{name}")).collect();
        assert_eq!(wards, ["acme/back", "acme/front", "acme/shop"]);
    }

    #[test]
    fn a_scope_is_whole_once_the_namespaces_were_listed() {
        let mut unlisted = Seen::default();
        let own = [own_port("web", "acme.default")];
        unlisted.absorb(Change::OwnPorts(Delta::All(own.into())));
        assert!(!unlisted.scope().is_whole);
        assert!(seen().scope().is_whole);
    }
}
