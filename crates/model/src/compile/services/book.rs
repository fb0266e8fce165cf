//! All services of the networks on one node, kept change by change.
//!
//! Its rule: a change compiles the services that it touches and no others, and leads to what a new
//! start with the same objects would lead to.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::num::NonZeroU16;

use atoll_plan::{Service, ServiceKey, ServiceRoom, Side};
use atoll_types::Protocol;

use super::across::{Followed, changed_tenants, tenant_prefix};
use super::choice::Vantage;
use super::front::ServiceFront;
use super::fronts::{Claim, Fronts, ServiceComplaint};
use super::grievances::Grievances;
use super::homes::{Home, ObjectKey};
use super::network::{Network, ResolverFront};
use super::slice::EndpointGroup;
use crate::compile::PlacedPort;

/// The port of DNS.
const DNS: NonZeroU16 = NonZeroU16::new(53).unwrap();

/// A service by its network's object name, its namespace and its own name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServiceName {
    /// The network.
    pub network: String,
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl fmt::Display for ServiceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} of network {}", self.namespace, self.name, self.network)
    }
}

/// The services of the networks on one node. Networks are known by their object names: those of
/// one VPC, and open networks of several tenants, share their number.
#[derive(Debug)]
pub struct ServiceBook {
    vantage: Vantage,
    networks: BTreeMap<String, Network>,
    fronts: Fronts,
    grievances: Grievances,
}

impl ServiceBook {
    /// Nothing seen yet, on this node.
    pub fn new(node: &str) -> Self {
        ServiceBook {
            vantage: Vantage { node: node.to_owned(), zone: None },
            networks: BTreeMap::new(),
            fronts: Fronts::default(),
            grievances: Grievances::default(),
        }
    }

    /// The same where a node has only so much room, and nothing was seen yet. Then nothing is served
    /// before it is [settled](Self::settle).
    #[must_use]
    pub fn within(mut self, room: Option<ServiceRoom>) -> Self {
        room.into_iter().for_each(|whole| self.fronts.rationed.within(whole));
        self
    }

    /// The zone that this node is in.
    pub fn set_zone(&mut self, zone: Option<String>) {
        if self.vantage.zone == zone {
            return;
        }
        self.vantage.zone = zone;
        let all = self.networks.iter();
        let all: Vec<_> = all
            .flat_map(|(network, known)| known.services().map(|key| (network.clone(), key.clone())))
            .collect();
        all.iter().for_each(|(network, key)| self.compile(network, key));
    }

    /// Keeps exactly these networks.
    pub fn follow(&mut self, networks: &BTreeMap<String, Followed>) {
        let before = self.networks.iter().map(|(name, known)| (name.clone(), known.followed));
        let before: BTreeMap<_, _> = before.collect();
        let id = |name: &str| networks.get(name).map(|it| it.id);
        let left = before.iter().filter(|(name, it)| id(name) != Some(it.id));
        left.for_each(|(name, _)| self.leave(name));
        for (name, followed) in networks {
            let known = self.networks.entry(name.clone());
            known.or_insert_with(|| Network::new(*followed)).followed = *followed;
        }
        for tenant in changed_tenants(&before, networks) {
            self.compile_all_of(&tenant);
        }
    }

    fn compile_all_of(&mut self, tenant: &str) {
        let networks = self.networks.range(tenant.to_owned()..);
        let networks = networks.take_while(|(name, _)| name.starts_with(tenant));
        let all: Vec<_> = networks
            .flat_map(|(name, known)| known.services().map(|key| (name.clone(), key.clone())))
            .collect();
        all.iter().for_each(|(name, key)| self.compile(name, key));
    }

