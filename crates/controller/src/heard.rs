//! Objects as they are listed and followed: what decisions need of them, and no more.
//!
//! Most of an object's text is there for others: who wrote which field and when, how containers are
//! run, which images a node has. With a hundred thousand objects, reading that is most of a start.
//! The rule: it is passed over where it is read, and never built. What [`atoll_model::intent`] reads
//! of an object stands here; what it reads more, it gets only once that stands here too.

use std::borrow::Cow;
use std::collections::BTreeMap;

use atoll_api as api;
use k8s_openapi::api::core::v1;
use k8s_openapi::api::discovery::v1 as discovery;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use kube::Resource;
use serde::{Deserialize, Deserializer};

use crate::kinds::Known;

/// An object of which was read what decisions need.
#[derive(Clone, Debug)]
pub(crate) struct Heard<K>(pub(crate) K);

impl<K: Known> Resource for Heard<K> {
    type DynamicType = ();
    type Scope = K::Scope;

    fn kind(of: &()) -> Cow<'_, str> {
        K::kind(of)
    }

    fn group(of: &()) -> Cow<'_, str> {
        K::group(of)
    }

    fn version(of: &()) -> Cow<'_, str> {
        K::version(of)
    }

    fn plural(of: &()) -> Cow<'_, str> {
        K::plural(of)
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.meta()
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.meta_mut()
    }
}

impl<'de, K: Known> Deserialize<'de> for Heard<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        K::Words::deserialize(deserializer).map(|words| Heard(words.into()))
    }
}

/// What is read of every object.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    finalizers: Option<Vec<String>>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    owner_references: Option<Vec<OwnerReference>>,
}

impl From<Metadata> for ObjectMeta {
    fn from(read: Metadata) -> Self {
        ObjectMeta {
            name: read.name,
            namespace: read.namespace,
            uid: read.uid,
            resource_version: read.resource_version,
            generation: read.generation,
            creation_timestamp: read.creation_timestamp,
            deletion_timestamp: read.deletion_timestamp,
            finalizers: read.finalizers,
            labels: read.labels,
            annotations: read.annotations,
            owner_references: read.owner_references,
            ..ObjectMeta::default()
        }
    }
}

/// What is read of an object of ours.
#[derive(Deserialize)]
pub(crate) struct Ours<S, T> {
    metadata: Metadata,
    spec: S,
    status: Option<T>,
}

macro_rules! ours {
    ($($kind:ident as $words:ident: $spec:ident, $status:ident;)*) => {$(
        pub(crate) type $words = Ours<api::$spec, api::$status>;

        impl From<$words> for api::$kind {
            fn from(read: $words) -> Self {
                let Ours { metadata, spec, status } = read;
                api::$kind { metadata: metadata.into(), spec, status }
            }
        }
    )*};
}

ours! {
    Tenant as TenantWords: TenantSpec, TenantStatus;
    Network as NetworkWords: NetworkSpec, NetworkStatus;
    Subnet as SubnetWords: SubnetSpec, SubnetStatus;
    Port as PortWords: PortSpec, PortStatus;
    AddressPool as AddressPoolWords: AddressPoolSpec, AddressPoolStatus;
    NetworkType as NetworkTypeWords: NetworkTypeSpec, NetworkTypeStatus;
}

/// What is read of a claim, which has no status.
#[derive(Deserialize)]
pub(crate) struct ClaimWords {
    metadata: Metadata,
    spec: api::ClaimSpec,
}

impl From<ClaimWords> for api::Claim {
    fn from(read: ClaimWords) -> Self {
        api::Claim { metadata: read.metadata.into(), spec: read.spec }
    }
}

/// What is read of a namespace: its labels.
#[derive(Deserialize)]
pub(crate) struct NamespaceWords {
    metadata: Metadata,
}

impl From<NamespaceWords> for v1::Namespace {
    fn from(read: NamespaceWords) -> Self {
        v1::Namespace { metadata: read.metadata.into(), ..v1::Namespace::default() }
    }
}

