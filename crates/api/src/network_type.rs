//! `NetworkType`: a type of network that Atoll does not have built in, and who serves it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A provider registers for a type of network by making the object of that name. From then on the
/// status of networks of that type is the provider's to write.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "atoll.dev",
    version = "v1alpha1",
    kind = "NetworkType",
    status = "NetworkTypeStatus",
    shortname = "antype",
    category = "atoll",
    derive = "PartialEq",
    printcolumn(name = "Provider", type_ = "string", json_path = ".spec.provider"),
    printcolumn(name = "Networks", type_ = "integer", json_path = ".status.networks"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].status"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$')")
        .message("a type's name is at most 63 lower-case letters, digits and inner dashes, without dots"),
    validation = Rule::new("!(self.metadata.name in ['vpc', 'flat'])")
        .message("a type's name is not vpc or flat: these are built in")
)]
#[serde(rename_all = "camelCase")]
pub struct NetworkTypeSpec {
    /// Who serves networks of this type: the name of the provider's controller, such as
    /// `sdn.example/provider`.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-.a-z0-9]*[a-z0-9])?(/[a-z0-9]([-.a-z0-9]*[a-z0-9])?)?$')")
        .message("provider is the name of a controller like sdn.example/provider, of lower-case letters, digits, inner dashes and dots"))]
    #[x_kube(validation = Rule::new("self == oldSelf")
        .message("a type cannot change its provider: delete the NetworkType, and make it anew when its networks are gone"))]
    pub provider: String,
}

/// What is known of a type.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkTypeStatus {
    /// How many networks the provider was given.
    #[serde(default)]
    pub networks: i32,
    /// What holds and what does not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
