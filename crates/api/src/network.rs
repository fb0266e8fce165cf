//! `Network`: the unit of isolation.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A network of a tenant. Pods of one network reach each other and nothing else; networks may use
/// the same addresses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "atoll.dev",
    version = "v1alpha1",
    kind = "Network",
    status = "NetworkStatus",
    shortname = "anet",
    category = "atoll",
    derive = "PartialEq",
    printcolumn(name = "Tenant", type_ = "string", json_path = ".spec.tenant"),
    printcolumn(name = "Type", type_ = "string", json_path = ".spec.type"),
    printcolumn(name = "CIDRs", type_ = "string", json_path = ".status.cidrs"),
    printcolumn(name = "VPC", type_ = "string", json_path = ".spec.vpcID", priority = 1),
    printcolumn(name = "Isolation", type_ = "string", json_path = ".status.isolation", priority = 1),
    printcolumn(name = "ID", type_ = "integer", json_path = ".status.id"),
    printcolumn(name = "DNS", type_ = "string", json_path = ".status.dnsServiceIP"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Nodes", type_ = "integer", json_path = ".status.nodes.total", priority = 1),
    printcolumn(name = "Programmed", type_ = "string", json_path = ".status.conditions[?(@.type=='Programmed')].status", priority = 1),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].reason", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    selectable = ".spec.tenant",
    validation = Rule::new("self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?[.][a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$')")
        .message("a network's name is <tenant>.<network>, each a DNS label"),
    validation = Rule::new("self.metadata.name.startsWith(self.spec.tenant + '.')")
        .message("a network's name begins with its tenant: <tenant>.<network>"),
    validation = Rule::new("!has(self.status) || !has(self.status.id) || self.spec.type in ['vpc', 'flat']")
        .message("status.id: only networks of type vpc and flat have a number; a provider leaves it out")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.type != 'vpc' || size(self.cidrs) > 0")
    .message("a network of type vpc needs at least one range in cidrs"))]
#[x_kube(validation = Rule::new("self.type != 'flat' || (size(self.cidrs) == 0 && !has(self.vpcID))")
    .message("a network of type flat takes no cidrs and no vpcID: its addresses come from the range that all flat networks share"))]
#[x_kube(validation = Rule::new("!has(self.isolation) || self.isolation != 'open' || self.type == 'flat'")
    .message("isolation: only a network of type flat can be open"))]
#[x_kube(validation = Rule::new("has(self.isolation) == has(oldSelf.isolation)")
    .message("isolation cannot be set or removed once the network exists"))]
#[x_kube(validation = Rule::new("has(self.vpcID) == has(oldSelf.vpcID)")
    .message("vpcID cannot be set or removed once the network exists"))]
pub struct NetworkSpec {
    /// The tenant that owns the network.
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("a network cannot move to another tenant"))]
    pub tenant: String,
    /// The network's type: `vpc` has ranges of its own, `flat` gets addresses from the range that
    /// all flat networks share. Other types wait for a provider that serves them: that of the
    /// `NetworkType` of this name.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')")
        .message("type is vpc, flat or the name of a NetworkType, of lower-case letters, digits and inner dashes"))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("a network cannot change its type"))]
    pub type_: String,
    /// The VPC, by the name its tenant gives it. Networks of one tenant with the same `vpcID`
    /// share one routing domain and must not overlap. Without it, the network has a VPC of its own.
    #[serde(rename = "vpcID", default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')")
        .message("vpcID must be of lower-case letters, digits and inner dashes"))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("a network cannot move to another VPC"))]
    pub vpc_id: Option<String>,
    /// The address ranges, such as `10.0.0.0/16`. More can be added later.
    #[serde(default)]
    #[schemars(length(max = 32), inner(length(max = 64)))]
    #[x_kube(validation = Rule::new("self.all(range, isCIDR(range) && cidr(range) == cidr(range).masked())")
        .message("each range must be a CIDR like 10.0.0.0/16, with no bit set beyond its prefix"))]
    #[x_kube(validation = Rule::new("oldSelf.all(range, range in self)")
        .message("a range cannot be taken away from a network"))]
    pub cidrs: Vec<String>,
    /// Who reaches a network of type `flat`: `isolated` (its own pods, the default) or `open`
    /// (those of every open flat network, whoever owns it).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self == oldSelf").message("isolation cannot be changed once the network exists"))]
    pub isolation: Option<NetworkIsolation>,
    /// Who answers the names that the network's pods ask for, and what they may ask outside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dns: Option<NetworkDns>,
    /// How the network's pods reach addresses outside of the cluster; not at all by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress: Option<NetworkEgress>,
}

/// How pods of a network reach the outside.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("(has(self.mode) && self.mode == 'address') == (has(self.addresses) && size(self.addresses) > 0)")
    .message("addresses: names what the network's pods speak from; mode address needs at least one, and no other mode takes any"))]