/// What is read of a pod: where it is and how far, and the claims that it uses.
#[derive(Deserialize)]
pub(crate) struct PodWords {
    metadata: Metadata,
    spec: Option<PodSpecWords>,
    status: Option<PodStatusWords>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodSpecWords {
    node_name: Option<String>,
    host_network: Option<bool>,
    resource_claims: Option<Vec<v1::PodResourceClaim>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodStatusWords {
    phase: Option<String>,
    resource_claim_statuses: Option<Vec<v1::PodResourceClaimStatus>>,
}

impl From<PodWords> for v1::Pod {
    fn from(read: PodWords) -> Self {
        v1::Pod {
            metadata: read.metadata.into(),
            spec: read.spec.map(|spec| v1::PodSpec {
                node_name: spec.node_name,
                host_network: spec.host_network,
                resource_claims: spec.resource_claims,
                ..v1::PodSpec::default()
            }),
            status: read.status.map(|status| v1::PodStatus {
                phase: status.phase,
                resource_claim_statuses: status.resource_claim_statuses,
                ..v1::PodStatus::default()
            }),
        }
    }
}

/// What is read of a service.
#[derive(Deserialize)]
pub(crate) struct ServiceWords {
    metadata: Metadata,
    spec: Option<v1::ServiceSpec>,
    status: Option<v1::ServiceStatus>,
}

impl From<ServiceWords> for v1::Service {
    fn from(read: ServiceWords) -> Self {
        v1::Service { metadata: read.metadata.into(), spec: read.spec, status: read.status }
    }
}

/// What is read of a slice: where those are who take connections.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SliceWords {
    metadata: Metadata,
    address_type: String,
    endpoints: Option<Vec<EndpointWords>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EndpointWords {
    conditions: Option<discovery::EndpointConditions>,
    node_name: Option<String>,
}

impl From<SliceWords> for discovery::EndpointSlice {
    fn from(read: SliceWords) -> Self {
        let endpoints = read.endpoints.into_iter().flatten().map(|endpoint| discovery::Endpoint {
            conditions: endpoint.conditions,
            node_name: endpoint.node_name,
            ..discovery::Endpoint::default()
        });
        discovery::EndpointSlice {
            metadata: read.metadata.into(),
            address_type: read.address_type,
            endpoints: endpoints.collect(),
            ports: None,
        }
    }
}

/// What is read of a node: its labels, and whether it is ready.
#[derive(Deserialize)]
pub(crate) struct NodeWords {
    metadata: Metadata,
    status: Option<NodeStatusWords>,
}

#[derive(Deserialize)]
struct NodeStatusWords {
    conditions: Option<Vec<v1::NodeCondition>>,
}

impl From<NodeWords> for v1::Node {
    fn from(read: NodeWords) -> Self {
        let status = read.status.map(|status| v1::NodeStatus {
            conditions: status.conditions,
            ..v1::NodeStatus::default()
        });
        v1::Node { metadata: read.metadata.into(), status, ..v1::Node::default() }
    }
}

/// What is read of a role.
#[derive(Deserialize)]
pub(crate) struct RoleWords {
    metadata: Metadata,
    rules: Option<Vec<PolicyRule>>,
}

impl From<RoleWords> for ClusterRole {
    fn from(read: RoleWords) -> Self {
        ClusterRole { metadata: read.metadata.into(), rules: read.rules, ..ClusterRole::default() }
    }
}

#[cfg(test)]
mod tests {
    use atoll_api::{AddressPool, Claim, Network, NetworkType, Port, Subnet, Tenant};
    use k8s_openapi::api::core::v1::{Namespace, Node, Pod, Service};
    use k8s_openapi::api::discovery::v1::EndpointSlice;
    use serde_json::{Value, json};

    use super::*;

    /// Metadata as a server has it, with all that others wrote into it.
    fn metadata() -> Value {
        let fields = json!({"f:metadata": {"f:labels": {".": {}, "f:app": {}}}, "f:spec": {}});
        json!({
            "name": "acme.web", "namespace": "shop", "generateName": "acme.", "uid": "u-1",
            "resourceVersion": "4711", "generation": 3, "selfLink": "/somewhere",
            "creationTimestamp": "2026-01-02T03:04:05Z",
            "deletionTimestamp": "2026-01-03T03:04:05Z", "deletionGracePeriodSeconds": 30,
            "finalizers": ["atoll.dev/finalizer", "example.org/other"],
            "labels": {"atoll.dev/tenant": "acme", "atoll.dev/network": "web", "app": "web"},
            "annotations": {
                "atoll.dev/nics": "[{\"ips\": [\"10.0.0.5\"]}]", "atoll.dev/persistent": "true",
                "atoll.dev/extra-networks": "[\"db\"]", "atoll.dev/vip": "198.18.0.5",
                "k8s.v1.cni.cncf.io/network-status": "[]", "example.org/other": "much text"},
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "u-2",
                 "controller": true, "blockOwnerDeletion": true},
                {"apiVersion": "atoll.dev/v1alpha1", "kind": "Network", "name": "n", "uid": "u-3"}],
            "managedFields": [{"manager": "kubectl", "operation": "Update", "apiVersion": "v1",
                "time": "2026-01-02T03:04:05Z", "fieldsType": "FieldsV1", "fieldsV1": fields}],
        })
    }

    /// What the model sees of an object is the same, whether all of it was read or what it needs;
    /// and so it is where only what must be there is.
    fn is_seen_the_same<K: Known>(parts: &Value) {
        let mut whole = json!({"apiVersion": K::api_version(&()), "kind": K::kind(&())});
        whole["metadata"] = metadata();
        for (name, part) in parts.as_object().unwrap() {
            whole[name] = part.clone();
        }
        let mut least = whole.clone();
        least["metadata"] = json!({});
        least["status"].take();
        for object in [whole, least] {
            let text = object.to_string();
            let all: K = serde_json::from_str(&text).unwrap();
            let heard: Heard<K> = serde_json::from_str(&text).unwrap();
            assert_eq!(format!("{:?}", heard.0.seen()), format!("{:?}", all.seen()), "{text}");
            assert_eq!(heard.0.key(), all.key());
            assert_eq!(heard.meta().managed_fields, None, "it was passed over");
        }
    }

