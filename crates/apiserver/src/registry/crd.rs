//! From a CustomResourceDefinition to the resource it defines.

use super::{Nature, Resource, ScalePaths, Version};
use crate::object::text;
use crate::schema::Schema;
use crate::table::Column;
use serde_json::Value;

/// Where definitions are kept.
pub(crate) const CRDS: &str = "customresourcedefinitions.apiextensions.k8s.io";

/// Parses a definition; the error names the field that cannot be understood.
pub(crate) fn from_definition(crd: &Value) -> Result<Resource, String> {
    let group = text(crd, "spec.group");
    let plural = text(crd, "spec.names.plural");
    let kind = text(crd, "spec.names.kind");
    let versions = list(crd, "spec.versions");
    let storage = versions
        .iter()
        .find(|version| version["storage"] == true)
        .ok_or("spec.versions: no version is the storage version")?;
    Ok(Resource {
        group: group.to_owned(),
        plural: plural.to_owned(),
        singular: or(text(crd, "spec.names.singular"), &kind.to_lowercase()),
        kind: kind.to_owned(),
        list_kind: or(text(crd, "spec.names.listKind"), &format!("{kind}List")),
        short_names: strings(crd, "spec.names.shortNames"),
        categories: strings(crd, "spec.names.categories"),
        namespaced: text(crd, "spec.scope") == "Namespaced",
        nature: Nature::Custom,
        terminating: crate::object::is_terminating(crd),
        counts_generations: true,
        collection: format!("{plural}.{group}").into(),
        storage_version: text(storage, "name").to_owned(),
        versions: served(versions)?,
        seed: None,
    })
}

fn served(versions: &[Value]) -> Result<Vec<Version>, String> {
    let mut served = versions
        .iter()
        .enumerate()
        .filter(|(_, version)| version["served"] == true)
        .map(|(index, raw)| version(raw).map_err(|e| format!("spec.versions[{index}].{e}")))
        .collect::<Result<Vec<_>, _>>()?;
    served.sort_by_key(|version| std::cmp::Reverse(super::version_rank(&version.name)));
    Ok(served)
}

fn version(raw: &Value) -> Result<Version, String> {
    let schema = Schema::from_crd(&raw["schema"]["openAPIV3Schema"])
        .map_err(|error| format!("schema.openAPIV3Schema: {error}"))?;
    Ok(Version {
        name: text(raw, "name").to_owned(),
        schema,
        status_subresource: raw["subresources"].get("status").is_some(),
        scale: raw["subresources"].get("scale").map(scale),
        columns: list(raw, "additionalPrinterColumns").iter().map(column).collect(),
        selectable: list(raw, "selectableFields")
            .iter()
            .map(|field| text(field, "jsonPath").trim_start_matches('.').to_owned())
            .collect(),
        deprecation: deprecation(raw),
    })
}

fn deprecation(raw: &Value) -> Option<String> {
    (raw["deprecated"] == true).then(|| text(raw, "deprecationWarning").to_owned())
}

fn scale(raw: &Value) -> ScalePaths {
    ScalePaths {
        spec_replicas: text(raw, "specReplicasPath").to_owned(),
        status_replicas: text(raw, "statusReplicasPath").to_owned(),
        selector: raw["labelSelectorPath"].as_str().map(str::to_owned),
    }
}

fn column(raw: &Value) -> Column {
    Column {
        name: text(raw, "name").to_owned(),
        kind: text(raw, "type").to_owned(),
        format: text(raw, "format").to_owned(),
        description: text(raw, "description").to_owned(),
        priority: raw["priority"].as_i64().unwrap_or(0),
        path: text(raw, "jsonPath").to_owned(),
    }
}

fn or(text: &str, otherwise: &str) -> String {
    if text.is_empty() { otherwise.to_owned() } else { text.to_owned() }
}

fn list<'a>(value: &'a Value, path: &str) -> &'a [Value] {
    crate::object::at(value, path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn strings(value: &Value, path: &str) -> Vec<String> {
    list(value, path).iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn definition() -> Value {
        json!({"spec": {
        "group": "atoll.dev", "scope": "Cluster",
        "names": {"plural": "networks", "kind": "Network", "shortNames": ["net"]},
        "versions": [
            {"name": "v1beta1", "served": true, "storage": false, "schema": {"openAPIV3Schema": {"type": "object"}}},
            {"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
             "schema": {"openAPIV3Schema": {"type": "object"}}},
        ]}})
    }

    #[test]
    fn names_scope_and_versions_come_from_the_definition() {
        let resource = from_definition(&definition()).unwrap();
        assert_eq!(resource.list_kind, "NetworkList");
        assert_eq!(resource.singular, "network");
        assert!(!resource.namespaced);
        assert_eq!(resource.storage_version, "v1");
        let names: Vec<_> = resource.versions.iter().map(|v| v.name.as_str()).collect();
        assert_eq!(names, ["v1", "v1beta1"]);
        assert!(resource.versions[0].status_subresource);
    }

    #[test]
    fn a_definition_without_a_storage_version_is_refused() {
        let mut crd = definition();
        crd["spec"]["versions"][1]["storage"] = false.into();
        assert!(from_definition(&crd).unwrap_err().contains("storage version"));
    }
}
