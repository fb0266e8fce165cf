//! The services of namespaces of no tenant, for the plain pods of a node, its own processes, and clients
//! who come to its node ports, kept change by change.
//!
//! The rules: they are Kubernetes' own, led as kube-proxy would lead them, to the addresses that stand
//! in their slices, whoever has those; a namespace that is not known to be nobody's is in no such book;
//! a change compiles the one service that it touches; and an address and port that went from one service
//! to another is the other's, in whichever order that is seen.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU16;

use atoll_plan::{Backend, PLAIN, Service, ServiceKey, Side};
use atoll_types::{NetAddr, Protocol};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};

use super::choice::{Candidate, Vantage, choose};
use super::front::{FrontPort, ServiceFront, is_left_to_others};
use super::fronts::Rank;
use super::homes::ObjectKey;
use super::network::can_be_a_services;
use super::served::Served;
use super::slice::{Member, SERVICE_NAME, Who, member, port};
use crate::export::is_elsewhere;

/// Endpoints of a slice, at the addresses that it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlainGroup {
    service: String,
    ports: BTreeMap<(String, Protocol), NonZeroU16>,
    pub(super) members: Vec<PlainMember>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlainMember {
    pub(super) member: Member,
    pub(super) ip: IpAddr,
    pub(super) node: Option<String>,
}

impl PlainGroup {
    /// Reads a slice; none where it belongs to no service, is left to others or has no IP addresses.
    pub fn read(slice: &EndpointSlice) -> Option<PlainGroup> {
        let service = slice.metadata.labels.as_ref()?.get(SERVICE_NAME)?;
        if is_left_to_others(&slice.metadata) {
            return None;
        }
        if !matches!(slice.address_type.as_str(), "IPv4" | "IPv6") {
            return None;
        }
        Some(PlainGroup {
            service: service.clone(),
            ports: slice.ports.iter().flatten().filter_map(port).collect(),
            members: slice.endpoints.iter().flat_map(members).collect(),
        })
    }
}

/// An address that would mean the client's own node or link is nobody's.
fn members(endpoint: &Endpoint) -> Vec<PlainMember> {
    let ips = endpoint.addresses.iter().filter_map(|ip| ip.parse::<IpAddr>().ok());
    let ips = ips.map(|ip| ip.to_canonical()).filter(is_elsewhere);
    ips.map(|ip| PlainMember {
        member: member(endpoint, Who::Address(ip)),
        ip,
        node: endpoint.node_name.clone(),
    })
    .collect()
}

/// The services of all namespaces of no tenant, as the plain pods of one node see them.
#[derive(Debug)]
pub struct PlainBook {
    pub(super) vantage: Vantage,
    /// The node's addresses that clients from outside come to.
    outside: Vec<IpAddr>,
    pub(super) services: BTreeMap<ObjectKey, ServiceFront>,
    pub(super) groups: BTreeMap<ObjectKey, BTreeMap<String, PlainGroup>>,
    /// The service of each slice.
    served_by: BTreeMap<ObjectKey, ObjectKey>,
    /// What each service is served at.
    keys: BTreeMap<ObjectKey, BTreeSet<ServiceKey>>,
    /// Which services would be served at each: one, but where another that had it was not seen to go yet.
    claimants: BTreeMap<ServiceKey, BTreeSet<ObjectKey>>,
    served: Served,
}

impl PlainBook {
    /// Nothing seen yet, on this node in this zone.
    pub fn new(node: &str, zone: Option<String>) -> Self {
        PlainBook {
            vantage: Vantage { node: node.to_owned(), zone },
            outside: vec![],
            services: BTreeMap::new(),
            groups: BTreeMap::new(),
            served_by: BTreeMap::new(),
            keys: BTreeMap::new(),
            claimants: BTreeMap::new(),
            served: Served::default(),
        }
    }

    /// From now on node ports are at these addresses of the node.
    pub fn enter_at(&mut self, outside: Vec<IpAddr>) {
        if self.outside == outside {
            return;
        }
        self.outside = outside;
        let has_node_port =
            |front: &ServiceFront| front.ports.iter().any(|it| it.node_port.is_some());
        let entered = self.services.iter().filter(|(_, front)| has_node_port(front));
        let entered: Vec<_> = entered.map(|(key, _)| key.clone()).collect();
        entered.iter().for_each(|service| self.compile(service));
    }

