//! `Tenant`: who owns networks and namespaces.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::network::{NetworkDns, NetworkIsolation};

/// A tenant owns namespaces (by the label `atoll.dev/tenant`) and networks (by their name
/// `<tenant>.<network>`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "atoll.dev",
    version = "v1alpha1",
    kind = "Tenant",
    status = "TenantStatus",
    shortname = "tn",
    category = "atoll",
    derive = "PartialEq",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Networks", type_ = "integer", json_path = ".status.networks"),
    printcolumn(name = "Ports", type_ = "integer", json_path = ".status.ports"),
    printcolumn(name = "VIPs", type_ = "integer", json_path = ".status.vips"),
    printcolumn(name = "Isolation", type_ = "string", json_path = ".status.isolation.grade"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') && size(self.metadata.name) <= 63")
        .message("a tenant's name is at most 63 lower-case letters, digits and inner dashes, without dots")
)]
#[serde(rename_all = "camelCase")]
pub struct TenantSpec {
    /// The network `default` that the tenant gets when it is created, instead of the one from the
    /// controller's template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_network: Option<DefaultNetwork>,
    /// The ranges from which the tenant's services get addresses, one of each family at most; the
    /// controller's by default. No network of the tenant may overlap them.
    #[serde(rename = "serviceCIDRs", default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2), inner(length(max = 64)))]
    #[x_kube(validation = Rule::new("self.all(range, isCIDR(range) && cidr(range) == cidr(range).masked())")
        .message("each of serviceCIDRs must be a CIDR like 10.96.0.0/16, with no bit set beyond its prefix"))]
    #[x_kube(validation = Rule::new("self.all(range, !isCIDR(range)) || size(self) < 2 || self[0].contains(':') != self[1].contains(':')")
        .message("serviceCIDRs has at most one range of IPv4 and one of IPv6"))]
    #[x_kube(validation = Rule::new("oldSelf.all(range, range in self)")
        .message("a range cannot be taken away from serviceCIDRs"))]
    pub service_cidrs: Vec<String>,
    /// How much the tenant may have. What is not named is not limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<TenantQuota>,
}

/// How much a tenant may have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TenantQuota {
    /// Networks. Those that were there before the limit stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub networks: Option<u32>,
    /// Ports: interfaces of pods. Those that were there before the limit stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ports: Option<u32>,
    /// VIPs: addresses of services, one of each family. Those that were there before the limit stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vips: Option<u32>,
    /// Addresses of the outside: those of load balancers, and those that networks speak from. What
    /// was there before the limit stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outside_addresses: Option<u32>,
}

/// What a tenant's default network looks like.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.type != 'vpc' || (has(self.cidrs) && size(self.cidrs) > 0)")
    .message("a network of type vpc needs at least one range in cidrs"))]
#[x_kube(validation = Rule::new("self.type != 'flat' || !has(self.cidrs) || size(self.cidrs) == 0")
    .message("a network of type flat takes no cidrs: its addresses come from the range that all flat networks share"))]
#[x_kube(validation = Rule::new("!has(self.isolation) || self.isolation != 'open' || self.type == 'flat'")
    .message("isolation: only a network of type flat can be open"))]
pub struct DefaultNetwork {
    /// The network's type: `vpc`, `flat`, or one that a provider serves.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')")
        .message("type is vpc, flat or the name of a NetworkType, of lower-case letters, digits and inner dashes"))]
    pub type_: String,
    /// The network's address ranges.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(max = 64)))]
    #[x_kube(validation = Rule::new("self.all(range, isCIDR(range) && cidr(range) == cidr(range).masked())")
        .message("each range must be a CIDR like 10.0.0.0/16, with no bit set beyond its prefix"))]
    pub cidrs: Vec<String>,
    /// Who reaches a network of type `flat`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<NetworkIsolation>,
    /// Who answers the names that its pods ask for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dns: Option<NetworkDns>,
}

/// What is known of a tenant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TenantStatus {
    /// Where the tenant is in its life.
    #[serde(default)]
    pub phase: TenantPhase,
    /// Whether the default network has been made. It is made once; a tenant who deletes it does
    /// not get it again.
    #[serde(default)]
    pub default_network_created: bool,
    /// How many networks the tenant has.
    #[serde(default)]
    pub networks: i32,
    /// How many ports the tenant has.
    #[serde(default)]
    pub ports: i32,
    /// How many addresses the tenant's services have.
    #[serde(default)]
    pub vips: i32,
    /// The ranges from which its services get addresses.
    #[serde(rename = "serviceCIDRs", default, skip_serializing_if = "Vec::is_empty")]
    pub service_cidrs: Vec<String>,
    /// How far the tenant is isolated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<TenantIsolation>,
    /// What holds and what does not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// How far a tenant is isolated, and why not further.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TenantIsolation {
    /// The grade.
    pub grade: IsolationGrade,
    /// What keeps it from the next grade, or what earns it this one.
    pub reason: String,
}

/// How far a tenant is isolated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum IsolationGrade {
    /// Networks are isolated, and so are the names.
    Hard,
    /// Something is shared with others.
    Soft,
}

/// Where a tenant is in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TenantPhase {
    /// Just seen.
    #[default]
    Initializing,
    /// Its default network is on the way.
    Pending,
    /// Ready for namespaces, networks and pods.
    Active,
    /// Being deleted.
    Terminating,
}

impl TenantPhase {
    /// Whether a tenant that told this phase may tell `next` instead: once it is ready it stays so,
    /// until it is deleted.
    pub fn may_become(self, next: Self) -> bool {
        use TenantPhase::{Active, Initializing, Pending, Terminating};
        match self {
            Initializing => matches!(next, Pending | Active | Terminating),
            Pending => matches!(next, Active | Terminating),
            Active => matches!(next, Terminating),
            Terminating => false,
        }
    }
}
