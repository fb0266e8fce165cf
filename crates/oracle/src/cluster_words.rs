//! The words of `ClusterNetworkPolicy`, read from the object as it was written.

use ipnet::IpNet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::Value;

use crate::words::{End, Packet, aimed_at, selects};
use crate::world::{Pod, World};

/// What an administrators' policy says to a packet.
pub(crate) enum Answer {
    Accept,
    Deny,
    Pass,
}

/// The tenant that a policy belongs to: none for the cluster's.
fn tenant_of(policy: &Value) -> Option<&str> {
    policy["metadata"]["labels"]["atoll.dev/tenant"].as_str()
}

/// The policies of a tier that a tenant's pods are asked about, in the order of their say.
pub(crate) fn of_tier<'a>(world: &'a World, tenant: &str, tier: &str) -> Vec<&'a Value> {
    let (owner, name) = match tier {
        "ClusterAdmin" => (None, "Admin"),
        "TenantAdmin" => (Some(tenant), "Admin"),
        "TenantBaseline" => (Some(tenant), "Baseline"),
        _ => (None, "Baseline"),
    };
    let all = world.cluster_policies.iter();
    let mut found: Vec<&Value> =
        all.filter(|p| tenant_of(p) == owner && p["spec"]["tier"] == name).collect();
    found.sort_by_key(|p| (p["spec"]["priority"].as_u64(), p["metadata"]["name"].as_str()));
    found
}

/// Whether a policy is about a pod's interface in a network.
pub(crate) fn is_about(world: &World, policy: &Value, pod: &Pod, network: &str) -> bool {
    let annotations = serde_json::from_value(policy["metadata"]["annotations"].clone()).ok();
    aimed_at(annotations.as_ref(), network) && finds_pod(world, &policy["spec"]["subject"], pod)
}

/// The first rule that matches, with its answer.
pub(crate) fn first_matching(
    world: &World,
    policy: &Value,
    direction: &str,
    (tenant, other, packet): (&str, End<'_>, Packet<'_>),
) -> Option<(usize, Answer)> {
    let (rules, peers) = match direction {
        "Ingress" => (&policy["spec"]["ingress"], "from"),
        _ => (&policy["spec"]["egress"], "to"),
    };
    for (position, rule) in rules.as_array().into_iter().flatten().enumerate() {
        let found = rule[peers].as_array().into_iter().flatten();
        let mut found = found.filter(|peer| is_peer(world, tenant, peer, other));
        if found.next().is_some() && matches_port(rule, packet) {
            let answer = match rule["action"].as_str() {
                Some("Accept") => Answer::Accept,
                Some("Pass") => Answer::Pass,
                _ => Answer::Deny,
            };
            return Some((position, answer));
        }
    }
    None
}

fn selector(written: &Value) -> LabelSelector {
    serde_json::from_value(written.clone()).unwrap_or_default()
}

/// Reads `{namespaces: …}` or `{pods: {namespaceSelector: …, podSelector: …}}`.
fn finds_pod(world: &World, written: &Value, pod: &Pod) -> bool {
    let Some(labels) = world.namespace_labels(&pod.tenant, &pod.namespace) else { return false };
    if !written["namespaces"].is_null() {
        return selects(&selector(&written["namespaces"]), labels);
    }
    let pods = &written["pods"];
    !pods.is_null()
        && selects(&selector(&pods["namespaceSelector"]), labels)
        && selects(&selector(&pods["podSelector"]), &pod.labels)
}

fn is_peer(world: &World, tenant: &str, peer: &Value, other: End<'_>) -> bool {
    if !peer["networks"].is_null() {
        let ranges = peer["networks"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let mut ranges = ranges.filter_map(|text| text.parse::<IpNet>().ok());
        return ranges.any(|range| range.contains(&other.ip));
    }
    if !peer["nodes"].is_null() {
        let wanted = selector(&peer["nodes"]);
        let mut nodes = world.nodes.iter().filter(|node| node.ips.contains(&other.ip));
        return other.pod.is_none() && nodes.any(|node| selects(&wanted, &node.labels));
    }
    other.pod.is_some_and(|pod| pod.tenant == tenant && finds_pod(world, peer, pod))
}

fn matches_port(rule: &Value, packet: Packet<'_>) -> bool {
    if let Some(protocols) = rule["protocols"].as_array() {
        return protocols.iter().any(|written| is_protocol(written, packet));
    }
    if let Some(ports) = rule["ports"].as_array() {
        return ports.iter().any(|written| is_older_port(written, packet));
    }
    true
}

fn is_protocol(written: &Value, packet: Packet<'_>) -> bool {
    if let Some(name) = written["destinationNamedPort"].as_str() {
        return packet.goes_to_port_named(name);
    }
    let port = &written[packet.protocol.to_lowercase()]["destinationPort"];
    port["number"] == packet.port || within(&port["range"], packet.port)
}

fn is_older_port(written: &Value, packet: Packet<'_>) -> bool {
    if let Some(name) = written["namedPort"].as_str() {
        return packet.goes_to_port_named(name);
    }
    let one = &written["portNumber"];
    let several = &written["portRange"];
    let of_packet = |part: &Value| part["protocol"].as_str().unwrap_or("TCP") == packet.protocol;
    of_packet(one) && one["port"] == packet.port
        || of_packet(several) && within(several, packet.port)
}

fn within(range: &Value, port: u16) -> bool {
    let (start, end) = (range["start"].as_u64(), range["end"].as_u64());
    start.zip(end).is_some_and(|(start, end)| (start..=end).contains(&port.into()))
}
