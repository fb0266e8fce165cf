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
use crate::room::Room;
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
    /// What rules can say, so that a canvas holds small numbers.
    rulings: Vec<Ruling>,
    /// The names of ports by which egress rules ask.
    port_names: BTreeSet<String>,
    patterns: BTreeMap<Pattern, Painted>,
    rows: BTreeMap<u32, Pattern>,
    /// How many entries all its columns have.
    verdicts: usize,
}

#[derive(Clone, Debug)]
struct SetPolicy {
    policy: Arc<Policy>,
    /// For each rule: the tests of which one must find the peer; absent for anybody.
    tests: Vec<Option<BTreeSet<u32>>>,
    /// Where the rulings of its rules begin; the one before it is its denial of all the rest.
    first_ruling: usize,
}

/// What a set can tell of a peer. Peers with one pattern have one column, which is painted once.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Pattern {
    found_by: BTreeSet<u32>,
    ports: BTreeSet<NamedPort>,
}

#[derive(Clone, Copy, Debug)]
struct Painted {
    column: u32,
    rows: usize,
    /// How many entries the column has.
    verdicts: usize,
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

/// The tests that a rule needs in order to be evaluated: those of its peers, and those that find
/// pods with the ports that it calls by name where anybody is its peer.
fn tests_of(rule: &Rule, direction: Direction) -> (Option<Vec<Test>>, Vec<Test>) {
    let peers = rule.peers.as_ref().map(|peers| peers.iter().map(Test::from).collect());
    let by_name = peers.is_none() && direction == Direction::Egress;
    let named = rule.port_names().filter(|_| by_name).cloned().map(Test::PortName);
    (peers, named.collect())
}

impl RuleSet {
    /// A set with no rows yet. `number` gives each test its number.
    pub(crate) fn new(
        key: SetKey,
        policies: &[Arc<Policy>],
        mut number: impl FnMut(&Test) -> u32,
    ) -> Self {
        let mut set = RuleSet {
            key,
            policies: Vec::new(),
            tests: BTreeSet::new(),
            rulings: vec![Ruling { accept: true, by: None }],
            port_names: BTreeSet::new(),
            patterns: BTreeMap::new(),
            rows: BTreeMap::new(),
            verdicts: 0,
        };
        for policy in policies {
            set.list(policy, &mut number);
        }
        set
    }

    fn list(&mut self, policy: &Arc<Policy>, number: &mut impl FnMut(&Test) -> u32) {
        let direction = self.key.direction;
        self.rulings.push(ruling(policy, direction, None));
        let first_ruling = self.rulings.len();
        let mut tests = Vec::new();
        for rule in policy.rules(direction).unwrap_or_default() {
            let (peers, by_name) = tests_of(rule, direction);
            let peers: Option<BTreeSet<u32>> =
                peers.map(|peers| peers.iter().map(&mut *number).collect());
            self.tests.extend(by_name.iter().map(&mut *number));
            self.tests.extend(peers.iter().flatten());
            self.port_names.extend(rule.port_names().cloned());
            self.rulings.push(ruling(policy, direction, Some(rule)));
            tests.push(peers);
        }
        self.policies.push(SetPolicy { policy: policy.clone(), tests, first_ruling });
    }

    /// Writes the column of everybody whom no test finds.
    pub(crate) fn write_other(&mut self, set: u32, ink: &mut Ink) {
        let other = self.hold(Pattern::default(), ink);
        ink.tables.peers.put(PeerKey { set, identity: 0 }, other);
    }

    /// Writes the row of an identity, once: when the set or the identity begins. One that is like
    /// everybody's needs none.
    pub(crate) fn write(&mut self, set: u32, identity: u32, other: OtherEnd<'_>, ink: &mut Ink) {
        let pattern = self.pattern(other);
        let column = self.hold(pattern.clone(), ink);
        let like_others = self.patterns.get(&Pattern::default()).map(|painted| painted.column);
        if like_others == Some(column) {
            self.release(&pattern, ink);
        } else {
            self.rows.insert(identity, pattern);
            ink.tables.peers.put(PeerKey { set, identity }, column);
        }
    }

    /// Takes an identity's row away.
    pub(crate) fn erase(&mut self, set: u32, identity: u32, ink: &mut Ink) {
        if let Some(pattern) = self.rows.remove(&identity) {
            ink.tables.peers.remove(&PeerKey { set, identity });
            self.release(&pattern, ink);
        }
    }

    /// Takes everything of the set away.
    pub(crate) fn erase_all(mut self, set: u32, ink: &mut Ink) {
        for identity in self.rows.keys().copied().collect::<Vec<_>>() {
            self.erase(set, identity, ink);
        }
        ink.tables.peers.remove(&PeerKey { set, identity: 0 });
        self.release(&Pattern::default(), ink);
    }

