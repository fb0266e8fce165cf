//! Changing objects: replace and patch share everything but how the new object comes about.

use super::{Api, Target, WriteOptions, Written, create, intake, provision, view};
use crate::clock;
use crate::failure::{Cause, Failure};
use crate::kinds;
use crate::object;
use crate::patch::{Patch, apply_configuration, note_update};
use crate::registry::Nature;
use crate::seeds;
use crate::store::{Stored, Transaction};
use serde_json::Value;
use std::sync::Arc;

impl Api {
    /// Replaces an object by the one given.
    pub(crate) async fn update(
        &self,
        target: &Target,
        body: Value,
        options: &WriteOptions,
    ) -> Result<Written, Failure> {
        let (object, warnings) = intake::take(target, body, options)?;
        check_identity(target, &object)?;
        let (job, options) = (target.clone(), options.clone());
        let object = self
            .store
            .transact(move |tx| {
                let current = current(tx, &job)?;
                change_in(tx, &job, &current, object, &options)
            })
            .await?;
        Ok(Written { object, created: false, warnings })
    }

    /// Patches an object; an apply patch creates it when it is missing.
    pub(crate) async fn patch(
        &self,
        target: &Target,
        patch: Patch,
        options: &WriteOptions,
    ) -> Result<Written, Failure> {
        check_patch_options(&patch, options)?;
        check_applied_type(&patch)?;
        let (target, options) = (target.clone(), options.clone());
        self.store
            .transact(move |tx| match (tx.get(&target.key()), &patch) {
                (Some(current), _) => patch_in(tx, &target, &current, &patch, &options),
                (None, Patch::Apply(applied)) if target.subresource.is_none() => {
                    Api::create_applied(tx, &target, applied, &options)
                }
                (None, _) => Err(Failure::not_found(target.about())),
            })
            .await
    }

    fn create_applied(
        tx: &mut Transaction<'_>,
        target: &Target,
        applied: &Value,
        options: &WriteOptions,
    ) -> Result<Written, Failure> {
        let (object, warnings) = intake::take(target, applied.clone(), options)?;
        check_applied(target, &object)?;
        let owned = apply_to(target, &Value::Null, &object, options)?;
        let object = create::prepare(target, owned)?;
        let object = Api::create_in(tx, target, object, options)?;
        Ok(Written { object, created: true, warnings })
    }
}

/// Who applies does not say who owns what; the server does.
fn check_applied(target: &Target, object: &Value) -> Result<(), Failure> {
    check_identity(target, object)?;
    if object::metadata(object).contains_key("managedFields") {
        return Err(Failure::bad_request("metadata.managedFields must be nil"));
    }
    Ok(())
}

/// The live object, in storage form, with the configuration applied to it.
fn apply_to(
    target: &Target,
    live: &Value,
    applied: &Value,
    options: &WriteOptions,
) -> Result<Value, Failure> {
    let (api_version, now) = (target.api_version(), clock::seconds(clock::now()));
    let writer = options.writer(target, &api_version, &now);
    let applied = only_own_part(target, applied.clone());
    let schema = &target.resource.storage().schema;
    apply_configuration(schema, live, &applied, &writer, options.force)
}

/// What can be applied through this endpoint: the status, or everything else.
fn only_own_part(target: &Target, mut applied: Value) -> Value {
    let has_status = target.version().status_subresource;
    if let Some(map) = applied.as_object_mut().filter(|_| has_status) {
        map.retain(|field, _| match field.as_str() {
            "apiVersion" | "kind" => true,
            "metadata" => !target.is_status(),
            "status" => target.is_status(),
            _ => !target.is_status(),
        });
    }
    applied
}

/// An apply needs to know who applies; only an apply can be forced.
fn check_patch_options(patch: &Patch, options: &WriteOptions) -> Result<(), Failure> {
    let cause = match (patch, options) {
        (Patch::Apply(_), options) if !options.names_manager => {
            Cause::required("fieldManager", "is required for apply patch")
        }
        (Patch::Json(_) | Patch::Merge(_) | Patch::Strategic(_), options) if options.force => {
            Cause::forbidden("force", "may not be specified for non-apply patch")
        }
        _ => return Ok(()),
    };
    Err(Failure::bad_option("PatchOptions", cause))
}

/// What is applied says what it is.
fn check_applied_type(patch: &Patch) -> Result<(), Failure> {
    let Patch::Apply(applied) = patch else { return Ok(()) };
    let (kind, version) = (object::text(applied, "kind"), object::text(applied, "apiVersion"));
    if kind.is_empty() || version.is_empty() {
        let slash = if version.contains('/') { "" } else { "/" };
        return Err(Failure::bad_request(format!(
            "invalid object type: {slash}{version}, Kind={kind}"
        )));
    }
    Ok(())
}

fn current(tx: &Transaction<'_>, target: &Target) -> Result<Arc<Stored>, Failure> {
    tx.get(&target.key()).ok_or_else(|| Failure::not_found(target.about()))
}

