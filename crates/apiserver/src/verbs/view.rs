//! Objects as a version shows them, and back. Storage holds one version; versions of a custom
//! resource differ in name only (conversion strategy `None`), events also in field names.

use super::Target;
use crate::kinds;
use crate::store::Stored;
use bytes::Bytes;
use serde_json::Value;

/// Whether the stored form is the one the target asks for.
fn is_storage_form(target: &Target) -> bool {
    target.version().name == target.resource.storage_version
        && target.resource.group != "events.k8s.io"
        && target.resource.seed.is_none()
}

/// The object in the target's version.
pub(super) fn from_storage(target: &Target, stored: &Value) -> Value {
    if is_storage_form(target) {
        return stored.clone();
    }
    if let Some(seed) = target.resource.seed {
        return seed.show(stored);
    }
    let mut shown = match target.resource.group.as_str() {
        "events.k8s.io" => kinds::event_from_core(stored.clone()),
        _ => stored.clone(),
    };
    shown["apiVersion"] = target.api_version().into();
    shown
}

/// The object as it is kept.
pub(super) fn to_storage(target: &Target, value: Value) -> Value {
    let mut kept = match target.resource.group.as_str() {
        "events.k8s.io" => kinds::event_to_core(value),
        _ => value,
    };
    if target.resource.group != "events.k8s.io" && target.resource.seed.is_none() {
        kept["apiVersion"] = target.resource.api_version(&target.resource.storage_version).into();
    }
    kept
}

/// An object ready to be shown: its JSON, and its value where that is asked for.
pub(crate) struct Shown<'a> {
    target: &'a Target,
    stored: &'a Stored,
}

/// Shows a stored object in the target's version.
pub(crate) fn present<'a>(target: &'a Target, stored: &'a Stored) -> Shown<'a> {
    Shown { target, stored }
}

impl Shown<'_> {
    pub(crate) fn json(&self) -> Bytes {
        if is_storage_form(self.target) {
            self.stored.json.clone()
        } else {
            Bytes::from(from_storage(self.target, &self.stored.value).to_string())
        }
    }

    pub(crate) fn value(&self) -> Value {
        from_storage(self.target, &self.stored.value)
    }
}
