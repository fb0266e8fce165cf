//! Taking an object in: is it of the right kind, are its fields known and of the right types,
//! and, once complete, does it keep every rule. The last part of a write before the store.

use super::{FieldValidation, Target, WriteOptions, view};
use crate::failure::{About, Cause, Failure};
use crate::kinds;
use crate::object;
use crate::registry::Nature;
use crate::seeds;
use serde_json::Value;

/// Most fields that are complained about in one answer.
const NAMED: usize = 10;

/// Checks kind, fields and types; returns the object in storage form, and warnings.
pub(super) fn take(
    target: &Target,
    mut value: Value,
    options: &WriteOptions,
) -> Result<(Value, Vec<String>), Failure> {
    check_kind(target, &mut value)?;
    let notes = seeds::translate(target, &mut value)?;
    check_types(target, &value)?;
    let unknown = target.version().schema.prune(&mut value);
    let metadata = unknown_metadata(target, &value);
    let unknown = [metadata, unknown].concat();
    let unknown = unknown.iter().map(|path| format!("unknown field {path:?}"));
    let complaints = options.doubled.iter().cloned().chain(unknown).take(NAMED).collect();
    let warnings = judge(target, complaints, options.field_validation)?;
    Ok((view::to_storage(target, value), [notes, warnings].concat()))
}

/// `apiVersion` and `kind` must be those of the path; built-in kinds may leave them out.
fn check_kind(target: &Target, value: &mut Value) -> Result<(), Failure> {
    let kind = &target.resource.kind;
    if !value.is_object() {
        return Err(Failure::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): couldn't get \
             version/kind; json parse error: the value is not an object"
        )));
    }
    for (field, wanted) in [("kind", kind.clone()), ("apiVersion", target.api_version())] {
        let given = match value.get(field) {
            Some(Value::String(given)) => given.as_str(),
            Some(Value::Null) | None => "",
            Some(_) => return Err(not_text(kind, field)),
        };
        if given == wanted {
            continue;
        }
        match (given.is_empty(), target.resource.nature) {
            (true, Nature::Builtin) => value[field] = wanted.into(),
            (true, Nature::Custom) => return Err(missing_kind(kind, field, value)),
            (false, _) => return Err(wrong_kind(target, value)),
        }
    }
    Ok(())
}

fn not_text(kind: &str, field: &str) -> Failure {
    Failure::bad_request(format!(
        "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; \
         json parse error: json: cannot unmarshal this into Go struct field .{field} of type string"
    ))
}

fn missing_kind(kind: &str, field: &str, value: &Value) -> Failure {
    let name = if field == "kind" { "Kind" } else { field };
    Failure::bad_request(format!(
        "the object provided is unrecognized (must be of type {kind}): Object '{name}' is missing \
         in '{value}'"
    ))
}

fn wrong_kind(target: &Target, value: &Value) -> Failure {
    let (version, kind) = (object::text(value, "apiVersion"), object::text(value, "kind"));
    let wanted = &target.resource.kind;
    let short = version.rsplit('/').next().unwrap_or(version);
    match target.resource.nature {
        Nature::Custom if version != target.api_version() => Failure::bad_request(format!(
            "the API version in the data ({version}) does not match the expected API version ({})",
            target.api_version()
        )),
        Nature::Custom => {
            let about = About { group: &target.resource.group, kind, name: object::name(value) };
            let why = format!("must be {wanted}");
            Failure::invalid(about, &[Cause::invalid("kind", &kind.into(), &why)])
        }
        Nature::Builtin => Failure::bad_request(format!(
            "{kind} in version {short:?} cannot be handled as a {wanted}: no kind {kind:?} is \
             registered for version {version:?} here"
        )),
    }
}

/// Built-in kinds are decoded into types first, so a wrong type is a bad request there.
fn check_types(target: &Target, value: &Value) -> Result<(), Failure> {
    if target.resource.nature == Nature::Custom {
        return Ok(());
    }
    match target.version().schema.type_errors(value).first() {
        None => Ok(()),
        Some(cause) => Err(undecodable(target, &cause.message)),
    }
}

/// A patch that leads to wrong types is invalid by itself.
pub(super) fn check_patched(target: &Target, patched: &Value) -> Result<(), Failure> {
    if target.resource.nature == Nature::Custom {
        return Ok(());
    }
    match target.version().schema.type_errors(patched).first() {
        None => Ok(()),
        Some(cause) => {
            let shown = patched.to_string();
            let about = About { group: "", kind: "", name: "" };
            Err(Failure::invalid(about, &[Cause::invalid("patch", &shown.into(), &cause.message)]))
        }
    }
}

fn undecodable(target: &Target, why: &str) -> Failure {
    let (kind, version) = (&target.resource.kind, &target.version().name);
    Failure::bad_request(format!(
        "{kind} in version {version:?} cannot be handled as a {kind}: {why}"
    ))
}

/// Custom resources have free metadata in their schemas; its fields are known all the same.
fn unknown_metadata(target: &Target, value: &Value) -> Vec<String> {
    const KNOWN: [&str; 15] = [
        "annotations",
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "finalizers",
        "generateName",
        "generation",
        "labels",
        "managedFields",
        "name",
        "namespace",
        "ownerReferences",
        "resourceVersion",
        "selfLink",
        "uid",
    ];
    if target.resource.nature == Nature::Builtin {
        return Vec::new();
    }
    let fields = object::metadata(value).keys();
    fields
        .filter(|field| !KNOWN.contains(&field.as_str()))
        .map(|field| format!("metadata.{field}"))
        .collect()
}

/// Unknown fields and those said twice are refused, told of, or let pass.
fn judge(
    target: &Target,
    complaints: Vec<String>,
    strictness: FieldValidation,
) -> Result<Vec<String>, Failure> {
    match strictness {
        FieldValidation::Ignore => Ok(Vec::new()),
        FieldValidation::Warn => Ok(complaints),
        FieldValidation::Strict if complaints.is_empty() => Ok(complaints),
        FieldValidation::Strict => {
            Err(undecodable(target, &format!("strict decoding error: {}", complaints.join(", "))))
        }
    }
}

/// Fills defaults, in storage form.
pub(super) fn complete(target: &Target, object: &mut Value) {
    match target.resource.nature {
        Nature::Custom => target.version().schema.fill_defaults(object),
        Nature::Builtin => kinds::fill_defaults(&target.resource, object),
    }
}

/// Every rule there is about the object, alone and against what it replaces.
pub(super) fn validate(
    target: &Target,
    object: &Value,
    old: Option<&Value>,
) -> Result<(), Failure> {
    let mut causes = kinds::validate(&target.resource, object, old);
    if target.resource.nature == Nature::Custom {
        causes.extend(custom_causes(target, object, old));
    }
    if causes.is_empty() {
        return Ok(());
    }
    let name = object::name(object);
    let name = if name.is_empty() { object::meta(object, "generateName") } else { name };
    Err(Failure::invalid(target.about_kind(name), &causes))
}

/// CEL rules are asked only of objects whose structure is sound, as the real API does.
fn custom_causes(target: &Target, object: &Value, old: Option<&Value>) -> Vec<Cause> {
    let schema = &target.version().schema;
    let mut causes = schema.validate(object);
    if causes.is_empty() {
        return schema.broken_rules(object, old);
    }
    if schema.rules().is_some() {
        let why = "some validation rules were not checked because the object was invalid; correct \
                   the existing errors to complete validation";
        causes.push(Cause::invalid("<nil>", &Value::Null, why));
    }
    causes
}
