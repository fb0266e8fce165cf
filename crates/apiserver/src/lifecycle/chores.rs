//! What a change makes necessary: decided from the change alone, done by the janitor.

use crate::object;
use crate::registry::CRDS;
use crate::store::{Change, Key, Stored};
use crate::verbs::{FOREGROUND, ORPHAN};
use serde_json::Value;

/// One piece of work. Doing it twice, or for nothing, does no harm.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Chore {
    /// Empty a terminating namespace, and let it go when it is empty.
    FinishNamespace(String),
    /// Delete the objects of a terminating definition, and let it go when there are none.
    FinishDefinition(String),
    /// The owner with this uid is gone.
    CollectDependents(String),
    /// Delete an object none of whose owners exists.
    CheckOwners(Key),
    /// Take this owner out of its dependents, and let it go.
    Orphan(Key),
    /// Delete the dependents of this owner, and let it go when they are gone.
    FinishForeground(Key),
    /// The owner with this uid lost a dependent that it may wait for.
    WakeOwner(String),
}

/// What follows from one change.
pub(super) fn after(change: &Change) -> Vec<Chore> {
    match change.after() {
        Some(stored) => after_write(stored, change.before.as_deref()),
        None => after_deletion(&change.object),
    }
}

/// What may have been left undone about an object when the server stopped.
pub(super) fn at_start(stored: &Stored) -> Vec<Chore> {
    after_write(stored, None)
}

fn after_write(stored: &Stored, before: Option<&Stored>) -> Vec<Chore> {
    let (key, value) = (&stored.key, &stored.value);
    let mut chores = Vec::new();
    if object::is_terminating(value) {
        chores.extend(terminating(key, value));
    }
    let owners_before = before.map_or(&[][..], |before| object::owner_references(&before.value));
    let owners = object::owner_references(value);
    if !owners.is_empty() && owners != owners_before {
        chores.push(Chore::CheckOwners(key.clone()));
    }
    chores
}

fn terminating(key: &Key, value: &Value) -> Vec<Chore> {
    let mut chores = Vec::new();
    match &*key.collection {
        "namespaces" => chores.push(Chore::FinishNamespace(key.name.clone())),
        CRDS => chores.push(Chore::FinishDefinition(key.name.clone())),
        _ => {}
    }
    for finalizer in object::finalizers(value) {
        match finalizer {
            ORPHAN => chores.push(Chore::Orphan(key.clone())),
            FOREGROUND => chores.push(Chore::FinishForeground(key.clone())),
            _ => {}
        }
    }
    chores
}

/// The place of whatever waits for this object to be gone.
fn after_deletion(stored: &Stored) -> Vec<Chore> {
    let mut chores = vec![
        Chore::CollectDependents(object::uid(&stored.value).to_owned()),
        Chore::FinishDefinition(stored.key.collection.to_string()),
    ];
    if !stored.key.namespace.is_empty() {
        chores.push(Chore::FinishNamespace(stored.key.namespace.clone()));
    }
    let owners = object::owner_uids(&stored.value);
    chores.extend(owners.map(|uid| Chore::WakeOwner(uid.to_owned())));
    chores
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::sync::Arc;

    fn stored(collection: &str, metadata: &Value) -> Arc<Stored> {
        let value = json!({"metadata": metadata});
        let key = Key::new(collection, "ns", "x");
        Arc::new(Stored { key, revision: 1, json: value.to_string().into(), value })
    }

    #[test]
    fn an_object_with_new_owners_has_them_checked_once() {
        let object = stored("pods", &json!({"ownerReferences": [{"uid": "1"}]}));
        let key = object.key.clone();
        let created = Change { before: None, object: Arc::clone(&object), deleted: false };
        assert_eq!(after(&created), [Chore::CheckOwners(key)]);
        let touched = Change { before: Some(Arc::clone(&object)), object, deleted: false };
        assert_eq!(after(&touched), []);
    }

    #[test]
    fn a_deletion_wakes_whoever_waits_for_it() {
        let change = Change {
            before: None,
            object: stored("nets.x.dev", &json!({"uid": "7"})),
            deleted: true,
        };
        assert_eq!(
            after(&change),
            [
                Chore::CollectDependents("7".to_owned()),
                Chore::FinishDefinition("nets.x.dev".to_owned()),
                Chore::FinishNamespace("ns".to_owned()),
            ]
        );
    }

    #[test]
    fn finalizers_of_the_collector_are_its_own_work() {
        let metadata = json!({"deletionTimestamp": "t", "finalizers": [ORPHAN, "mine"]});
        let object = stored("pods", &metadata);
        assert_eq!(at_start(&object), [Chore::Orphan(object.key.clone())]);
    }
}
