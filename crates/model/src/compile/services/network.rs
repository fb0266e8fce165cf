//! The services of one network: what was seen of them, and what one of them claims.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use atoll_plan::{Backend, Service, ServiceKey, Side};
use atoll_types::{Cidr, NetworkId};

use super::across::{Behind, Followed, Kin, vips};
use super::choice::{Candidate, Vantage, choose};
use super::front::{FrontPort, ServiceFront};
use super::fronts::{Claim, Rank, ServiceComplaint};
use super::homes::{Homes, ObjectKey};
use super::outside::OutsideAddresses;
use super::slice::{EndpointGroup, Who};

/// Addresses of a service, and what each rests on.
pub(super) type Addresses = Vec<(IpAddr, Rank)>;

/// What follows from one service and those behind it.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) claims: BTreeMap<ServiceKey, Claim>,
    pub(super) complaints: BTreeSet<ServiceComplaint>,
    /// Whoever it hangs on.
    pub(super) asked: BTreeSet<Who>,
}

/// The service that answers at the resolvers of a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolverFront {
    /// The service, by namespace and name.
    pub service: ObjectKey,
    /// The resolvers' addresses, which it has beside its own.
    pub addresses: BTreeSet<IpAddr>,
    /// Whether somebody else answers there while it has no backend.
    pub falls_back: bool,
}

/// A network, and what was seen of it.
#[derive(Debug)]
pub(super) struct Network {
    pub(super) followed: Followed,
    pub(super) homes: Homes,
    pub(super) resolver: Option<ResolverFront>,
    pub(super) outside: OutsideAddresses,
    services: BTreeMap<ObjectKey, ServiceFront>,
    groups: BTreeMap<ObjectKey, BTreeMap<String, EndpointGroup>>,
    /// The service of each slice.
    served: BTreeMap<ObjectKey, ObjectKey>,
    /// The services that hang on somebody.
    askers: BTreeMap<Who, BTreeSet<ObjectKey>>,
    /// What each service claims and hangs on.
    pub(super) known: BTreeMap<ObjectKey, (BTreeSet<ServiceKey>, BTreeSet<Who>)>,
}

impl Network {
    pub(super) fn new(followed: Followed) -> Self {
        Network {
            followed,
            homes: Homes::default(),
            resolver: None,
            outside: OutsideAddresses::default(),
            services: BTreeMap::new(),
            groups: BTreeMap::new(),
            served: BTreeMap::new(),
            askers: BTreeMap::new(),
            known: BTreeMap::new(),
        }
    }

    pub(super) fn id(&self) -> NetworkId {
        self.followed.id
    }

    pub(super) fn is_here(&self) -> bool {
        self.followed.is_here
    }

    pub(super) fn services(&self) -> impl Iterator<Item = &ObjectKey> {
        self.services.keys()
    }

    pub(super) fn front(&self, key: &ObjectKey) -> Option<&ServiceFront> {
        self.services.get(key)
    }

    pub(super) fn slices(&self) -> impl Iterator<Item = &ObjectKey> {
        self.served.keys()
    }

    /// Takes a service in; says whether it is another than before.
    pub(super) fn put_service(&mut self, key: &ObjectKey, front: Option<ServiceFront>) -> bool {
        if self.services.get(key) == front.as_ref() {
            return false;
        }
        match front {
            Some(front) => drop(self.services.insert(key.clone(), front)),
            None => drop(self.services.remove(key)),
        }
        true
    }

    /// Takes a slice in; says which services it concerns.
    pub(super) fn put_slice(
        &mut self,
        key: &ObjectKey,
        group: Option<EndpointGroup>,
    ) -> BTreeSet<ObjectKey> {
        let mut touched = BTreeSet::new();
        if let Some(former) = self.served.remove(key) {
            self.lose_slice(&former, &key.1);
            touched.insert(former);
        }
        if let Some(group) = group {
            let service = (key.0.clone(), group.service.clone());
            self.groups.entry(service.clone()).or_default().insert(key.1.clone(), group);
            self.served.insert(key.clone(), service.clone());
            touched.insert(service);
        }
        touched
    }

    fn lose_slice(&mut self, service: &ObjectKey, slice: &str) {
        let Some(groups) = self.groups.get_mut(service) else { return };
        groups.remove(slice);
        if groups.is_empty() {
            self.groups.remove(service);
        }
    }

