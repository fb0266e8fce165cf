//! Keys and values of the maps by which the kernel decides policy.
//!
//! The rule kept here: every number bears the bank it was written in, so that two whole sets of
//! tables can lie beside each other and one word says which counts.

use bytemuck::{Pod, Zeroable};

use crate::Address;

/// The bank in the map `policy_bank` before anything was ever written: no policy is asked.
pub const NO_BANK: u32 = 0;

/// The bit of a number that tells the two banks apart. Numbers of the first bank do not have it.
pub const SECOND_BANK: u32 = 1 << 31;

/// The tier of a [`PolicyVerdict`] that has no say between a pod and itself.
pub const TIER_NETWORK_POLICY: u8 = 3;

/// Key of the map `policy_ends`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Pod, Zeroable)]
pub struct PolicyEndKey {
    /// The network.
    pub network: u32,
    /// The pod's address in it.
    pub address: Address,
    /// The bank: 1 or 2.
    pub bank: u32,
}

/// What is compared of a key of the longest-prefix map `policy_outside`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Pod, Zeroable)]
pub struct PolicyOutside {
    /// The number of the tenant that names the range, in network byte order.
    pub tenant: [u8; 4],
    /// The first address of the range.
    pub address: Address,
}

/// Value of the map `policy_identities`, whose key is an identity.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct PolicyIdentity {
    /// The tenant's number.
    pub tenant: u32,
    /// The set of rules for traffic to it; 0 for none.
    pub ingress: u32,
    /// The set of rules for traffic from it; 0 for none.
    pub egress: u32,
}

/// Key of the map `policy_columns`, whose value is a column.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Pod, Zeroable)]
pub struct PolicyColumnKey {
    /// The set of rules.
    pub set: u32,
    /// The identity of the other end; 0 for every other.
    pub identity: u32,
}

/// What is compared of a key of the longest-prefix map `policy_ports`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Pod, Zeroable)]
pub struct PolicyPort {
    /// The column, in network byte order.
    pub column: [u8; 4],
    /// The protocol's number; 0 for all that have no ports.
    pub protocol: u8,
    /// The port, in network byte order.
    pub port: [u8; 2],
    /// Zero; never compared.
    pub reserved: u8,
}

/// Value of the map `policy_ports`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct PolicyVerdict {
    /// The number of the rule that decided; 0 where no policy did.
    pub rule: u32,
    /// One if it passes, else zero.
    pub accept: u8,
    /// The tier that decided, from 1 on; 0 where no policy did.
    pub tier: u8,
    /// Zero.
    pub reserved: [u8; 2],
}
