//! A pod: whether it needs an interface of ours, and what it asks for.

use std::collections::BTreeMap;

use atoll_api::{Reason, marks};
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::namespace::mark;
use super::{Malformed, Meta, Nic, ObjectName, nic};

/// A pod.
#[derive(Clone, Debug)]
pub struct Pod {
    /// Metadata.
    pub meta: Meta,
    /// The node it is bound to.
    pub node: Option<String>,
    /// Whether it uses its node's network.
    pub host_network: bool,
    /// Whether all of its containers ended for good.
    pub finished: bool,
    /// The network it names.
    pub network: Option<String>,
    /// The label that names it.
    pub network_label: &'static str,
    /// Its interfaces, the first first: never none.
    pub nics: Result<Vec<Nic>, Malformed>,
    /// The StatefulSet that made it, if one did.
    pub stateful_set: Option<OwnerReference>,
    /// Whether it asks that the next pod of its name has its addresses.
    pub persistent: bool,
    /// The resource claims that it uses, as far as they have names.
    pub resource_claims: Vec<ObjectName>,
    /// What it was last told of its interfaces.
    pub network_status: Option<String>,
}

impl Pod {
    /// Whether it is to have an interface of ours while it lives.
    pub fn needs_port(&self) -> bool {
        !self.host_network && !self.finished
    }

    /// Whether the next pod of its name is to have its addresses.
    pub fn keeps_addresses(&self) -> bool {
        self.persistent || self.stateful_set.is_some()
    }

    /// Its ports, one for each interface. The last label of a port's name is the interface, so
    /// that no two pods of a namespace can mean the same port, unless they name one.
    pub fn port_names(&self) -> impl Iterator<Item = ObjectName> {
        self.nics.iter().flatten().map(|nic| self.port_name(nic))
    }

    /// The port of one of its interfaces.
    pub fn port_name(&self, nic: &Nic) -> ObjectName {
        let Meta { name: ObjectName { namespace, name }, .. } = &self.meta;
        let own = || format!("{name}.{}", nic.name);
        ObjectName::inside(namespace.clone(), nic.port.clone().unwrap_or_else(own))
    }
}

impl From<&core::Pod> for Pod {
    fn from(pod: &core::Pod) -> Self {
        let labels = pod.metadata.labels.as_ref();
        let annotations = pod.metadata.annotations.as_ref();
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let spec = pod.spec.as_ref();
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        let named = [marks::NETWORK, marks::ARKTOS_NETWORK];
        let named = named.into_iter().find_map(|label| Some((label, mark(labels, label)?)));
        Pod {
            meta: Meta::from(&pod.metadata),
            node: spec.and_then(|spec| spec.node_name.clone()).filter(|node| !node.is_empty()),
            host_network: spec.and_then(|spec| spec.host_network).unwrap_or(false),
            finished: matches!(phase, Some("Succeeded" | "Failed")),
            network_label: named.as_ref().map_or(marks::NETWORK, |(label, _)| label),
            network: named.map(|(_, network)| network),
            nics: nics(name, annotations),
            stateful_set: stateful_set(pod),
            persistent: mark(annotations, marks::PERSISTENT).as_deref() == Some("true"),
            resource_claims: resource_claims(pod),
            network_status: mark(annotations, marks::NETWORK_STATUS),
        }
    }
}

/// How long the name of an object may be.
const LONGEST_NAME: usize = 253;

/// The interfaces, if the annotations can be understood and ports can be named after them.
fn nics(name: &str, annotations: Option<&BTreeMap<String, String>>) -> Result<Vec<Nic>, Malformed> {
    let persistent = mark(annotations, marks::PERSISTENT);
    if let Some(text) = persistent.filter(|text| !["true", "false"].contains(&text.as_str())) {
        let message = format!("{}: {text:?} is neither \"true\" nor \"false\"", marks::PERSISTENT);
        return Err(Malformed::new(Reason::RequestMalformed, message));
    }
    let asked = mark(annotations, marks::NICS);
    let extra = mark(annotations, marks::EXTRA_NETWORKS);
    let nics = nic::parse(asked.as_deref(), extra.as_deref())?;
    let longest = nics.iter().map(|nic| nic.name.as_str().len()).max().unwrap_or_default();
    let room = LONGEST_NAME - ".".len() - longest;
    if name.len() > room {
        let message = format!(
            "the pod's name is too long for a port to be named after it: {room} letters fit"
        );
        return Err(Malformed::new(Reason::RequestMalformed, message));
    }
    Ok(nics)
}

