//! `AddressPool`: addresses that the outside knows, for load balancers and for egress.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Addresses of the outside that an administrator gives to tenants: services of type `LoadBalancer`
/// get one of them, and a network may speak to the outside from one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "atoll.dev",
    version = "v1alpha1",
    kind = "AddressPool",
    status = "AddressPoolStatus",
    shortname = "apool",
    category = "atoll",
    derive = "PartialEq",
    printcolumn(name = "CIDRs", type_ = "string", json_path = ".spec.cidrs"),
    printcolumn(name = "Used", type_ = "integer", json_path = ".status.used"),
    printcolumn(
        name = "Room",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='HasRoom')].status"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct AddressPoolSpec {
    /// The ranges, such as `192.0.2.0/28`. Every address of them is given, the first and the last
    /// too. An address that somebody has stays when its range is taken away.
    #[schemars(length(min = 1, max = 64), inner(length(max = 64)))]
    #[x_kube(validation = Rule::new("self.all(range, isCIDR(range) && cidr(range) == cidr(range).masked())")
        .message("each of cidrs must be a CIDR like 192.0.2.0/28, with no bit set beyond its prefix"))]
    pub cidrs: Vec<String>,
    /// The tenants that may have these addresses; without it, every tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024), inner(length(min = 1, max = 63)))]
    #[x_kube(validation = Rule::new("self.all(tenant, tenant.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$'))")
        .message("each of tenants is the name of a tenant, of lower-case letters, digits and inner dashes"))]
    pub tenants: Option<Vec<String>>,
}

/// What is known of a pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddressPoolStatus {
    /// How many of its addresses somebody has.
    #[serde(default)]
    pub used: i32,
    /// What holds and what does not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
