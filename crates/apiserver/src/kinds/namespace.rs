//! Namespaces: they carry their own name as a label and a finalizer until their content is gone.

use crate::object::{metadata_mut, name, set, set_default};
use serde_json::{Value, json};

pub(super) fn fill_defaults(namespace: &mut Value) {
    let own = name(namespace).to_owned();
    if !own.is_empty() {
        crate::object::child_mut(metadata_mut(namespace), "labels")
            .insert("kubernetes.io/metadata.name".to_owned(), own.into());
    }
}

pub(super) fn prepare_new(namespace: &mut Value) {
    set_default(namespace, "spec.finalizers", json!(["kubernetes"]));
    set(namespace, "status", json!({"phase": "Active"}));
}

/// Only the `finalize` subresource changes these.
pub(super) fn keep_finalizers(namespace: &mut Value, old: &Value) {
    let kept = old.get("spec").cloned().unwrap_or_else(|| json!({}));
    set(namespace, "spec", kept);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_labelled_with_its_name() {
        let mut namespace = json!({"metadata": {"name": "acme"}});
        fill_defaults(&mut namespace);
        assert_eq!(namespace["metadata"]["labels"]["kubernetes.io/metadata.name"], "acme");
    }
}
