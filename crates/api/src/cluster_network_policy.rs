//! The definition of `ClusterNetworkPolicy` (`policy.networking.k8s.io/v1alpha2`), which is not
//! ours, for clusters that have none.
//!
//! The rule kept here: the schema refuses what has no place at all (tier, priority, subject), and
//! keeps every field of a rule as it was written. What a rule means, and what is done with one that
//! is not understood, is for whoever enforces it.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};

use crate::marks;

/// The definition, as JSON.
fn definition() -> Value {
    let names = json!({
        "kind": "ClusterNetworkPolicy", "listKind": "ClusterNetworkPolicyList",
        "plural": "clusternetworkpolicies", "singular": "clusternetworkpolicy",
        "shortNames": ["cnp"],
    });
    let column = |name: &str, kind: &str, path: &str| json!({ "name": name, "type": kind, "jsonPath": path });
    let columns = [
        column("Tier", "string", ".spec.tier"),
        column("Priority", "integer", ".spec.priority"),
        column("Tenant", "string", ".metadata.labels.atoll\\.dev/tenant"),
        column("Age", "date", ".metadata.creationTimestamp"),
    ];
    let version = json!({
        "name": "v1alpha2", "served": true, "storage": true,
        "additionalPrinterColumns": columns,
        "schema": { "openAPIV3Schema": schema() },
        "subresources": { "status": {} },
    });
    json!({
        "metadata": {
            "name": "clusternetworkpolicies.policy.networking.k8s.io",
            "labels": { marks::PART_OF: marks::ATOLL },
            "annotations": {
                "api-approved.kubernetes.io": "unapproved, a schema for clusters without their own",
            },
        },
        "spec": {
            "group": "policy.networking.k8s.io", "scope": "Cluster",
            "names": names, "versions": [version],
        },
    })
}

fn schema() -> Value {
    let rules = json!({
        "type": "array", "maxItems": 100,
        "items": {
            "type": "object", "required": ["action"],
            "properties": { "action": { "type": "string" }, "name": { "type": "string" } },
            "x-kubernetes-preserve-unknown-fields": true,
        },
    });
    let spec = json!({
        "type": "object", "required": ["tier", "priority", "subject"],
        "properties": {
            "tier": { "type": "string", "enum": ["Admin", "Baseline"] },
            "priority": { "type": "integer", "format": "int32", "minimum": 0, "maximum": 1000 },
            "subject": {
                "type": "object", "minProperties": 1, "maxProperties": 1,
                "x-kubernetes-preserve-unknown-fields": true,
            },
            "ingress": rules, "egress": rules,
        },
        "x-kubernetes-preserve-unknown-fields": true,
    });
    json!({
        "type": "object", "required": ["spec"],
        "description": "A network policy of the cluster's administrators, or, with the label \
                        atoll.dev/tenant, of a tenant's.",
        "properties": {
            "spec": spec,
            "status": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
        },
    })
}

/// The definition.
pub fn cluster_network_policy_crd() -> CustomResourceDefinition {
    #[allow(clippy::expect_used, reason = "a constant, which a test reads")]
    serde_json::from_value(definition()).expect("the definition is one")
}

#[cfg(test)]
mod tests {
    use kube::ResourceExt;

    use super::*;

    #[test]
    fn the_definition_can_be_read_and_has_its_proper_name() {
        let crd = cluster_network_policy_crd();
        assert_eq!(crd.name_any(), format!("{}.{}", crd.spec.names.plural, crd.spec.group));
        assert!(crd.annotations().contains_key("api-approved.kubernetes.io"));
    }
}
