//! Conditions of our objects: their types and reasons as closed sets, built at one place.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// What a condition speaks about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConditionType {
    /// The object does what it was made for.
    Ready,
    /// Every node that must know of the object has taken it.
    Programmed,
    /// There is more to be had: of everything that a tenant has a quota on, or of a pool.
    HasRoom,
    /// The network's pods speak to the outside from the addresses that it names.
    Egress,
    /// The network was given to the provider of its type, which writes its status from then on.
    Provided,
    /// Nothing is left of what the provider made for a network that is being deleted. The provider
    /// says so.
    Released,
}

/// Why a condition is as it is: one CamelCase word for machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// All is as asked.
    AsDeclared,
    /// Work goes on.
    InProgress,
    /// No provider serves this network type.
    NoProvider,
    /// The tenant that the object names does not exist.
    TenantNotFound,
    /// The network that the object names does not exist.
    NetworkNotFound,
    /// The network is there but not Active.
    NetworkNotReady,
    /// A range shares addresses with another of the same VPC.
    CidrOverlap,
    /// A range lies outside those of its network.
    CidrOutside,
    /// A range cannot be parsed.
    CidrMalformed,
    /// No block is left of the range that flat networks share.
    NoFreeBlock,
    /// No network id is free.
    NoFreeNetworkId,
    /// The template for default networks cannot be used.
    TemplateInvalid,
    /// The network has no subnet that gives addresses.
    SubnetNotReady,
    /// The subnet has no free address.
    SubnetExhausted,
    /// The address asked for belongs to somebody.
    AddressInUse,
    /// The address asked for is in no subnet of the network.
    AddressOutside,
    /// The address asked for is kept back: network, gateway or broadcast address.
    AddressReserved,
    /// The port that the pod names does not exist.
    PortNotFound,
    /// The port that the pod is to have has no addresses yet.
    PortNotReady,
    /// The port that the pod names is not as the pod asks.
    PortUnfit,
    /// A range is reached through another interface of the pod, what was asked of a flat network
    /// is left out, or a device of a claim stands for no interface.
    PartlyServed,
    /// Something that nobody held any more was given back.
    Repaired,
    /// The pod's annotation cannot be parsed.
    RequestMalformed,
    /// No pool gives the tenant such an address.
    NoPool,
    /// Every address of the tenant's pools is in use.
    PoolExhausted,
    /// The tenant has as much as it may have.
    QuotaExceeded,
    /// Deletion waits for what is still inside.
    InUse,
}

impl fmt::Display for ConditionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A condition as Kubernetes writes it. `previous` keeps its transition time where the status did
/// not change.
pub fn condition(
    kind: ConditionType,
    holds: bool,
    reason: Reason,
    message: impl Into<String>,
    generation: Option<i64>,
    now: Time,
    previous: &[Condition],
) -> Condition {
    let status = if holds { "True" } else { "False" };
    let unchanged =
        previous.iter().find(|old| old.type_ == kind.to_string() && old.status == status);
    Condition {
        type_: kind.to_string(),
        status: status.to_owned(),
        reason: reason.to_string(),
        message: message.into(),
        observed_generation: generation,
        last_transition_time: unchanged.map_or(now, |old| old.last_transition_time.clone()),
    }
}
