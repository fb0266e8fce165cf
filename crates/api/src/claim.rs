//! `Claim`: the one holder of a thing that must not be given out twice.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A claim's *name* is the thing claimed: a network id, an address of a network, an address of
/// a tenant's services, an address of the outside, or a block of the range that flat networks share. The API lets a name exist
/// once, so that even two controllers can never hand one thing out twice.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, CustomResource, JsonSchema)]
#[kube(
    group = "atoll.dev",
    version = "v1alpha1",
    kind = "Claim",
    category = "atoll",
    derive = "PartialEq",
    printcolumn(name = "Holder", type_ = "string", json_path = ".spec.holder.kind"),
    printcolumn(name = "Namespace", type_ = "string", json_path = ".spec.holder.namespace"),
    printcolumn(name = "Name", type_ = "string", json_path = ".spec.holder.name"),
    printcolumn(name = "Node", type_ = "string", json_path = ".spec.node"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    selectable = ".spec.node",
    selectable = ".spec.network"
)]
#[serde(rename_all = "camelCase")]
pub struct ClaimSpec {
    /// Who holds it.
    pub holder: ClaimHolder,
    /// Of an address of the outside: the object name of the network that it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// Of an address of the outside: the node that answers for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

/// Who holds a claim.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct ClaimHolder {
    /// What the holder is: `VPC`, `NetworkID`, `Network`, `Port` or `Service`.
    pub kind: String,
    /// Its namespace, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// The UID of the pod behind a port, or of the holder: one of the same name made later is
    /// another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}