    /// The networks that services lead to from this one, beside itself.
    pub(super) fn kin<'a>(
        &'a self,
        network: &'a str,
    ) -> impl Iterator<Item = (&'a String, &'a Network)> {
        let prefix = tenant_prefix(network);
        let is_apart = self.networks.get(network).is_none_or(|known| known.followed.is_shared);
        let of_tenant = self.networks.range(prefix.to_owned()..);
        let of_tenant = of_tenant.take_while(move |(name, _)| name.starts_with(prefix));
        of_tenant.filter(move |(name, known)| {
            !is_apart && !known.followed.is_shared && name.as_str() != network
        })
    }

    fn leave(&mut self, network: &str) {
        let services = self.networks.get(network).into_iter().flat_map(Network::services);
        for key in services.cloned().collect::<Vec<_>>() {
            self.put_service(network, &key, None);
        }
        self.networks.remove(network);
    }

    /// The ports that have a home in a network.
    pub fn ports_of<'a>(&'a self, network: &str) -> impl Iterator<Item = &'a ObjectKey> + use<'a> {
        self.networks.get(network).into_iter().flat_map(|known| known.homes.keys())
    }

    /// The services of a network.
    pub fn services_of<'a>(
        &'a self,
        network: &str,
    ) -> impl Iterator<Item = &'a ObjectKey> + use<'a> {
        self.networks.get(network).into_iter().flat_map(Network::services)
    }

    /// The slices of a network.
    pub fn slices_of<'a>(&'a self, network: &str) -> impl Iterator<Item = &'a ObjectKey> + use<'a> {
        self.networks.get(network).into_iter().flat_map(Network::slices)
    }

    /// The port `key` is this one, or is gone. One of another network is nobody's home in this one.
    pub fn put_port(&mut self, network: &str, key: &ObjectKey, port: Option<&PlacedPort>) {
        let Some(known) = self.networks.get_mut(network) else { return };
        let is_home =
            |port: &&PlacedPort| port.network_name == network && !port.pod.name.is_empty();
        let was_beyond = known.homes.is_beyond(&self.vantage.node);
        let changed = known.homes.put(key, port.filter(is_home).map(Home::from));
        if was_beyond != known.homes.is_beyond(&self.vantage.node) {
            return self.compile_all_of(tenant_prefix(network));
        }
        let mut hanging: Vec<_> = known.hanging_on(&changed).into_iter().collect();
        hanging.iter().for_each(|service| self.compile(network, service));
        for kin in self.kin(network).map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            let known = self.networks.get(&kin);
            hanging = known.into_iter().flat_map(|known| known.hanging_on(&changed)).collect();
            hanging.iter().for_each(|service| self.compile(&kin, service));
        }
    }

    /// The service `key` is this one, or is gone.
    pub fn put_service(&mut self, network: &str, key: &ObjectKey, front: Option<ServiceFront>) {
        let Some(known) = self.networks.get_mut(network) else { return };
        if known.put_service(key, front) {
            self.compile(network, key);
        }
    }

    /// The slice `key` is this one, or is gone.
    pub fn put_slice(&mut self, network: &str, key: &ObjectKey, group: Option<EndpointGroup>) {
        let Some(known) = self.networks.get_mut(network) else { return };
        for service in known.put_slice(key, group) {
            self.compile(network, &service);
        }
    }

    pub(super) fn vantage(&self) -> &Vantage {
        &self.vantage
    }

    pub(super) fn network(&self, name: &str) -> Option<&Network> {
        self.networks.get(name)
    }

    pub(super) fn network_mut(&mut self, name: &str) -> Option<&mut Network> {
        self.networks.get_mut(name)
    }

    /// From now on this service answers at the resolvers of a network, or none does.
    pub fn lead_resolvers(&mut self, network: &str, resolver: Option<ResolverFront>) {
        let Some(known) = self.networks.get_mut(network) else { return };
        if known.resolver == resolver {
            return;
        }
        let former = std::mem::replace(&mut known.resolver, resolver);
        let both = former.into_iter().chain(known.resolver.clone());
        let services: BTreeSet<_> = both.map(|it| it.service).collect();
        services.iter().for_each(|key| self.compile(network, key));
    }

    /// Whether a service is there to answer at the resolvers of a network.
    pub fn leads_resolvers(&self, network: &str) -> bool {
        let Some(known) = self.networks.get(network) else { return false };
        let addresses = known.resolver.iter().flat_map(|resolver| &resolver.addresses);
        let mut keys = addresses.map(|ip| ServiceKey {
            network: known.id(),
            ip: *ip,
            protocol: Protocol::Udp,
            port: DNS,
            side: Side::Clients,
        });
        keys.any(|key| self.fronts.rationed.is_led(&key))
    }

    /// The UID of a service.
    pub fn uid_of(&self, who: &ServiceName) -> Option<&str> {
        let key = (who.namespace.clone(), who.name.clone());
        self.networks.get(&who.network)?.front(&key).map(|front| front.uid.as_str())
    }

    /// Decides what of all that `is_due` has room, where the kernel has what `is_there`.
    pub fn settle(
        &mut self,
        is_due: impl Fn(&ServiceKey) -> bool,
        is_there: impl Fn(&ServiceKey) -> bool,
    ) {
        for who in self.fronts.rationed.settle(is_due, is_there) {
            self.hear_room(&who);
        }
    }

    /// The kernel has exactly this.
    pub fn look(&mut self, there: &BTreeMap<ServiceKey, Service>) {
        self.fronts.rationed.look(there);
    }

    /// The kernel has nothing there, or no more.
    pub fn gone(&mut self, key: ServiceKey) {
        self.fronts.rationed.gone(key);
    }

    /// How many services have no room for all that they are to have.
    pub fn held(&self) -> usize {
        self.fronts.rationed.count_held()
    }

    fn hear_room(&mut self, who: &ServiceName) {
        let is_told = self.fronts.rationed.is_told(who);
        self.grievances.set(who, &ServiceComplaint::NoRoom, is_told);
    }

    /// Whether the kernel has what is to be served there, and all that is.
    pub(super) fn is_there(&self, key: &ServiceKey, there: &BTreeMap<ServiceKey, Service>) -> bool {
        self.served().get(key) == there.get(key) && !self.fronts.rationed.is_missing(key)
    }

    /// What is to be served.
    pub fn served(&self) -> &BTreeMap<ServiceKey, Service> {
        self.fronts.served()
    }

    /// Lends out what is to be served, so that a plan can hold it without a copy. It must be given
    /// back before the next change.
    pub fn lend(&mut self) -> BTreeMap<ServiceKey, Service> {
        std::mem::take(self.fronts.served_mut())
    }

    /// Takes back what was lent.
    pub fn give_back(&mut self, served: BTreeMap<ServiceKey, Service>) {
        *self.fronts.served_mut() = served;
    }

    /// What has changed since the last time, among what `is_due`.
    pub fn take_touched(&mut self, is_due: impl Fn(&ServiceKey) -> bool) -> Vec<ServiceKey> {
        self.fronts.take_touched(is_due)
    }

    /// What people were not told yet, of services that `is_due`.
    pub fn take_untold(
        &mut self,
        is_due: impl Fn(&ServiceName) -> bool,
    ) -> Vec<(ServiceName, ServiceComplaint)> {
        self.grievances.take_untold(is_due)
    }

    pub(super) fn compile(&mut self, network: &str, key: &ObjectKey) {
        let kin: Vec<&Network> = self.kin(network).map(|(_, known)| known).collect();
        let Some(known) = self.networks.get(network) else { return };
        let outcome = known.compile(key, &self.vantage, &kin);
        let Some(known) = self.networks.get_mut(network) else { return };
        let former = known.remember(key, &outcome);
        let (namespace, name) = key.clone();
        let who = ServiceName { network: network.to_owned(), namespace, name };
        self.grievances.replace(&who, &outcome.complaints);
        let gone = former.iter().filter(|key| !outcome.claims.contains_key(key));
        for key in gone {
            self.claim(&who, *key, None);
        }
        for (key, claim) in outcome.claims {
            self.claim(&who, key, Some(claim));
        }
    }

    fn claim(&mut self, who: &ServiceName, key: ServiceKey, claim: Option<Claim>) {
        let losers = self.fronts.claim(who, key, claim);
        let contest = ServiceComplaint::Contested(key);
        let all: BTreeSet<_> = self.fronts.claimants(&key).chain([who]).cloned().collect();
        for one in all {
            self.grievances.set(&one, &contest, losers.contains(&one));
            self.hear_room(&one);
        }
    }
}
