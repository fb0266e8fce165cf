//! The compiled form: what the kernel's maps hold, as values.
//!
//! A packet is decided by four lookups of bounded cost in each direction:
//! `endpoints` (network, address) → identity, or `outside` by longest prefix where no pod has the
//! address; `identities` → the subject's set of rules; `peers` (set, identity of the other end) →
//! column; `ports` (column, protocol, port) by longest prefix → verdict.
//!
//! The rule kept here: tables are written whole changes at a time, and a change says what to put
//! before what to take away.

use std::collections::BTreeMap;
use std::net::IpAddr;

use atoll_types::{Cidr, NetAddr};

use crate::decision::{Decision, Explanation, Verdict};
use crate::facts::Protocol;
use crate::policy::{Direction, PolicyKey, RulePlace, Tier};
use crate::ports::PortPrefix;

/// One map of the kernel: what it holds, and what it held before the change under way.
#[derive(Clone, Debug)]
pub struct Table<K, V> {
    now: BTreeMap<K, V>,
    before: BTreeMap<K, Option<V>>,
}

/// What a change does to one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit<K, V> {
    /// What is new or other than before.
    pub put: Vec<(K, V)>,
    /// What is gone.
    pub removed: Vec<K>,
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Table { now: BTreeMap::new(), before: BTreeMap::new() }
    }
}

impl<K: Ord + Clone, V: Clone + PartialEq> Table<K, V> {
    /// What stands under `key`.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.now.get(key)
    }

    /// Every entry.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.now.iter()
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.now.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.now.is_empty()
    }

    pub(crate) fn put(&mut self, key: K, value: V) {
        let before = self.now.insert(key.clone(), value);
        self.before.entry(key).or_insert(before);
    }

    pub(crate) fn remove(&mut self, key: &K) {
        let before = self.now.remove(key);
        self.before.entry(key.clone()).or_insert(before);
    }

    /// What changed since the last edit.
    fn edit(&mut self) -> Edit<K, V> {
        let mut edit = Edit { put: Vec::new(), removed: Vec::new() };
        for (key, before) in std::mem::take(&mut self.before) {
            match (before, self.now.get(&key)) {
                (Some(_), None) => edit.removed.push(key),
                (before, Some(now)) if before.as_ref() != Some(now) => {
                    edit.put.push((key, now.clone()));
                }
                _ => {}
            }
        }
        edit
    }
}

impl<K, V> Edit<K, V> {
    /// How many entries it touches.
    pub fn len(&self) -> usize {
        self.put.len() + self.removed.len()
    }

    /// Whether it touches none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What an identity is for the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdentityEntry {
    /// The tenant's number. Ends of two tenants never meet.
    pub tenant: u32,
    /// The set of rules for traffic to it; 0 for none.
    pub ingress: u32,
    /// The set of rules for traffic from it; 0 for none.
    pub egress: u32,
}

/// Key of addresses that are no pod's, by longest prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OutsideKey {
    /// The number of the tenant whose policies name the range.
    pub tenant: u32,
    /// The range.
    pub range: Cidr,
}

/// Key of a column: a set of rules, and the identity of the other end (0: every other).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PeerKey {
    /// The set of rules.
    pub set: u32,
    /// The identity of the other end.
    pub identity: u32,
}

/// Key of a verdict. Compared bits go column, protocol, port: one longest-prefix lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PortKey {
    /// The column.
    pub column: u32,
    /// The protocol: absent for every protocol that has no entry of its own.
    pub protocol: Option<Protocol>,
    /// The ports.
    pub ports: PortPrefix,
}

/// What is known of a rule by its number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RuleName {
    /// The tier it stands in.
    pub tier: Tier,
    /// The policy it belongs to.
    pub policy: PolicyKey,
    /// The direction.
    pub direction: Direction,
    /// The rule: absent where the policy denies what none of its rules allows.
    pub rule: Option<RulePlace>,
}

/// A pod's identity and what it is subject to, where a pod is there.
type End = Option<(u32, IdentityEntry)>;

/// All that the kernel needs to decide.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    /// The identity of each address of a pod.
    pub endpoints: Table<NetAddr, u32>,
    /// The identity of addresses that are no pod's.
    pub outside: Table<OutsideKey, u32>,
    /// What each identity is subject to.
    pub identities: Table<u32, IdentityEntry>,
    /// Which column of a set an identity reads.
    pub peers: Table<PeerKey, u32>,
    /// The verdicts of each column.
    pub ports: Table<PortKey, Verdict>,
    /// The names behind the numbers of rules.
    pub rules: Table<u32, RuleName>,
}

