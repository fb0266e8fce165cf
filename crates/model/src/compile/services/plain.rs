//! The services of namespaces of no tenant, for the plain pods of a node, kept change by change.
//!
//! The rules: they are Kubernetes' own, led as kube-proxy would lead them, to the addresses that stand
//! in their slices, whoever has those; a namespace that is not known to be nobody's is in no such book;
//! and a change compiles the one service that it touches.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::num::NonZeroU16;

use atoll_plan::{Backend, PLAIN, Service, ServiceKey, Side};
use atoll_types::{NetAddr, Protocol};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};

use super::choice::{Candidate, Vantage, choose};
use super::front::{FrontPort, ServiceFront};
use super::fronts::Rank;
use super::homes::ObjectKey;
use super::network::can_be_a_services;
use super::slice::{Member, SERVICE_NAME, Who, member, port};
use crate::export::is_elsewhere;

/// Endpoints of a slice, at the addresses that it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlainGroup {
    service: String,
    ports: BTreeMap<(String, Protocol), NonZeroU16>,
    members: Vec<PlainMember>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct PlainMember {
    member: Member,
    ip: IpAddr,
    node: Option<String>,
}

impl PlainGroup {
    /// Reads a slice; none where it belongs to no service or has no IP addresses.
    pub fn read(slice: &EndpointSlice) -> Option<PlainGroup> {
        let service = slice.metadata.labels.as_ref()?.get(SERVICE_NAME)?;
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
    vantage: Vantage,
    services: BTreeMap<ObjectKey, ServiceFront>,
    groups: BTreeMap<ObjectKey, BTreeMap<String, PlainGroup>>,
    /// The service of each slice.
    served_by: BTreeMap<ObjectKey, ObjectKey>,
    /// What each service is served at.
    keys: BTreeMap<ObjectKey, BTreeSet<ServiceKey>>,
    served: BTreeMap<ServiceKey, Service>,
    touched: BTreeSet<ServiceKey>,
}

impl PlainBook {
    /// Nothing seen yet, on this node in this zone.
    pub fn new(node: &str, zone: Option<String>) -> Self {
        PlainBook {
            vantage: Vantage { node: node.to_owned(), zone },
            services: BTreeMap::new(),
            groups: BTreeMap::new(),
            served_by: BTreeMap::new(),
            keys: BTreeMap::new(),
            served: BTreeMap::new(),
            touched: BTreeSet::new(),
        }
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
        &self.served
    }

    /// What has changed since the last time.
    pub fn take_touched(&mut self) -> BTreeSet<ServiceKey> {
        std::mem::take(&mut self.touched)
    }

    fn compile(&mut self, service: &ObjectKey) {
        let now = self.claims(service);
        let keys: BTreeSet<_> = now.keys().copied().collect();
        let former = match keys.is_empty() {
            true => self.keys.remove(service),
            false => self.keys.insert(service.clone(), keys.clone()),
        };
        for key in former.unwrap_or_default().difference(&keys) {
            self.served.remove(key);
            self.touched.insert(*key);
        }
        for (key, service) in now {
            if self.served.get(&key) != Some(&service) {
                self.served.insert(key, service);
                self.touched.insert(key);
            }
        }
    }

    /// What a service is served at, and who takes its connections there. Only the cluster gives plain
    /// services addresses; SCTP is not led.
    fn claims(&self, service: &ObjectKey) -> BTreeMap<ServiceKey, Service> {
        let Some(front) = self.services.get(service) else { return BTreeMap::new() };
        let addresses = front.addresses.iter();
        let addresses =
            addresses.filter(|(ip, rank)| **rank == Rank::Cluster && can_be_a_services(**ip));
        let ports = || front.ports.iter().filter(|port| port.protocol != Protocol::Sctp);
        let all = addresses.flat_map(|(ip, _)| ports().map(move |port| (*ip, port)));
        all.map(|(ip, port)| {
            let key = ServiceKey {
                network: PLAIN,
                ip,
                protocol: port.protocol,
                port: port.port,
                side: Side::Clients,
            };
            let backends = self.backends(service, front, port, ip.is_ipv4());
            (key, Service { backends, affinity: front.affinity, sources: BTreeSet::new() })
        })
        .collect()
    }

    fn backends(
        &self,
        service: &ObjectKey,
        front: &ServiceFront,
        port: &FrontPort,
        v4: bool,
    ) -> BTreeSet<Backend> {
        let groups = self.groups.get(service).into_iter().flat_map(BTreeMap::values);
        let candidates = groups.flat_map(|group| {
            let number = group.ports.get(&(port.name.clone(), port.protocol)).copied();
            let members = group.members.iter().filter(move |it| it.ip.is_ipv4() == v4);
            members.filter_map(move |it| Some(self.candidate(it, number?)))
        });
        let candidates: Vec<_> = candidates.collect();
        choose(&candidates, front.local_only, &self.vantage).into_iter().collect()
    }

    fn candidate<'a>(&self, it: &'a PlainMember, port: NonZeroU16) -> Candidate<'a, Backend> {
        let is_here = it.node.as_ref() == Some(&self.vantage.node);
        let at = Backend { addr: NetAddr::new(PLAIN, it.ip), port };
        Candidate { member: &it.member, is_here, at }
    }
}

fn of_namespace<V>(all: &BTreeMap<ObjectKey, V>, namespace: &str) -> Vec<ObjectKey> {
    let from = all.range((namespace.to_owned(), String::new())..);
    from.take_while(|(key, _)| key.0 == namespace).map(|(key, _)| key.clone()).collect()
}
