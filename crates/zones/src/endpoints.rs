//! Who stands behind a service, as EndpointSlices tell it, seen from one network.
//!
//! Its rule: an endpoint that is a pod has the address that the pod has in this network, and no
//! other; a pod that is not in the network is not behind the service here.

use std::collections::HashMap;
use std::net::IpAddr;

use atoll_api as api;
use atoll_types::{Label, NetworkId, PodRef, Protocol};
use k8s_openapi::api::discovery::v1 as k8s;
use serde::{Deserialize, Serialize};

use crate::service::{NamedPort, ServiceKey};

/// The label by which a slice names its service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// Where the pods of one network live in it.
#[derive(Clone, Debug, Default)]
pub struct Homes(HashMap<PodRef, Vec<IpAddr>>);

impl Homes {
    /// The pods with a port in `network`, and the addresses of those ports.
    pub fn of<'a>(network: NetworkId, ports: impl IntoIterator<Item = &'a api::Port>) -> Self {
        let mut homes: HashMap<PodRef, Vec<IpAddr>> = HashMap::new();
        for port in ports.into_iter().filter(|port| port.spec.network_id == network.get()) {
            let namespace = port.metadata.namespace.clone().unwrap_or_default();
            let pod = PodRef::new(namespace, port.spec.pod.clone());
            let ips = port.spec.ips.iter().filter_map(|ip| ip.parse().ok());
            homes.entry(pod).or_default().extend::<Vec<IpAddr>>(ips.collect());
        }
        Homes(homes)
    }

    /// A pod has these addresses in the network; without one it is not there.
    pub(crate) fn put(&mut self, pod: &PodRef, ips: Vec<IpAddr>) {
        if ips.is_empty() {
            self.0.remove(pod);
        } else {
            self.0.insert(pod.clone(), ips);
        }
    }

    /// The addresses of a pod in this network.
    pub fn addresses(&self, pod: &PodRef) -> &[IpAddr] {
        self.0.get(pod).map_or(&[], Vec::as_slice)
    }

    /// Every pod with its addresses.
    pub fn iter(&self) -> impl Iterator<Item = (&PodRef, &[IpAddr])> {
        self.0.iter().map(|(pod, ips)| (pod, ips.as_slice()))
    }
}

/// One EndpointSlice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slice {
    /// The service it belongs to.
    pub service: ServiceKey,
    /// Whether its addresses are IPv4.
    pub v4: bool,
    /// Its ports that have a name.
    pub ports: Vec<NamedPort>,
    /// Who is behind the service.
    pub endpoints: Vec<Endpoint>,
}

/// One of those behind a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// Its addresses, as the slice has them.
    pub addresses: Vec<IpAddr>,
    /// Whether it is ready; nothing said means yes.
    pub ready: bool,
    /// Its own name below the service.
    pub hostname: Option<Label>,
    /// The pod that it is.
    pub pod: Option<PodRef>,
}

impl Slice {
    /// Reads a slice; none where it belongs to no service or has no IP addresses.
    pub fn read(slice: &k8s::EndpointSlice) -> Option<Slice> {
        let name = slice.metadata.labels.as_ref()?.get(SERVICE_NAME)?;
        let namespace = slice.metadata.namespace.as_deref()?;
        let v4 = match slice.address_type.as_str() {
            "IPv4" => true,
            "IPv6" => false,
            _ => return None,
        };
        Some(Slice {
            service: ServiceKey { namespace: namespace.parse().ok()?, name: name.parse().ok()? },
            v4,
            ports: slice.ports.iter().flatten().filter_map(port).collect(),
            endpoints: slice.endpoints.iter().map(|it| Endpoint::read(it, namespace, v4)).collect(),
        })
    }
}

fn port(port: &k8s::EndpointPort) -> Option<NamedPort> {
    Some(NamedPort {
        name: port.name.as_deref()?.parse().ok()?,
        protocol: Protocol::parse(port.protocol.as_deref())?,
        port: port.port?.try_into().ok()?,
    })
}

impl Endpoint {
    fn read(endpoint: &k8s::Endpoint, namespace: &str, v4: bool) -> Endpoint {
        let ready = endpoint.conditions.as_ref().and_then(|it| it.ready).unwrap_or(true);
        let target = endpoint.target_ref.as_ref().filter(|it| it.kind.as_deref() == Some("Pod"));
        let ips = endpoint.addresses.iter().filter_map(|ip| ip.parse::<IpAddr>().ok());
        Endpoint {
            addresses: ips.filter(|ip| ip.is_ipv4() == v4).collect(),
            ready,
            hostname: endpoint.hostname.as_deref().and_then(|name| name.parse().ok()),
            pod: target.and_then(|it| it.name.as_ref()).map(|name| PodRef::new(namespace, name)),
        }
    }

    /// Its addresses of one family in the network whose pods live at `homes`.
    pub(crate) fn seen_from(&self, homes: &Homes, v4: bool) -> Vec<IpAddr> {
        let ips = match &self.pod {
            Some(pod) => homes.addresses(pod),
            None => &self.addresses,
        };
        ips.iter().copied().filter(|ip| ip.is_ipv4() == v4 && speaks_for_one(*ip)).collect()
    }
}

/// Not an address that means somebody else to everyone who asks.
fn speaks_for_one(ip: IpAddr) -> bool {
    let link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_unicast_link_local() || ip.to_ipv4_mapped().is_some(),
    };
    !(ip.is_loopback() || ip.is_unspecified() || ip.is_multicast() || link_local)
}
