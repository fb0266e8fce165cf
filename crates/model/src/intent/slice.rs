//! An EndpointSlice: on which nodes somebody behind a service takes connections.

use std::collections::BTreeSet;

use k8s_openapi::api::discovery::v1 as discovery;

use super::{Meta, ObjectName};

/// The label by which a slice names its service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// Some of those behind a service.
#[derive(Clone, Debug)]
pub struct Slice {
    /// Metadata.
    pub meta: Meta,
    /// The service, where it names one.
    pub service: Option<ObjectName>,
    /// Whether they have addresses of IPv4; of IPv6 otherwise.
    pub is_ipv4: bool,
    /// The nodes on which one of them is ready.
    pub ready_on: BTreeSet<String>,
    /// The nodes on which one of them still answers while it ends.
    pub ending_on: BTreeSet<String>,
}

impl From<&discovery::EndpointSlice> for Slice {
    fn from(slice: &discovery::EndpointSlice) -> Self {
        let meta = Meta::from(&slice.metadata);
        let labels = slice.metadata.labels.as_ref();
        let service = labels.and_then(|labels| labels.get(SERVICE_NAME));
        let nodes = |takes: fn(&discovery::Endpoint) -> bool| {
            let taking = slice.endpoints.iter().filter(|it| takes(it));
            taking.filter_map(|it| it.node_name.clone()).collect()
        };
        Slice {
            service: service.map(|name| ObjectName::inside(meta.name.namespace.as_str(), name)),
            is_ipv4: slice.address_type == "IPv4",
            ready_on: nodes(is_ready),
            ending_on: nodes(is_ending),
            meta,
        }
    }
}

/// What is not said counts as a yes, as Kubernetes has it.
fn is_ready(endpoint: &discovery::Endpoint) -> bool {
    endpoint.conditions.as_ref().and_then(|it| it.ready).unwrap_or(true)
}

fn is_ending(endpoint: &discovery::Endpoint) -> bool {
    let Some(conditions) = &endpoint.conditions else { return false };
    conditions.terminating == Some(true) && conditions.serving == Some(true)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn slice(label: &str, endpoints: &serde_json::Value) -> Slice {
        let object = json!({"metadata": {"name": "web-1", "namespace": "shop",
            "labels": {label: "web"}}, "addressType": "IPv4", "endpoints": endpoints});
        Slice::from(&serde_json::from_value::<discovery::EndpointSlice>(object).unwrap())
    }

    fn names(nodes: &BTreeSet<String>) -> Vec<&str> {
        nodes.iter().map(String::as_str).collect()
    }

    #[test]
    fn a_slice_says_on_which_nodes_somebody_takes_connections() {
        let endpoints = json!([
            {"addresses": ["10.0.0.1"], "nodeName": "silent"},
            {"addresses": ["10.0.0.2"], "nodeName": "ready", "conditions": {"ready": true}},
            {"addresses": ["10.0.0.3"], "nodeName": "down", "conditions": {"ready": false}},
            {"addresses": ["10.0.0.4"], "nodeName": "ending",
             "conditions": {"ready": false, "serving": true, "terminating": true}},
            {"addresses": ["10.0.0.5"], "nodeName": "over",
             "conditions": {"ready": false, "serving": false, "terminating": true}},
            {"addresses": ["10.0.0.6"], "conditions": {"ready": true}},
        ]);
        let read = slice(SERVICE_NAME, &endpoints);
        assert_eq!(read.service, Some(ObjectName::inside("shop", "web")));
        assert!(read.is_ipv4);
        assert_eq!(names(&read.ready_on), ["ready", "silent"]);
        assert_eq!(names(&read.ending_on), ["ending"]);
    }

    #[test]
    fn a_slice_without_the_label_is_behind_no_service() {
        assert_eq!(slice("app", &json!([])).service, None);
    }
}
