//! Policies, and the sets of rules that they make.
//!
//! The rule kept here: a set is built whole before an identity points at it. Whoever is subject to a
//! policy that has no room is subject to nothing else.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Found, Installed, Rank, Shared, Tenant, remove_from};
use crate::facts::NamedPort;
use crate::identity::{Identity, Test};
use crate::policy::{Direction, Namespaces, Policy, Rule, Subject};
use crate::sets::{RuleSet, SetKey};
use crate::tables::IdentityEntry;

const DIRECTIONS: [Direction; 2] = [Direction::Ingress, Direction::Egress];

impl Tenant {
    pub(super) fn withdraw(&mut self, rank: &Rank) -> Option<Installed> {
        let old = self.policies.remove(rank)?;
        self.ranks.remove(&old.policy.key);
        remove_from(&mut self.policies_in, &home(&old.policy), rank);
        Some(old)
    }

    pub(super) fn free_subjects(&mut self, subjects: BTreeSet<u32>, rank: &Rank) -> BTreeSet<u32> {
        for identity in &subjects {
            if let Some(live) = self.live.get_mut(identity) {
                live.subject_of.remove(rank);
            }
        }
        subjects
    }

    /// Puts a policy in force, and says whom it is about.
    pub(super) fn enact(&mut self, shared: &mut Shared, new: &Installed) -> BTreeSet<u32> {
        let policy = &new.policy;
        let rank = (policy.tier, policy.priority, policy.key.clone());
        let home = home(policy);
        self.ranks.insert(policy.key.clone(), rank.clone());
        self.policies.insert(rank.clone(), new.clone());
        let candidates: Vec<u32> = match &home {
            Some(namespace) => self.live_in.get(namespace).into_iter().flatten().copied().collect(),
            None => self.live.keys().copied().collect(),
        };
        self.policies_in.entry(home).or_default().insert(rank.clone());
        let about = |number: &u32| {
            shared.tests_done += 1;
            shared.identities.key(*number).is_some_and(|identity| identity.is_subject_of(policy))
        };
        let subjects: BTreeSet<u32> = candidates.into_iter().filter(about).collect();
        for number in &subjects {
            if let Some(live) = self.live.get_mut(number) {
                live.subject_of.insert(rank.clone());
            }
        }
        if !subjects.is_empty() {
            self.subjects.insert(rank, subjects.clone());
        }
        subjects
    }

    /// Points an identity at the sets of rules it is subject to now.
    pub(super) fn reseat(&mut self, shared: &mut Shared, number: u32) {
        let sets = DIRECTIONS.map(|direction| self.hold_set(shared, number, direction));
        let [ingress, egress] = sets;
        let entry = IdentityEntry { tenant: self.number, ingress, egress };
        shared.ink.tables.identities.put(number, entry);
        let Some(live) = self.live.get_mut(&number) else { return };
        for set in std::mem::replace(&mut live.sets, sets) {
            self.release_set(shared, set);
        }
    }

    /// Holds the set that an identity is subject to, and builds it where nobody has it yet.
    fn hold_set(&mut self, shared: &mut Shared, number: u32, direction: Direction) -> u32 {
        let ranks = self.live.get(&number).into_iter().flat_map(|live| &live.subject_of);
        let installed = ranks.filter_map(|rank| self.policies.get(rank));
        let mut speaking: Vec<&Installed> =
            installed.filter(|found| found.policy.rules(direction).is_some()).collect();
        if let Some(closed) = speaking.iter().find(|found| found.is_closed).copied() {
            speaking = vec![closed];
        }
        if speaking.is_empty() {
            return 0;
        }
        let policies: Vec<Arc<Policy>> =
            speaking.iter().map(|found| found.policy.clone()).collect();
        let names = match (direction, shared.identities.key(number).and_then(Identity::profile)) {
            (Direction::Ingress, Some(profile)) => names_asked(&policies, &profile.ports),
            _ => BTreeSet::new(),
        };
        let key = SetKey {
            tenant: self.name.clone(),
            direction,
            policies: speaking.iter().map(|found| found.revision).collect(),
            names,
        };
        let (set, new) = shared.sets.hold(&key);
        if new {
            self.build_set(shared, set, key, &policies);
        }
        set
    }

