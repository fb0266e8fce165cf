//! Does the chores: one transaction each, in the background, never twice at the same time.

use super::chores::{self, Chore};
use crate::failure::Failure;
use crate::kinds::CRD_CLEANUP_FINALIZER;
use crate::object;
use crate::registry::{CRDS, Snapshot};
use crate::store::{Change, Key, Stored, Transaction};
use crate::verbs::{Api, DeleteOptions, FOREGROUND, ORPHAN, Target, delete_in, may_go};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::sync::mpsc::UnboundedReceiver;

/// Works off what the changes make necessary, until the sender of changes is gone.
pub(crate) async fn run(api: Api, mut changes: UnboundedReceiver<Arc<Change>>) {
    let mut waiting = left_over(&api);
    loop {
        for chore in std::mem::take(&mut waiting) {
            perform(&api, chore).await;
        }
        let Some(change) = changes.recv().await else { return };
        waiting.extend(chores::after(&change));
        while let Ok(change) = changes.try_recv() {
            waiting.extend(chores::after(&change));
        }
    }
}

/// Chores that a former run of the server may not have done.
fn left_over(api: &Api) -> BTreeSet<Chore> {
    let state = api.store.read();
    let collections: Vec<_> = state.collections().cloned().collect();
    collections
        .iter()
        .flat_map(|collection| state.list(collection, ""))
        .flat_map(|stored| chores::at_start(stored))
        .collect()
}

async fn perform(api: &Api, chore: Chore) {
    let snapshot = api.registry.snapshot();
    let shown = format!("{chore:?}");
    let done = api.store.transact(move |tx| Work { tx, snapshot: &snapshot }.perform(chore)).await;
    if let Err(failure) = done {
        tracing::warn!(chore = shown, why = failure.message, "cannot clean up");
    }
}

struct Work<'a, 'tx> {
    tx: &'a mut Transaction<'tx>,
    snapshot: &'a Snapshot,
}

impl Work<'_, '_> {
    fn perform(&mut self, chore: Chore) -> Result<(), Failure> {
        match chore {
            Chore::FinishNamespace(name) => self.finish_namespace(&name),
            Chore::FinishDefinition(name) => self.finish_definition(&name),
            Chore::CollectDependents(uid) => self.collect_dependents(&uid),
            Chore::CheckOwners(key) => self.check_owners(&key),
            Chore::Orphan(key) => self.orphan(&key),
            Chore::FinishForeground(key) => self.finish_foreground(&key),
            Chore::WakeOwner(uid) => match self.tx.by_uid(&uid) {
                Some(key) => self.finish_foreground(&key),
                None => Ok(()),
            },
        }
    }

    fn terminating(&self, key: &Key) -> Option<Arc<Stored>> {
        self.tx.get(key).filter(|stored| object::is_terminating(&stored.value))
    }

    /// Deletes with the default of each kind; says whether the object is gone.
    fn delete(&mut self, key: &Key) -> Result<bool, Failure> {
        if let Some(resource) = self.snapshot.by_collection(&key.collection) {
            let target = Target::stored(resource, key);
            let uid = self.tx.get(key).map(|stored| object::uid(&stored.value).to_owned());
            match delete_in(self.tx, &target, &DeleteOptions { uid, ..DeleteOptions::default() }) {
                Err(failure) if failure.code != 404 => return Err(failure),
                _ => {}
            }
        }
        Ok(self.tx.get(key).is_none())
    }

    fn finish_namespace(&mut self, name: &str) -> Result<(), Failure> {
        let key = Key::new("namespaces", "", name);
        let Some(namespace) = self.terminating(&key) else { return Ok(()) };
        let collections: BTreeSet<_> = self
            .snapshot
            .all()
            .filter(|resource| resource.namespaced)
            .map(|resource| Arc::clone(&resource.collection))
            .collect();
        let mut empty = true;
        for collection in collections {
            for stored in self.tx.list(&collection, name) {
                empty &= self.delete(&stored.key)?;
            }
        }
        if empty {
            let mut value = namespace.value.clone();
            object::set(&mut value, "spec.finalizers", Value::Array(Vec::new()));
            self.write_or_remove(&key, value);
        }
        Ok(())
    }