    /// The addresses of the node that clients from outside come to.
    pub fn entered_at(&self) -> &[IpAddr] {
        &self.outside
    }

    /// Whether clients from outside are served anything.
    pub fn is_entered(&self) -> bool {
        self.served.outside > 0
    }

    /// The services of a namespace.
    pub fn services_of(&self, namespace: &str) -> Vec<ObjectKey> {
        of_namespace(&self.services, namespace)
    }

    /// The slices of a namespace.
    pub fn slices_of(&self, namespace: &str) -> Vec<ObjectKey> {
        of_namespace(&self.served_by, namespace)
    }

    /// Forgets all of a namespace.
    pub fn leave(&mut self, namespace: &str) {
        for key in self.services_of(namespace) {
            self.put_service(&key, None);
        }
        for key in self.slices_of(namespace) {
            self.put_slice(&key, None);
        }
    }

    /// The service `key` is this one, or is gone.
    pub fn put_service(&mut self, key: &ObjectKey, front: Option<ServiceFront>) {
        match front {
            Some(front) => drop(self.services.insert(key.clone(), front)),
            None => drop(self.services.remove(key)),
        }
        self.compile(key);
    }

    /// The slice `key` is this one, or is gone.
    pub fn put_slice(&mut self, key: &ObjectKey, group: Option<PlainGroup>) {
        let mut concerned = BTreeSet::new();
        if let Some(former) = self.served_by.remove(key) {
            self.lose_slice(&former, &key.1);
            concerned.insert(former);
        }
        if let Some(group) = group {
            let service = (key.0.clone(), group.service.clone());
            self.groups.entry(service.clone()).or_default().insert(key.1.clone(), group);
            self.served_by.insert(key.clone(), service.clone());
            concerned.insert(service);
        }
        concerned.iter().for_each(|service| self.compile(service));
    }

    fn lose_slice(&mut self, service: &ObjectKey, slice: &str) {
        let Some(groups) = self.groups.get_mut(service) else { return };
        groups.remove(slice);
        if groups.is_empty() {
            self.groups.remove(service);
        }
    }

    /// What is to be served.
    pub fn served(&self) -> &BTreeMap<ServiceKey, Service> {
        &self.served.now
    }

    /// What has changed since the last time.
    pub fn take_touched(&mut self) -> BTreeSet<ServiceKey> {
        std::mem::take(&mut self.served.touched)
    }

    fn compile(&mut self, service: &ObjectKey) {
        let now = self.claims(service);
        let keys: BTreeSet<_> = now.keys().copied().collect();
        let former = match keys.is_empty() {
            true => self.keys.remove(service),
            false => self.keys.insert(service.clone(), keys.clone()),
        };
        for key in former.unwrap_or_default().difference(&keys) {
            self.give_up(service, *key);
        }
        for (key, served) in now {
            self.claimants.entry(key).or_default().insert(service.clone());
            self.served.put(key, Some(served));
        }
    }

    /// A service is not served here any more; another may be that has the place by now.
    fn give_up(&mut self, service: &ObjectKey, key: ServiceKey) {
        let mut claimants = self.claimants.remove(&key).unwrap_or_default();
        claimants.remove(service);
        let next = claimants.first().and_then(|other| self.claims(other).remove(&key));
        if !claimants.is_empty() {
            self.claimants.insert(key, claimants);
        }
        self.served.put(key, next);
    }

    /// What a service is served at, and who takes its connections there.
    fn claims(&self, service: &ObjectKey) -> BTreeMap<ServiceKey, Service> {
        let Some(front) = self.services.get(service) else { return BTreeMap::new() };
        let places = front.ports.iter().flat_map(|port| {
            let by_cluster = own_addresses(front).map(move |ip| Place::of_cluster(ip, port.port));
            let by_node = port.node_port.map(|number| self.node_port(front, number));
            let all = by_cluster.chain(by_node.into_iter().flatten());
            all.map(move |place| (place, port))
        });
        let claim = |(place, port): (Place, &FrontPort)| {
            let Place { ip, number, side, .. } = place;
            let key =
                ServiceKey { network: PLAIN, ip, protocol: port.protocol, port: number, side };
            let local_only = place.local_only(front);
            let backends = self.backends(service, port, ip.is_ipv4(), local_only);
            (key, Service { backends, affinity: front.affinity, sources: BTreeSet::new() })
        };
        places.map(claim).collect()
    }