    fn build_set(&mut self, shared: &mut Shared, set: u32, key: SetKey, policies: &[Arc<Policy>]) {
        let mut held = BTreeSet::new();
        let mut new = Vec::new();
        let mut rules = RuleSet::new(key, policies, |test| {
            if let Some(number) = self.tests.find(test).filter(|number| held.contains(number)) {
                return number;
            }
            let (number, fresh) = self.tests.hold(test);
            held.insert(number);
            if fresh {
                new.push(number);
            }
            number
        });
        rules.write_other(set, &mut shared.ink);
        for test in new {
            self.begin_test(shared, test);
        }
        let mut rows = BTreeSet::new();
        for test in &held {
            let found = self.found.entry(*test).or_default();
            found.sets.insert(set);
            rows.extend(found.identities.iter().copied());
        }
        self.weight += rules.weight();
        self.sets.insert(set, rules);
        for identity in rows {
            self.write_row(shared, set, identity);
        }
    }

    pub(super) fn release_set(&mut self, shared: &mut Shared, set: u32) {
        if set == 0 || shared.sets.release(set).is_none() {
            return;
        }
        let Some(rules) = self.sets.remove(&set) else { return };
        self.weight -= rules.weight();
        for test in &rules.tests {
            if let Some(found) = self.found.get_mut(test) {
                found.sets.remove(&set);
            }
            if let Some(gone) = self.tests.release(*test) {
                self.end_test(*test, &gone);
            }
        }
        rules.erase_all(set, &mut shared.ink);
    }

    /// Finds out once whom a test finds.
    fn begin_test(&mut self, shared: &mut Shared, number: u32) {
        let Some(test) = self.tests.key(number) else { return };
        let namespace = namespace_of(test);
        let candidates: Vec<u32> = match &namespace {
            Some(name) => self.live_in.get(name).into_iter().flatten().copied().collect(),
            None => self.live.keys().copied().collect(),
        };
        let finds = |identity: &u32| {
            shared.tests_done += 1;
            shared.identities.key(*identity).is_some_and(|identity| test.finds(identity))
        };
        let identities: BTreeSet<u32> = candidates.into_iter().filter(finds).collect();
        for identity in &identities {
            if let Some(live) = self.live.get_mut(identity) {
                live.found_by.insert(number);
            }
        }
        self.tests_in.entry(namespace).or_default().insert(number);
        self.found.insert(number, Found { identities, sets: BTreeSet::new() });
    }

    fn end_test(&mut self, number: u32, test: &Test) {
        remove_from(&mut self.tests_in, &namespace_of(test), &number);
        let found = self.found.remove(&number).unwrap_or_default();
        for identity in found.identities {
            if let Some(live) = self.live.get_mut(&identity) {
                live.found_by.remove(&number);
            }
        }
    }
}

/// The namespace that a policy stands in.
fn home(policy: &Policy) -> Option<String> {
    named(&policy.subject)
}

fn namespace_of(test: &Test) -> Option<String> {
    match test {
        Test::Pods(subject) => named(subject),
        Test::Block(..) | Test::Nodes(_) | Test::PortName(_) => None,
    }
}

fn named(subject: &Subject) -> Option<String> {
    match &subject.namespaces {
        Namespaces::Named(name) => Some(name.clone()),
        Namespaces::Labelled(_) => None,
    }
}

/// The ports of a pod that the ingress rules of its policies call by name.
fn names_asked(policies: &[Arc<Policy>], ports: &BTreeSet<NamedPort>) -> BTreeSet<NamedPort> {
    let rules = policies.iter().flat_map(|policy| policy.ingress.iter().flatten());
    let asked: BTreeSet<&String> = rules.flat_map(Rule::port_names).collect();
    ports.iter().filter(|port| asked.contains(&port.name)).cloned().collect()
}