fn patch_in(
    tx: &mut Transaction<'_>,
    target: &Target,
    current: &Arc<Stored>,
    patch: &Patch,
    options: &WriteOptions,
) -> Result<Written, Failure> {
    if matches!(patch, Patch::Strategic(_)) && target.resource.nature == Nature::Custom {
        return Err(Failure::unsupported_media(
            "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
        ));
    }
    if let Patch::Apply(applied) = patch {
        return apply_in(tx, target, current, applied, options);
    }
    let shown = view::from_storage(target, &current.value);
    let spared = seeds::spare(&current.value, patch);
    let patched = spared.as_ref().unwrap_or(patch).apply_to(&shown, &target.version().schema)?;
    intake::check_patched(target, &patched)?;
    let (object, warnings) = intake::take(target, patched, options)?;
    check_identity(target, &object)?;
    let object = change_in(tx, target, current, object, options)?;
    Ok(Written { object, created: false, warnings })
}

fn apply_in(
    tx: &mut Transaction<'_>,
    target: &Target,
    current: &Arc<Stored>,
    applied: &Value,
    options: &WriteOptions,
) -> Result<Written, Failure> {
    let (applied, warnings) = intake::take(target, applied.clone(), options)?;
    check_applied(target, &applied)?;
    check_version(target, &current.value, &applied, false)?;
    let mut object = apply_to(target, &current.value, &applied, options)?;
    keep_server_metadata(&current.value, &mut object);
    complete(target, &current.value, &mut object);
    let object = write_in(tx, target, current, object, options)?;
    Ok(Written { object, created: false, warnings })
}

