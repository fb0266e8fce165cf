//! The words of `networking.k8s.io/v1`, each read as its documentation says.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use k8s_openapi::api::networking::v1::{
    IPBlock, NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::world::{Pod, World};

/// The end of a connection that a rule looks at: an address, and the pod that has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End<'a> {
    pub(crate) ip: IpAddr,
    pub(crate) pod: Option<&'a Pod>,
}

/// A packet's protocol and destination port, with the pod it goes to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet<'a> {
    pub(crate) protocol: &'a str,
    pub(crate) port: u16,
    pub(crate) receiver: Option<&'a Pod>,
}

impl Packet<'_> {
    /// Whether the receiver calls the packet's port by a name.
    pub(crate) fn goes_to_port_named(&self, name: &str) -> bool {
        let ports = self.receiver.map(|pod| pod.ports.as_slice()).unwrap_or_default();
        ports
            .iter()
            .any(|(n, protocol, port)| n == name && protocol == self.protocol && *port == self.port)
    }
}

/// Whether labels satisfy a selector.
pub(crate) fn selects(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    for (key, value) in selector.match_labels.clone().unwrap_or_default() {
        if labels.get(&key) != Some(&value) {
            return false;
        }
    }
    for expression in selector.match_expressions.clone().unwrap_or_default() {
        let value = labels.get(&expression.key);
        let values = expression.values.unwrap_or_default();
        let holds = match expression.operator.as_str() {
            "In" => value.is_some_and(|value| values.contains(value)),
            "NotIn" => !value.is_some_and(|value| values.contains(value)),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            _ => false,
        };
        if !holds {
            return false;
        }
    }
    true
}

/// Whether a policy is about traffic in a direction ("Ingress" or "Egress").
pub(crate) fn affects(policy: &NetworkPolicy, direction: &str) -> bool {
    let spec = policy.spec.clone().unwrap_or_default();
    let types = spec.policy_types.unwrap_or_default();
    if !types.is_empty() {
        return types.iter().any(|name| name == direction);
    }
    direction == "Ingress" || !spec.egress.unwrap_or_default().is_empty()
}

/// Whether a policy of the pod's own tenant and namespace selects the pod.
pub(crate) fn selects_pod(policy: &NetworkPolicy, pod: &Pod) -> bool {
    let selector = policy.spec.clone().unwrap_or_default().pod_selector.unwrap_or_default();
    policy.metadata.namespace.as_deref() == Some(&pod.namespace) && selects(&selector, &pod.labels)
}

/// Whether a policy is aimed at a network: by its annotation, or at all of them without one.
pub(crate) fn aimed_at(annotations: Option<&BTreeMap<String, String>>, network: &str) -> bool {
    match annotations.and_then(|all| all.get("atoll.dev/policy-networks")) {
        None => true,
        Some(list) => {
            let names: Vec<String> = serde_json::from_str(list).unwrap_or_default();
            names.iter().any(|name| name == network)
        }
    }
}

/// The position of the first rule that allows a packet.
pub(crate) fn first_allowing(
    world: &World,
    (tenant, policy): (&str, &NetworkPolicy),
    direction: &str,
    (other, packet): (End<'_>, Packet<'_>),
) -> Option<usize> {
    let spec = policy.spec.clone().unwrap_or_default();
    let rules: Vec<(Vec<NetworkPolicyPeer>, Vec<NetworkPolicyPort>)> = match direction {
        "Ingress" => {
            let rules = spec.ingress.unwrap_or_default().into_iter();
            rules.map(|r| (r.from.unwrap_or_default(), r.ports.unwrap_or_default())).collect()
        }
        _ => {
            let rules = spec.egress.unwrap_or_default().into_iter();
            rules.map(|r| (r.to.unwrap_or_default(), r.ports.unwrap_or_default())).collect()
        }
    };
    let namespace = policy.metadata.namespace.as_deref().unwrap_or_default();
    rules.iter().position(|(peers, ports)| {
        let peer = peers.is_empty()
            || peers.iter().any(|peer| is_peer(world, tenant, namespace, peer, other));
        let port = ports.is_empty() || ports.iter().any(|port| is_port(port, packet));
        peer && port
    })
}

fn is_peer(
    world: &World,
    tenant: &str,
    namespace: &str,
    peer: &NetworkPolicyPeer,
    other: End<'_>,
) -> bool {
    if let Some(block) = &peer.ip_block {
        return in_block(block, other.ip);
    }
    let Some(pod) = other.pod.filter(|pod| pod.tenant == tenant) else { return false };
    let in_namespace = match &peer.namespace_selector {
        None => pod.namespace == namespace,
        Some(selector) => world
            .namespace_labels(tenant, &pod.namespace)
            .is_some_and(|labels| selects(selector, labels)),
    };
    in_namespace && peer.pod_selector.as_ref().is_none_or(|s| selects(s, &pod.labels))
}

fn in_block(block: &IPBlock, ip: IpAddr) -> bool {
    let inside = |range: &String| range.parse::<IpNet>().is_ok_and(|range| range.contains(&ip));
    inside(&block.cidr) && !block.except.clone().unwrap_or_default().iter().any(inside)
}

fn is_port(written: &NetworkPolicyPort, packet: Packet<'_>) -> bool {
    if written.protocol.as_deref().unwrap_or("TCP") != packet.protocol {
        return false;
    }
    match (&written.port, written.end_port) {
        (None, _) => true,
        (Some(IntOrString::String(name)), _) => packet.goes_to_port_named(name),
        (Some(IntOrString::Int(port)), None) => *port == i32::from(packet.port),
        (Some(IntOrString::Int(first)), Some(last)) => {
            (*first..=last).contains(&i32::from(packet.port))
        }
    }
}
