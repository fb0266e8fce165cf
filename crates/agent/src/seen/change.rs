//! What changes of what the agent has seen.

use std::collections::BTreeMap;

use atoll_model::compile::{EndpointGroup, Outlet, PlacedPort, ServiceFront};
use atoll_model::export::{ServiceName, TargetSlice};
use atoll_model::outside::Held;
use atoll_types::{Cidr, Label, NetworkId};
use atoll_zones::{Service, Slice};

use super::{
    Exported, Exposed, Exposure, Joined, NetworkDns, Quarter, SeenNamespace, SeenNode, Sibling,
};
use crate::policy::News;
use crate::probe::{PodName, Probed};

/// A port object by namespace and name.
pub(crate) type PortKey = (String, String);

/// A change to a set of watched things.
#[derive(Clone, Debug)]
pub(crate) enum Delta<K, V> {
    /// The whole set, listed anew.
    All(BTreeMap<K, V>),
    /// One is there, or is another.
    Put(K, V),
    /// One is gone.
    Gone(K),
}

/// A change to what the agent has seen.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// Nodes and what is known of them.
    Nodes(Delta<String, SeenNode>),
    /// The zones of nodes, where they are in one.
    Zones(Delta<String, String>),
    /// Pools of addresses that nodes answer for, and the ranges of each.
    Pools(Delta<String, Vec<Cidr>>),
    /// Ports of this node, and the network of each.
    OwnPorts(Delta<PortKey, Joined>),
    /// Ports of a network that is present here.
    NetworkPorts(NetworkId, Delta<PortKey, PlacedPort>),
    /// A network that is present here, by object name: what it says of its names.
    Network(String, Delta<String, NetworkDns>),
    /// The same network: what it says of the outside.
    Outlet(String, Delta<String, Outlet>),
    /// All networks of a tenant that has a pod here.
    Siblings(Label, Delta<String, Sibling>),
    /// Namespaces, and whose each is.
    Namespaces(Delta<String, SeenNamespace>),
    /// Services of a namespace whose network is present here, by what names need of them.
    Services(Quarter, Delta<String, Service>),
    /// EndpointSlices of such a namespace, likewise.
    Slices(Quarter, Delta<String, Slice>),
    /// Services of such a namespace, by what the datapath needs of them.
    Fronts(Quarter, Delta<String, ServiceFront>),
    /// EndpointSlices, likewise.
    Groups(Quarter, Delta<String, EndpointGroup>),
    /// The service of the cluster's API.
    Api(Delta<ServiceName, Exported>),
    /// Services that an administrator exports to tenants.
    Exports(Delta<ServiceName, Exported>),
    /// EndpointSlices of such a service.
    Targets(ServiceName, Delta<String, TargetSlice>),
    /// What policy alone has to know of.
    Policy(News),
    /// Pods of this node that the agent probes.
    Probed(Delta<PodName, Probed>),
    /// Addresses of the outside that are for a network that is present here, by its object name.
    Held(String, Delta<String, Held>),
    /// Addresses of the outside that this node answers for, whatever network they are for.
    Answered(Delta<String, Held>),
    /// Services of any network that every node leads the outside to, or says something of to the outside, or
    /// that their owners open to other networks, by how they are exposed.
    Exposed(Exposure, Delta<ServiceName, Exposed>),
}

impl Change {
    /// Whether it can change what the kernel must look like, beside services, policy and what names mean.
    pub(crate) fn concerns_kernel(&self) -> bool {
        match self {
            Change::Nodes(_)
            | Change::Pools(_)
            | Change::OwnPorts(_)
            | Change::NetworkPorts(..)
            | Change::Network(..)
            | Change::Outlet(..)
            | Change::Siblings(..)
            | Change::Namespaces(_)
            | Change::Held(..)
            | Change::Answered(_)
            | Change::Exposed(..)
            | Change::Api(_)
            | Change::Exports(_)
            | Change::Targets(..) => true,
            Change::Zones(_)
            | Change::Policy(_)
            | Change::Probed(_)
            | Change::Services(..)
            | Change::Slices(..)
            | Change::Fronts(..)
            | Change::Groups(..) => false,
        }
    }

    /// Whether it can change which networks have to do with this node.
    pub(super) fn moves_networks(&self) -> bool {
        matches!(
            self,
            Change::OwnPorts(_)
                | Change::Answered(_)
                | Change::Exposed(..)
                | Change::Namespaces(_)
                | Change::Siblings(..)
                | Change::Outlet(..)
        )
    }

    /// Whether it can change which services of the cluster's own tenants may call, or who is known to
    /// stand behind them.
    pub(super) fn moves_exports(&self) -> bool {
        matches!(
            self,
            Change::Exports(_) | Change::Api(_) | Change::Namespaces(_) | Change::Targets(..)
        )
    }
}
