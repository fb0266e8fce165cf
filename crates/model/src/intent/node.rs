//! A node: whether it can answer for addresses of the outside.

use k8s_openapi::api::core::v1 as core;

use super::Meta;

/// The label by which Kubernetes lets administrators keep a node out of load balancing.
const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// A node.
#[derive(Clone, Debug)]
pub struct Node {
    /// Metadata.
    pub meta: Meta,
    /// Whether it is ready, and nobody keeps it out.
    pub can_hold: bool,
}

impl From<&core::Node> for Node {
    fn from(node: &core::Node) -> Self {
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
        let mut conditions = conditions.into_iter().flatten();
        let ready = conditions.any(|it| it.type_ == "Ready" && it.status == "True");
        let labels = node.metadata.labels.as_ref();
        let excluded = labels.is_some_and(|labels| labels.contains_key(EXCLUDED));
        let meta = Meta::from(&node.metadata);
        Node { can_hold: ready && !excluded && !meta.deleting, meta }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn can_hold(ready: &str, labels: &serde_json::Value) -> bool {
        let node = json!({"metadata": {"name": "node1", "labels": labels},
            "status": {"conditions": [{"type": "Ready", "status": ready}]}});
        Node::from(&serde_json::from_value::<core::Node>(node).unwrap()).can_hold
    }

    #[test]
    fn a_node_holds_addresses_while_it_is_ready_and_nobody_keeps_it_out() {
        assert!(can_hold("True", &json!({})));
        for status in ["False", "Unknown"] {
            assert!(!can_hold(status, &json!({})), "{status}");
        }
        assert!(!can_hold("True", &json!({EXCLUDED: ""})));
        assert!(!Node::from(&core::Node::default()).can_hold, "a node that says nothing of itself");
    }
}
