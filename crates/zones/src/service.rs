//! A service, and the names that follow from it.
//!
//! Its rule: the record rules of Kubernetes to the letter. A service with addresses has them, one
//! without has those of its ready endpoints, one that points outside has an alias; a service that
//! would have no record has no name.

use std::collections::BTreeMap;
use std::net::IpAddr;

use atoll_api::marks;
use atoll_types::{Label, Protocol};
use k8s_openapi::api::core::v1 as k8s;
use serde::{Deserialize, Serialize};

use crate::address::dashed;
use crate::apex::{Settings, below};
use crate::endpoints::{Homes, Slice};
use crate::name::{DomainName, DomainNameError, push_label};
use crate::packed::Packed;
use crate::records::{Kind, Rrsets};
use crate::trie::Entry;

/// A service by namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ServiceKey {
    /// The namespace.
    pub namespace: Label,
    /// The name.
    pub name: Label,
}

impl ServiceKey {
    /// The key in the form of a name: `web.shop`.
    pub(crate) fn wire(&self) -> Vec<u8> {
        let mut wire = vec![];
        push_label(&mut wire, self.name.as_str());
        push_label(&mut wire, self.namespace.as_str());
        wire
    }
}

/// A service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    /// Its name.
    pub key: ServiceKey,
    /// What it leads to.
    pub backing: Backing,
}

/// What a service leads to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Backing {
    /// Its own addresses.
    Vip {
        /// The addresses.
        addresses: Vec<IpAddr>,
        /// The ports that have a name.
        ports: Vec<NamedPort>,
    },
    /// Its endpoints themselves.
    Headless {
        /// Whether those that are not ready are shown too.
        all: bool,
    },
    /// A name outside.
    External(DomainName),
}

/// A port that has a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedPort {
    /// The name.
    pub name: Label,
    /// The protocol.
    pub protocol: Protocol,
    /// The number.
    pub port: u16,
}

/// A service that cannot be named.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServiceError {
    /// Its own name or its namespace is no label.
    #[error("the service cannot be named in DNS; rename it")]
    Name(#[from] atoll_types::NameError),
    /// What it points to is no name.
    #[error("the service's externalName cannot be answered; correct it")]
    External(#[from] DomainNameError),
    /// An address in the annotation or the spec is none.
    #[error("{0:?} in the service's addresses is no IP address; correct it")]
    Address(String),
}

/// The label of a protocol in the names of services.
fn protocol_label(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Tcp => "_tcp",
        Protocol::Udp => "_udp",
        Protocol::Sctp => "_sctp",
    }
}

impl Service {
    /// Reads a service.
    pub fn read(service: &k8s::Service) -> Result<Service, ServiceError> {
        let meta = &service.metadata;
        let key = ServiceKey {
            namespace: meta.namespace.as_deref().unwrap_or_default().parse()?,
            name: meta.name.as_deref().unwrap_or_default().parse()?,
        };
        Ok(Service { key, backing: backing(service)? })
    }
}

fn backing(service: &k8s::Service) -> Result<Backing, ServiceError> {
    let spec = service.spec.clone().unwrap_or_default();
    if spec.type_.as_deref() == Some("ExternalName") {
        let target = spec.external_name.unwrap_or_default();
        return Ok(Backing::External(DomainName::parse(&target)?));
    }
    if spec.cluster_ip.as_deref() == Some("None") {
        let all = spec.publish_not_ready_addresses.unwrap_or(false);
        return Ok(Backing::Headless { all });
    }
    let ports = spec.ports.iter().flatten().filter_map(port).collect();
    Ok(Backing::Vip { addresses: addresses(service, &spec)?, ports })
}

/// The network's own addresses for the service, else the cluster's.
fn addresses(service: &k8s::Service, spec: &k8s::ServiceSpec) -> Result<Vec<IpAddr>, ServiceError> {
    let own = service.metadata.annotations.as_ref().and_then(|all| all.get(marks::VIP));
    let texts: Vec<&str> = match own {
        Some(own) => own.split(',').map(str::trim).collect(),
        None => spec.cluster_ips.iter().flatten().map(String::as_str).collect(),
    };
    let read = |text: &str| text.parse().map_err(|_| ServiceError::Address(text.to_owned()));
    texts.into_iter().filter(|text| !text.is_empty()).map(read).collect()
}

fn port(port: &k8s::ServicePort) -> Option<NamedPort> {
    Some(NamedPort {
        name: port.name.as_deref()?.parse().ok()?,
        protocol: Protocol::parse(port.protocol.as_deref())?,
        port: port.port.try_into().ok()?,
    })
}

/// The names of one service: its own, and those below it.
#[derive(Debug)]
pub struct Names {
    key: Packed<30>,
    pub(crate) top: Rrsets,
    below: Box<[Below]>,
}

#[derive(Debug)]
struct Below {
    name: Box<[u8]>,
    sets: Rrsets,
}

impl Entry for Names {
    fn key(&self) -> &[u8] {
        &self.key
    }
}

