//! What this node needs of each object of the API, read once.
//!
//! The rule of this file: what cannot be understood is as good as absent, and that is said once for each
//! change of it.

use std::net::IpAddr;
use std::sync::Arc;

use atoll_api::{Network, NetworkIsolation, Port, marks};
use atoll_model::compile::{PlacedPort, ServiceFront};
use atoll_model::export::{Export, ExportError, ServiceName};
use atoll_model::intent::DnsPlan;
use atoll_types::Cidr;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, Service};
use kube::ResourceExt;
use kube::core::PartialObjectMeta;

use crate::probe::{PodName, Probed};
use crate::seen::{
    Exported, Joined, NetworkDns, Outside, PortKey, SeenNamespace, SeenNode, Sibling, Tenancy,
    Upstreams,
};

/// A node with an address for tunnel packets, and its zone, where it is in one.
pub(super) fn seen_node(
    node: &Node,
    underlay: Option<IpAddr>,
) -> (Option<SeenNode>, Option<String>) {
    let seen = internal_ip(node, underlay).map(|underlay| SeenNode {
        underlay,
        facts: atoll_policy::read_node(node),
        internal: internal_ips(node).collect(),
        pod_ranges: pod_ranges(node),
    });
    (seen, zone(node))
}

/// The underlay address of a node: the one of the same family as `own`, where that is known, or
/// else the first.
pub(crate) fn internal_ip(node: &Node, own: Option<IpAddr>) -> Option<IpAddr> {
    let mut ips = internal_ips(node);
    let first = ips.clone().next();
    ips.find(|ip| own.is_some_and(|own| own.is_ipv4() == ip.is_ipv4())).or(first)
}

fn internal_ips(node: &Node) -> impl Iterator<Item = IpAddr> + Clone {
    let addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    let internal = addresses.filter(|address| address.type_ == "InternalIP");
    internal.filter_map(|address| address.address.parse().ok())
}

/// The ranges of a node's pods that are of no tenant, where it has any.
fn pod_ranges(node: &Node) -> Vec<Cidr> {
    let spec = node.spec.iter();
    let all = spec.flat_map(|spec| spec.pod_cidrs.iter().flatten().chain(&spec.pod_cidr));
    read_ranges(all)
}

/// The ranges among these that can be read.
pub(super) fn read_ranges<'a>(ranges: impl IntoIterator<Item = &'a String>) -> Vec<Cidr> {
    ranges.into_iter().filter_map(|range| range.parse().ok()).collect()
}

/// The label of a node that names its zone.
const ZONE: &str = "topology.kubernetes.io/zone";

pub(crate) fn zone(node: &Node) -> Option<String> {
    node.labels().get(ZONE).cloned()
}

/// A network that has no number yet has no pods either.
pub(super) fn sibling(network: &Network) -> Option<Sibling> {
    let id = network.status.as_ref()?.id?.try_into().ok()?;
    let is_shared = network.spec.isolation == Some(NetworkIsolation::Open);
    Some(Sibling { id, is_shared })
}

pub(super) fn key(port: &Port) -> PortKey {
    (port.namespace().unwrap_or_default(), port.name_any())
}

/// A port that cannot be parsed is as good as absent, and said once for each change of it.
pub(super) fn placed(port: &Port) -> Option<PlacedPort> {
    PlacedPort::try_from(port)
        .inspect_err(|error| {
            tracing::warn!(port = ?key(port), %error, "port passed over");
        })
        .ok()
}

/// The network of a port.
pub(super) fn joined(port: &Port) -> Option<Joined> {
    let placed = placed(port)?;
    Some(Joined { network: placed.network, name: placed.network_name })
}

/// What a network says of its names. One that cannot be understood asks nobody outside.
pub(super) fn network_dns(network: &Network) -> NetworkDns {
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
pub(super) fn named(service: &Service) -> Option<atoll_zones::Service> {
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

/// A pod with a sheet of probes. One that cannot be read is none, and its probes fail.
pub(super) fn probed(pod: &PartialObjectMeta<Pod>) -> Option<(PodName, Probed)> {
    let name = (pod.namespace()?, pod.name_any());
    let sheet = serde_json::from_str(pod.annotations().get(marks::PROBES)?)
        .inspect_err(|error| tracing::warn!(pod = ?name, %error, "unreadable sheet of probes"));
    Some((name, Probed { uid: pod.uid()?, sheet: Arc::new(sheet.ok()?) }))
}

pub(super) fn service_name(service: &Service) -> ServiceName {
    (service.namespace().unwrap_or_default(), service.name_any())
}

/// A service that cannot be exported is not, and that is said once for each change of it.
pub(super) fn exported(
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

pub(super) fn seen_namespace(namespace: &PartialObjectMeta<Namespace>) -> SeenNamespace {
    SeenNamespace {
        tenancy: tenancy(namespace),
        labels: namespace.labels().clone(),
        is_ending: namespace.metadata.deletion_timestamp.is_some(),
    }
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
