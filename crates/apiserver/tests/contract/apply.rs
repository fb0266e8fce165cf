//! Server-side apply: who owns which fields, and what happens when two want the same.

use crate::Subject;
use crate::crud::pod;
use crate::server::refusal;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

fn config_map(data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data})
}

async fn apply(api: &Api<ConfigMap>, manager: &str, data: &Value) -> kube::Result<ConfigMap> {
    api.patch("a", &PatchParams::apply(manager), &Patch::Apply(config_map(data))).await
}

fn data(object: &ConfigMap) -> Value {
    json!(object.data)
}

/// The fields of a manager, as `managedFields` have them.
fn owned(object: &impl kube::ResourceExt, manager: &str) -> Value {
    object
        .managed_fields()
        .iter()
        .find(|entry| entry.manager.as_deref() == Some(manager))
        .and_then(|entry| entry.fields_v1.clone())
        .map_or(Value::Null, |fields| fields.0)
}

#[tokio::test]
async fn apply_creates_what_is_missing_and_owns_what_it_said() {
    let subject = Subject::new().await;
    let api = subject.api::<ConfigMap>();
    let applied = apply(&api, "one", &json!({"x": "1"})).await.unwrap();
    assert_eq!(data(&applied), json!({"x": "1"}));
    assert_eq!(owned(&applied, "one"), json!({"f:data": {"f:x": {}}}));
    let entry = &applied.managed_fields()[0];
    assert_eq!(entry.operation.as_deref(), Some("Apply"));
    assert_eq!(entry.api_version.as_deref(), Some("v1"));
}

#[tokio::test]
async fn applying_the_same_again_changes_nothing() {
    let subject = Subject::new().await;
    let api = subject.api::<ConfigMap>();
    let first = apply(&api, "one", &json!({"x": "1"})).await.unwrap();
    let second = apply(&api, "one", &json!({"x": "1"})).await.unwrap();
    assert_eq!(first.resource_version(), second.resource_version());
}

#[tokio::test]
async fn what_is_left_out_of_an_apply_goes() {
    let subject = Subject::new().await;
    let api = subject.api::<ConfigMap>();
    apply(&api, "one", &json!({"x": "1", "y": "2"})).await.unwrap();
    let applied = apply(&api, "one", &json!({"y": "2"})).await.unwrap();
    assert_eq!(data(&applied), json!({"y": "2"}));
}

#[tokio::test]
async fn two_managers_may_share_a_value_and_it_stays_while_one_wants_it() {
    let subject = Subject::new().await;
    let api = subject.api::<ConfigMap>();
    apply(&api, "one", &json!({"x": "1"})).await.unwrap();
    apply(&api, "two", &json!({"x": "1", "y": "2"})).await.unwrap();
    let applied = apply(&api, "one", &json!({"z": "3"})).await.unwrap();
    assert_eq!(data(&applied), json!({"x": "1", "y": "2", "z": "3"}));
}

#[tokio::test]
async fn another_value_is_a_conflict_that_names_owner_and_field() {
    let subject = Subject::new().await;
    let api = subject.api::<ConfigMap>();
    apply(&api, "one", &json!({"x": "1"})).await.unwrap();
    let status = refusal(apply(&api, "two", &json!({"x": "2"})).await);
    assert_eq!((status.code, status.reason.as_str()), (409, "Conflict"));
    assert_eq!(status.message, "Apply failed with 1 conflict: conflict with \"one\": .data.x");
    let cause = &status.details.unwrap().causes[0];
    assert_eq!(cause.reason, "FieldManagerConflict");
    assert_eq!(
        (cause.field.as_str(), cause.message.as_str()),
        (".data.x", "conflict with \"one\"")
    );
}

#[tokio::test]
async fn several_conflicts_are_listed_by_owner() {
    let subject = Subject::new().await;
    let api = subject.api::<ConfigMap>();
    apply(&api, "one", &json!({"x": "1", "y": "1"})).await.unwrap();
    let status = refusal(apply(&api, "two", &json!({"x": "2", "y": "2"})).await);
    assert_eq!(
        status.message,
        "Apply failed with 2 conflicts: conflicts with \"one\":\n- .data.x\n- .data.y"
    );
}

#[tokio::test]
async fn force_takes_the_field_over() {
    let subject = Subject::new().await;
    let api = subject.api::<ConfigMap>();
    apply(&api, "one", &json!({"x": "1", "y": "1"})).await.unwrap();
    let patch = Patch::Apply(config_map(&json!({"x": "2"})));
    let applied = api.patch("a", &PatchParams::apply("two").force(), &patch).await.unwrap();
    assert_eq!(data(&applied), json!({"x": "2", "y": "1"}));
    assert_eq!(owned(&applied, "one"), json!({"f:data": {"f:y": {}}}));
    assert_eq!(owned(&applied, "two"), json!({"f:data": {"f:x": {}}}));
}

