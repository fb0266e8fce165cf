//! All committed objects in memory, with the indexes that deletion needs: who owns whom.

use super::disk::{Content, Disk, StoreError};
use super::feed::{Change, Feed};
use super::{Collection, Key, Stored};
use crate::failure::Failure;
use crate::kinds::{self, Claim};
use crate::object;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;

/// Namespace and name.
pub(crate) type Place = (String, String);

/// The objects of one resource, by namespace and name, and its feed.
#[derive(Debug)]
struct Shelf {
    objects: BTreeMap<Place, Arc<Stored>>,
    feed: Arc<Feed>,
}

/// A consistent view of the store.
#[derive(Debug)]
pub(crate) struct State {
    revision: u64,
    /// Collections without a shelf yet have had no change since this revision.
    opened_at: u64,
    shelves: HashMap<Collection, Shelf>,
    by_uid: HashMap<String, Key>,
    dependents: HashMap<String, HashSet<Key>>,
    claims: HashMap<Claim, Key>,
}

impl State {
    pub(super) fn from_disk(disk: &Disk) -> Result<State, StoreError> {
        let Content { revision, objects } = disk.load()?;
        // Version 0 means "any version" to clients, so that the first list already says 1.
        let revision = revision.max(1);
        let mut state = State {
            revision,
            opened_at: revision,
            shelves: HashMap::new(),
            by_uid: HashMap::new(),
            dependents: HashMap::new(),
            claims: HashMap::new(),
        };
        for stored in objects {
            state.insert(Arc::new(stored));
        }
        Ok(state)
    }

    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    pub(crate) fn get(&self, key: &Key) -> Option<&Arc<Stored>> {
        let place = (key.namespace.clone(), key.name.clone());
        self.shelves.get(&key.collection)?.objects.get(&place)
    }

    /// The objects of a collection in key order; all namespaces when `namespace` is empty.
    pub(crate) fn list<'a>(
        &'a self,
        collection: &str,
        namespace: &'a str,
    ) -> impl Iterator<Item = &'a Arc<Stored>> {
        self.list_after(collection, namespace, None)
    }

    /// The same, beginning behind a given place.
    pub(crate) fn list_after<'a>(
        &'a self,
        collection: &str,
        namespace: &'a str,
        after: Option<&Place>,
    ) -> impl Iterator<Item = &'a Arc<Stored>> {
        let start = match after {
            Some(place) => Bound::Excluded(place.clone()),
            None => Bound::Included((namespace.to_owned(), String::new())),
        };
        self.shelves
            .get(collection)
            .into_iter()
            .flat_map(move |shelf| shelf.objects.range((start.clone(), Bound::Unbounded)))
            .map(|(_, stored)| stored)
            .take_while(move |stored| namespace.is_empty() || stored.key.namespace == namespace)
    }

    #[cfg(test)]
    pub(super) fn count(&self, collection: &str) -> usize {
        self.shelves.get(collection).map_or(0, |shelf| shelf.objects.len())
    }

    /// The collection behind a place as it was at `revision`, or `Expired` when that can no longer
    /// be known. What has not changed since is not looked at twice.
    pub(crate) fn list_at(
        &self,
        collection: &str,
        namespace: &str,
        after: Option<&Place>,
        revision: u64,
    ) -> Result<Vec<Arc<Stored>>, Failure> {
        let present = self.list_after(collection, namespace, after).cloned();
        let Some(shelf) = self.shelves.get(collection) else { return Ok(Vec::new()) };
        let changes = shelf.feed.since(revision)?;
        if changes.is_empty() {
            return Ok(present.collect());
        }
        let mut objects: BTreeMap<Place, Arc<Stored>> =
            present.map(|stored| (place(&stored.key), stored)).collect();
        for change in changes.iter().rev() {
            let key = &change.object.key;
            let elsewhere = !namespace.is_empty() && key.namespace != namespace;
            if elsewhere || after.is_some_and(|after| place(key) <= *after) {
                continue;
            }
            match &change.before {
                Some(before) => objects.insert(place(key), Arc::clone(before)),
                None => objects.remove(&place(key)),
            };
        }
        Ok(objects.into_values().collect())
    }

    /// Names of the collections that hold or held something.
    pub(crate) fn collections(&self) -> impl Iterator<Item = &Collection> {
        self.shelves.keys()
    }

    pub(crate) fn by_uid(&self, uid: &str) -> Option<&Key> {
        self.by_uid.get(uid)
    }

    /// Who has what only one may have.
    pub(super) fn claimed(&self, claim: Claim) -> Option<&Key> {
        self.claims.get(&claim)
    }

    /// Objects that name `uid` as an owner.
    pub(crate) fn dependents(&self, uid: &str) -> impl Iterator<Item = &Key> {
        self.dependents.get(uid).into_iter().flatten()
    }

    /// The feed of a collection that has one. Use [`State::open_feed`] to make it.
    pub(crate) fn feed(&self, collection: &str) -> Option<Arc<Feed>> {
        self.shelves.get(collection).map(|shelf| Arc::clone(&shelf.feed))
    }

    /// The feed of any collection.
    pub(super) fn open_feed(&mut self, collection: &Collection) -> Arc<Feed> {
        Arc::clone(&self.shelf(collection).feed)
    }

    fn shelf(&mut self, collection: &Collection) -> &mut Shelf {
        let opened_at = self.opened_at;
        self.shelves.entry(Arc::clone(collection)).or_insert_with(|| Shelf {
            objects: BTreeMap::new(),
            feed: Arc::new(Feed::new(opened_at)),
        })
    }

    /// Takes over committed changes; watchers are woken after all of them are in.
    pub(super) fn apply(&mut self, changes: &[Arc<Change>], revision: u64) {
        let mut touched: HashMap<Collection, Vec<Arc<Change>>> = HashMap::new();
        for change in changes {
            self.apply_one(change);
            let collection = Arc::clone(&change.object.key.collection);
            touched.entry(collection).or_default().push(Arc::clone(change));
        }
        self.revision = revision;
        for (collection, changes) in touched {
            self.open_feed(&collection).publish(changes.into_iter());
        }
    }

    fn apply_one(&mut self, change: &Change) {
        if let Some(before) = &change.before {
            self.remove(before);
        }
        if let Some(after) = change.after() {
            self.insert(Arc::clone(after));
        }
    }

    fn insert(&mut self, stored: Arc<Stored>) {
        let key = stored.key.clone();
        self.by_uid.insert(object::uid(&stored.value).to_owned(), key.clone());
        for owner in object::owner_uids(&stored.value) {
            self.dependents.entry(owner.to_owned()).or_default().insert(key.clone());
        }
        for claim in kinds::claims(&key.collection, &stored.value) {
            self.claims.insert(claim, key.clone());
        }
        self.shelf(&key.collection).objects.insert(place(&key), stored);
    }

    fn remove(&mut self, stored: &Stored) {
        let key = &stored.key;
        self.by_uid.remove(object::uid(&stored.value));
        for owner in object::owner_uids(&stored.value) {
            if let Some(keys) = self.dependents.get_mut(owner) {
                keys.remove(key);
                if keys.is_empty() {
                    self.dependents.remove(owner);
                }
            }
        }
        for claim in kinds::claims(&key.collection, &stored.value) {
            self.claims.remove(&claim);
        }
        self.shelf(&key.collection).objects.remove(&place(key));
    }
}

fn place(key: &Key) -> Place {
    (key.namespace.clone(), key.name.clone())
}
