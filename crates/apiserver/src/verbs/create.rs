//! Creating objects.

use super::{Api, Target, WriteOptions, Written, intake, provision};
use crate::clock;
use crate::failure::{Cause, Failure};
use crate::kinds;
use crate::object;
use crate::patch::note_update;
use crate::store::{Key, Stored, Transaction};
use serde_json::Value;
use std::sync::Arc;

/// Tries to find a free name for `generateName`.
const NAME_ATTEMPTS: usize = 8;

impl Api {
    pub(crate) async fn create(
        &self,
        target: &Target,
        body: Value,
        options: &WriteOptions,
    ) -> Result<Written, Failure> {
        let (object, warnings) = intake::take(target, body, options)?;
        let mut object = prepare(target, object)?;
        note_creation(target, &mut object, options);
        let (target, options) = (target.clone(), options.clone());
        let object =
            self.store.transact(move |tx| Api::create_in(tx, &target, object, &options)).await?;
        Ok(Written { object, created: true, warnings })
    }

    /// The part of a creation that depends on other objects. `object` is in storage form.
    pub(crate) fn create_in(
        tx: &mut Transaction<'_>,
        target: &Target,
        mut object: Value,
        options: &WriteOptions,
    ) -> Result<Arc<Stored>, Failure> {
        check_namespace(tx, target, object::name(&object))?;
        let key = free_key(tx, target, &mut object)?;
        provision(tx, target, &key, &mut object)?;
        let stored = tx.put(&key, object);
        if options.dry_run {
            tx.discard();
        } else {
            furnish(tx, target, &stored);
        }
        Ok(stored)
    }
}

/// Everything that can be done without looking at other objects.
pub(crate) fn prepare(target: &Target, mut object: Value) -> Result<Value, Failure> {
    if target.resource.terminating {
        return Err(Failure::definition_terminating(target.about()));
    }
    check_metadata(target, &mut object)?;
    own_metadata(target, &mut object);
    if target.version().status_subresource {
        object.as_object_mut().map(|object| object.remove("status"));
    }
    intake::complete(target, &mut object);
    kinds::prepare_new(&target.resource, &mut object, clock::now());
    intake::validate(target, &with_some_name(&object), None)?;
    Ok(object)
}

/// Creates an object that the server itself wrote.
pub(crate) fn create_own(
    tx: &mut Transaction<'_>,
    target: &Target,
    object: Value,
    options: &WriteOptions,
) -> Result<Arc<Stored>, Failure> {
    let mut object = prepare(target, object)?;
    note_creation(target, &mut object, options);
    Api::create_in(tx, target, object, options)
}

/// Notes who created the object. What the server filled in counts as the writer's, too.
fn note_creation(target: &Target, object: &mut Value, options: &WriteOptions) {
    object::metadata_mut(object).remove("managedFields");
    let (api_version, now) = (target.api_version(), clock::seconds(clock::now()));
    let writer = options.writer(target, &api_version, &now);
    let schema = &target.resource.storage().schema;
    note_update(schema, &Value::Null, object, &writer);
}

/// The name is made later; validation sees one of the right shape.
fn with_some_name(object: &Value) -> Value {
    let mut named = object.clone();
    let prefix = object::meta(object, "generateName").to_owned();
    if object::name(object).is_empty() && !prefix.is_empty() {
        object::set_meta(&mut named, "name", format!("{prefix}x"));
    }
    named
}

fn check_metadata(target: &Target, object: &mut Value) -> Result<(), Failure> {
    if !object::meta(object, "resourceVersion").is_empty() {
        return Err(Failure::unexplained(
            "resourceVersion should not be set on objects to be created",
        ));
    }
    if !target.name.is_empty() && object::name(object).is_empty() {
        object::set_meta(object, "name", target.name.clone());
    }
    if !target.resource.namespaced {
        object::metadata_mut(object).remove("namespace");
        return Ok(());
    }
    let given = object::namespace(object);
    if given.is_empty() {
        object::set_meta(object, "namespace", target.namespace.clone());
    } else if given != target.namespace {
        return Err(Failure::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
}

/// Metadata that only the server sets.
fn own_metadata(target: &Target, object: &mut Value) {
    let metadata = object::metadata_mut(object);
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "generation"] {
        metadata.remove(field);
    }
    metadata.retain(|_, value| !value.is_null());
    metadata.insert("uid".to_owned(), uuid::Uuid::new_v4().to_string().into());
    metadata.insert("creationTimestamp".to_owned(), clock::seconds(clock::now()).into());
    if target.resource.counts_generations {
        metadata.insert("generation".to_owned(), 1.into());
    }
}

/// A namespaced object needs its namespace, and one that is not about to go.
fn check_namespace(tx: &Transaction<'_>, target: &Target, name: &str) -> Result<(), Failure> {
    if !target.resource.namespaced {
        return Ok(());
    }
    let namespace = &target.namespace;
    let key = Key::new("namespaces", "", namespace);
    let about = crate::failure::About { group: "", kind: "namespaces", name: namespace };
    let found = tx.get(&key).ok_or_else(|| Failure::not_found(about))?;
    if !object::is_terminating(&found.value) {
        return Ok(());
    }
    let about = crate::failure::About { name, ..target.about() };
    let why = format!(
        "unable to create new content in namespace {namespace} because it is being terminated"
    );
    let mut failure = Failure::forbidden(about, &why);
    let text = format!("namespace {namespace} is being terminated");
    failure.add_causes(&[Cause::new("NamespaceTerminating", "metadata.namespace", text)]);
    Err(failure)
}

/// The place of the new object; makes the name when it is to be generated.
fn free_key(tx: &Transaction<'_>, target: &Target, object: &mut Value) -> Result<Key, Failure> {
    let given = object::name(object).to_owned();
    if !given.is_empty() {
        let key = target.key_of(&given);
        let about = crate::failure::About { name: &given, ..target.about() };
        return match tx.get(&key) {
            Some(_) => Err(Failure::already_exists(about)),
            None => Ok(key),
        };
    }
    let prefix = object::meta(object, "generateName").to_owned();
    for _ in 0..NAME_ATTEMPTS {
        let name = generated_name(&prefix);
        let key = target.key_of(&name);
        if tx.get(&key).is_none() {
            object::set_meta(object, "name", name);
            return Ok(key);
        }
    }
    Err(Failure::already_exists(crate::failure::About { name: &prefix, ..target.about() }))
}

/// Five characters that do not spell words, as Kubernetes chooses them.
fn generated_name(prefix: &str) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let random = uuid::Uuid::new_v4();
    let suffix = random.as_bytes().iter().take(5);
    let suffix = suffix.map(|byte| char::from(LETTERS[usize::from(*byte) % LETTERS.len()]));
    prefix.chars().take(58).chain(suffix).collect()
}

/// What comes along with a new object: a namespace has its default service account.
fn furnish(tx: &mut Transaction<'_>, target: &Target, stored: &Stored) {
    if !target.is_core("namespaces") {
        return;
    }
    let namespace = &stored.key.name;
    let account = serde_json::json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {
            "name": "default", "namespace": namespace,
            "uid": uuid::Uuid::new_v4().to_string(),
            "creationTimestamp": clock::seconds(clock::now()),
        },
    });
    tx.put(&Key::new("serviceaccounts", namespace, "default"), account);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_names_keep_their_prefix_and_differ() {
        let (one, other) = (generated_name("web-"), generated_name("web-"));
        assert!(one.starts_with("web-") && one.len() == 9, "{one}");
        assert_ne!(one, other);
        assert_eq!(generated_name(&"x".repeat(80)).len(), 63);
    }
}