#[tokio::test]
async fn an_update_owns_what_it_changed() {
    let subject = Subject::new().await;
    let api = subject.api::<ConfigMap>();
    apply(&api, "one", &json!({"x": "1"})).await.unwrap();
    let params = PatchParams { field_manager: Some("editor".to_owned()), ..PatchParams::default() };
    let patch = Patch::Merge(json!({"data": {"x": "2", "n": "3"}}));
    let patched = api.patch("a", &params, &patch).await.unwrap();
    assert_eq!(owned(&patched, "one"), Value::Null);
    assert_eq!(owned(&patched, "editor"), json!({"f:data": {"f:n": {}, "f:x": {}}}));
    let status = refusal(apply(&api, "one", &json!({"x": "1"})).await);
    assert_eq!(
        status.message,
        "Apply failed with 1 conflict: conflict with \"editor\" using v1: .data.x"
    );
}

#[tokio::test]
async fn the_creator_owns_what_it_created() {
    let subject = Subject::new().await;
    let api = subject.api::<ConfigMap>();
    let object: ConfigMap = serde_json::from_value(config_map(&json!({"x": "1"}))).unwrap();
    let params = PostParams { field_manager: Some("maker".to_owned()), ..PostParams::default() };
    let created = api.create(&params, &object).await.unwrap();
    assert_eq!(owned(&created, "maker"), json!({"f:data": {".": {}, "f:x": {}}}));
}

#[tokio::test]
async fn keyed_lists_are_merged_item_by_item() {
    let subject = Subject::new().await;
    let api = subject.api::<Service>();
    let service = |port: u16, name: &str| {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
               "spec": {"ports": [{"port": port, "name": name}]}})
    };
    let (one, two) = (PatchParams::apply("one"), PatchParams::apply("two"));
    api.patch("web", &one, &Patch::Apply(service(80, "http"))).await.unwrap();
    let merged = api.patch("web", &two, &Patch::Apply(service(443, "https"))).await.unwrap();
    let ports: Vec<i32> = merged.spec.unwrap().ports.unwrap().iter().map(|p| p.port).collect();
    assert_eq!(ports, [80, 443]);
    let moved = api.patch("web", &one, &Patch::Apply(service(81, "http"))).await.unwrap();
    let mut ports: Vec<i32> = moved.spec.unwrap().ports.unwrap().iter().map(|p| p.port).collect();
    ports.sort_unstable();
    assert_eq!(ports, [81, 443]);
}

#[tokio::test]
async fn the_status_is_applied_by_itself() {
    let subject = Subject::new().await;
    let api = subject.api::<Pod>();
    api.create(&PostParams::default(), &pod("web")).await.unwrap();
    let status = |kind: &str| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "status": {
            "phase": "Running", "conditions": [{"type": kind, "status": "True"}]}})
    };
    let apply = |manager: &str, kind: &str| {
        let (api, params, patch) =
            (api.clone(), PatchParams::apply(manager).force(), Patch::Apply(status(kind)));
        async move { api.patch_status("web", &params, &patch).await.unwrap() }
    };
    apply("one", "Ready").await;
    let applied = apply("two", "Connected").await;
    let entry = applied
        .managed_fields()
        .iter()
        .find(|entry| entry.manager.as_deref() == Some("two"))
        .unwrap()
        .clone();
    assert_eq!(entry.subresource.as_deref(), Some("status"));
    let found = applied.status.unwrap();
    assert_eq!(found.phase.as_deref(), Some("Running"));
    let mut kinds: Vec<String> = found.conditions.unwrap().into_iter().map(|c| c.type_).collect();
    kinds.sort();
    assert_eq!(kinds, ["Connected", "Ready"]);
}

#[tokio::test]
async fn an_apply_says_who_applies_and_nothing_of_owners() {
    let subject = Subject::new().await;
    let api = subject.api::<ConfigMap>();
    let patch = Patch::Apply(config_map(&json!({"x": "1"})));
    let anonymous = PatchParams { field_manager: None, ..PatchParams::default() };
    let status = refusal(api.patch("a", &anonymous, &patch).await);
    assert_eq!(status.code, 422);
    assert!(status.message.contains("fieldManager: Required value"), "{}", status.message);
    let mut body = config_map(&json!({"x": "1"}));
    body["metadata"]["managedFields"] = json!([{"manager": "x", "operation": "Apply",
        "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {}}]);
    let status = refusal(api.patch("a", &PatchParams::apply("one"), &Patch::Apply(body)).await);
    assert_eq!((status.code, status.message.as_str()), (400, "metadata.managedFields must be nil"));
}

#[tokio::test]
async fn kubectl_applies_on_the_server_and_takes_over_from_the_client() {
    let subject = Subject::new().await;
    let manifest = |value: &str| config_map(&json!({"x": value})).to_string();
    subject.kubectl_with(&["apply", "-f", "-"], &manifest("1"));
    let out = subject.kubectl_with(&["apply", "--server-side", "-f", "-"], &manifest("2"));
    assert_eq!(out, "configmap/a serverside-applied\n");
    let api = subject.api::<ConfigMap>();
    let object = api.get("a").await.unwrap();
    assert_eq!(data(&object), json!({"x": "2"}));
    assert_eq!(owned(&object, "kubectl")["f:data"], json!({"f:x": {}}));
    let (ok, _, err) = subject.try_kubectl(
        &["apply", "--server-side", "--field-manager", "other", "-f", "-"],
        Some(&manifest("3")),
    );
    assert!(!ok && err.contains("Apply failed with 1 conflict"), "{err}");
}