    /// Where a node port of a service is: at the node's addresses, for those who come from outside and for
    /// those who are here, and at the loopback's for the node's own processes.
    fn node_port(&self, front: &ServiceFront, number: NonZeroU16) -> Vec<Place> {
        let families: BTreeSet<bool> = own_addresses(front).map(|ip| ip.is_ipv4()).collect();
        let here = self.outside.iter().copied().filter(|ip| families.contains(&ip.is_ipv4()));
        let entered = here.clone().map(|ip| Place::entered(ip, number));
        let loopbacks: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        let loopbacks = loopbacks.into_iter().filter(|ip| families.contains(&ip.is_ipv4()));
        let inside = here.chain(loopbacks).map(|ip| Place::of_node(ip, number));
        if self.outside.is_empty() { vec![] } else { entered.chain(inside).collect() }
    }

    fn backends(
        &self,
        service: &ObjectKey,
        port: &FrontPort,
        v4: bool,
        local_only: bool,
    ) -> BTreeSet<Backend> {
        let groups = self.groups.get(service).into_iter().flat_map(BTreeMap::values);
        let candidates = groups.flat_map(|group| {
            let number = group.ports.get(&(port.name.clone(), port.protocol)).copied();
            let members = group.members.iter().filter(move |it| it.ip.is_ipv4() == v4);
            members.filter_map(move |it| Some(self.candidate(it, number?)))
        });
        let candidates: Vec<_> = candidates.collect();
        choose(&candidates, local_only, &self.vantage).into_iter().collect()
    }

    fn candidate<'a>(&self, it: &'a PlainMember, port: NonZeroU16) -> Candidate<'a, Backend> {
        let is_here = it.node.as_ref() == Some(&self.vantage.node);
        let at = Backend { addr: NetAddr::new(PLAIN, it.ip), port };
        Candidate { member: &it.member, is_here, at }
    }
}

/// The addresses that the cluster gave a service. Nobody else gives plain services any.
fn own_addresses(front: &ServiceFront) -> impl Iterator<Item = IpAddr> {
    let given = front.addresses.iter().filter(|(_, rank)| **rank == Rank::Cluster);
    given.map(|(ip, _)| *ip).filter(|ip| can_be_a_services(*ip))
}

/// What one of a service's places is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Cluster,
    /// A node port, for those who are on the node: as with kube-proxy, whoever is ready takes them.
    Node,
    /// A node port, for those who come from outside.
    Entered,
}

/// Where clients find a service.
#[derive(Clone, Copy, Debug)]
struct Place {
    ip: IpAddr,
    number: NonZeroU16,
    side: Side,
    kind: Kind,
}

impl Place {
    fn of_cluster(ip: IpAddr, number: NonZeroU16) -> Self {
        Place { ip, number, side: Side::Clients, kind: Kind::Cluster }
    }

    fn of_node(ip: IpAddr, number: NonZeroU16) -> Self {
        Place { ip, number, side: Side::Clients, kind: Kind::Node }
    }

    fn entered(ip: IpAddr, number: NonZeroU16) -> Self {
        Place { ip, number, side: Side::Outside, kind: Kind::Entered }
    }

    /// Whether only backends of this node take those who come here.
    fn local_only(&self, front: &ServiceFront) -> bool {
        match self.kind {
            Kind::Cluster => front.local_only,
            Kind::Node => false,
            Kind::Entered => front.external_local_only,
        }
    }
}

fn of_namespace<V>(all: &BTreeMap<ObjectKey, V>, namespace: &str) -> Vec<ObjectKey> {
    let from = all.range((namespace.to_owned(), String::new())..);
    from.take_while(|(key, _)| key.0 == namespace).map(|(key, _)| key.clone()).collect()
}