    fn conditions() -> Value {
        json!([{"type": "Ready", "status": "True", "reason": "Ready", "message": "it is",
                "observedGeneration": 3, "lastTransitionTime": "2026-01-02T03:04:05Z"}])
    }

    #[test]
    fn of_objects_of_ours_the_model_sees_what_the_whole_object_shows() {
        is_seen_the_same::<Tenant>(&json!({
            "spec": {"quota": {"networks": 3, "ports": 4, "vips": 5},
                     "serviceCIDRs": ["198.18.0.0/24"],
                     "defaultNetwork": {"type": "vpc", "cidrs": ["10.0.0.0/16"]}},
            "status": {"phase": "Active", "defaultNetworkCreated": true, "networks": 1, "ports": 2,
                       "vips": 3, "conditions": conditions()}}));
        is_seen_the_same::<Network>(&json!({
            "spec": {"tenant": "acme", "type": "vpc", "vpcID": "v", "cidrs": ["10.0.0.0/16"],
                     "egress": {"mode": "node"}, "dns": {"mode": "dedicated"}},
            "status": {"phase": "Active", "id": 7, "conditions": conditions()}}));
        is_seen_the_same::<Subnet>(&json!({
            "spec": {"network": "acme.web", "cidr": "10.0.0.0/24"},
            "status": {"phase": "Active", "used": 3, "free": 250, "conditions": conditions()}}));
        is_seen_the_same::<Port>(&json!({
            "spec": {"network": "acme.web", "networkID": 7, "subnet": "s", "ips": ["10.0.0.5"],
                     "mac": "02:00:00:00:00:05", "pod": "web", "podUID": "u-9",
                     "interface": "eth0", "primary": true, "node": "node1"},
            "status": {"phase": "Attached", "hostInterface": "atl1"}}));
        is_seen_the_same::<Claim>(&json!({
            "spec": {"holder": {"kind": "Port", "namespace": "shop", "name": "web.eth0",
                                "uid": "u-9"}, "network": "acme.web", "node": "node1"}}));
        is_seen_the_same::<AddressPool>(&json!({
            "spec": {"cidrs": ["192.0.2.0/28"], "tenants": ["acme"]},
            "status": {"used": 3, "conditions": conditions()}}));
        is_seen_the_same::<NetworkType>(&json!({
            "spec": {"provider": "example.org"},
            "status": {"networks": 3, "conditions": conditions()}}));
    }

    #[test]
    fn of_objects_of_kubernetes_the_model_sees_what_the_whole_object_shows() {
        is_seen_the_same::<Namespace>(&json!({
            "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}));
        is_seen_the_same::<Pod>(&json!({
            "spec": {"nodeName": "node1", "hostNetwork": true, "serviceAccountName": "default",
                     "containers": [{"name": "main", "image": "none"}],
                     "resourceClaims": [{"name": "nic", "resourceClaimName": "nic-of-web"}]},
            "status": {"phase": "Failed", "podIP": "10.0.0.5", "qosClass": "BestEffort",
                       "resourceClaimStatuses": [{"name": "more", "resourceClaimName": "made"}]}}));
        is_seen_the_same::<Service>(&json!({
            "spec": {"type": "LoadBalancer", "clusterIP": "10.96.0.5", "ipFamilies": ["IPv6"],
                     "loadBalancerIP": "192.0.2.5", "ports": [{"port": 80}]},
            "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.5"}, {"hostname": "edge"}]}}}));
        is_seen_the_same::<EndpointSlice>(&json!({
            "addressType": "IPv4", "ports": [{"port": 80}],
            "endpoints": [
                {"addresses": ["10.0.0.5"], "nodeName": "node1", "conditions": {"ready": true}},
                {"addresses": ["10.0.0.6"], "nodeName": "node2",
                 "conditions": {"ready": false, "serving": true, "terminating": true}},
                {"addresses": ["10.0.0.7"]}]}));
        is_seen_the_same::<EndpointSlice>(&json!({"addressType": "IPv6", "endpoints": null}));
        is_seen_the_same::<Node>(&json!({
            "spec": {"podCIDR": "10.244.0.0/24"},
            "status": {"conditions": [{"type": "Ready", "status": "True"}],
                       "images": [{"names": ["much", "text"], "sizeBytes": 5}]}}));
        is_seen_the_same::<ClusterRole>(&json!({
            "rules": [{"apiGroups": ["atoll.dev"], "resources": ["networks"], "verbs": ["get"],
                       "resourceNames": ["acme.web"]}]}));
    }

    #[test]
    fn it_is_asked_for_where_the_whole_object_is() {
        assert_eq!(Heard::<Port>::url_path(&(), None), Port::url_path(&(), None));
        assert_eq!(Heard::<Pod>::url_path(&(), Some("shop")), Pod::url_path(&(), Some("shop")));
    }
}
