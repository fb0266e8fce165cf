//! OpenAPI v3 documents: what kubectl reads for `explain` and to learn that the server checks
//! fields itself (`fieldValidation`), so that it leaves the checking to us.

use crate::registry::{Nature, Resource, Snapshot, Version, components};
use serde_json::{Map, Value, json};

/// `/openapi/v3`
pub(super) fn index(snapshot: &Snapshot) -> Value {
    let mut paths = Map::new();
    for group in snapshot.groups() {
        for version in snapshot.versions(group) {
            let path = path(group, version);
            let serial = snapshot.serial;
            let url = format!("/openapi/v3/{path}?hash={serial}");
            paths.insert(path, json!({"serverRelativeURL": url}));
        }
    }
    json!({"paths": paths})
}

fn path(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// The document of one group and version.
pub(super) fn document(snapshot: &Snapshot, group: &str, version: &str) -> Option<Value> {
    let served = snapshot.served(group, version);
    served.first()?;
    let mut schemas = Map::new();
    let mut paths = Map::new();
    for (resource, version) in &served {
        let name = schema_name(resource, version);
        schemas.insert(name.clone(), schema(resource, version));
        paths.extend(resource_paths(resource, version, &name));
    }
    if served.iter().any(|(resource, _)| resource.nature == Nature::Builtin) {
        add_components(&mut schemas);
    }
    Some(json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.34.0"},
        "paths": paths,
        "components": {"schemas": schemas},
    }))
}

/// Built-in kinds carry their kind in the definition itself.
fn add_components(schemas: &mut Map<String, Value>) {
    for (name, mut raw) in components() {
        if let Some(known) = schemas.get(&name) {
            raw["x-kubernetes-group-version-kind"] =
                known["x-kubernetes-group-version-kind"].clone();
        }
        schemas.insert(name, raw);
    }
}

fn schema_name(resource: &Resource, version: &Version) -> String {
    match version.schema.raw().get("$ref").and_then(Value::as_str) {
        Some(reference) => reference.rsplit('/').next().unwrap_or(reference).to_owned(),
        None => {
            let group: Vec<&str> = resource.group.rsplit('.').collect();
            format!("{}.{}.{}", group.join("."), version.name, resource.kind)
        }
    }
}

fn schema(resource: &Resource, version: &Version) -> Value {
    let mut schema = version.schema.raw().clone();
    if !schema.is_object() {
        schema = json!({"type": "object"});
    }
    if let Some(map) = schema.as_object_mut() {
        map.remove("$ref");
    }
    schema["x-kubernetes-group-version-kind"] = json!([kind(resource, version)]);
    schema
}

fn kind(resource: &Resource, version: &Version) -> Value {
    json!({"group": resource.group, "version": version.name, "kind": resource.kind})
}

fn resource_paths(resource: &Resource, version: &Version, schema: &str) -> Map<String, Value> {
    let root = path(&resource.group, &version.name);
    let collection = if resource.namespaced {
        format!("/{root}/namespaces/{{namespace}}/{}", resource.plural)
    } else {
        format!("/{root}/{}", resource.plural)
    };
    let body = json!({"content": {"application/json": {
        "schema": {"$ref": format!("#/components/schemas/{schema}")}}}});
    let operation = |action: &str, query: &[&str]| {
        let parameters: Vec<Value> = query
            .iter()
            .map(|name| json!({"name": name, "in": "query", "schema": {"type": "string"}}))
            .collect();
        json!({
            "parameters": parameters, "responses": {"200": {"description": "OK"}},
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": kind(resource, version),
        })
    };
    let write = ["dryRun", "fieldManager", "fieldValidation"];
    let mut create = operation("post", &write);
    create["requestBody"] = body.clone();
    let mut replace = operation("put", &write);
    replace["requestBody"] = body;
    let mut patch = operation("patch", &["dryRun", "fieldManager", "fieldValidation", "force"]);
    patch["requestBody"] = json!({"content": {
        "application/json-patch+json": {}, "application/merge-patch+json": {},
        "application/apply-patch+yaml": {}}});
    Map::from_iter([
        (collection.clone(), json!({"get": operation("list", &[]), "post": create})),
        (
            format!("{collection}/{{name}}"),
            json!({"get": operation("get", &[]), "put": replace, "patch": patch,
                   "delete": operation("delete", &[])}),
        ),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;

    #[test]
    fn patching_a_pod_offers_field_validation() {
        let snapshot = Registry::with_builtins().snapshot();
        let document = document(&snapshot, "", "v1").unwrap();
        let patch = &document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"];
        assert_eq!(patch["x-kubernetes-group-version-kind"]["kind"], "Pod");
        let offered = patch["parameters"].as_array().unwrap();
        assert!(offered.iter().any(|parameter| parameter["name"] == "fieldValidation"));
    }

    #[test]
    fn the_schema_of_a_builtin_kind_names_its_kind() {
        let snapshot = Registry::with_builtins().snapshot();
        let document = document(&snapshot, "", "v1").unwrap();
        let pod = &document["components"]["schemas"]["io.k8s.api.core.v1.Pod"];
        assert_eq!(pod["x-kubernetes-group-version-kind"][0]["kind"], "Pod");
        assert!(pod["properties"]["spec"].is_object());
    }

    #[test]
    fn the_index_names_every_group_version() {
        let snapshot = Registry::with_builtins().snapshot();
        let index = index(&snapshot);
        assert!(index["paths"]["api/v1"].is_object());
        assert!(index["paths"]["apis/apps/v1"].is_object());
    }
}
