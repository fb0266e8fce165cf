//! One writer's turn: reads see what earlier turns of the same batch wrote, writes are kept only
//! when the turn succeeds, and every write gets the next resource version.

use super::feed::Change;
use super::state::State;
use super::{Key, Stored};
use crate::kinds::{self, Claim};
use crate::object;
use bytes::Bytes;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Changes that are decided but not committed.
#[derive(Default)]
pub(super) struct Pending {
    newest: HashMap<Key, Option<Arc<Stored>>>,
    /// Who has a claim now; nobody, where it was given up.
    claims: HashMap<Claim, Option<Key>>,
    changes: Vec<Arc<Change>>,
}

impl Pending {
    pub(super) fn changes(&self) -> &[Arc<Change>] {
        &self.changes
    }

    fn absorb(&mut self, other: Pending) {
        self.newest.extend(other.newest);
        self.claims.extend(other.claims);
        self.changes.extend(other.changes);
    }
}

/// A view of the newest state that collects writes.
pub(crate) struct Transaction<'a> {
    state: &'a State,
    earlier: &'a mut Pending,
    mine: Pending,
    revision: &'a mut u64,
    first_revision: u64,
}

impl<'a> Transaction<'a> {
    pub(super) fn new(
        state: &'a State,
        earlier: &'a mut Pending,
        revision: &'a mut u64,
    ) -> Transaction<'a> {
        let first_revision = *revision;
        Transaction { state, earlier, mine: Pending::default(), revision, first_revision }
    }

    /// Keeps the writes of this turn for the commit of the batch.
    pub(super) fn keep(self) {
        self.earlier.absorb(self.mine);
    }

    /// Forgets the writes of this turn and the versions it took.
    pub(super) fn forget(self) {
        *self.revision = self.first_revision;
    }

    /// Forgets the writes made so far in this turn: what a dry run does before it answers.
    pub(crate) fn discard(&mut self) {
        self.mine = Pending::default();
        *self.revision = self.first_revision;
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Arc<Stored>> {
        let pending = self.mine.newest.get(key).or_else(|| self.earlier.newest.get(key));
        match pending {
            Some(found) => found.clone(),
            None => self.state.get(key).cloned(),
        }
    }

    /// The objects of a collection in key order; all namespaces when `namespace` is empty.
    pub(crate) fn list(&self, collection: &str, namespace: &str) -> Vec<Arc<Stored>> {
        let mut found: BTreeMap<&Key, &Arc<Stored>> =
            self.state.list(collection, namespace).map(|stored| (&stored.key, stored)).collect();
        for (key, newest) in self.earlier.newest.iter().chain(&self.mine.newest) {
            if *key.collection != *collection
                || !(namespace.is_empty() || key.namespace == namespace)
            {
                continue;
            }
            match newest {
                Some(stored) => found.insert(key, stored),
                None => found.remove(key),
            };
        }
        found.into_values().cloned().collect()
    }

    /// Writes an object under `key`; its resource version is set here.
    pub(crate) fn put(&mut self, key: &Key, mut value: Value) -> Arc<Stored> {
        *self.revision += 1;
        object::set_meta(&mut value, "resourceVersion", self.revision.to_string());
        let stored = Arc::new(stored(key.clone(), *self.revision, value));
        self.record(Some(Arc::clone(&stored)), Arc::clone(&stored));
        stored
    }

    /// Removes an object; returns it as watchers will see it last.
    pub(crate) fn remove(&mut self, key: &Key) -> Option<Arc<Stored>> {
        let before = self.get(key)?;
        *self.revision += 1;
        let mut value = before.value.clone();
        object::set_meta(&mut value, "resourceVersion", self.revision.to_string());
        let last = Arc::new(stored(key.clone(), *self.revision, value));
        self.record(None, Arc::clone(&last));
        Some(last)
    }

    fn record(&mut self, newest: Option<Arc<Stored>>, object: Arc<Stored>) {
        let before = self.get(&object.key);
        let deleted = newest.is_none();
        self.note_claims(before.as_deref(), newest.as_deref());
        self.mine.newest.insert(object.key.clone(), newest);
        self.mine.changes.push(Arc::new(Change { before, object, deleted }));
    }

    fn note_claims(&mut self, before: Option<&Stored>, after: Option<&Stored>) {
        for (stored, holds) in [(before, false), (after, true)] {
            let Some(stored) = stored else { continue };
            for claim in kinds::claims(&stored.key.collection, &stored.value) {
                self.mine.claims.insert(claim, holds.then(|| stored.key.clone()));
            }
        }
    }

    /// Whether another object than `key` has what only one may have.
    pub(crate) fn is_claimed(&self, claim: Claim, key: &Key) -> bool {
        let pending = self.mine.claims.get(&claim).or_else(|| self.earlier.claims.get(&claim));
        let holder = match pending {
            Some(holder) => holder.as_ref(),
            None => self.state.claimed(claim),
        };
        holder.is_some_and(|holder| holder != key)
    }

    /// The object with this uid, if it is there and was before this batch.
    pub(crate) fn by_uid(&self, uid: &str) -> Option<Key> {
        self.state.by_uid(uid).filter(|key| self.get(key).is_some()).cloned()
    }

    /// Objects that name `uid` as an owner, as committed before this batch.
    pub(crate) fn dependents(&self, uid: &str) -> Vec<Key> {
        self.state.dependents(uid).cloned().collect()
    }
}

fn stored(key: Key, revision: u64, value: Value) -> Stored {
    // A `Value` always serializes: its keys are strings and it holds no foreign types.
    let json = Bytes::from(value.to_string());
    Stored { key, revision, value, json }
}
