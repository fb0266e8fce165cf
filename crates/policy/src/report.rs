//! What of a policy could not be enforced as it was written, and what is done instead.
//!
//! The rule kept here: nothing is dropped in silence. Every part of an object that was not
//! understood is named by its field, and what is enforced lets through no more than what was meant.

use std::fmt;

use crate::policy::{Policy, PolicyKey};

/// Why a part of a policy cannot be enforced as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// A selector has an operator or values that make no sense.
    Selector,
    /// A range of addresses cannot be read.
    Range,
    /// An excepted range lies outside of its block.
    Except,
    /// A peer names nothing, or too much at once, or something unknown.
    Peer,
    /// A port or a range of ports cannot be.
    Port,
    /// A protocol that policies do not know.
    Protocol,
    /// A direction that policies do not know.
    PolicyType,
    /// A tier, a priority, an action or a subject that cannot be read.
    Shape,
    /// Domain names as peers are not enforced.
    DomainNames,
    /// The annotation that aims a policy at networks cannot be read.
    Networks,
    /// The tenant's share of a node's tables has no room for it.
    NoRoom,
}

/// What is done about the part that was not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Instead {
    /// The part lets nothing through; the rest is enforced as written.
    AllowsNothing,
    /// The rule denies everything, in both its peers and its ports.
    DeniesAll,
    /// The policy is enforced on all pods it could mean: its denials count, its allowances do not.
    Strictest,
    /// The part has no effect in any reading, and is left out.
    LeftOut,
    /// What the policy said before stays in force.
    FormerStays,
    /// Nothing passes to and from the pods that it is about, in the directions that it is about.
    Closes,
}

/// One part of a policy that is not enforced as written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Report {
    /// The policy.
    pub policy: PolicyKey,
    /// The kind of mistake.
    pub reason: Reason,
    /// The field, such as `spec.ingress[0].ports[1].endPort`.
    pub field: String,
    /// What is wrong with it.
    pub message: String,
    /// What is enforced instead.
    pub instead: Instead,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { policy, field, message, instead, .. } = self;
        write!(f, "{policy}: {field}: {message}; {instead}")
    }
}

impl fmt::Display for Instead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Instead::AllowsNothing => "it lets nothing through until it is corrected",
            Instead::DeniesAll => "the rule denies everything until it is corrected",
            Instead::Strictest => {
                "until it is corrected, the policy covers all pods it could mean, and lets nothing \
                 through to them"
            }
            Instead::LeftOut => "it has no effect",
            Instead::FormerStays => "until there is room, what it said before stays in force",
            Instead::Closes => {
                "until there is room, nothing passes to or from the pods it is about, in its directions"
            }
        })
    }
}

/// A policy with what could not be understood of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// What is enforced.
    pub policy: Policy,
    /// What is not enforced as written.
    pub reports: Vec<Report>,
}

/// Collects what is not understood while one object is read.
#[derive(Debug)]
pub(crate) struct Reader {
    pub(crate) key: PolicyKey,
    pub(crate) reports: Vec<Report>,
}

impl Reader {
    pub(crate) fn new(key: PolicyKey) -> Self {
        Reader { key, reports: Vec::new() }
    }

    /// Notes a part that is not understood.
    pub(crate) fn note(&mut self, why: (Reason, Instead), field: &str, message: impl fmt::Display) {
        self.reports.push(Report {
            policy: self.key.clone(),
            reason: why.0,
            field: field.to_owned(),
            message: message.to_string(),
            instead: why.1,
        });
    }
}
