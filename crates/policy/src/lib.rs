//! Network policy, compiled: from API objects to the tables by which the kernel decides.
//!
//! The rule of this crate: it only thinks. No clock, no I/O, no async; the same facts give the same
//! meaning in whatever order they come, and an event costs what it touches. What cannot be enforced
//! as written is reported and enforced as its strictest reading.

mod cluster_policy;
mod column;
mod compiler;
mod decision;
mod facts;
mod identity;
mod listing;
mod numbers;
mod policy;
mod ports;
mod ranges;
mod read;
mod report;
mod room;
mod selector;
mod sets;
mod tables;
mod tenant;
mod truth;

pub use cluster_policy::{
    ClusterNetworkPolicy, ClusterNetworkPolicySpec, WrittenDestination, WrittenNumbers,
    WrittenPeer, WrittenPods, WrittenPort, WrittenPortNumber, WrittenPortRange, WrittenProtocol,
    WrittenRange, WrittenRule, WrittenSubject,
};
pub use compiler::{Compiler, Counts, Event};
pub use decision::{Decision, Explanation, Verdict};
pub use facts::{Interface, Labels, NamedPort, Node, Pod, Protocol};
pub use policy::{
    Action, Direction, Namespaces, Peer, Policy, PolicyKey, Rule, RulePlace, Subject, Tier,
};
pub use ports::{PortMatch, PortPrefix, PortRange};
pub use read::{read_cluster_policy, read_network_policy, read_node, read_pod};
pub use report::{Instead, Read, Reason, Report};
pub use room::Room;
pub use selector::{Selector, SelectorError};
pub use tables::{
    Changes, Edit, IdentityEntry, OutsideKey, PeerKey, PortKey, RuleName, Table, Tables,
};
pub use truth::{Cell, Changed, Difference, Probe, TruthTable, probes, what_if};
