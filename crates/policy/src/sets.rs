//! Sets of rules: what a pod is subject to in one direction, written into the tables.
//!
//! The rule kept here: a set is built whole before an identity points at it, and is never changed
//! but for rows of identities that come and go.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use atoll_types::Label;

use crate::column::{Canvas, Column, matched};
use crate::decision::Verdict;
use crate::facts::NamedPort;
use crate::identity::Test;
use crate::numbers::Numbers;
use crate::policy::{Action, Direction, Policy, Rule, Tier};
use crate::ports::PortMatch;
use crate::tables::{PeerKey, PortKey, RuleName, Tables};

/// What makes two sets the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SetKey {
    pub(crate) tenant: Label,
    pub(crate) direction: Direction,
    /// Revisions of the policies, in the order of evaluation.
    pub(crate) policies: Vec<u64>,
    /// The receiving pods' ports that the rules name; of no concern for egress.
    pub(crate) names: BTreeSet<NamedPort>,
}

/// A set in use.
#[derive(Clone, Debug)]
pub(crate) struct RuleSet {
    pub(crate) key: SetKey,
    policies: Vec<SetPolicy>,
    /// The tests that its rules do, by number.
    pub(crate) tests: BTreeSet<u32>,
    other: u32,
    rows: BTreeMap<u32, u32>,
}

#[derive(Clone, Debug)]
struct SetPolicy {
    policy: Arc<Policy>,
    /// For each rule: the tests of which one must find the peer; absent for anybody.
    tests: Vec<Option<BTreeSet<u32>>>,
}

/// The other end, as a set sees it: the tests that find it, and its named ports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OtherEnd<'a> {
    pub(crate) found_by: &'a BTreeSet<u32>,
    pub(crate) ports: &'a BTreeSet<NamedPort>,
}

/// The numbers of columns and rules, shared by all tenants, and the tables they are written to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ink {
    pub(crate) tables: Tables,
    pub(crate) columns: Numbers<Column>,
    pub(crate) rules: Numbers<RuleName>,
    /// How many columns were worked out.
    pub(crate) columns_made: u64,
}

/// The tests that a rule needs in order to be evaluated.
pub(crate) fn tests_of(rule: &Rule, direction: Direction) -> (Option<Vec<Test>>, Vec<Test>) {
    let peers = rule.peers.as_ref().map(|peers| peers.iter().map(Test::from).collect());
    let named = rule.ports.iter().flatten().filter_map(|port| match port {
        PortMatch::Named(_, name) => Some(Test::PortName(name.clone())),
        PortMatch::Numbers(..) => None,
    });
    let by_name = peers.is_none() && direction == Direction::Egress;
    (peers, if by_name { named.collect() } else { Vec::new() })
}

impl RuleSet {
    /// A set with no rows yet. `number` gives each test its number.
    pub(crate) fn new(
        key: SetKey,
        policies: &[Arc<Policy>],
        mut number: impl FnMut(&Test) -> u32,
    ) -> Self {
        let mut tests = BTreeSet::new();
        let mut listed = Vec::new();
        for policy in policies {
            let mut of_rules = Vec::new();
            for rule in policy.rules(key.direction).unwrap_or_default() {
                let (peers, by_name) = tests_of(rule, key.direction);
                let peers: Option<BTreeSet<u32>> =
                    peers.map(|peers| peers.iter().map(&mut number).collect());
                tests.extend(by_name.iter().map(&mut number));
                tests.extend(peers.iter().flatten());
                of_rules.push(peers);
            }
            listed.push(SetPolicy { policy: policy.clone(), tests: of_rules });
        }
        RuleSet { key, policies: listed, tests, other: 0, rows: BTreeMap::new() }
    }

    /// Writes the column of everybody whom no test finds.
    pub(crate) fn write_other(&mut self, set: u32, ink: &mut Ink) {
        let none = OtherEnd { found_by: &BTreeSet::new(), ports: &BTreeSet::new() };
        self.other = self.column(none, ink);
        ink.tables.peers.put(PeerKey { set, identity: 0 }, self.other);
    }

    /// Writes the row of an identity, or takes it away where it is like everybody's.
    pub(crate) fn write(&mut self, set: u32, identity: u32, other: OtherEnd<'_>, ink: &mut Ink) {
        let column = self.column(other, ink);
        self.erase(set, identity, ink);
        if column == self.other {
            ink.release_column(column);
        } else {
            self.rows.insert(identity, column);
            ink.tables.peers.put(PeerKey { set, identity }, column);
        }
    }

