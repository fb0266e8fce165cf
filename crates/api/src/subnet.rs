//! `Subnet`: a range of a network from which pods get addresses.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A range of a network's addresses. Subnets of one network reach each other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "atoll.dev",
    version = "v1alpha1",
    kind = "Subnet",
    status = "SubnetStatus",
    shortname = "asub",
    category = "atoll",
    derive = "PartialEq",
    printcolumn(name = "Network", type_ = "string", json_path = ".spec.network"),
    printcolumn(name = "CIDR", type_ = "string", json_path = ".spec.cidr"),
    printcolumn(name = "Gateway", type_ = "string", json_path = ".spec.gateway", priority = 1),
    printcolumn(name = "Used", type_ = "integer", json_path = ".status.used"),
    printcolumn(name = "Free", type_ = "integer", json_path = ".status.free"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].reason"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    selectable = ".spec.network"
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.gateway) || !isCIDR(self.cidr) || !isIP(self.gateway) || cidr(self.cidr).containsIP(self.gateway)")
    .message("the gateway must lie in the subnet's range"))]
#[x_kube(validation = Rule::new("!has(self.excluded) || !isCIDR(self.cidr) || self.excluded.all(range, range.split('-').all(ip, !isIP(ip) || cidr(self.cidr).containsIP(ip)))")
    .message("each of excluded must lie in the subnet's range"))]
#[x_kube(validation = Rule::new("!has(self.pools) || !isCIDR(self.cidr) || self.pools.all(range, range.split('-').all(ip, !isIP(ip) || cidr(self.cidr).containsIP(ip)))")
    .message("each of pools must lie in the subnet's range"))]
#[x_kube(validation = Rule::new("has(self.gateway) == has(oldSelf.gateway)")
    .message("the gateway cannot be set or removed once the subnet exists"))]
pub struct SubnetSpec {
    /// The network, by its object name `<tenant>.<network>`.
    #[schemars(length(min = 3, max = 127))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?[.][a-z0-9]([-a-z0-9]*[a-z0-9])?$')")
        .message("network is the object name of a network, <tenant>.<network>"))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("a subnet cannot move to another network"))]
    pub network: String,
    /// The range. It lies inside one of the network's ranges.
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new("isCIDR(self) && cidr(self) == cidr(self).masked()")
        .message("cidr must be a range like 10.0.0.0/24, with no bit set beyond its prefix"))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("a subnet cannot change its range"))]
    pub cidr: String,
    /// The address kept back for the gateway; the first usable one by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new("isIP(self)").message("the gateway must be an IP address"))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("a subnet cannot change its gateway"))]
    pub gateway: Option<String>,
    /// Addresses that nobody gets, each one address or a range `10.0.0.10-10.0.0.20`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 96)))]
    #[x_kube(validation = Rule::new("self.all(range, size(range.split('-')) <= 2 && range.split('-').all(ip, isIP(ip)))")
        .message("each of excluded must be addresses like 10.0.0.9 or ranges like 10.0.0.10-10.0.0.20"))]
    pub excluded: Vec<String>,
    /// Where addresses come from, each one address or a range `10.0.0.10-10.0.0.20`; all of the
    /// range by default.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 96)))]
    #[x_kube(validation = Rule::new("self.all(range, size(range.split('-')) <= 2 && range.split('-').all(ip, isIP(ip)))")
        .message("each of pools must be addresses like 10.0.0.9 or ranges like 10.0.0.10-10.0.0.20"))]
    pub pools: Vec<String>,
}

/// What is known of a subnet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubnetStatus {
    /// Where the subnet is in its life.
    #[serde(default)]
    pub phase: SubnetPhase,
    /// Addresses that somebody holds.
    #[serde(default)]
    pub used: i64,
    /// Addresses that can still be given; as many as fit where there are more.
    #[serde(default)]
    pub free: i64,
    /// What holds and what does not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// Where a subnet is in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SubnetPhase {
    /// Waiting for its network.
    #[default]
    Pending,
    /// Gives addresses.
    Active,
    /// Cannot be used as declared.
    Failed,
    /// Being deleted.
    Terminating,
}

impl SubnetPhase {
    /// Whether a subnet that told this phase may tell `next` instead: what is being deleted stays so.
    pub fn may_become(self, next: Self) -> bool {
        use SubnetPhase::{Active, Failed, Pending, Terminating};
        match self {
            Pending => matches!(next, Active | Failed | Terminating),
            Active => matches!(next, Pending | Failed | Terminating),
            Failed => matches!(next, Pending | Active | Terminating),
            Terminating => false,
        }
    }
}