pub struct NetworkEgress {
    /// As whom they speak: `none` (not at all, the default), `node` (the address of the pod's node)
    /// or `address` (those in `addresses`).
    #[serde(default)]
    pub mode: EgressMode,
    /// The addresses that the network's pods speak from, one of each family at most, from an
    /// `AddressPool`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2), inner(length(max = 64)))]
    #[x_kube(validation = Rule::new("self.all(address, isIP(address))")
        .message("each of addresses must be an IP address like 192.0.2.10"))]
    #[x_kube(validation = Rule::new("size(self) < 2 || self[0].contains(':') != self[1].contains(':')")
        .message("addresses has at most one of IPv4 and one of IPv6"))]
    pub addresses: Vec<String>,
}

/// As whom pods of a network speak to the outside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EgressMode {
    /// Not at all.
    #[default]
    None,
    /// As the node that they are on.
    Node,
    /// As addresses of their own.
    Address,
}

/// Who reaches a network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NetworkIsolation {
    /// Its own pods alone.
    #[default]
    Isolated,
    /// The pods of every open network.
    Open,
}

/// The names of a network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("(has(self.mode) && self.mode == 'tenant') == has(self.service)")
    .message("service: names the tenant's own resolver; mode tenant needs it, and no other mode takes it"))]
pub struct NetworkDns {
    /// Who answers: `shared` (the agent of the pod's node, the default), `dedicated` (DNS pods of
    /// this network alone), or `tenant` (the tenant's own, behind `service`).
    #[serde(default)]
    pub mode: DnsMode,
    /// The servers that are asked for names outside of the cluster, in this order: addresses, with
    /// or without a port. An empty list means nobody is asked; without the field, those of the
    /// agents are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 8), inner(length(max = 64)))]
    #[x_kube(validation = Rule::new("self.all(server, isIP(server) || server.matches('^([0-9.]+|\\\\[[0-9a-fA-F:.]+\\\\]):[0-9]{1,5}$'))")
        .message("each of upstreams must be an address, with or without a port: 192.0.2.53, 192.0.2.53:5353 or [2001:db8::53]:5353"))]
    pub upstreams: Option<Vec<String>>,
    /// Whether an answer from outside that leads to a private address or to an own name is refused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub refuse_private: bool,
    /// The service of the tenant's own resolver, for mode `tenant`. While no pod of it is ready,
    /// the agent of the pod's node answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<DnsService>,
}

/// Who answers the names of a network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DnsMode {
    /// The agent of the pod's node.
    #[default]
    Shared,
    /// DNS pods of the network alone.
    Dedicated,
    /// DNS pods of the tenant.
    Tenant,
}

/// A service in one of the tenant's namespaces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
pub struct DnsService {
    /// Its namespace.
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')")
        .message("namespace is the name of one of the tenant's namespaces, of lower-case letters, digits and inner dashes"))]
    pub namespace: String,
    /// Its name.
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')")
        .message("name is the name of a service, of lower-case letters, digits and inner dashes"))]
    pub name: String,
}

/// What is known of a network.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkStatus {
    /// Where the network is in its life.
    #[serde(default)]
    #[x_kube(validation = Rule::new("self == oldSelf || (oldSelf != 'Terminating' && self != 'Initializing')")
        .message("phase: a network that is Terminating stays so, and none becomes Initializing again"))]
    pub phase: NetworkPhase,
    /// The number of the network's VPC: its VXLAN id on the wire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u32>,
    /// The ranges that the network serves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cidrs: Vec<String>,
    /// Who reaches it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<NetworkIsolation>,
    /// The address at which the network's pods are answered by name, beside the one in their
    /// resolv.conf.
    #[serde(rename = "dnsServiceIP", default, skip_serializing_if = "Option::is_none")]
    pub dns_service_ip: Option<String>,
    /// That address in each family.
    #[serde(rename = "dnsServiceIPs", default, skip_serializing_if = "Vec::is_empty")]
    pub dns_service_ips: Vec<String>,
    /// Who answers there.
    #[serde(default)]
    pub dns_mode: DnsMode,
    /// The nodes that have pods of the network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<NetworkNodes>,
    /// What holds and what does not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// The nodes that have pods of a network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NetworkNodes {
    /// Those that have attached every pod of it that they have.
    pub ready: u32,
    /// All of them.
    pub total: u32,
}

/// Where a network is in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum NetworkPhase {
    /// Accepted, nothing done yet.
    #[default]
    Initializing,
    /// Waiting for its provider, its tenant, or what stands in its way.
    Pending,
    /// Pods can be attached.
    Active,
    /// Cannot be used as declared.
    Failed,
    /// Being deleted.
    Terminating,
}

impl NetworkPhase {
    /// Whether a network that told this phase may tell `next` instead: nothing begins anew, and what
    /// is being deleted stays so.
    pub fn may_become(self, next: Self) -> bool {
        use NetworkPhase::{Active, Failed, Initializing, Pending, Terminating};
        match self {
            Initializing => matches!(next, Pending | Active | Failed | Terminating),
            Pending => matches!(next, Active | Failed | Terminating),
            Active => matches!(next, Pending | Failed | Terminating),
            Failed => matches!(next, Pending | Active | Terminating),
            Terminating => false,
        }
    }
}