    /// The services that hang on any of these.
    pub(super) fn hanging_on(&self, whom: &BTreeSet<Who>) -> BTreeSet<ObjectKey> {
        whom.iter().filter_map(|who| self.askers.get(who)).flatten().cloned().collect()
    }

    /// Remembers what a service claims and hangs on; gives what it claimed before.
    pub(super) fn remember(&mut self, key: &ObjectKey, outcome: &Outcome) -> BTreeSet<ServiceKey> {
        let claims: BTreeSet<_> = outcome.claims.keys().copied().collect();
        let now = (claims, outcome.asked.clone());
        let (claimed, asked) = match now.0.is_empty() && now.1.is_empty() {
            true => self.known.remove(key),
            false => self.known.insert(key.clone(), now),
        }
        .unwrap_or_default();
        for who in asked.difference(&outcome.asked) {
            self.stop_asking(who, key);
        }
        for who in outcome.asked.difference(&asked) {
            self.askers.entry(who.clone()).or_default().insert(key.clone());
        }
        claimed
    }

    fn stop_asking(&mut self, who: &Who, key: &ObjectKey) {
        let Some(services) = self.askers.get_mut(who) else { return };
        services.remove(key);
        if services.is_empty() {
            self.askers.remove(who);
        }
    }

    /// What a service claims and hangs on. People hear of it where its network has pods.
    pub(super) fn compile(&self, key: &ObjectKey, vantage: &Vantage, kin: &Kin<'_>) -> Outcome {
        let Some(own) = self.services.get(key) else { return Outcome::default() };
        let front = &*self.with_all_addresses(key, own);
        let mut outcome = Outcome::default();
        self.hear_members(key, front, &mut outcome);
        for v4 in [true, false] {
            let addresses = self.free_addresses(front, v4, &mut outcome);
            if addresses.is_empty() {
                continue;
            }
            for port in &front.ports {
                let behind = self.behind(key, (front, port, v4), vantage, kin);
                if self.is_here() || self.followed.is_guest {
                    outcome.claims.extend(self.claims_outside(key, &behind, &addresses, vantage));
                }
                if self.has_clients(kin) {
                    self.claim_here(key, &addresses, &behind, vantage, &mut outcome);
                }
                if !kin.is_empty() {
                    let vips = vips(own, v4);
                    self.claim_across(&addresses, &vips, &behind, vantage, kin, &mut outcome);
                }
            }
        }
        if !self.is_here() {
            outcome.complaints.clear();
        }
        outcome
    }

    /// Whether pods of this node are in the same VPC.
    fn has_clients(&self, kin: &Kin<'_>) -> bool {
        self.is_here() || kin.iter().any(|it| it.is_here() && it.id() == self.id())
    }

    /// What a service claims in its own VPC.
    fn claim_here(
        &self,
        key: &ObjectKey,
        addresses: &Addresses,
        behind: &Behind<'_>,
        vantage: &Vantage,
        outcome: &mut Outcome,
    ) {
        let service = behind.nearest(self.id(), vantage);
        let gives_way = |ip: &IpAddr| self.gives_way(key, ip, &service);
        for (ip, rank) in addresses.iter().filter(|(ip, _)| !gives_way(ip)) {
            let key = self.key(*ip, behind.port);
            outcome.claims.insert(key, Claim { rank: *rank, service: service.clone() });
        }
    }