/// The claims that a pod names, and those that were made for it from templates.
fn resource_claims(pod: &core::Pod) -> Vec<ObjectName> {
    let named = pod.spec.iter().flat_map(|spec| spec.resource_claims.iter().flatten());
    let named = named.filter_map(|claim| claim.resource_claim_name.clone());
    let made = pod.status.iter().flat_map(|status| status.resource_claim_statuses.iter().flatten());
    let made = made.filter_map(|claim| claim.resource_claim_name.clone());
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    named.chain(made).map(|name| ObjectName::inside(namespace, name)).collect()
}

/// The StatefulSet that made the pod, if one did.
fn stateful_set(pod: &core::Pod) -> Option<OwnerReference> {
    let owners = pod.metadata.owner_references.iter().flatten();
    let mut makers = owners.filter(|owner| owner.controller == Some(true));
    makers.find(|owner| owner.kind == "StatefulSet" && owner.api_version == "apps/v1").cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod_with(json: &str) -> Pod {
        Pod::from(&serde_json::from_str::<core::Pod>(json).unwrap())
    }

    #[test]
    fn both_network_labels_are_honoured_and_ours_wins() {
        let arktos = r#"{"metadata":{"labels":{"arktos.futurewei.com/network":"old"}}}"#;
        assert_eq!(pod_with(arktos).network.as_deref(), Some("old"));
        assert_eq!(pod_with(arktos).network_label, "arktos.futurewei.com/network");
        let both = r#"{"metadata":{"labels":{
            "arktos.futurewei.com/network":"old","atoll.dev/network":"new"}}}"#;
        assert_eq!(pod_with(both).network.as_deref(), Some("new"));
    }

    #[test]
    fn pods_on_the_nodes_network_and_finished_pods_need_no_port() {
        assert!(pod_with(r#"{"metadata":{}}"#).needs_port());
        let host = r#"{"metadata":{},"spec":{"hostNetwork":true,"containers":[]}}"#;
        assert!(!pod_with(host).needs_port());
        for phase in ["Succeeded", "Failed"] {
            let done = format!(r#"{{"metadata":{{}},"status":{{"phase":"{phase}"}}}}"#);
            assert!(!pod_with(&done).needs_port(), "{phase}");
        }
    }

    #[test]
    fn a_pod_of_a_stateful_set_and_one_that_says_so_keep_their_addresses() {
        let owned = |version: &str, kind: &str| {
            let owner = format!(
                r#"{{"apiVersion":"{version}","kind":"{kind}","name":"db","uid":"u","controller":true}}"#
            );
            pod_with(&format!(r#"{{"metadata":{{"ownerReferences":[{owner}]}}}}"#))
        };
        assert!(owned("apps/v1", "StatefulSet").keeps_addresses());
        assert!(!owned("apps/v1", "ReplicaSet").keeps_addresses());
        assert!(!owned("example.org/v1", "StatefulSet").keeps_addresses());
        let says = |text: &str| {
            let annotation = format!(r#"{{"atoll.dev/persistent":"{text}"}}"#);
            pod_with(&format!(r#"{{"metadata":{{"annotations":{annotation}}}}}"#))
        };
        assert!(says("true").keeps_addresses());
        assert!(!says("false").keeps_addresses());
        let message = says("yes").nics.unwrap_err().message;
        assert_eq!(message, "atoll.dev/persistent: \"yes\" is neither \"true\" nor \"false\"");
    }

    #[test]
    fn a_pod_uses_claims_that_it_names_and_claims_made_for_it() {
        let pod = pod_with(
            r#"{"metadata":{"namespace":"shop"},
                "spec":{"containers":[],"resourceClaims":[
                    {"name":"a","resourceClaimName":"mine"},
                    {"name":"b","resourceClaimTemplateName":"each"},
                    {"name":"c","resourceClaimTemplateName":"each"}]},
                "status":{"resourceClaimStatuses":[
                    {"name":"b","resourceClaimName":"web-b-x7k2"},{"name":"c"}]}}"#,
        );
        let names: Vec<String> = pod.resource_claims.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["shop/mine", "shop/web-b-x7k2"]);
    }

    #[test]
    fn a_port_has_its_pods_and_interfaces_name_or_the_one_that_was_asked_for() {
        let annotations = r#"{"atoll.dev/nics":"[{\"port\":\"mine\"}, {}]"}"#;
        let pod = pod_with(&format!(
            r#"{{"metadata":{{"namespace":"shop","name":"web","annotations":{annotations}}}}}"#
        ));
        let names: Vec<String> = pod.port_names().map(|name| name.to_string()).collect();
        assert_eq!(names, ["shop/mine", "shop/web.net1"]);
    }
}
