//! Deleting objects: at once, or marked until finalizers, grace periods and dependents are done.

use super::update::may_go;
use super::{Api, ListOptions, Target};
use crate::clock;
use crate::failure::Failure;
use crate::kinds;
use crate::object;
use crate::store::{Stored, Transaction};
use serde_json::Value;
use std::sync::Arc;

/// Holds an owner until its dependents no longer name it.
pub(crate) const ORPHAN: &str = "orphan";
/// Holds an owner until its dependents are gone.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";

/// Options of a deletion, from its body and query.
#[derive(Debug, Clone, Default)]
pub(crate) struct DeleteOptions {
    pub(crate) grace_period: Option<i64>,
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
    pub(crate) propagation: Option<String>,
    pub(crate) dry_run: bool,
}

/// What became of the object.
#[derive(Debug)]
pub(crate) enum Deleted {
    Gone(Arc<Stored>),
    Marked(Arc<Stored>),
}

impl Api {
    pub(crate) async fn delete(
        &self,
        target: &Target,
        options: &DeleteOptions,
    ) -> Result<Deleted, Failure> {
        let (target, options) = (target.clone(), options.clone());
        self.store.transact(move |tx| delete_in(tx, &target, &options)).await
    }

    /// Deletes everything the listing names; returns how it stood before.
    pub(crate) async fn delete_collection(
        &self,
        target: &Target,
        listing: &ListOptions,
        options: &DeleteOptions,
    ) -> Result<Vec<Arc<Stored>>, Failure> {
        let found = self.list(target, listing)?.items;
        let (job, options, doomed) = (target.clone(), options.clone(), found.clone());
        self.store
            .transact(move |tx| {
                for stored in &doomed {
                    let one = job.clone().in_namespace(&stored.key.namespace);
                    match delete_in(tx, &one.named(&stored.key.name), &options) {
                        Err(failure) if failure.code != 404 => return Err(failure),
                        _ => {}
                    }
                }
                Ok(())
            })
            .await?;
        Ok(found)
    }
}

/// Deletes or marks one object.
pub(crate) fn delete_in(
    tx: &mut Transaction<'_>,
    target: &Target,
    options: &DeleteOptions,
) -> Result<Deleted, Failure> {
    let current = tx.get(&target.key()).ok_or_else(|| Failure::not_found(target.about()))?;
    check_preconditions(target, &current.value, options)?;
    check_protected(target)?;
    let marked = mark(target, &current.value, options);
    let outcome = if may_go(&marked) {
        let gone = tx.remove(&current.key).ok_or_else(|| Failure::not_found(target.about()))?;
        Deleted::Gone(gone)
    } else if marked == current.value {
        Deleted::Marked(current)
    } else {
        Deleted::Marked(tx.put(&current.key, marked))
    };
    if options.dry_run {
        tx.discard();
    }
    Ok(outcome)
}

fn check_preconditions(
    target: &Target,
    current: &Value,
    options: &DeleteOptions,
) -> Result<(), Failure> {
    let checks = [
        ("UID", &options.uid, object::uid(current), "deleted and then recreated"),
        (
            "ResourceVersion",
            &options.resource_version,
            object::meta(current, "resourceVersion"),
            "modified",
        ),
    ];
    for (what, wanted, found, perhaps) in checks {
        if let Some(wanted) = wanted.as_deref().filter(|wanted| *wanted != found) {
            let why = format!(
                "the {what} in the precondition ({wanted}) does not match the {what} in record \
                 ({found}). The object might have been {perhaps}"
            );
            return Err(Failure::conflict(target.about_kind(&target.name), &why));
        }
    }
    Ok(())
}

/// Namespaces without which the cluster is none.
fn check_protected(target: &Target) -> Result<(), Failure> {
    let protected = target.is_core("namespaces")
        && matches!(target.name.as_str(), "default" | "kube-system" | "kube-public");
    if protected {
        return Err(Failure::forbidden(target.about(), "this namespace may not be deleted"));
    }
    Ok(())
}

/// The object with everything a deletion sets on it.
fn mark(target: &Target, current: &Value, options: &DeleteOptions) -> Value {
    let mut marked = current.clone();
    let grace =
        if target.is_core("pods") { kinds::grace_period(current, options.grace_period) } else { 0 };
    propagate(&mut marked, options);
    let known = object::metadata(current).get("deletionGracePeriodSeconds").and_then(Value::as_i64);
    if object::is_terminating(current) && known.unwrap_or(0) <= grace {
        return marked;
    }
    let until = clock::after(clock::now(), grace);
    object::set_meta(&mut marked, "deletionTimestamp", clock::seconds(until));
    object::set_meta(&mut marked, "deletionGracePeriodSeconds", grace);
    if let Some(generation) = object::metadata(current).get("generation").and_then(Value::as_i64) {
        object::set_meta(&mut marked, "generation", generation + 1);
    }
    if target.is_core("namespaces") {
        object::set(&mut marked, "status.phase", "Terminating");
    }
    marked
}

/// Dependents are orphaned or deleted first where that was asked for.
fn propagate(marked: &mut Value, options: &DeleteOptions) {
    match options.propagation.as_deref() {
        Some("Orphan") => {
            object::remove_finalizer(marked, FOREGROUND);
            object::add_finalizer(marked, ORPHAN);
        }
        Some("Foreground") => {
            object::remove_finalizer(marked, ORPHAN);
            object::add_finalizer(marked, FOREGROUND);
        }
        Some(_) => {
            object::remove_finalizer(marked, ORPHAN);
            object::remove_finalizer(marked, FOREGROUND);
        }
        None => {}
    }
}