    /// Takes an identity's row away.
    pub(crate) fn erase(&mut self, set: u32, identity: u32, ink: &mut Ink) {
        if let Some(column) = self.rows.remove(&identity) {
            ink.tables.peers.remove(&PeerKey { set, identity });
            ink.release_column(column);
        }
    }

    /// Takes everything of the set away.
    pub(crate) fn erase_all(mut self, set: u32, ink: &mut Ink) {
        for identity in self.rows.keys().copied().collect::<Vec<_>>() {
            self.erase(set, identity, ink);
        }
        ink.tables.peers.remove(&PeerKey { set, identity: 0 });
        ink.release_column(self.other);
    }

    fn column(&self, other: OtherEnd<'_>, ink: &mut Ink) -> u32 {
        let canvas = self.paint(other);
        ink.hold_column(&canvas)
    }

    /// The policies' rules, tier by tier, painted for one peer.
    fn paint(&self, other: OtherEnd<'_>) -> Canvas<Ruling> {
        let mut canvas = Canvas::new();
        for tier in Tier::ALL {
            let of_tier = || self.policies.iter().filter(|listed| listed.policy.tier == tier);
            for listed in of_tier() {
                self.paint_policy(&mut canvas, listed, other);
            }
            canvas.end_tier();
            if let (Tier::NetworkPolicy, Some(first)) = (tier, of_tier().next()) {
                canvas.rest(&self.ruling(&first.policy, None));
            }
        }
        canvas.rest(&Ruling { accept: true, by: None });
        canvas
    }

    fn paint_policy(&self, canvas: &mut Canvas<Ruling>, listed: &SetPolicy, other: OtherEnd<'_>) {
        let names = match self.key.direction {
            Direction::Ingress => &self.key.names,
            Direction::Egress => other.ports,
        };
        let rules = listed.policy.rules(self.key.direction).unwrap_or_default();
        for (rule, tests) in rules.iter().zip(&listed.tests) {
            let found = tests.as_ref().is_none_or(|tests| !tests.is_disjoint(other.found_by));
            if found {
                let parts = matched(rule.ports.as_deref(), names);
                canvas.rule(rule.action, &self.ruling(&listed.policy, Some(rule)), &parts);
            }
        }
    }

    fn ruling(&self, policy: &Policy, rule: Option<&Rule>) -> Ruling {
        let name = RuleName {
            tier: policy.tier,
            policy: policy.key.clone(),
            direction: self.key.direction,
            rule: rule.map(|rule| rule.place.clone()),
        };
        let accept = rule.is_some_and(|rule| rule.action == Action::Accept);
        Ruling { accept, by: Some(name) }
    }
}

/// What a rule says, before it has a number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ruling {
    accept: bool,
    by: Option<RuleName>,
}

impl Ink {
    /// Holds the column that a canvas shows, and writes it where it is new.
    fn hold_column(&mut self, canvas: &Canvas<Ruling>) -> u32 {
        self.columns_made += 1;
        let rulings = canvas.dry();
        let numbered: BTreeMap<&Ruling, u32> = rulings
            .iter()
            .filter_map(|ruling| Some((*ruling, self.rules.hold(ruling.by.as_ref()?).0)))
            .collect();
        let column = canvas.column(|ruling| Verdict {
            accept: ruling.accept,
            tier: ruling.by.as_ref().map(|name| name.tier),
            rule: numbered.get(ruling).copied().unwrap_or(0),
        });
        let (number, new) = self.columns.hold(&column);
        if new {
            self.write_column(number, &column, &numbered);
        } else {
            for rule in numbered.into_values() {
                self.rules.release(rule);
            }
        }
        number
    }

    fn write_column(&mut self, number: u32, column: &Column, rules: &BTreeMap<&Ruling, u32>) {
        for (ruling, rule) in rules {
            if let Some(name) = &ruling.by {
                self.tables.rules.put(*rule, name.clone());
            }
        }
        for ((protocol, ports), verdict) in &column.0 {
            let key = PortKey { column: number, protocol: *protocol, ports: *ports };
            self.tables.ports.put(key, *verdict);
        }
    }

    fn release_column(&mut self, number: u32) {
        let Some(Column(entries)) = self.columns.release(number) else { return };
        for (protocol, ports) in entries.keys() {
            let key = PortKey { column: number, protocol: *protocol, ports: *ports };
            self.tables.ports.remove(&key);
        }
        let rules: BTreeSet<u32> = entries.values().map(|verdict| verdict.rule).collect();
        for rule in rules {
            if self.rules.release(rule).is_some() {
                self.tables.rules.remove(&rule);
            }
        }
    }
}
