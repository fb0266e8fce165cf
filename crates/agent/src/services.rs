//! The services of the networks on this node, kept true to what was seen.
//!
//! The rule of this file: the services of a network are programmed only once it is known which other
//! networks its tenant has, and of each of them the ports, the addresses of the outside, and the services
//! and EndpointSlices of each namespace have been listed. Until then the kernel keeps those it has: half
//! a list would refuse connections that somebody is there to take.

mod absorb;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use atoll_api::DnsMode;
use atoll_model::compile::{Followed, ResolverFront, ServiceBook, ServiceComplaint, ServiceName};
use atoll_model::resolver::{DNS_NAME, dns_namespace};
use atoll_plan::{Resolver, Service, ServiceKey, ServiceRoom};
use atoll_types::NetworkId;

use crate::seen::{NetworkDns, Presence, Scope, Seen};

/// What is known of services, and how far.
#[derive(Debug)]
pub(crate) struct Services {
    node: String,
    book: ServiceBook,
    /// Whether it is known which namespaces there are.
    is_whole: bool,
    networks: BTreeMap<String, Listed>,
    /// The resolver that the cluster's pods ask.
    cluster_dns: Resolver,
    /// The networks whose resolvers a service shall lead to.
    with_resolvers: BTreeSet<String>,
    /// The networks whose resolvers a service leads to, as it was last told.
    led: BTreeSet<NetworkId>,
}

/// What of a network was listed.
#[derive(Debug)]
struct Listed {
    id: NetworkId,
    /// Whether it has no pods here and services lead to it from networks that do.
    is_kin: bool,
    /// Whether all networks of its tenant are known.
    kin: bool,
    ports: bool,
    held: bool,
    namespaces: BTreeMap<String, Quarter>,
}

#[derive(Debug, Default)]
struct Quarter {
    services: bool,
    slices: bool,
}

impl Listed {
    fn is_whole(&self) -> bool {
        let rest = self.kin && self.ports && (self.held || self.is_kin);
        rest && self.namespaces.values().all(|quarter| quarter.services && quarter.slices)
    }
}

/// What a plan holds of services, on loan.
pub(crate) enum Lent {
    /// All there is, to be given back.
    All,
    /// A copy, with what the kernel keeps.
    Part,
}

impl Services {
    /// Nothing seen yet.
    pub(crate) fn new(node: &str, cluster_dns: Resolver) -> Self {
        Services {
            node: node.to_owned(),
            book: ServiceBook::new(node),
            is_whole: false,
            networks: BTreeMap::new(),
            cluster_dns,
            with_resolvers: BTreeSet::new(),
            led: BTreeSet::new(),
        }
    }

    /// The same, in a kernel that has only so much room.
    pub(crate) fn within(self, room: Option<ServiceRoom>) -> Self {
        Services { book: self.book.within(room), ..self }
    }

    /// The kernel has exactly this.
    pub(crate) fn look(&mut self, there: &BTreeMap<ServiceKey, Service>) {
        self.book.look(there);
    }

    /// The kernel has nothing there, or no more.
    pub(crate) fn gone(&mut self, key: ServiceKey) {
        self.book.gone(key);
    }

    /// Decides what has room of all that may be programmed, where the kernel has this.
    pub(crate) fn settle(&mut self, there: &BTreeMap<ServiceKey, Service>) {
        let unlisted = self.unlisted();
        let is_due = |key: &ServiceKey| !unlisted.contains(&key.network);
        self.book.settle(is_due, |key| there.contains_key(key));
    }

    /// How many services have no room.
    pub(crate) fn held(&self) -> usize {
        self.book.held()
    }

    /// Keeps exactly these networks and namespaces. One that is new begins with what was seen.
    pub(crate) fn follow(&mut self, scope: &Scope, seen: &Seen) {
        self.is_whole = scope.is_whole;
        let followed = |name: &String, presence: &Presence| Followed {
            id: presence.id,
            is_here: scope.networks.contains_key(name),
            is_guest: scope.guests.contains_key(name),
            is_shared: !scope.own.contains(name),
        };
        let all = scope.all().map(|(name, it)| (name.clone(), followed(name, it)));
        let all: BTreeMap<_, _> = all.collect();
        self.book.follow(&all);
        self.networks.retain(|name, listed| all.get(name).map(|it| it.id) == Some(listed.id));
        self.with_resolvers.retain(|name| scope.networks.contains_key(name));
        for (name, presence) in scope.all() {
            if !self.networks.contains_key(name) {
                self.begin(name, presence.id, seen);
            }
            self.follow_namespaces(name, &presence.namespaces);
        }
        for (name, listed) in &mut self.networks {
            listed.kin = scope.knows_kin_of(name);
            listed.is_kin = scope.kin.contains_key(name);
        }
    }

    fn begin(&mut self, name: &str, id: NetworkId, seen: &Seen) {
        let (ports, held) = (seen.ports_of(id), seen.held_of(name));
        let listed = Listed {
            id,
            is_kin: true,
            kin: false,
            ports: ports.is_some(),
            held: held.is_some(),
            namespaces: BTreeMap::new(),
        };
        self.networks.insert(name.to_owned(), listed);
        for (key, port) in ports.into_iter().flatten() {
            self.book.put_port(name, key, Some(port));
        }
        for (claim, held) in held.into_iter().flatten() {
            self.book.put_held(name, claim, Some(held));
        }
        self.lead_resolvers(name, seen.dns_of(name).as_ref());
    }

