//! CustomResourceDefinitions: established as soon as they are accepted, cleaned up before they go.

use crate::clock;
use crate::failure::Cause;
use crate::object::{add_finalizer, at, is_terminating, set, set_default, text};
use crate::registry::from_definition;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

/// Held until the last object of the kind is gone.
pub(crate) const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

pub(super) fn fill_defaults(crd: &mut Value) {
    let kind = text(crd, "spec.names.kind").to_owned();
    if !kind.is_empty() {
        set_default(crd, "spec.names.singular", kind.to_lowercase());
        set_default(crd, "spec.names.listKind", format!("{kind}List"));
    }
    set_default(crd, "spec.conversion", json!({"strategy": "None"}));
}

/// Says in the status that the definition is in force.
pub(super) fn establish(crd: &mut Value, now: Timestamp) {
    if is_terminating(crd) {
        return;
    }
    add_finalizer(crd, CLEANUP_FINALIZER);
    let names = at(crd, "spec.names").cloned().unwrap_or_default();
    set(crd, "status.acceptedNames", names);
    let stored = stored_versions(crd);
    set(crd, "status.storedVersions", stored);
    let now = clock::seconds(now);
    let conditions = [
        ("NamesAccepted", "NoConflicts", "no conflicts found"),
        ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
    ]
    .map(|(kind, reason, message)| {
        json!({"type": kind, "status": "True", "reason": reason, "message": message,
               "lastTransitionTime": now})
    });
    set_default(crd, "status.conditions", conditions.to_vec());
}

/// The versions that objects may be stored in: those before, and the storage version of now.
fn stored_versions(crd: &Value) -> Value {
    let before = at(crd, "status.storedVersions").and_then(Value::as_array).cloned();
    let mut stored = before.unwrap_or_default();
    let versions = at(crd, "spec.versions").and_then(Value::as_array);
    let storage = versions.into_iter().flatten().find(|version| version["storage"] == true);
    if let Some(name) = storage.map(|version| version["name"].clone())
        && !stored.contains(&name)
    {
        stored.push(name);
    }
    Value::Array(stored)
}

pub(super) fn validate(crd: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    for field in ["spec.group", "spec.names.plural", "spec.names.kind", "spec.scope"] {
        if text(crd, field).is_empty() {
            causes.push(Cause::required(field, ""));
        }
    }
    let expected = format!("{}.{}", text(crd, "spec.names.plural"), text(crd, "spec.group"));
    if text(crd, "metadata.name") != expected {
        let why = "must be spec.names.plural+\".\"+spec.group";
        causes.push(Cause::invalid("metadata.name", &crd["metadata"]["name"], why));
    }
    if !matches!(text(crd, "spec.scope"), "" | "Cluster" | "Namespaced") {
        let scopes = ["Cluster", "Namespaced"].map(str::to_owned);
        causes.push(Cause::unsupported("spec.scope", &crd["spec"]["scope"], &scopes));
    }
    causes.extend(versions(crd));
    causes.extend(old.into_iter().flat_map(|old| changed_identity(crd, old)));
    causes
}

fn versions(crd: &Value) -> Vec<Cause> {
    let versions = at(crd, "spec.versions").and_then(Value::as_array);
    let storing =
        versions.into_iter().flatten().filter(|version| version["storage"] == true).count();
    if storing != 1 {
        let why = "must have exactly one version marked as storage version";
        let all = crd["spec"]["versions"].clone();
        return vec![Cause::invalid("spec.versions", &all, why)];
    }
    let mut causes = Vec::new();
    for (index, version) in versions.into_iter().flatten().enumerate() {
        if version["schema"]["openAPIV3Schema"].is_null() {
            let field = format!("spec.versions[{index}].schema.openAPIV3Schema");
            causes.push(Cause::required(&field, "schemas are required"));
        }
    }
    if let Err(why) = from_definition(crd) {
        causes.push(Cause::new(
            "FieldValueInvalid",
            "spec.versions",
            format!("Invalid value: {why}"),
        ));
    }
    causes.extend(broken_rules(crd));
    causes
}

/// CEL rules that do not compile.
fn broken_rules(crd: &Value) -> Vec<Cause> {
    let Ok(resource) = from_definition(crd) else { return Vec::new() };
    let compiled = resource.versions.iter().filter_map(|version| version.schema.rules());
    compiled
        .flat_map(|rules| rules.compilation_errors())
        .map(|error| {
            let text = format!("Invalid value: compilation failed: {error}");
            Cause::new("FieldValueInvalid", "spec.versions", text)
        })
        .collect()
}

fn changed_identity(crd: &Value, old: &Value) -> Vec<Cause> {
    ["spec.group", "spec.scope", "spec.names.plural", "spec.names.kind"]
        .into_iter()
        .filter(|field| at(crd, field) != at(old, field))
        .map(|field| {
            let value = at(crd, field).cloned().unwrap_or_default();
            Cause::invalid(field, &value, "field is immutable")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crd() -> Value {
        json!({
            "metadata": {"name": "nets.x.dev"},
            "spec": {"group": "x.dev", "scope": "Cluster", "names": {"plural": "nets", "kind": "Net"},
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object"}}}]},
        })
    }

    #[test]
    fn a_definition_is_established_at_once() {
        let mut crd = crd();
        establish(&mut crd, clock::now());
        assert_eq!(crd["status"]["storedVersions"], json!(["v1"]));
        assert_eq!(crd["status"]["conditions"][1]["type"], "Established");
        assert!(validate(&crd, None).is_empty());
    }

    #[test]
    fn the_name_must_follow_from_plural_and_group() {
        let mut crd = crd();
        crd["metadata"]["name"] = "other".into();
        assert_eq!(validate(&crd, None)[0].field, "metadata.name");
    }

    #[test]
    fn a_rule_that_does_not_compile_is_refused() {
        let mut crd = crd();
        crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["x-kubernetes-validations"] =
            json!([{"rule": "self.("}]);
        assert!(validate(&crd, None)[0].message.contains("compilation failed"));
    }

    #[test]
    fn group_and_scope_never_change() {
        let mut changed = crd();
        changed["spec"]["scope"] = "Namespaced".into();
        assert_eq!(validate(&changed, Some(&crd()))[0].field, "spec.scope");
    }
}