impl Names {
    /// What follows from a service and those behind it; nothing where it would have no record.
    pub fn compile<'a>(
        service: &Service,
        slices: impl IntoIterator<Item = &'a Slice>,
        homes: &Homes,
        settings: &Settings,
    ) -> Option<Names> {
        let mut draft = Draft::new(&service.key, settings);
        match &service.backing {
            Backing::Vip { addresses, ports } => draft.vip(addresses, ports),
            Backing::Headless { all } => {
                slices.into_iter().for_each(|slice| draft.slice(slice, homes, *all));
            }
            Backing::External(target) => draft.alias = Some(target.wire().to_vec()),
        }
        draft.finish()
    }

    /// The records of a name below the service.
    pub(crate) fn below(&self, name: &[u8]) -> Option<&Rrsets> {
        let place = self.below.binary_search_by(|it| (*it.name).cmp(name)).ok()?;
        Some(&self.below[place].sets)
    }

    /// Every address with the name that points back from it, in relation to the zone of services.
    pub(crate) fn pointers(&self) -> impl Iterator<Item = (IpAddr, Vec<u8>)> {
        let own: &[u8] = &[];
        let endpoints = self.below.iter().flat_map(|it| it.sets.ips().map(|ip| (ip, &*it.name)));
        let headless = self.below.iter().any(|it| it.sets.ips().next().is_some());
        let vips = self.top.ips().filter(move |_| !headless).map(move |ip| (ip, own));
        vips.chain(endpoints).map(|(ip, name)| (ip, [name, &self.key].concat()))
    }
}

/// The names of a service while they are collected.
struct Draft<'a> {
    key: &'a ServiceKey,
    settings: &'a Settings,
    addresses: Vec<IpAddr>,
    alias: Option<Vec<u8>>,
    hosts: BTreeMap<Vec<u8>, Vec<IpAddr>>,
    ports: BTreeMap<Vec<u8>, Vec<Vec<u8>>>,
}

impl<'a> Draft<'a> {
    fn new(key: &'a ServiceKey, settings: &'a Settings) -> Self {
        let (hosts, ports) = (BTreeMap::new(), BTreeMap::new());
        Draft { key, settings, addresses: vec![], alias: None, hosts, ports }
    }

    fn vip(&mut self, addresses: &[IpAddr], ports: &[NamedPort]) {
        self.addresses = addresses.to_vec();
        let target = self.target(None);
        ports.iter().for_each(|port| self.port(port, &target));
    }

    fn slice(&mut self, slice: &Slice, homes: &Homes, all: bool) {
        for endpoint in slice.endpoints.iter().filter(|it| it.ready || all) {
            for ip in endpoint.seen_from(homes, slice.v4) {
                let host = endpoint.hostname.as_ref().map_or(dashed(ip), Label::to_string);
                self.host(&host, ip, &slice.ports);
            }
        }
    }

    fn host(&mut self, host: &str, ip: IpAddr, ports: &[NamedPort]) {
        let mut name = vec![];
        push_label(&mut name, host);
        self.addresses.push(ip);
        self.hosts.entry(name).or_default().push(ip);
        let target = self.target(Some(host));
        ports.iter().for_each(|port| self.port(port, &target));
    }

    /// The whole name of the service, or of a host below it.
    fn target(&self, host: Option<&str>) -> Vec<u8> {
        let mut labels = vec![self.key.name.as_str(), self.key.namespace.as_str(), "svc"];
        host.into_iter().for_each(|host| labels.insert(0, host));
        below(&self.settings.zone, &labels)
    }

    fn port(&mut self, port: &NamedPort, target: &[u8]) {
        let mut protocol = vec![];
        push_label(&mut protocol, protocol_label(port.protocol));
        let mut name = vec![];
        push_label(&mut name, &format!("_{}", port.name));
        name.extend(&protocol);
        let mut data = [0u16, 100, port.port].map(u16::to_be_bytes).concat();
        data.extend(target);
        self.ports.entry(protocol).or_default();
        self.ports.entry(name).or_default().push(data);
    }

    fn finish(mut self) -> Option<Names> {
        let ttl = self.settings.ttl;
        if self.addresses.is_empty() && self.alias.is_none() {
            return None;
        }
        tidy(&mut self.addresses);
        let top = match &self.alias {
            Some(target) => Rrsets::new(&[], Kind::Cname, std::slice::from_ref(target), ttl),
            None => Rrsets::addresses(&self.addresses, ttl),
        };
        let hosts = self.hosts.into_iter().map(|(name, mut ips)| {
            tidy(&mut ips);
            Below { name: name.into(), sets: Rrsets::addresses(&ips, ttl) }
        });
        let ports = self.ports.into_iter().map(|(name, mut data)| {
            tidy(&mut data);
            Below { name: name.into(), sets: Rrsets::new(&[], Kind::Srv, &data, ttl) }
        });
        let mut below: Vec<Below> = hosts.chain(ports).collect();
        below.sort_by(|one, other| one.name.cmp(&other.name));
        Some(Names { key: self.key.wire().as_slice().into(), top, below: below.into() })
    }
}

fn tidy<T: Ord>(list: &mut Vec<T>) {
    list.sort();
    list.dedup();
}
