//! `Port`: one interface of one pod, with its addresses.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One interface of one pod. The controller makes it with the pod and decides all of its spec; the
/// node's agent reports in its status. A port can also be made beforehand, without a pod: the
/// controller fills in what is missing, and a pod takes it by `atoll.dev/nics: [{port: name}]`.
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
#[x_kube(validation = Rule::new("has(self.pod) == has(self.podUID)")
    .message("pod and podUID go together: leave both out of a port made beforehand"))]
#[x_kube(validation = Rule::new("!has(self.podUID) || (has(self.networkID) && has(self.interface))")
    .message("a port of a pod needs networkID and interface: leave pod and podUID out of a port made beforehand"))]
#[x_kube(validation = Rule::new("has(self.podUID) || !(has(self.node) || has(self.interface) || has(self.primary) || has(self.otherInterfaces) || has(self.routes))")
    .message("node, interface, primary, otherInterfaces and routes are of a port that a pod has"))]
#[x_kube(validation = Rule::new("!has(self.networkID) || (has(self.subnet) && has(self.ips) && has(self.mac))")
    .message("networkID needs subnet, ips and mac: leave networkID out, and what is missing is filled in"))]
#[x_kube(validation = Rule::new("!has(oldSelf.networkID) || (has(self.networkID) && has(self.ips) && has(self.mac) && self.networkID == oldSelf.networkID && self.ips == oldSelf.ips && self.mac == oldSelf.mac)")
    .message("a port keeps its networkID, ips and mac: make another port"))]
#[x_kube(validation = Rule::new("!has(oldSelf.podUID) || has(self.persistent) == has(oldSelf.persistent)")
    .message("persistent cannot change while a pod has the port: annotate the pod with atoll.dev/persistent before it starts"))]
pub struct PortSpec {
    /// The network, by its object name.
    #[schemars(length(min = 3, max = 127))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?[.][a-z0-9]([-a-z0-9]*[a-z0-9])?$')")
        .message("network is the object name of a network, <tenant>.<network>"))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("a port cannot move to another network"))]
    pub network: String,
    /// The network's number.
    #[serde(rename = "networkID", default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 1, max = 16_777_215))]
    pub network_id: u32,
    /// The subnet that the first address comes from.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$')")
        .message("subnet is the name of a subnet, of lower-case letters, digits, dashes and dots"))]
    pub subnet: String,
    /// The addresses, at most one of each family.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 2), inner(length(max = 64)))]
    #[x_kube(validation = Rule::new("self.all(ip, isIP(ip))").message("each of ips must be an IP address like 10.0.0.5"))]
    #[x_kube(validation = Rule::new("size(self) < 2 || self[0].contains(':') != self[1].contains(':')")
        .message("ips has at most one address of IPv4 and one of IPv6"))]
    pub ips: Vec<String>,
    /// The Ethernet address.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(min = 1, max = 17))]
    #[x_kube(validation = Rule::new("self.matches('^[0-9a-fA-F][02468aceACE](:[0-9a-fA-F]{2}){5}$') && self != '00:00:00:00:00:00'")
        .message("mac must be a unicast MAC address like 02:00:0a:00:00:05"))]
    pub mac: String,
    /// Whether it stays when its pod goes. So does every port that was made beforehand.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub persistent: bool,
    /// The pod that has it, in the namespace of the port.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$')")
        .message("pod is the name of a pod in the port's namespace"))]
    pub pod: String,
    /// The pod's UID: a pod of the same name made later is another.
    #[serde(rename = "podUID", default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(min = 1, max = 63))]
    pub pod_uid: String,
    /// The interface's name inside the pod.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(min = 1, max = 15))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') && self != 'lo'")
        .message("interface is a name like eth0, of lower-case letters, digits and inner dashes, and not lo"))]
    pub interface: String,
    /// What the pod finds under that name: a veth, which has the addresses, or a tap, which a
    /// virtual machine opens.
    #[serde(default, skip_serializing_if = "InterfaceType::is_veth")]
    pub interface_type: InterfaceType,
    /// The node, once the pod is bound to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub node: Option<String>,
    /// Whether this is the pod's first interface: it has the default route and the pod's address.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub primary: bool,
    /// On the primary port: the pod's other interfaces. The pod starts once all of them are there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 15)))]
    #[x_kube(validation = Rule::new("self.all(name, name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') && name != 'lo')")
        .message("each of otherInterfaces is a name like net1, and not lo"))]
    pub other_interfaces: Vec<String>,
    /// On the other ports: the ranges that the pod reaches through this interface.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 64)))]
    #[x_kube(validation = Rule::new("self.all(range, isCIDR(range) && cidr(range) == cidr(range).masked())")
        .message("each of routes must be a CIDR like 10.0.0.0/16, with no bit set beyond its prefix"))]
    pub routes: Vec<String>,
}

/// What a pod finds under the name of its interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum InterfaceType {
    /// A link with the pod's addresses.
    #[default]
    Veth,
    /// A tap without addresses, for a virtual machine to open.
    Tap,
}

impl InterfaceType {
    fn is_veth(&self) -> bool {
        *self == InterfaceType::Veth
    }
}

fn is_zero(number: &u32) -> bool {
    *number == 0
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
