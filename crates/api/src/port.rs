//! `Port`: one interface of one pod, with its addresses.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One interface of one pod. The controller makes it when the pod is created and decides all of
/// its spec; the node's agent reports in its status.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "atoll.dev",
    version = "v1alpha1",
    kind = "Port",
    namespaced,
    status = "PortStatus",
    shortname = "aport",
    category = "atoll",
    derive = "PartialEq",
    printcolumn(name = "Network", type_ = "string", json_path = ".spec.network"),
    printcolumn(name = "IPs", type_ = "string", json_path = ".spec.ips"),
    printcolumn(name = "Pod", type_ = "string", json_path = ".spec.pod"),
    printcolumn(name = "Node", type_ = "string", json_path = ".spec.node"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "MAC", type_ = "string", json_path = ".spec.mac", priority = 1),
    printcolumn(name = "Interface", type_ = "string", json_path = ".spec.interface", priority = 1),
    printcolumn(name = "Subnet", type_ = "string", json_path = ".spec.subnet", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    selectable = ".spec.node",
    selectable = ".spec.networkID"
)]
#[serde(rename_all = "camelCase")]
pub struct PortSpec {
    /// The network, by its object name.
    pub network: String,
    /// The network's number.
    #[serde(rename = "networkID")]
    #[schemars(range(min = 1, max = 16_777_215))]
    pub network_id: u32,
    /// The subnet that the addresses come from.
    pub subnet: String,
    /// The addresses.
    #[schemars(length(min = 1, max = 2), inner(length(max = 64)))]
    #[x_kube(validation = Rule::new("self.all(ip, isIP(ip))").message("each of ips must be an IP address"))]
    pub ips: Vec<String>,
    /// The Ethernet address.
    #[schemars(length(max = 17))]
    pub mac: String,
    /// The pod, in the namespace of the port.
    pub pod: String,
    /// The pod's UID: a pod of the same name made later has a port of its own.
    #[serde(rename = "podUID")]
    pub pod_uid: String,
    /// The interface's name inside the pod.
    #[schemars(length(min = 1, max = 15))]
    pub interface: String,
    /// The node, once the pod is bound to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Whether this is the pod's first interface: it has the default route and the pod's address.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub primary: bool,
    /// On the primary port: the pod's other interfaces. The pod starts once all of them are there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 15)))]
    pub other_interfaces: Vec<String>,
    /// On the other ports: the ranges that the pod reaches through this interface.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 64)))]
    pub routes: Vec<String>,
}

/// What the node's agent says of a port.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PortStatus {
    /// Whether the interface is there.
    #[serde(default)]
    pub phase: PortPhase,
    /// The name of the interface's host side on the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_interface: Option<String>,
}

/// Whether a port's interface is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PortPhase {
    /// Addresses are kept; no interface yet.
    #[default]
    Allocated,
    /// The pod has the interface.
    Attached,
}
