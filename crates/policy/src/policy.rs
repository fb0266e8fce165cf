//! A policy as Atoll understands it: whichever API object it was written as, it has a tier, a
//! subject, and ordered rules.
//!
//! The rule kept here: "any" and "none" are two things. A list that is absent matches everything, a
//! list that is empty matches nothing.

use std::collections::BTreeSet;
use std::fmt;

use atoll_types::{Cidr, Label};

use crate::ports::PortMatch;
use crate::selector::Selector;

/// Which policies are asked first. The order of the variants is the order of evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// The cluster's administrators, before all others.
    ClusterAdmin,
    /// The tenant's own administrators.
    TenantAdmin,
    /// `NetworkPolicy`: decides for every pod that one selects.
    NetworkPolicy,
    /// The tenant's own defaults.
    TenantBaseline,
    /// The cluster's defaults.
    ClusterBaseline,
}

impl Tier {
    /// Every tier in the order of evaluation.
    pub const ALL: [Tier; 5] = [
        Tier::ClusterAdmin,
        Tier::TenantAdmin,
        Tier::NetworkPolicy,
        Tier::TenantBaseline,
        Tier::ClusterBaseline,
    ];
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Which way traffic goes, seen from the pod that a policy selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// To the pod.
    Ingress,
    /// From the pod.
    Egress,
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Direction::Ingress { "ingress" } else { "egress" })
    }
}

/// The name of a policy among all policies of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicyKey {
    /// The tenant whose policy it is; a policy of the cluster's administrators has none.
    pub tenant: Option<Label>,
    /// The namespace of a `NetworkPolicy`; a `ClusterNetworkPolicy` has none.
    pub namespace: Option<String>,
    /// The object's name.
    pub name: String,
}

impl PolicyKey {
    /// A `NetworkPolicy` of a tenant.
    pub fn namespaced(tenant: Label, namespace: &str, name: &str) -> Self {
        PolicyKey {
            tenant: Some(tenant),
            namespace: Some(namespace.to_owned()),
            name: name.to_owned(),
        }
    }

    /// A `ClusterNetworkPolicy` of a tenant, or of the cluster.
    pub fn cluster(tenant: Option<Label>, name: &str) -> Self {
        PolicyKey { tenant, namespace: None, name: name.to_owned() }
    }
}

impl fmt::Display for PolicyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// What a rule does with what it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// Let it through.
    Accept,
    /// Drop it.
    Deny,
    /// Ask the next tier.
    Pass,
}

/// Which pods a policy is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subject {
    /// Their namespaces.
    pub namespaces: Namespaces,
    /// Their labels.
    pub pods: Selector,
}

/// Namespaces of a tenant, by name or by labels.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Namespaces {
    /// The one that the policy is in.
    Named(String),
    /// Those with such labels.
    Labelled(Selector),
}

/// The other end of traffic, as a rule describes it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Peer {
    /// Pods of the subject's tenant.
    Pods(Subject),
    /// Addresses, also those of pods.
    Block {
        /// The range.
        cidr: Cidr,
        /// Ranges inside it that do not belong to it.
        except: BTreeSet<Cidr>,
    },
    /// Nodes, by their labels.
    Nodes(Selector),
}

/// One rule of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What it does.
    pub action: Action,
    /// Where it stands in its object, and what the object calls it.
    pub place: RulePlace,
    /// The other end: absent for anybody.
    pub peers: Option<Vec<Peer>>,
    /// The destination ports: absent for all of every protocol.
    pub ports: Option<Vec<PortMatch>>,
}

/// Where a rule is found again in the object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RulePlace {
    /// Its position in the list of its direction, from 0.
    pub index: u16,
    /// The name that a `ClusterNetworkPolicy` may give it.
    pub name: Option<String>,
}

/// A policy, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Its name.
    pub key: PolicyKey,
    /// Its tier.
    pub tier: Tier,
    /// Lower goes first inside a tier. Equal priorities go by name.
    pub priority: u16,
    /// The pods it is about.
    pub subject: Subject,
    /// The networks whose interfaces it is about: absent for the whole pod.
    pub networks: Option<BTreeSet<Label>>,
    /// Rules for traffic to the pods: absent where it has no say.
    pub ingress: Option<Vec<Rule>>,
    /// Rules for traffic from the pods: absent where it has no say.
    pub egress: Option<Vec<Rule>>,
}

impl Policy {
    /// The rules of a direction, where the policy has a say in it.
    pub fn rules(&self, direction: Direction) -> Option<&[Rule]> {
        match direction {
            Direction::Ingress => self.ingress.as_deref(),
            Direction::Egress => self.egress.as_deref(),
        }
    }

    /// Every range that the policy's rules name, with the ranges excepted from them.
    pub(crate) fn ranges(&self) -> BTreeSet<Cidr> {
        self.peers().flat_map(Peer::ranges).collect()
    }

    /// Whether a rule is about nodes.
    pub(crate) fn names_nodes(&self) -> bool {
        self.peers().any(|peer| matches!(peer, Peer::Nodes(_)))
    }

    fn peers(&self) -> impl Iterator<Item = &Peer> {
        let rules = self.ingress.iter().chain(&self.egress).flatten();
        rules.flat_map(|rule| rule.peers.iter().flatten())
    }
}

impl Rule {
    /// The names by which it calls ports.
    pub(crate) fn port_names(&self) -> impl Iterator<Item = &String> {
        self.ports.iter().flatten().filter_map(|port| match port {
            PortMatch::Named(_, name) => Some(name),
            PortMatch::Numbers(..) => None,
        })
    }
}

impl Peer {
    fn ranges(&self) -> Vec<Cidr> {
        match self {
            Peer::Block { cidr, except } => except.iter().copied().chain([*cidr]).collect(),
            Peer::Pods(_) | Peer::Nodes(_) => Vec::new(),
        }
    }
}
