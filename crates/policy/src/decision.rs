//! What was decided about traffic, and who decided it.
//!
//! The rule kept here: every acceptance and every denial has a name.

use std::fmt;

use crate::policy::Tier;
use crate::tables::RuleName;

/// What the kernel reads for a port: whether it passes, and the number of the rule that says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Verdict {
    /// Whether traffic passes.
    pub accept: bool,
    /// The tier that decided: absent where no policy did.
    pub tier: Option<Tier>,
    /// The rule's number; 0 where no policy decided.
    pub rule: u32,
}

/// What one end decides about traffic.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Decision {
    /// No policy is about it: it passes.
    NoPolicy,
    /// A rule of a policy says so.
    Ruled {
        /// Whether it passes.
        accept: bool,
        /// The rule.
        by: RuleName,
    },
    /// A pod reaches itself, whatever its `NetworkPolicy` says.
    Itself,
    /// A node reaches the pods that run on it, whatever their `NetworkPolicy` says.
    OwnNode,
    /// The ends belong to two tenants: it does not pass.
    AnotherTenant,
    /// Nothing is known of the address: it does not pass.
    Unknown,
}

impl Decision {
    /// Whether traffic passes.
    pub fn accepts(&self) -> bool {
        match self {
            Decision::NoPolicy | Decision::Itself | Decision::OwnNode => true,
            Decision::Ruled { accept, .. } => *accept,
            Decision::AnotherTenant | Decision::Unknown => false,
        }
    }

    /// The same for traffic in which a `NetworkPolicy` has no say: that of a pod to itself, also
    /// through a service, and that of its own node. Administrators have a say in both.
    pub(crate) fn beyond_network_policy(self, instead: Decision) -> Self {
        match &self {
            Decision::Ruled { by, .. } if by.tier == Tier::NetworkPolicy => instead,
            _ => self,
        }
    }

    /// The tier that decided.
    pub fn tier(&self) -> Option<Tier> {
        self.rule().map(|by| by.tier)
    }

    /// The rule that decided.
    pub fn rule(&self) -> Option<&RuleName> {
        match self {
            Decision::Ruled { by, .. } => Some(by),
            _ => None,
        }
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Decision::NoPolicy => f.write_str("accepted: no policy is about it"),
            Decision::Itself => f.write_str("accepted: a pod reaches itself"),
            Decision::OwnNode => f.write_str("accepted: the pod's own node"),
            Decision::AnotherTenant => f.write_str("denied: the other end is of another tenant"),
            Decision::Unknown => f.write_str("denied: nothing is known of the address"),
            Decision::Ruled { accept, by } => {
                let verb = if *accept { "accepted" } else { "denied" };
                write!(f, "{verb} by {by}")
            }
        }
    }
}

impl fmt::Display for RuleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RuleName { tier, policy, direction, rule } = self;
        match rule {
            Some(place) => write!(f, "{tier} {policy} {direction}[{}]", place.index)?,
            None => write!(f, "{tier} {policy}: no {direction} rule allows it")?,
        }
        match rule.as_ref().and_then(|place| place.name.as_ref()) {
            Some(name) => write!(f, " ({name})"),
            None => Ok(()),
        }
    }
}

/// What both ends decide.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Explanation {
    /// The sender's side.
    pub egress: Decision,
    /// The receiver's side.
    pub ingress: Decision,
}

impl Explanation {
    /// Both ends decide the same.
    pub(crate) fn both(decision: Decision) -> Self {
        Explanation { egress: decision.clone(), ingress: decision }
    }

    /// Whether traffic passes: both ends must accept it.
    pub fn accepts(&self) -> bool {
        self.egress.accepts() && self.ingress.accepts()
    }

    /// The decision to name: the first denial on the packet's way, else an acceptance by a rule, the
    /// receiver's before the sender's.
    pub fn decision(&self) -> &Decision {
        let sender_decides =
            !self.egress.accepts() || self.ingress.accepts() && self.ingress.rule().is_none();
        if sender_decides { &self.egress } else { &self.ingress }
    }
}
