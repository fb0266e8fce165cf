//! Identities that begin and end: whom tests find, whom policies are about.
//!
//! The rule kept here: a new kind of pod is tested once by each distinct test that can find it.

use std::collections::BTreeSet;

use super::{Live, Rank, Shared, Tenant, remove_from};
use crate::identity::Identity;
use crate::sets::OtherEnd;

impl Tenant {
    pub(super) fn begin(&mut self, shared: &mut Shared, number: u32, identity: &Identity) {
        let namespace = identity.profile().map(|profile| profile.namespace.clone());
        let found_by = self.tests_finding(shared, identity, namespace.as_deref());
        for test in &found_by {
            self.found.entry(*test).or_default().identities.insert(number);
        }
        let ranks = self.ranks_about(identity, namespace.as_deref());
        for rank in &ranks {
            self.subjects.entry(rank.clone()).or_default().insert(number);
        }
        if let Some(namespace) = namespace {
            self.live_in.entry(namespace).or_default().insert(number);
        }
        let asked = self.sets_asking(&found_by);
        self.live.insert(number, Live { found_by, subject_of: ranks, sets: [0, 0] });
        for set in asked {
            self.write_row(shared, set, number);
        }
        self.reseat(shared, number);
    }

    pub(super) fn end(&mut self, shared: &mut Shared, number: u32, identity: &Identity) {
        let Some(live) = self.live.remove(&number) else { return };
        for set in self.sets_asking(&live.found_by) {
            if let Some(rules) = self.sets.get_mut(&set) {
                self.weight -= rules.weight();
                rules.erase(set, number, &mut shared.ink);
                self.weight += rules.weight();
            }
        }
        for test in &live.found_by {
            if let Some(found) = self.found.get_mut(test) {
                found.identities.remove(&number);
            }
        }
        for rank in &live.subject_of {
            remove_from(&mut self.subjects, rank, &number);
        }
        if let Some(profile) = identity.profile() {
            remove_from(&mut self.live_in, &profile.namespace, &number);
        }
        shared.ink.tables.identities.remove(&number);
        for set in live.sets {
            self.release_set(shared, set);
        }
    }

    fn tests_finding(
        &self,
        shared: &mut Shared,
        identity: &Identity,
        namespace: Option<&str>,
    ) -> BTreeSet<u32> {
        let own = namespace.and_then(|name| self.tests_in.get(&Some(name.to_owned())));
        let tests = own.into_iter().chain(self.tests_in.get(&None)).flatten();
        let found = tests.filter(|test| {
            shared.tests_done += 1;
            self.tests.key(**test).is_some_and(|test| test.finds(identity))
        });
        found.copied().collect()
    }

    fn ranks_about(&self, identity: &Identity, namespace: Option<&str>) -> BTreeSet<Rank> {
        let own = namespace.and_then(|name| self.policies_in.get(&Some(name.to_owned())));
        let ranks = own.into_iter().chain(self.policies_in.get(&None)).flatten();
        let about = |rank: &&Rank| {
            self.policies.get(*rank).is_some_and(|found| identity.is_subject_of(&found.policy))
        };
        ranks.filter(about).cloned().collect()
    }

    fn sets_asking(&self, tests: &BTreeSet<u32>) -> BTreeSet<u32> {
        let found = tests.iter().filter_map(|test| self.found.get(test));
        found.flat_map(|found| found.sets.iter().copied()).collect()
    }

    pub(super) fn write_row(&mut self, shared: &mut Shared, set: u32, identity: u32) {
        let none = BTreeSet::new();
        let (Some(rules), Some(live)) = (self.sets.get_mut(&set), self.live.get(&identity)) else {
            return;
        };
        let profile = shared.identities.key(identity).and_then(Identity::profile);
        let ports = profile.map_or(&none, |profile| &profile.ports);
        let other = OtherEnd { found_by: &live.found_by, ports };
        self.weight -= rules.weight();
        rules.write(set, identity, other, &mut shared.ink);
        self.weight += rules.weight();
    }
}
