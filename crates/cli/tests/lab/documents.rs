//! Tenants and pods as documents: two networks for every tenant, the same ranges for all of them.

use serde_json::{Value, json};

/// A tenant with a default network and network `b`, the same ranges for everyone.
pub(crate) fn tenant(name: &str) -> String {
    let documents = [
        json!({"apiVersion": "atoll.dev/v1alpha1", "kind": "Tenant", "metadata": {"name": name},
               "spec": {"defaultNetwork": {"type": "vpc", "cidrs": ["10.0.0.0/16", "fd00::/64"]}}}),
        json!({"apiVersion": "v1", "kind": "Namespace",
               "metadata": {"name": name, "labels": {"atoll.dev/tenant": name}}}),
        json!({"apiVersion": "atoll.dev/v1alpha1", "kind": "Network",
               "metadata": {"name": format!("{name}.b")},
               "spec": {"tenant": name, "type": "vpc", "cidrs": ["10.1.0.0/16", "fd00:1::/64"]}}),
    ];
    yaml(&documents)
}

pub(crate) fn yaml(documents: &[Value]) -> String {
    documents.iter().map(|document| format!("---\n{document}\n")).collect()
}

/// A server on a node, with these labels and annotations.
pub(crate) fn pod(name: &str, node: &str, labels: &Value, annotations: &Value) -> Value {
    let (namespace, name) = name.split_once('/').unwrap();
    let field = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels,
                     "annotations": annotations},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": node},
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "toolbox", "image": "none", "command": ["atoll", "toolbox", "serve"],
                "env": [field("POD_NAME", "metadata.name"),
                        field("POD_NAMESPACE", "metadata.namespace"),
                        field("NODE_NAME", "spec.nodeName")],
            }],
        },
    })
}

/// The first interface with the last part of both of its addresses.
pub(crate) fn nics(network: &str, last: u8) -> Value {
    json!({"atoll.dev/nics": json!([{"ips": addresses(network, last)}]).to_string()})
}

/// An address of each family, in the default network or in `b`.
pub(crate) fn addresses(network: &str, last: u8) -> [String; 2] {
    match network {
        "b" => [format!("10.1.0.{last}"), format!("fd00:1::{last}")],
        _ => [format!("10.0.0.{last}"), format!("fd00::{last}")],
    }
}