/// Name and namespace in the body must be those of the path.
fn check_identity(target: &Target, object: &Value) -> Result<(), Failure> {
    let (name, namespace) = (object::name(object), object::namespace(object));
    if name.is_empty() {
        return Err(Failure::bad_request(format!(
            "the name of the object ({} based on URL) was undeterminable: name must be provided",
            target.name
        )));
    }
    if name != target.name {
        return Err(Failure::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            target.name
        )));
    }
    if !namespace.is_empty() && namespace != target.namespace {
        return Err(Failure::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
}

/// Writes the new form of an object, in storage form, and notes who changed what.
pub(crate) fn change_in(
    tx: &mut Transaction<'_>,
    target: &Target,
    current: &Arc<Stored>,
    object: Value,
    options: &WriteOptions,
) -> Result<Arc<Stored>, Failure> {
    check_version(target, &current.value, &object, true)?;
    let mut object = only_addressed_part(target, &current.value, object);
    keep_server_metadata(&current.value, &mut object);
    complete(target, &current.value, &mut object);
    let (api_version, now) = (target.api_version(), clock::seconds(clock::now()));
    let writer = options.writer(target, &api_version, &now);
    note_update(&target.resource.storage().schema, &current.value, &mut object, &writer);
    write_in(tx, target, current, object, options)
}

/// Fills in what the server decides.
fn complete(target: &Target, old: &Value, object: &mut Value) {
    if !target.is_status() {
        intake::complete(target, object);
        kinds::prepare_change(&target.resource, object, old, clock::now());
    }
}

/// The end of every change: the rules, the generation, and the write, if there is anything new.
fn write_in(
    tx: &mut Transaction<'_>,
    target: &Target,
    current: &Arc<Stored>,
    mut object: Value,
    options: &WriteOptions,
) -> Result<Arc<Stored>, Failure> {
    let old = &current.value;
    check_finalizers(target, old, &object)?;
    intake::validate(target, &object, Some(old))?;
    provision(tx, target, &current.key, &mut object)?;
    count_generation(target, old, &mut object);
    if *old == object {
        return Ok(Arc::clone(current));
    }
    let stored = if may_go(&object) {
        tx.remove(&current.key).ok_or_else(|| Failure::not_found(target.about()))?
    } else {
        tx.put(&current.key, object)
    };
    if options.dry_run {
        tx.discard();
    }
    Ok(stored)
}

/// Optimistic locking: a version or uid that is given must be the current one.
fn check_version(target: &Target, old: &Value, new: &Value, whole: bool) -> Result<(), Failure> {
    let given = object::meta(new, "resourceVersion");
    if whole && given.is_empty() && target.resource.nature == Nature::Custom {
        let why = "must be specified for an update";
        let cause = Cause::new(
            "FieldValueInvalid",
            "metadata.resourceVersion",
            format!("Invalid value: 0: {why}"),
        );
        return Err(Failure::invalid(target.about(), &[cause]));
    }
    if target.resource.nature == Nature::Builtin
        && given.parse::<u64>().is_err()
        && !given.is_empty()
    {
        return Err(Failure::unexplained(format!(
            "strconv.ParseUint: parsing {given:?}: invalid syntax"
        )));
    }
    if !given.is_empty() && given != object::meta(old, "resourceVersion") {
        return Err(Failure::stale(target.about()));
    }
    let (before, after) = (object::uid(old), object::uid(new));
    if !after.is_empty() && before != after {
        let why = format!(
            "Precondition failed: UID in precondition: {after}, UID in object meta: {before}"
        );
        return Err(Failure::conflict(target.about(), &why));
    }
    Ok(())
}

/// The status endpoint changes the status only, the main one everything else.
fn only_addressed_part(target: &Target, old: &Value, new: Value) -> Value {
    if !target.version().status_subresource {
        return new;
    }
    let (mut base, status) = if target.is_status() {
        let mut base = old.clone();
        if target.resource.nature == Nature::Builtin {
            base["metadata"] = new["metadata"].clone();
        }
        (base, new.get("status").cloned())
    } else {
        let status = old.get("status").cloned();
        (new, status)
    };
    if let Some(map) = base.as_object_mut() {
        match status {
            Some(status) => map.insert("status".to_owned(), status),
            None => map.remove("status"),
        };
    }
    base
}

/// What an update cannot change.
fn keep_server_metadata(old: &Value, new: &mut Value) {
    const KEPT: [&str; 8] = [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "resourceVersion",
    ];
    let before = object::metadata(old).clone();
    let metadata = object::metadata_mut(new);
    metadata.retain(|_, value| !value.is_null());
    metadata.remove("selfLink");
    for field in KEPT {
        match before.get(field) {
            Some(value) => metadata.insert(field.to_owned(), value.clone()),
            None => metadata.remove(field),
        };
    }
}

/// What is being deleted may lose finalizers but not gain any.
fn check_finalizers(target: &Target, old: &Value, new: &Value) -> Result<(), Failure> {
    if !object::is_terminating(old) {
        return Ok(());
    }
    let known = object::finalizers(old);
    let added: Vec<&str> =
        object::finalizers(new).into_iter().filter(|f| !known.contains(f)).collect();
    if added.is_empty() {
        return Ok(());
    }
    let why = format!(
        "no new finalizers can be added if the object is being deleted, found new finalizers \
         []string{{{}}}",
        added.iter().map(|f| format!("{f:?}")).collect::<Vec<_>>().join(", ")
    );
    let cause = Cause::forbidden("metadata.finalizers", &why);
    Err(Failure::invalid(target.about_kind(&target.name), &[cause]))
}

/// Counts changes of what the user wants: everything but metadata and status.
fn count_generation(target: &Target, old: &Value, new: &mut Value) {
    if !target.resource.counts_generations || target.is_status() {
        return;
    }
    let skips_status = target.version().status_subresource;
    let differs = |one: &Value, other: &Value| {
        let fields = |value: &Value| -> Vec<String> {
            value.as_object().into_iter().flat_map(|map| map.keys().cloned()).collect()
        };
        fields(one)
            .into_iter()
            .filter(|field| field != "metadata" && !(skips_status && field == "status"))
            .any(|field| one.get(&field) != other.get(&field))
    };
    if differs(old, new) || differs(new, old) {
        let before = object::metadata(old).get("generation").and_then(Value::as_i64).unwrap_or(0);
        object::set_meta(new, "generation", before + 1);
    }
}

/// A terminating object goes when nothing holds it any more.
pub(crate) fn may_go(object: &Value) -> bool {
    let grace = object::metadata(object).get("deletionGracePeriodSeconds").and_then(Value::as_i64);
    let spec_finalizers = object.get("kind").is_some_and(|kind| kind == "Namespace")
        && object::at(object, "spec.finalizers")
            .and_then(Value::as_array)
            .is_some_and(|list| !list.is_empty());
    object::is_terminating(object)
        && object::finalizers(object).is_empty()
        && grace.unwrap_or(0) <= 0
        && !spec_finalizers
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_terminating_object_goes_when_the_last_finalizer_and_the_grace_are_gone() {
        let object = |metadata: Value| json!({"kind": "Pod", "metadata": metadata});
        assert!(!may_go(&object(json!({}))));
        assert!(may_go(&object(json!({"deletionTimestamp": "t"}))));
        assert!(!may_go(&object(json!({"deletionTimestamp": "t", "finalizers": ["a"]}))));
        assert!(!may_go(&object(
            json!({"deletionTimestamp": "t", "deletionGracePeriodSeconds": 5})
        )));
        let namespace = json!({"kind": "Namespace", "metadata": {"deletionTimestamp": "t"},
            "spec": {"finalizers": ["kubernetes"]}});
        assert!(!may_go(&namespace));
    }

    #[test]
    fn an_update_keeps_what_only_the_server_sets() {
        let old =
            json!({"metadata": {"name": "a", "uid": "1", "generation": 3, "labels": {"x": "1"}}});
        let mut new = json!({"metadata": {"name": "a", "uid": "2", "deletionTimestamp": "t",
            "annotations": null}});
        keep_server_metadata(&old, &mut new);
        assert_eq!(new, json!({"metadata": {"name": "a", "uid": "1", "generation": 3}}));
    }
}
