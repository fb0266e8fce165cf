//! What shall be done, as values.
//!
//! The rule: every action can be done twice without harm, and every action that takes something
//! away names the incarnation it means.

use std::net::IpAddr;

use atoll_api as api;
use atoll_api::{ClaimHolder, Reason};
use atoll_vpc::Moment;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use k8s_openapi::api::resource::v1::NetworkDeviceData;

use crate::intent::{Kind, Meta, ObjectName, Thing};
use crate::port_change::PortChange;

/// Which object: what work is queued by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The kind.
    pub kind: Kind,
    /// The name.
    pub name: ObjectName,
}

impl Key {
    /// The object `name` of a kind.
    pub fn new(kind: Kind, name: ObjectName) -> Self {
        Key { kind, name }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} {}", self.kind, self.name)
    }
}

/// One incarnation of an object, at the version on which a decision rests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Which object.
    pub key: Key,
    /// Its incarnation.
    pub uid: String,
    /// Its version.
    pub revision: u64,
}

impl Target {
    /// The object with this metadata.
    pub fn new(kind: Kind, meta: &Meta) -> Self {
        let key = Key::new(kind, meta.name.clone());
        Target { key, uid: meta.uid.clone(), revision: meta.revision }
    }
}

/// The place of an address of the outside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seat {
    /// The object name of the network that it is for, where that is known.
    pub network: Option<String>,
    /// The node that answers for it, where one can.
    pub node: Option<String>,
}

/// How an event is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// Good to know.
    Normal,
    /// Somebody should look.
    Warning,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Look whether an object is still as it was when this was decided (`None`: not there). If it
    /// is not, what follows is not done, and the matter is decided again.
    Confirm(Key, Option<Target>),
    /// Claim a thing for a holder. If somebody else has it, what follows is not done, and the
    /// matter is decided again.
    Claim(Thing, ClaimHolder),
    /// Give a thing back, if this holder has it.
    Release(Thing, ClaimHolder),
    /// Make a network.
    CreateNetwork(Box<api::Network>),
    /// Make a subnet.
    CreateSubnet(Box<api::Subnet>),
    /// Make a port.
    CreatePort(Box<api::Port>),
    /// Make a tenant's role.
    CreateRole(Box<ClusterRole>),
    /// Replace what a role allows.
    SetRules(Target, Vec<PolicyRule>),
    /// Delete an object.
    Delete(Target),
    /// Replace an object's finalizers. If it is being deleted and others still hold it, what
    /// follows is not done.
    SetFinalizers(Target, Vec<String>),
    /// Change a port's spec.
    ChangePort(Target, PortChange),
    /// Write into a port's status that no pod has the interface.
    DetachPort(Target),
    /// Tell a resource claim of a pod which interfaces its devices stand for.
    TellClaim {
        /// The pod.
        pod: Target,
        /// The claim.
        claim: ObjectName,
        /// The pod's interfaces.
        interfaces: Vec<NetworkDeviceData>,
    },
    /// Tell a pod in its annotation which interfaces it has.
    TellPod(Target, String),
    /// Write a service's addresses into its annotation, or take that away.
    TellService(Target, Option<String>),
    /// Write the addresses at which the outside knows a service into its status.
    TellBalancer(Target, Vec<IpAddr>),
    /// Write into a claim on an address of the outside which network it is for, and which node
    /// answers for it.
    Seat(Target, Seat),
    /// Replace a pool's status.
    SetPoolStatus(Target, Box<api::AddressPoolStatus>),
    /// Replace a type's status.
    SetTypeStatus(Target, Box<api::NetworkTypeStatus>),
    /// Replace a tenant's status.
    SetTenantStatus(Target, Box<api::TenantStatus>),
    /// Replace a network's status.
    SetNetworkStatus(Target, Box<api::NetworkStatus>),
    /// Replace a subnet's status.
    SetSubnetStatus(Target, Box<api::SubnetStatus>),
    /// Tell people about an object.
    Say(Target, Tone, Reason, String),
}

/// What to do about an object now, and when to look again even if nothing happens.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// What to do, in this order.
    pub actions: Vec<Action>,
    /// When to look again.
    pub again: Option<Moment>,
}

impl Decision {
    /// Nothing to do until something happens.
    pub fn nothing() -> Self {
        Decision::default()
    }

    /// These things, now.
    pub fn act(actions: impl IntoIterator<Item = Action>) -> Self {
        Decision { actions: actions.into_iter().collect(), again: None }
    }

    /// The same, and look again at `moment`.
    pub fn and_again(self, moment: Moment) -> Self {
        Decision { again: Some(moment), ..self }
    }
}

impl From<Action> for Decision {
    fn from(action: Action) -> Self {
        Decision::act([action])
    }
}
