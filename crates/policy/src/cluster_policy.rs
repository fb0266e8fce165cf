//! `ClusterNetworkPolicy` of `policy.networking.k8s.io/v1alpha2`, as the API has it.
//!
//! The rule kept here: what has a meaning of its own in the API has a type here, and a field that is
//! not known is an error of the rule it stands in, never ignored. So rules and subjects stay as they
//! were written until [`crate::read_cluster_policy`] reads them one by one.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::{ClusterResourceScope, Metadata, Resource};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A policy of administrators: of a tenant's where the label `atoll.dev/tenant` names one, else of
/// the cluster's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClusterNetworkPolicy {
    /// The object's name, labels and annotations.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// What it says.
    #[serde(default)]
    pub spec: ClusterNetworkPolicySpec,
}

impl Resource for ClusterNetworkPolicy {
    const API_VERSION: &'static str = "policy.networking.k8s.io/v1alpha2";
    const GROUP: &'static str = "policy.networking.k8s.io";
    const KIND: &'static str = "ClusterNetworkPolicy";
    const VERSION: &'static str = "v1alpha2";
    const URL_PATH_SEGMENT: &'static str = "clusternetworkpolicies";
    type Scope = ClusterResourceScope;
}

impl Metadata for ClusterNetworkPolicy {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// What a policy says. Subject and rules are read one by one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClusterNetworkPolicySpec {
    /// `Admin` or `Baseline`.
    #[serde(default)]
    pub tier: Value,
    /// 0 to 1000; lower goes first.
    #[serde(default)]
    pub priority: Value,
    /// A [`WrittenSubject`].
    #[serde(default)]
    pub subject: Value,
    /// A list, each a [`WrittenRule`] with `from`.
    #[serde(default)]
    pub ingress: Value,
    /// A list, each a [`WrittenRule`] with `to`.
    #[serde(default)]
    pub egress: Value,
    /// What the API has and we do not know.
    #[serde(flatten)]
    pub unknown: BTreeMap<String, Value>,
}

/// The pods that a policy is about: exactly one field is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WrittenSubject {
    /// All pods of these namespaces.
    pub namespaces: Option<LabelSelector>,
    /// These pods.
    pub pods: Option<WrittenPods>,
}

/// Pods by their namespace's labels and their own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WrittenPods {
    /// Absent or empty: every namespace.
    #[serde(default)]
    pub namespace_selector: LabelSelector,
    /// Empty: every pod.
    pub pod_selector: LabelSelector,
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WrittenRule {
    /// What the rule is called.
    pub name: Option<String>,
    /// `Accept`, `Deny` or `Pass`.
    pub action: String,
    /// Peers of ingress.
    pub from: Option<Vec<WrittenPeer>>,
    /// Peers of egress.
    pub to: Option<Vec<WrittenPeer>>,
    /// Ports by protocol. Absent: all.
    pub protocols: Option<Vec<WrittenProtocol>>,
    /// Ports in the older spelling. Absent: all.
    pub ports: Option<Vec<WrittenPort>>,
}

/// The other end: exactly one field is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WrittenPeer {
    /// All pods of these namespaces.
    pub namespaces: Option<LabelSelector>,
    /// These pods.
    pub pods: Option<WrittenPods>,
    /// These nodes; egress only.
    pub nodes: Option<LabelSelector>,
    /// These ranges of addresses; egress only.
    pub networks: Option<Vec<String>>,
    /// Names of hosts; not enforced.
    pub domain_names: Option<Vec<String>>,
}

/// A protocol and its ports: exactly one field is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WrittenProtocol {
    /// TCP.
    pub tcp: Option<WrittenDestination>,
    /// UDP.
    pub udp: Option<WrittenDestination>,
    /// SCTP.
    pub sctp: Option<WrittenDestination>,
    /// A port by the name that the receiving pod gives it.
    pub destination_named_port: Option<String>,
}

/// Where a protocol's traffic goes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WrittenDestination {
    /// The port or the range.
    pub destination_port: Option<WrittenNumbers>,
}

/// A port or a range: exactly one field is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WrittenNumbers {
    /// One port.
    pub number: Option<i64>,
    /// Several.
    pub range: Option<WrittenRange>,
}

/// A range of ports, both ends included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WrittenRange {
    /// The first.
    pub start: i64,
    /// The last.
    pub end: i64,
}

/// A port in the older spelling: exactly one field is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WrittenPort {
    /// One port of a protocol.
    pub port_number: Option<WrittenPortNumber>,
    /// Several ports of a protocol.
    pub port_range: Option<WrittenPortRange>,
    /// A port by the name that the receiving pod gives it.
    pub named_port: Option<String>,
}

/// One port of a protocol.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WrittenPortNumber {
    /// The protocol; absent: TCP.
    pub protocol: Option<String>,
    /// The port.
    pub port: i64,
}

/// Several ports of a protocol.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WrittenPortRange {
    /// The protocol; absent: TCP.
    pub protocol: Option<String>,
    /// The first.
    pub start: i64,
    /// The last.
    pub end: i64,
}