    /// What it takes of the kernel's tables: a row for each identity and one for everybody else, and
    /// the verdicts of their columns.
    pub(crate) fn weight(&self) -> Room {
        Room { peers: self.rows.len() + 1, ports: self.verdicts, ..Room::default() }
    }

    fn pattern(&self, other: OtherEnd<'_>) -> Pattern {
        let asked = |port: &&NamedPort| self.port_names.contains(&port.name);
        Pattern {
            found_by: other.found_by.intersection(&self.tests).copied().collect(),
            ports: other.ports.iter().filter(asked).cloned().collect(),
        }
    }

    /// Holds the column of a pattern, and paints it where it is the first of its kind.
    fn hold(&mut self, pattern: Pattern, ink: &mut Ink) -> u32 {
        if let Some(painted) = self.patterns.get_mut(&pattern) {
            painted.rows += 1;
            return painted.column;
        }
        let canvas = self.paint(&pattern);
        let (column, verdicts) = ink.hold_column(&canvas, &self.rulings);
        self.verdicts += verdicts;
        self.patterns.insert(pattern, Painted { column, rows: 1, verdicts });
        column
    }

    fn release(&mut self, pattern: &Pattern, ink: &mut Ink) {
        let Some(painted) = self.patterns.get_mut(pattern) else { return };
        painted.rows -= 1;
        if painted.rows == 0 {
            ink.release_column(painted.column);
            self.verdicts -= painted.verdicts;
            self.patterns.remove(pattern);
        }
    }

    /// The policies' rules, tier by tier, painted for one pattern.
    fn paint(&self, other: &Pattern) -> Canvas<usize> {
        let mut canvas = Canvas::new();
        for tier in Tier::ALL {
            let of_tier = || self.policies.iter().filter(|listed| listed.policy.tier == tier);
            for listed in of_tier() {
                self.paint_policy(&mut canvas, listed, other);
            }
            canvas.end_tier();
            if let (Tier::NetworkPolicy, Some(first)) = (tier, of_tier().next()) {
                canvas.rest(&(first.first_ruling - 1));
            }
        }
        canvas.rest(&0);
        canvas
    }

    fn paint_policy(&self, canvas: &mut Canvas<usize>, listed: &SetPolicy, other: &Pattern) {
        let names = match self.key.direction {
            Direction::Ingress => &self.key.names,
            Direction::Egress => &other.ports,
        };
        let rules = listed.policy.rules(self.key.direction).unwrap_or_default();
        for (at, (rule, tests)) in rules.iter().zip(&listed.tests).enumerate() {
            let found = tests.as_ref().is_none_or(|tests| !tests.is_disjoint(&other.found_by));
            if found {
                let parts = matched(rule.ports.as_deref(), names);
                canvas.rule(rule.action, &(listed.first_ruling + at), &parts);
            }
        }
    }
}

fn ruling(policy: &Policy, direction: Direction, rule: Option<&Rule>) -> Ruling {
    let name = RuleName {
        tier: policy.tier,
        policy: policy.key.clone(),
        direction,
        rule: rule.map(|rule| rule.place.clone()),
    };
    let accept = rule.is_some_and(|rule| rule.action == Action::Accept);
    Ruling { accept, by: Some(name) }
}

/// What a rule says, before it has a number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ruling {
    accept: bool,
    by: Option<RuleName>,
}

impl Ink {
    /// Holds the column that a canvas shows, and writes it where it is new. Says how many entries it
    /// has.
    fn hold_column(&mut self, canvas: &Canvas<usize>, rulings: &[Ruling]) -> (u32, usize) {
        self.columns_made += 1;
        let numbered: BTreeMap<usize, u32> = canvas
            .dry()
            .into_iter()
            .filter_map(|at| Some((*at, self.rules.hold(rulings.get(*at)?.by.as_ref()?).0)))
            .collect();
        let column = canvas.column(|at| {
            let ruling = rulings.get(*at);
            Verdict {
                accept: ruling.is_some_and(|ruling| ruling.accept),
                tier: ruling.and_then(|ruling| ruling.by.as_ref()).map(|name| name.tier),
                rule: numbered.get(at).copied().unwrap_or(0),
            }
        });
        let (number, new) = self.columns.hold(&column);
        if new {
            self.write_column(number, &column);
        }
        for rule in numbered.into_values().filter(|_| !new) {
            self.rules.release(rule);
        }
        (number, column.0.len())
    }

    fn write_column(&mut self, number: u32, column: &Column) {
        for ((protocol, ports), verdict) in &column.0 {
            if let Some(name) = self.rules.key(verdict.rule) {
                self.tables.rules.put(verdict.rule, name.clone());
            }
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