    /// The service with the addresses of the network's resolvers, where it answers there, and with
    /// those that the outside knows it by.
    fn with_all_addresses<'f>(
        &self,
        key: &ObjectKey,
        front: &'f ServiceFront,
    ) -> Cow<'f, ServiceFront> {
        let resolver = self.resolver.as_ref().filter(|it| it.service == *key);
        if resolver.is_none() && !self.outside.has(key) {
            return Cow::Borrowed(front);
        }
        let mut front = front.clone();
        self.outside.add_to(key, &mut front);
        let resolvers = resolver.into_iter().flat_map(|resolver| &resolver.addresses);
        front.addresses.extend(resolvers.map(|ip| (*ip, Rank::Cluster)));
        Cow::Owned(front)
    }

    /// Whether a service leaves one of its addresses to somebody else, as it has no backend.
    fn gives_way(&self, key: &ObjectKey, ip: &IpAddr, service: &Service) -> bool {
        let resolver = self.resolver.as_ref().filter(|it| it.service == *key && it.falls_back);
        resolver.is_some_and(|it| it.addresses.contains(ip)) && service.backends.is_empty()
    }

    pub(super) fn key(&self, ip: IpAddr, port: &FrontPort) -> ServiceKey {
        let FrontPort { protocol, port, .. } = *port;
        ServiceKey { network: self.id(), ip, protocol, port, side: Side::Clients }
    }

    /// A headless service hangs on nobody here.
    fn hear_members(&self, key: &ObjectKey, front: &ServiceFront, outcome: &mut Outcome) {
        if front.addresses.is_empty() {
            return;
        }
        for group in self.groups_of(key) {
            for member in &group.members {
                outcome.asked.insert(member.who.clone());
                let Who::Address(ip) = member.who else { continue };
                if self.homes.find(&member.who, group.v4).is_empty() {
                    outcome.complaints.insert(ServiceComplaint::ForeignEndpoint(ip));
                }
            }
        }
    }

    /// The addresses of one family that are no pod's and can be a service's.
    fn free_addresses(&self, front: &ServiceFront, v4: bool, outcome: &mut Outcome) -> Addresses {
        let mut free = vec![];
        for (ip, rank) in front.addresses.iter().filter(|(ip, _)| ip.is_ipv4() == v4) {
            outcome.asked.insert(Who::Address(*ip));
            if self.homes.has_address(*ip) || !can_be_a_services(*ip) {
                outcome.complaints.insert(ServiceComplaint::TakenAddress(*ip));
            } else {
                free.push((*ip, *rank));
            }
        }
        free
    }

    pub(super) fn groups_of(&self, key: &ObjectKey) -> impl Iterator<Item = &EndpointGroup> {
        self.groups.get(key).into_iter().flat_map(BTreeMap::values)
    }

    /// What a port of the service claims for clients from outside, in the family of the `free`
    /// addresses: its node port, at the unspecified address, and itself at each address that a claim
    /// gives the service. It leads to pods of the service's own VPC.
    fn claims_outside(
        &self,
        key: &ObjectKey,
        behind: &Behind<'_>,
        free: &Addresses,
        vantage: &Vantage,
    ) -> Vec<(ServiceKey, Claim)> {
        let Behind { front, port, all } = behind;
        let v4 = free.iter().any(|(ip, _)| ip.is_ipv4());
        let none: IpAddr =
            if v4 { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let node_port = port.node_port.map(|port| (none, port, BTreeSet::new()));
        let held = self.outside.of(key).filter(|ip| free.iter().any(|(free, _)| free == ip));
        let held = held.map(|ip| (ip, port.port, let_in(front, v4)));
        let entrances: Vec<_> = node_port.into_iter().chain(held).collect();
        if entrances.is_empty() {
            return vec![];
        }
        let own = all.iter().filter(|it| it.at.addr.network == self.id());
        let own: Vec<Candidate<'_, Backend>> = own.copied().collect();
        let chosen = choose(&own, front.external_local_only, vantage);
        let claim = |(ip, number, sources)| {
            let at = ServiceKey { side: Side::Outside, port: number, ..self.key(ip, port) };
            let service = Service { sources, ..behind.service(chosen.clone()) };
            (at, Claim { rank: Rank::Cluster, service })
        };
        entrances.into_iter().map(claim).collect()
    }
}

/// The clients of one family that a load balancer lets in.
fn let_in(front: &ServiceFront, v4: bool) -> BTreeSet<Cidr> {
    let everybody = if v4 { "0.0.0.0/0" } else { "::/0" };
    match &front.sources {
        Some(ranges) => ranges.iter().filter(|range| range.is_ipv4() == v4).copied().collect(),
        None => everybody.parse::<Cidr>().into_iter().collect(),
    }
}

/// Not an address that means the node itself, everybody or nobody.
pub(super) fn can_be_a_services(ip: IpAddr) -> bool {
    let link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast() || ip.octets()[0] >= 240,
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    !(ip.is_loopback() || ip.is_unspecified() || ip.is_multicast() || link_local)
}