    fn finish_definition(&mut self, name: &str) -> Result<(), Failure> {
        let key = Key::new(CRDS, "", name);
        let Some(crd) = self.terminating(&key) else { return Ok(()) };
        let mut empty = true;
        for stored in self.tx.list(name, "") {
            empty &= self.delete(&stored.key)?;
        }
        if empty {
            self.drop_finalizer(&crd, CRD_CLEANUP_FINALIZER);
        }
        Ok(())
    }

    fn drop_finalizer(&mut self, stored: &Stored, finalizer: &str) {
        let mut value = stored.value.clone();
        object::remove_finalizer(&mut value, finalizer);
        self.write_or_remove(&stored.key, value);
    }

    fn write_or_remove(&mut self, key: &Key, value: Value) {
        if may_go(&value) {
            self.tx.remove(key);
        } else {
            self.tx.put(key, value);
        }
    }

    /// An owner counts when it exists where its dependent can see it.
    fn owner_exists(&self, reference: &Value, dependent: &Key) -> bool {
        let uid = reference.get("uid").and_then(Value::as_str).unwrap_or("");
        self.tx.by_uid(uid).is_some_and(|owner| {
            owner.namespace.is_empty() || owner.namespace == dependent.namespace
        })
    }

    fn collect_dependents(&mut self, uid: &str) -> Result<(), Failure> {
        for key in self.tx.dependents(uid) {
            self.check_owners(&key)?;
        }
        Ok(())
    }

    fn check_owners(&mut self, key: &Key) -> Result<(), Failure> {
        let Some(stored) = self.tx.get(key) else { return Ok(()) };
        let owners = object::owner_references(&stored.value);
        let (kept, gone): (Vec<Value>, Vec<Value>) =
            owners.iter().cloned().partition(|owner| self.owner_exists(owner, key));
        if gone.is_empty() {
            return Ok(());
        }
        if kept.is_empty() {
            return self.delete(key).map(|_| ());
        }
        let mut value = stored.value.clone();
        object::set_meta(&mut value, "ownerReferences", kept);
        self.tx.put(key, value);
        Ok(())
    }

    fn orphan(&mut self, key: &Key) -> Result<(), Failure> {
        let Some(owner) = self.terminating(key) else { return Ok(()) };
        let uid = object::uid(&owner.value).to_owned();
        for dependent in self.tx.dependents(&uid) {
            self.disown(&dependent, &uid);
        }
        self.drop_finalizer(&owner, ORPHAN);
        Ok(())
    }

    fn disown(&mut self, key: &Key, uid: &str) {
        let Some(stored) = self.tx.get(key) else { return };
        let kept: Vec<Value> = object::owner_references(&stored.value)
            .iter()
            .filter(|owner| owner["uid"] != uid)
            .cloned()
            .collect();
        let mut value = stored.value.clone();
        if kept.is_empty() {
            object::metadata_mut(&mut value).remove("ownerReferences");
        } else {
            object::set_meta(&mut value, "ownerReferences", kept);
        }
        self.tx.put(key, value);
    }

    fn finish_foreground(&mut self, key: &Key) -> Result<(), Failure> {
        let Some(owner) = self.terminating(key) else { return Ok(()) };
        if !object::finalizers(&owner.value).contains(&FOREGROUND) {
            return Ok(());
        }
        let uid = object::uid(&owner.value).to_owned();
        let mut blocked = false;
        for dependent in self.tx.dependents(&uid) {
            let blocks = self.tx.get(&dependent).is_some_and(|stored| blocks(&stored.value, &uid));
            blocked |= !self.delete(&dependent)? && blocks;
        }
        if !blocked {
            self.drop_finalizer(&owner, FOREGROUND);
        }
        Ok(())
    }
}

fn blocks(dependent: &Value, uid: &str) -> bool {
    object::owner_references(dependent)
        .iter()
        .any(|owner| owner["uid"] == uid && owner["blockOwnerDeletion"] == true)
}
