//! Discovery documents: which groups, versions and resources there are.

use crate::registry::{Resource, Snapshot, Version};
use serde_json::{Value, json};

const VERBS: [&str; 8] =
    ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// The release whose API this one follows.
pub(super) fn version() -> Value {
    json!({
        "major": "1", "minor": "34", "gitVersion": "v1.34.0+atoll",
        "gitCommit": "", "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "", "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}

/// `/api`
pub(super) fn core_versions() -> Value {
    json!({
        "kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [],
    })
}

/// `/apis`
pub(super) fn groups(snapshot: &Snapshot) -> Value {
    let groups: Vec<Value> = snapshot
        .groups()
        .into_iter()
        .filter(|group| !group.is_empty())
        .filter_map(|name| group(snapshot, name))
        .collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/{group}`, without kind and version of its own.
pub(super) fn group(snapshot: &Snapshot, name: &str) -> Option<Value> {
    let versions: Vec<Value> = snapshot
        .versions(name)
        .into_iter()
        .map(|version| json!({"groupVersion": format!("{name}/{version}"), "version": version}))
        .collect();
    let preferred = versions.first()?.clone();
    Some(json!({"name": name, "versions": versions, "preferredVersion": preferred}))
}

/// `/api/v1` and `/apis/{group}/{version}`
pub(super) fn resources(snapshot: &Snapshot, group: &str, version: &str) -> Option<Value> {
    let served = snapshot.served(group, version);
    let group_version = served.first()?.0.api_version(version);
    let entries: Vec<Value> =
        served.iter().flat_map(|(resource, version)| entries(resource, version)).collect();
    Some(json!({
        "kind": "APIResourceList", "apiVersion": "v1",
        "groupVersion": group_version, "resources": entries,
    }))
}

fn entries(resource: &Resource, version: &Version) -> Vec<Value> {
    let mut entry = json!({
        "name": resource.plural, "singularName": resource.singular,
        "namespaced": resource.namespaced, "kind": resource.kind, "verbs": VERBS,
    });
    for (field, list) in
        [("shortNames", &resource.short_names), ("categories", &resource.categories)]
    {
        if !list.is_empty() {
            entry[field] = json!(list);
        }
    }
    let mut entries = vec![entry];
    entries.extend(subresources(resource, version).into_iter().map(|sub| {
        let mut entry = json!({
            "name": format!("{}/{}", resource.plural, sub.name), "singularName": "",
            "namespaced": resource.namespaced, "kind": sub.kind, "verbs": sub.verbs,
        });
        if let Some((group, version)) = sub.of {
            entry["group"] = group.into();
            entry["version"] = version.into();
        }
        entry
    }));
    entries
}

struct Subresource<'a> {
    name: &'static str,
    kind: &'a str,
    verbs: &'static [&'static str],
    /// The group and version of its kind where they are not the resource's.
    of: Option<(&'static str, &'static str)>,
}

fn subresources<'a>(resource: &'a Resource, version: &Version) -> Vec<Subresource<'a>> {
    let mut found = Vec::new();
    let changes: &[&str] = &["get", "patch", "update"];
    if version.status_subresource {
        found.push(Subresource { name: "status", kind: &resource.kind, verbs: changes, of: None });
    }
    if version.scale.is_some() {
        let of = Some(("autoscaling", "v1"));
        found.push(Subresource { name: "scale", kind: "Scale", verbs: changes, of });
    }
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "pods") => {
            found.push(Subresource {
                name: "binding",
                kind: "Binding",
                verbs: &["create"],
                of: None,
            });
        }
        ("", "namespaces") => found.push(Subresource {
            name: "finalize",
            kind: "Namespace",
            verbs: &["update"],
            of: None,
        }),
        _ => {}
    }
    found
}

/// All groups (or the core one) in one document.
pub(super) fn aggregated(snapshot: &Snapshot, core: bool) -> Value {
    let items: Vec<Value> = snapshot
        .groups()
        .into_iter()
        .filter(|group| group.is_empty() == core)
        .map(|group| aggregated_group(snapshot, group))
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {}, "items": items,
    })
}

fn aggregated_group(snapshot: &Snapshot, group: &str) -> Value {
    let versions: Vec<Value> = snapshot
        .versions(group)
        .into_iter()
        .map(|version| {
            let resources: Vec<Value> = snapshot
                .served(group, version)
                .into_iter()
                .map(|(resource, served)| aggregated_resource(resource, served))
                .collect();
            json!({"version": version, "freshness": "Current", "resources": resources})
        })
        .collect();
    json!({"metadata": {"name": group, "creationTimestamp": null}, "versions": versions})
}

fn aggregated_resource(resource: &Resource, version: &Version) -> Value {
    let kind = |kind: &str, of: Option<(&str, &str)>| {
        let (group, version) = of.unwrap_or((&resource.group, &version.name));
        json!({"group": group, "version": version, "kind": kind})
    };
    let subresources: Vec<Value> = subresources(resource, version)
        .into_iter()
        .map(|sub| {
            json!({"subresource": sub.name, "responseKind": kind(sub.kind, sub.of), "verbs": sub.verbs})
        })
        .collect();
    let mut entry = json!({
        "resource": resource.plural, "responseKind": kind(&resource.kind, None),
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular, "verbs": VERBS,
    });
    for (field, list) in
        [("shortNames", &resource.short_names), ("categories", &resource.categories)]
    {
        if !list.is_empty() {
            entry[field] = json!(list);
        }
    }
    if !subresources.is_empty() {
        entry["subresources"] = Value::Array(subresources);
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;

    #[test]
    fn pods_are_listed_with_their_short_name_and_subresources() {
        let snapshot = Registry::with_builtins().snapshot();
        let list = resources(&snapshot, "", "v1").unwrap();
        let names: Vec<&str> = list["resources"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|entry| entry["name"].as_str())
            .filter(|name| name.starts_with("pods"))
            .collect();
        assert_eq!(names, ["pods", "pods/status", "pods/binding"]);
    }

    #[test]
    fn the_aggregated_document_holds_every_group_once() {
        let snapshot = Registry::with_builtins().snapshot();
        let items = aggregated(&snapshot, false)["items"].as_array().unwrap().len();
        assert_eq!(items, groups(&snapshot)["groups"].as_array().unwrap().len());
        assert_eq!(aggregated(&snapshot, true)["items"][0]["metadata"]["name"], "");
    }

    #[test]
    fn an_unknown_group_has_no_document() {
        let snapshot = Registry::with_builtins().snapshot();
        assert!(group(&snapshot, "none.dev").is_none());
        assert!(resources(&snapshot, "apps", "v9").is_none());
    }
}