    /// Leads the resolvers of a network to those who answer there, as its object says.
    pub(crate) fn lead_resolvers(&mut self, network: &str, dns: Option<&NetworkDns>) {
        let Some(listed) = self.networks.get(network) else { return };
        let service = dns.and_then(|dns| match dns.mode {
            DnsMode::Shared => None,
            DnsMode::Dedicated => Some((dns_namespace(listed.id), DNS_NAME.to_owned())),
            DnsMode::Tenant => dns.service.clone(),
        });
        let resolver = dns.zip(service).map(|(dns, service)| ResolverFront {
            service,
            addresses: self.cluster_dns.addresses().chain(dns.addresses.addresses()).collect(),
            falls_back: dns.mode == DnsMode::Tenant,
        });
        match resolver.is_some() {
            true => drop(self.with_resolvers.insert(network.to_owned())),
            false => drop(self.with_resolvers.remove(network)),
        }
        self.book.lead_resolvers(network, resolver);
    }

    /// Whether other networks than before have resolvers that a service leads to.
    pub(crate) fn resolvers_moved(&mut self) -> bool {
        let led = self.with_resolvers.iter().filter(|name| self.book.leads_resolvers(name));
        let led = led.filter_map(|name| self.networks.get(name));
        let led: BTreeSet<NetworkId> = led.map(|listed| listed.id).collect();
        let moved = self.led != led;
        self.led = led;
        moved
    }

    /// The networks whose resolvers a service leads to.
    pub(crate) fn led(&self) -> &BTreeSet<NetworkId> {
        &self.led
    }

    fn follow_namespaces(&mut self, network: &str, namespaces: &BTreeSet<String>) {
        let Some(listed) = self.networks.get_mut(network) else { return };
        let left = listed.namespaces.extract_if(.., |name, _| !namespaces.contains(name));
        let left: Vec<String> = left.map(|(name, _)| name).collect();
        for namespace in namespaces {
            listed.namespaces.entry(namespace.clone()).or_default();
        }
        left.iter().for_each(|namespace| self.forget(network, namespace));
    }

    /// The numbers of networks of which not everything was listed, or not of another one of their
    /// tenant.
    fn unlisted(&self) -> BTreeSet<NetworkId> {
        let tenant = |name: &str| name.split('.').next().map(ToOwned::to_owned);
        let partly = self.networks.iter().filter(|(_, it)| !self.is_whole || !it.is_whole());
        let tenants: BTreeSet<_> = partly.map(|(name, _)| tenant(name)).collect();
        let unlisted = self.networks.iter().filter(|(name, _)| tenants.contains(&tenant(name)));
        unlisted.map(|(_, listed)| listed.id).collect()
    }

    /// How many of this node are ready behind a service, for clients from outside; none where not
    /// everything of its network was listed. A network that is not here has nobody here.
    pub(crate) fn ready_here(&self, service: &ServiceName) -> Option<usize> {
        let Some(listed) = self.networks.get(&service.network) else { return Some(0) };
        let is_known = !self.unlisted().contains(&listed.id);
        is_known.then(|| self.book.ready_here(service))
    }

    /// Whether clients from outside are led to a service by a kernel that has these.
    pub(crate) fn is_led(
        &self,
        service: &ServiceName,
        there: &BTreeMap<ServiceKey, Service>,
    ) -> bool {
        self.book.is_led_from_outside(service, there)
    }

    /// What has changed since the last time, and may be programmed.
    pub(crate) fn due(&mut self) -> Vec<ServiceKey> {
        let unlisted = self.unlisted();
        self.book.take_touched(|key| !unlisted.contains(&key.network))
    }

    /// What people are to be told.
    pub(crate) fn untold(&mut self) -> Vec<(ServiceName, String, ServiceComplaint)> {
        let unlisted = self.unlisted();
        let networks = &self.networks;
        let is_due = |who: &ServiceName| {
            networks.get(&who.network).is_none_or(|listed| !unlisted.contains(&listed.id))
        };
        let untold = self.book.take_untold(is_due).into_iter();
        untold
            .filter_map(|(who, complaint)| {
                let uid = self.book.uid_of(&who)?.to_owned();
                Some((who, uid, complaint))
            })
            .collect()
    }

    /// What is to be served.
    pub(crate) fn served(&self) -> &BTreeMap<ServiceKey, Service> {
        self.book.served()
    }

    /// What a plan must hold, where the kernel has `observed`.
    pub(crate) fn lend(
        &mut self,
        observed: &BTreeMap<ServiceKey, Service>,
    ) -> (BTreeMap<ServiceKey, Service>, Lent) {
        let unlisted = self.unlisted();
        if unlisted.is_empty() {
            return (self.book.lend(), Lent::All);
        }
        let ready = self.book.served().iter().filter(|(key, _)| !unlisted.contains(&key.network));
        let kept = observed.iter().filter(|(key, _)| unlisted.contains(&key.network));
        let part = ready.chain(kept).map(|(key, service)| (*key, service.clone()));
        (part.collect(), Lent::Part)
    }

    /// Takes back what was lent.
    pub(crate) fn give_back(&mut self, services: BTreeMap<ServiceKey, Service>, lent: &Lent) {
        match lent {
            Lent::All => self.book.give_back(services),
            Lent::Part => {}
        }
    }
}
