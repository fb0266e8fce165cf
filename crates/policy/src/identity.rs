//! Identities: what policies can tell apart, and the tests by which rules find them.
//!
//! The rule kept here: two addresses with one identity are alike for every rule of their tenant. So
//! the cost of policy grows with distinct label sets, not with pods.

use std::collections::BTreeSet;
use std::sync::Arc;

use atoll_types::{Cidr, Label};

use crate::facts::{Labels, NamedPort};
use crate::policy::{Namespaces, Peer, Policy, Subject};
use crate::selector::Selector;

/// All that a rule can know of an address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Identity {
    /// The tenant that sees the address.
    pub(crate) tenant: Label,
    /// Who is there.
    pub(crate) who: Who,
    /// The narrowest range around it that the tenant's policies name.
    pub(crate) range: Option<Cidr>,
}

/// Who is at an address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Who {
    /// A pod of the tenant.
    Pod(Arc<Profile>),
    /// A pod of the tenant of which no more is known.
    Guest,
    /// A node.
    Node(Labels),
    /// Nobody that a selector finds.
    Outside,
}

/// What pods have in common that policies cannot tell apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Profile {
    pub(crate) namespace: String,
    pub(crate) namespace_labels: Labels,
    pub(crate) labels: Labels,
    pub(crate) ports: BTreeSet<NamedPort>,
    pub(crate) network: Label,
}

impl Identity {
    /// The pod's profile, where a pod is there.
    pub(crate) fn profile(&self) -> Option<&Profile> {
        match &self.who {
            Who::Pod(profile) => Some(profile),
            Who::Guest | Who::Node(_) | Who::Outside => None,
        }
    }

    /// Whether a policy is about it.
    pub(crate) fn is_subject_of(&self, policy: &Policy) -> bool {
        self.profile().is_some_and(|profile| {
            let aimed = policy.networks.as_ref();
            aimed.is_none_or(|names| names.contains(&profile.network))
                && policy.subject.finds(profile)
        })
    }
}

impl Subject {
    fn finds(&self, profile: &Profile) -> bool {
        let in_namespace = match &self.namespaces {
            Namespaces::Named(name) => *name == profile.namespace,
            Namespaces::Labelled(selector) => selector.finds(&profile.namespace_labels),
        };
        in_namespace && self.pods.finds(&profile.labels)
    }
}

/// A test by which a rule finds identities. Equal tests of many rules are done once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Test {
    /// Pods by their labels.
    Pods(Subject),
    /// Addresses inside a range and outside of others.
    Block(Cidr, BTreeSet<Cidr>),
    /// Nodes by their labels.
    Nodes(Selector),
    /// Pods that give a port this name.
    PortName(String),
}

impl From<&Peer> for Test {
    fn from(peer: &Peer) -> Self {
        match peer {
            Peer::Pods(subject) => Test::Pods(subject.clone()),
            Peer::Block { cidr, except } => Test::Block(*cidr, except.clone()),
            Peer::Nodes(selector) => Test::Nodes(selector.clone()),
        }
    }
}

impl Test {
    /// Whether an identity passes.
    pub(crate) fn finds(&self, identity: &Identity) -> bool {
        match (self, &identity.who) {
            (Test::Pods(subject), Who::Pod(profile)) => subject.finds(profile),
            (Test::Nodes(selector), Who::Node(labels)) => selector.finds(labels),
            (Test::PortName(name), Who::Pod(profile)) => {
                profile.ports.iter().any(|port| port.name == *name)
            }
            (Test::Block(cidr, except), _) => identity.range.is_some_and(|range| {
                let excepted = except.iter().any(|hole| hole.contains_cidr(&range));
                cidr.contains_cidr(&range) && !excepted
            }),
            _ => false,
        }
    }
}
