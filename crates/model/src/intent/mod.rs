//! What people and other programs wrote, parsed once.
//!
//! Every object of the API becomes a small value that holds only what decisions need. The rule:
//! parsing never fails as a whole. An object that makes no sense is still an object (it has
//! finalizers, it can be deleted), so that what is wrong with it is kept beside its metadata.

mod claim;
mod dns;
mod meta;
mod namespace;
mod network;
mod nic;
mod node;
mod pod;
mod pool;
mod port;
mod registration;
mod role;
mod service;
mod slice;
mod subnet;
mod template;
mod tenant;

pub use claim::{
    BlockHolder, Claim, PortHolder, Thing, Vip, holder_of_block, holder_of_id, holder_of_port,
    holder_of_service, holder_of_vpc,
};
pub use dns::DnsPlan;
pub use meta::{Kind, Meta, ObjectName};
pub use namespace::Namespace;
pub use network::{Network, NetworkPlan, NetworkType, Vpc, subnet_name};
pub use nic::Nic;
pub use node::Node;
pub use pod::Pod;
pub use pool::AddressPool;
pub use port::{Bound, Port, PortPlan};
pub use registration::Registration;
pub use role::{Role, role_name, role_of, tenant_of_role};
pub use service::{Balancer, Service};
pub use slice::Slice;
pub use subnet::{Subnet, SubnetPlan};
pub use template::{Template, TemplateError};
pub use tenant::Tenant;

use atoll_api::Reason;

/// Why an object cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The reason for its condition.
    pub reason: Reason,
    /// What is wrong, and what would be right.
    pub message: String,
}

impl Malformed {
    fn new(reason: Reason, message: impl Into<String>) -> Self {
        Malformed { reason, message: message.into() }
    }
}

/// An object as it was seen.
#[derive(Clone, Debug)]
pub enum Seen {
    /// A tenant.
    Tenant(Tenant),
    /// A network.
    Network(Network),
    /// A subnet.
    Subnet(Subnet),
    /// A port.
    Port(Port),
    /// A claim.
    Claim(Claim),
    /// A namespace.
    Namespace(Namespace),
    /// A pod.
    Pod(Pod),
    /// A service.
    Service(Service),
    /// A role.
    ClusterRole(Role),
    /// A pool of addresses of the outside.
    AddressPool(AddressPool),
    /// A node.
    Node(Node),
    /// A type of network that a provider registered for.
    NetworkType(Registration),
    /// Some of those behind a service.
    EndpointSlice(Slice),
}

impl Seen {
    /// What every object has.
    pub fn meta(&self) -> &Meta {
        match self {
            Seen::Tenant(tenant) => &tenant.meta,
            Seen::Network(network) => &network.meta,
            Seen::Subnet(subnet) => &subnet.meta,
            Seen::Port(port) => &port.meta,
            Seen::Claim(claim) => &claim.meta,
            Seen::Namespace(namespace) => &namespace.meta,
            Seen::Pod(pod) => &pod.meta,
            Seen::Service(service) => &service.meta,
            Seen::ClusterRole(role) => &role.meta,
            Seen::AddressPool(pool) => &pool.meta,
            Seen::Node(node) => &node.meta,
            Seen::NetworkType(registration) => &registration.meta,
            Seen::EndpointSlice(slice) => &slice.meta,
        }
    }
}
