use super::fields;
use super::managers::{Writer, apply_configuration, note_update};
use crate::failure::Failure;
use crate::registry::Registry;
use crate::schema::Schema;
use serde_json::{Value, json};

fn with_pods<T>(test: impl FnOnce(&Schema) -> T) -> T {
    let snapshot = Registry::with_builtins().snapshot();
    test(&snapshot.find("", "pods").unwrap().versions[0].schema)
}

fn writer(manager: &str) -> Writer<'_> {
    Writer { manager, subresource: "", api_version: "v1", now: "now", custom: false }
}

fn apply(
    live: &Value,
    configuration: &Value,
    manager: &str,
    force: bool,
) -> Result<Value, Failure> {
    with_pods(|schema| apply_configuration(schema, live, configuration, &writer(manager), force))
}

fn pod(spec: &Value) -> Value {
    json!({"metadata": {"name": "web"}, "spec": spec})
}

#[test]
fn an_applier_owns_what_it_said() {
    let configuration = json!({"metadata": {"name": "web", "labels": {"a": "1"}},
        "spec": {"containers": [{"name": "m", "image": "x", "ports": [{"containerPort": 80}]}]}});
    let applied = apply(&json!({}), &configuration, "me", false).unwrap();
    let entry = &applied["metadata"]["managedFields"][0];
    assert_eq!(entry["operation"], "Apply");
    assert_eq!(
        entry["fieldsV1"],
        json!({
            "f:metadata": {"f:labels": {"f:a": {}}},
            "f:spec": {"f:containers": {"k:{\"name\":\"m\"}": {
                ".": {}, "f:image": {}, "f:name": {},
                "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {
                    ".": {}, "f:containerPort": {}}}}}}})
    );
}

#[test]
fn what_is_no_longer_applied_goes() {
    let first = pod(&json!({"nodeName": "n", "containers": [{"name": "a"}, {"name": "b"}]}));
    let live = apply(&json!({}), &first, "me", false).unwrap();
    let second = pod(&json!({"containers": [{"name": "b"}]}));
    let live = apply(&live, &second, "me", false).unwrap();
    assert_eq!(live["spec"], json!({"containers": [{"name": "b"}]}));
}

#[test]
fn what_another_manager_also_owns_stays() {
    let shared = pod(&json!({"nodeName": "n", "hostname": "h"}));
    let live = apply(&json!({}), &shared, "one", false).unwrap();
    let live = apply(&live, &pod(&json!({"nodeName": "n"})), "two", false).unwrap();
    let live = apply(&live, &pod(&json!({"subdomain": "s"})), "one", false).unwrap();
    assert_eq!(live["spec"], json!({"nodeName": "n", "subdomain": "s"}));
}

#[test]
fn another_value_for_a_field_of_another_is_a_conflict_unless_forced() {
    let live = apply(&json!({}), &pod(&json!({"nodeName": "n"})), "one", false).unwrap();
    let refused = apply(&live, &pod(&json!({"nodeName": "m"})), "two", false).unwrap_err();
    assert_eq!(refused.code, 409);
    assert_eq!(
        refused.message,
        "Apply failed with 1 conflict: conflict with \"one\": .spec.nodeName"
    );
    let live = apply(&live, &pod(&json!({"nodeName": "m"})), "two", true).unwrap();
    assert_eq!(live["spec"]["nodeName"], "m");
    let managers: Vec<&Value> = live["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| &e["manager"])
        .collect();
    assert_eq!(managers, ["two"]);
}

#[test]
fn an_update_takes_over_the_fields_it_changes() {
    let mut live =
        apply(&json!({}), &pod(&json!({"nodeName": "n", "hostname": "h"})), "one", false).unwrap();
    let before = live.clone();
    live["spec"]["nodeName"] = "m".into();
    with_pods(|schema| note_update(schema, &before, &mut live, &writer("kubectl")));
    let entries = &live["metadata"]["managedFields"];
    assert_eq!(entries[0]["fieldsV1"], json!({"f:spec": {"f:hostname": {}}}));
    assert_eq!(entries[1]["manager"], "kubectl");
    assert_eq!(entries[1]["operation"], "Update");
    assert_eq!(entries[1]["fieldsV1"], json!({"f:spec": {"f:nodeName": {}}}));
    let refused = apply(&live, &pod(&json!({"nodeName": "n"})), "one", false).unwrap_err();
    assert_eq!(
        refused.message,
        "Apply failed with 1 conflict: conflict with \"kubectl\" using v1: .spec.nodeName"
    );
}

#[test]
fn a_write_that_changes_nothing_changes_no_owner() {
    let live = apply(&json!({}), &pod(&json!({"nodeName": "n"})), "one", false).unwrap();
    let mut same = live.clone();
    with_pods(|schema| note_update(schema, &live, &mut same, &writer("two")));
    assert_eq!(same, live);
    let again = apply(&live, &pod(&json!({"nodeName": "n"})), "one", false).unwrap();
    assert_eq!(again, live);
}

#[test]
fn sets_of_fields_are_read_back_as_written() {
    let json = json!({"f:metadata": {"f:labels": {".": {}, "f:a": {}}, "f:finalizers": {
        "v:\"x\"": {}}}, "f:spec": {"f:containers": {"k:{\"name\":\"m\"}": {".": {}, "f:image": {}}}}});
    let fields = fields::from_json(&json);
    assert_eq!(fields::to_json(&fields), json);
    let shown: Vec<String> = fields.iter().map(fields::shown).collect();
    assert!(shown.contains(&".spec.containers[name=\"m\"].image".to_owned()), "{shown:?}");
    assert!(shown.contains(&".metadata.finalizers[=\"x\"]".to_owned()), "{shown:?}");
}