/// What one event changes. Applied in the order of the fields, first every `put`, then, in the
/// opposite order, every `removed`: at no moment does an entry point at nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes {
    /// Names of rules.
    pub rules: Edit<u32, RuleName>,
    /// Verdicts.
    pub ports: Edit<PortKey, Verdict>,
    /// Columns of sets.
    pub peers: Edit<PeerKey, u32>,
    /// What identities are subject to.
    pub identities: Edit<u32, IdentityEntry>,
    /// Identities of addresses that are no pod's.
    pub outside: Edit<OutsideKey, u32>,
    /// Identities of addresses of pods.
    pub endpoints: Edit<NetAddr, u32>,
}

impl Changes {
    /// How many entries are touched.
    pub fn len(&self) -> usize {
        self.rules.len()
            + self.ports.len()
            + self.peers.len()
            + self.identities.len()
            + self.outside.len()
            + self.endpoints.len()
    }

    /// Whether nothing is touched.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Tables {
    /// How many entries all tables have.
    pub fn len(&self) -> usize {
        let pointed = self.endpoints.len() + self.outside.len() + self.identities.len();
        pointed + self.peers.len() + self.ports.len() + self.rules.len()
    }

    /// Whether nothing is there.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn changes(&mut self) -> Changes {
        Changes {
            rules: self.rules.edit(),
            ports: self.ports.edit(),
            peers: self.peers.edit(),
            identities: self.identities.edit(),
            outside: self.outside.edit(),
            endpoints: self.endpoints.edit(),
        }
    }

    /// What becomes of traffic, by the lookups that the kernel does. An address that is no pod's is
    /// only seen inside the network that the packet is in; so is a pod of another tenant, as an
    /// address and no more.
    pub fn explain(
        &self,
        from: NetAddr,
        to: NetAddr,
        protocol: Protocol,
        port: u16,
    ) -> Explanation {
        let (sender, receiver) = (self.endpoint(from), self.endpoint(to));
        match (sender, receiver) {
            (None, None) => return Explanation::both(Decision::Unknown),
            (Some((_, a)), Some((_, b))) if a.tenant != b.tenant && from.network != to.network => {
                return Explanation::both(Decision::AnotherTenant);
            }
            (Some(_), None) | (None, Some(_)) if from.network != to.network => {
                return Explanation::both(Decision::Unknown);
            }
            _ => {}
        }
        let name_for = |tenant: u32, other: End, address: NetAddr| match other {
            Some((number, entry)) if entry.tenant == tenant => number,
            _ => self.identity_outside(tenant, address.ip),
        };
        let decide = |set: u32, other: u32| {
            let decision = self.decide(set, other, (protocol, port));
            if from == to { decision.beyond_network_policy(Decision::Itself) } else { decision }
        };
        let egress =
            |(_, own): (u32, IdentityEntry)| decide(own.egress, name_for(own.tenant, receiver, to));
        let ingress = |(_, own): (u32, IdentityEntry)| {
            decide(own.ingress, name_for(own.tenant, sender, from))
        };
        Explanation {
            egress: sender.map_or(Decision::NoPolicy, egress),
            ingress: receiver.map_or(Decision::NoPolicy, ingress),
        }
    }

    fn endpoint(&self, address: NetAddr) -> End {
        let identity = *self.endpoints.get(&address)?;
        Some((identity, *self.identities.get(&identity)?))
    }

    /// The identity of an address that is no pod's, seen by a tenant; 0 where no policy names it.
    pub(crate) fn identity_outside(&self, tenant: u32, ip: IpAddr) -> u32 {
        let of_tenant = self.outside.iter().filter(|(key, _)| key.tenant == tenant);
        let holding = of_tenant.filter(|(key, _)| key.range.contains(ip));
        let longest = holding.max_by_key(|(key, _)| key.range.prefix_len());
        longest.map_or(0, |(_, identity)| *identity)
    }

    fn decide(&self, set: u32, other: u32, wanted: (Protocol, u16)) -> Decision {
        if set == 0 {
            return Decision::NoPolicy;
        }
        let column = self.column(set, other);
        let Some(verdict) = column.and_then(|column| self.verdict(column, wanted)) else {
            return Decision::Unknown;
        };
        self.named(verdict)
    }

    fn column(&self, set: u32, identity: u32) -> Option<u32> {
        let own = self.peers.get(&PeerKey { set, identity });
        own.or_else(|| self.peers.get(&PeerKey { set, identity: 0 })).copied()
    }

    fn verdict(&self, column: u32, (protocol, port): (Protocol, u16)) -> Option<Verdict> {
        let own = (0..=16_u8).rev().map(|bits| PortKey {
            column,
            protocol: Some(protocol),
            ports: PortPrefix::around(port, bits),
        });
        let any = PortKey { column, protocol: None, ports: PortPrefix { port: 0, bits: 0 } };
        own.chain([any]).find_map(|key| self.ports.get(&key)).copied()
    }

    fn named(&self, verdict: Verdict) -> Decision {
        match self.rules.get(&verdict.rule) {
            None if verdict.accept => Decision::NoPolicy,
            None => Decision::Unknown,
            Some(name) => Decision::Ruled { accept: verdict.accept, by: name.clone() },
        }
    }
}
