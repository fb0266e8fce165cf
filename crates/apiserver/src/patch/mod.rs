//! The four ways to patch an object, each a pure function from an object to the patched one.

mod apply;
mod fields;
mod managers;
mod strategic;

pub(crate) use managers::{Writer, apply_configuration, note_update};

use crate::failure::Failure;
use crate::schema::Schema;
use serde_json::Value;

/// A parsed patch.
#[derive(Debug)]
pub(crate) enum Patch {
    Json(json_patch::Patch),
    Merge(Value),
    Strategic(Value),
    Apply(Value),
}

/// What the API accepts as patches, as told to clients that send something else.
pub(crate) const MEDIA_TYPES: &str = "application/json-patch+json, \
    application/merge-patch+json, application/strategic-merge-patch+json, \
    application/apply-patch+yaml";

impl Patch {
    /// Reads the body according to its media type.
    pub(crate) fn parse(media_type: &str, body: &[u8]) -> Result<Patch, Failure> {
        match media_type {
            "application/json-patch+json" => operations(body).map(Patch::Json),
            "application/merge-patch+json" => object(body).map(Patch::Merge),
            "application/strategic-merge-patch+json" => object(body).map(Patch::Strategic),
            "application/apply-patch+yaml" | "application/apply-patch+json" => {
                serde_yaml_ng::from_slice(body)
                    .map(Patch::Apply)
                    .map_err(|error| Failure::bad_request(format!("error decoding YAML: {error}")))
            }
            _ => Err(Failure::unsupported_media(MEDIA_TYPES)),
        }
    }

    /// The patched object. `Apply` is not done here: it needs the managed fields.
    pub(crate) fn apply_to(&self, current: &Value, schema: &Schema) -> Result<Value, Failure> {
        let mut patched = current.clone();
        match self {
            Patch::Json(patch) => apply_json(&mut patched, patch)?,
            Patch::Merge(patch) => json_patch::merge(&mut patched, patch),
            Patch::Strategic(patch) => strategic::merge(schema, &mut patched, patch)?,
            Patch::Apply(applied) => apply::merge(schema, &mut patched, applied),
        }
        Ok(patched)
    }
}

/// A list of operations; one that does not exist is invalid, anything else no patch.
fn operations(body: &[u8]) -> Result<json_patch::Patch, Failure> {
    let unread =
        |error: serde_json::Error| Failure::bad_request(format!("error decoding patch: {error}"));
    let listed: Vec<serde_json::Map<String, Value>> =
        serde_json::from_slice(body).map_err(unread)?;
    let listed = listed.into_iter().map(Value::Object).collect();
    serde_json::from_value(Value::Array(listed)).map_err(|error| rejected(&error))
}

/// Operations in order. Kubernetes takes a missing field for null in tests, as finalizers of
/// controllers rely on.
fn apply_json(patched: &mut Value, patch: &json_patch::Patch) -> Result<(), Failure> {
    for operation in patch.iter() {
        let tests_absence = matches!(operation, json_patch::PatchOperation::Test(test)
            if test.value.is_null() && patched.pointer(test.path.as_str()).is_none());
        if !tests_absence {
            let one = std::slice::from_ref(operation);
            json_patch::patch(patched, one).map_err(|error| rejected(&error))?;
        }
    }
    Ok(())
}

/// A failed test, path or operation is the patch's fault, but about a well-formed request. The real API does
/// not say which operation failed; the log does.
fn rejected(error: &dyn std::error::Error) -> Failure {
    tracing::debug!(%error, "a JSON patch does not fit its object");
    let message = "the server rejected our request due to an error in our request";
    let mut failure = Failure::bad_request(message);
    failure.code = 422;
    failure.reason = "Invalid";
    failure
}

fn object(body: &[u8]) -> Result<Value, Failure> {
    let value: Value = serde_json::from_slice(body)
        .map_err(|error| Failure::bad_request(format!("error decoding patch: {error}")))?;
    if value.is_object() {
        Ok(value)
    } else {
        Err(Failure::bad_request("error decoding patch: the patch must be a JSON object"))
    }
}

#[cfg(test)]
mod ownership_tests;
#[cfg(test)]
mod tests;
