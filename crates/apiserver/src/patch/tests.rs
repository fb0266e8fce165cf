use super::*;
use crate::registry::Registry;
use serde_json::json;

fn patched(group: &str, plural: &str, patch: &Patch, current: &Value) -> Result<Value, Failure> {
    let snapshot = Registry::with_builtins().snapshot();
    let resource = snapshot.find(group, plural).unwrap();
    patch.apply_to(current, &resource.versions[0].schema)
}

fn pod() -> Value {
    json!({
        "metadata": {"name": "web", "finalizers": ["a"], "labels": {"app": "web", "old": "1"}},
        "spec": {"containers": [
            {"name": "a", "image": "one", "env": [{"name": "X", "value": "1"}]},
            {"name": "b", "image": "two"}]},
    })
}

#[test]
fn a_merge_patch_replaces_lists_and_removes_nulls() {
    let patch = Patch::Merge(json!({"metadata": {"labels": {"old": null, "new": "2"}},
        "spec": {"containers": []}}));
    let result = patched("", "pods", &patch, &pod()).unwrap();
    assert_eq!(result["metadata"]["labels"], json!({"app": "web", "new": "2"}));
    assert_eq!(result["spec"]["containers"], json!([]));
}

#[test]
fn a_strategic_patch_merges_containers_by_name_and_their_variables_too() {
    let patch = Patch::Strategic(json!({"spec": {"containers": [
        {"name": "a", "env": [{"name": "Y", "value": "2"}]}, {"name": "c"}]}}));
    let result = patched("", "pods", &patch, &pod()).unwrap();
    assert_eq!(
        result["spec"]["containers"],
        json!([
            {"name": "a", "image": "one",
             "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]},
            {"name": "b", "image": "two"},
            {"name": "c"}])
    );
}

#[test]
fn strategic_directives_delete_replace_order_and_retain() {
    let patch = Patch::Strategic(json!({
        "metadata": {"$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["b"],
                     "labels": {"$retainKeys": ["app"]}},
        "spec": {"$setElementOrder/containers": [{"name": "c"}, {"name": "b"}],
                 "containers": [{"name": "a", "$patch": "delete"}, {"name": "c"}]},
    }));
    let result = patched("", "pods", &patch, &pod()).unwrap();
    assert_eq!(result["metadata"]["finalizers"], json!(["b"]));
    assert_eq!(result["metadata"]["labels"], json!({"app": "web"}));
    assert_eq!(result["spec"]["containers"], json!([{"name": "c"}, {"name": "b", "image": "two"}]));
    let replace = Patch::Strategic(json!({"spec": {"containers": [
        {"$patch": "replace"}, {"name": "z"}]}}));
    let result = patched("", "pods", &replace, &pod()).unwrap();
    assert_eq!(result["spec"]["containers"], json!([{"name": "z"}]));
}

#[test]
fn a_strategic_item_without_its_key_is_refused() {
    let patch = Patch::Strategic(json!({"spec": {"containers": [{"image": "x"}]}}));
    assert_eq!(patched("", "pods", &patch, &pod()).unwrap_err().code, 400);
}

#[test]
fn a_json_patch_whose_test_fails_changes_nothing() {
    let body = br#"[{"op": "test", "path": "/metadata/name", "value": "other"},
                    {"op": "remove", "path": "/spec"}]"#;
    let patch = Patch::parse("application/json-patch+json", body).unwrap();
    assert_eq!(patched("", "pods", &patch, &pod()).unwrap_err().code, 422);
}

#[test]
fn a_missing_field_passes_a_test_for_null() {
    let body = br#"[{"op": "test", "path": "/metadata/annotations", "value": null},
                    {"op": "add", "path": "/metadata/annotations", "value": {"a": "b"}}]"#;
    let patch = Patch::parse("application/json-patch+json", body).unwrap();
    let result = patched("", "pods", &patch, &pod()).unwrap();
    assert_eq!(result["metadata"]["annotations"], json!({"a": "b"}));
    assert_eq!(patched("", "pods", &patch, &result).unwrap_err().code, 422);
}

#[test]
fn bodies_that_are_no_patch_are_refused() {
    let refused = |media: &str, body: &str| Patch::parse(media, body.as_bytes()).unwrap_err().code;
    assert_eq!(refused("application/merge-patch+json", "[]"), 400);
    assert_eq!(refused("application/merge-patch+json", "{"), 400);
    assert_eq!(refused("application/json-patch+json", "{}"), 400);
    assert_eq!(refused("application/json", "{}"), 415);
}
