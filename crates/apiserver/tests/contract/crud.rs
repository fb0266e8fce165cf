//! Creating, reading, changing and deleting single objects.

use crate::Subject;
use crate::server::refusal;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::api::{
    Api, DeleteParams, DynamicObject, ListParams, ObjectMeta, Patch, PatchParams, PostParams,
    Preconditions,
};
use kube::{Resource as _, ResourceExt as _};
use serde_json::json;
use std::collections::BTreeMap;

fn config_map(name: &str, value: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        data: Some(BTreeMap::from([("key".to_owned(), value.to_owned())])),
        ..ConfigMap::default()
    }
}

pub(crate) fn pod(name: &str) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "main", "image": "registry.invalid/none:1"}],
                 "terminationGracePeriodSeconds": 5},
    }))
    .unwrap()
}

#[tokio::test]
async fn a_created_object_gets_uid_version_and_time() {
    let subject = Subject::new().await;
    let api = subject.api::<ConfigMap>();
    let created = api.create(&PostParams::default(), &config_map("a", "1")).await.unwrap();
    assert!(created.uid().is_some_and(|uid| uid.len() == 36));
    assert!(created.resource_version().is_some_and(|v| v.parse::<u64>().unwrap() > 0));
    assert!(created.creation_timestamp().is_some());
    assert_eq!(created.namespace().as_deref(), Some(subject.namespace.as_str()));
    assert_eq!(api.get("a").await.unwrap(), created);
}

#[tokio::test]
async fn a_second_object_of_the_same_name_is_refused() {
    let subject = Subject::new().await;
    let api = subject.api::<ConfigMap>();
    api.create(&PostParams::default(), &config_map("a", "1")).await.unwrap();
    let status = refusal(api.create(&PostParams::default(), &config_map("a", "2")).await);
    assert_eq!((status.code, status.reason.as_str()), (409, "AlreadyExists"));
    assert_eq!(status.message, "configmaps \"a\" already exists");
}

#[tokio::test]
async fn a_missing_object_is_not_found() {
    let subject = Subject::new().await;
    let status = refusal(subject.api::<ConfigMap>().get("none").await);
    assert_eq!((status.code, status.reason.as_str()), (404, "NotFound"));
    assert_eq!(status.message, "configmaps \"none\" not found");
}

#[tokio::test]
async fn nothing_is_created_in_a_missing_namespace() {
    let subject = Subject::new().await;
    let api: Api<ConfigMap> = Api::namespaced(subject.client.clone(), "no-such-namespace");
    let status = refusal(api.create(&PostParams::default(), &config_map("a", "1")).await);
    assert_eq!(status.code, 404);
    assert_eq!(status.message, "namespaces \"no-such-namespace\" not found");
}

#[tokio::test]
async fn a_name_is_generated_from_its_prefix() {
    let subject = Subject::new().await;
    let mut object = config_map("", "1");
    object.metadata.name = None;
    object.metadata.generate_name = Some("web-".to_owned());
    let created = subject.api::<ConfigMap>().create(&PostParams::default(), &object).await.unwrap();
    assert!(created.name_any().starts_with("web-") && created.name_any().len() == 9);
}

#[tokio::test]
async fn a_bad_name_is_invalid_and_the_field_is_named() {
    let subject = Subject::new().await;
    let api = subject.api::<ConfigMap>();
    let status = refusal(api.create(&PostParams::default(), &config_map("Not_A_Name", "1")).await);
    assert_eq!((status.code, status.reason.as_str()), (422, "Invalid"));
    let details = status.details.unwrap();
    assert_eq!(details.causes[0].field, "metadata.name");
    assert!(status.message.starts_with("ConfigMap \"Not_A_Name\" is invalid: metadata.name: "));
}

#[tokio::test]
async fn an_update_with_an_old_version_is_a_conflict() {
    let subject = Subject::new().await;
    let api = subject.api::<ConfigMap>();
    let first = api.create(&PostParams::default(), &config_map("a", "1")).await.unwrap();
    let mut second = first.clone();
    second.data = Some(BTreeMap::from([("key".to_owned(), "2".to_owned())]));
    let replaced = api.replace("a", &PostParams::default(), &second).await.unwrap();
    assert_ne!(replaced.resource_version(), first.resource_version());
    let status = refusal(api.replace("a", &PostParams::default(), &first).await);
    assert_eq!((status.code, status.reason.as_str()), (409, "Conflict"));
    assert!(status.message.contains("the object has been modified"), "{}", status.message);
}

#[tokio::test]
async fn an_update_that_changes_nothing_keeps_the_version() {
    let subject = Subject::new().await;
    let api = subject.api::<ConfigMap>();
    let first = api.create(&PostParams::default(), &config_map("a", "1")).await.unwrap();
    let same = api.replace("a", &PostParams::default(), &first).await.unwrap();
    assert_eq!(same.resource_version(), first.resource_version());
}

#[tokio::test]
async fn a_merge_patch_sets_and_removes() {
    let subject = Subject::new().await;
    let api = subject.api::<ConfigMap>();
    api.create(&PostParams::default(), &config_map("a", "1")).await.unwrap();
    let patch = json!({"data": {"key": null, "other": "2"}, "metadata": {"labels": {"x": "y"}}});
    let patched = api.patch("a", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    assert_eq!(patched.data, Some(BTreeMap::from([("other".to_owned(), "2".to_owned())])));
    assert_eq!(patched.labels()["x"], "y");
}

#[tokio::test]
async fn a_json_patch_is_done_in_order_or_not_at_all() {
    let subject = Subject::new().await;
    let api = subject.api::<ConfigMap>();
    api.create(&PostParams::default(), &config_map("a", "1")).await.unwrap();
    let patch: json_patch::Patch = serde_json::from_value(json!([
        {"op": "test", "path": "/data/key", "value": "1"},
        {"op": "replace", "path": "/data/key", "value": "2"}]))
    .unwrap();
    let params = PatchParams::default();
    let patched = api.patch("a", &params, &Patch::Json::<()>(patch.clone())).await.unwrap();
    assert_eq!(patched.data.unwrap()["key"], "2");
    let status = refusal(api.patch("a", &params, &Patch::Json::<()>(patch)).await);
    assert_eq!((status.code, status.reason.as_str()), (422, "Invalid"));
}

#[tokio::test]
async fn a_strategic_patch_merges_containers_by_name() {
    let subject = Subject::new().await;
    let api = subject.api::<Pod>();
    api.create(&PostParams::default(), &pod("web")).await.unwrap();
    let patch = json!({"spec": {"containers": [{"name": "main", "image": "other:2"}]}});
    let patched =
        api.patch("web", &PatchParams::default(), &Patch::Strategic(&patch)).await.unwrap();
    let containers = patched.spec.unwrap().containers;
    assert_eq!(containers.len(), 1);
    assert_eq!(containers[0].image.as_deref(), Some("other:2"));
}

#[tokio::test]
async fn status_and_spec_are_written_apart() {
    let subject = Subject::new().await;
    let api = subject.api::<Pod>();
    api.create(&PostParams::default(), &pod("web")).await.unwrap();
    let both = json!({"metadata": {"labels": {"a": "b"}}, "status": {"phase": "Running"}});
    let patched = api.patch("web", &PatchParams::default(), &Patch::Merge(&both)).await.unwrap();
    assert_eq!(patched.status.unwrap().phase.as_deref(), Some("Pending"));
    let patched =
        api.patch_status("web", &PatchParams::default(), &Patch::Merge(&both)).await.unwrap();
    assert_eq!(patched.status.unwrap().phase.as_deref(), Some("Running"));
}

#[tokio::test]
async fn a_pods_spec_may_not_change_once_it_exists() {
    let subject = Subject::new().await;
    let api = subject.api::<Pod>();
    api.create(&PostParams::default(), &pod("web")).await.unwrap();
    let patch = json!({"spec": {"containers": [{"name": "main", "command": ["sh"]}]}});
    let status =
        refusal(api.patch("web", &PatchParams::default(), &Patch::Strategic(&patch)).await);
    assert_eq!((status.code, status.reason.as_str()), (422, "Invalid"));
    assert!(status.message.contains("pod updates may not change fields other than"));
}

#[tokio::test]
async fn a_binding_puts_a_pod_on_a_node_once() {
    let subject = Subject::new().await;
    let api = subject.api::<Pod>();
    api.create(&PostParams::default(), &pod("web")).await.unwrap();
    let bind = |node: &str| {
        let body = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "web"},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node}});
        let url = format!("/api/v1/namespaces/{}/pods/web/binding", subject.namespace);
        let request = http_post(&url, serde_json::to_vec(&body).unwrap());
        subject.client.request::<serde_json::Value>(request)
    };
    bind("n1").await.unwrap();
    let bound = api.get("web").await.unwrap();
    assert_eq!(bound.spec.unwrap().node_name.as_deref(), Some("n1"));
    let conditions = bound.status.unwrap().conditions.unwrap();
    assert!(conditions.iter().any(|c| c.type_ == "PodScheduled" && c.status == "True"));
    assert_eq!(refusal(bind("n2").await).code, 409);
}

pub(crate) fn http_post(url: &str, body: Vec<u8>) -> http::Request<Vec<u8>> {
    http::Request::post(url).header("content-type", "application/json").body(body).unwrap()
}

#[tokio::test]
async fn lists_are_selected_by_labels_and_fields() {
    let subject = Subject::new().await;
    let api = subject.api::<ConfigMap>();
    for (name, tier) in [("a", "front"), ("b", "back"), ("c", "back")] {
        let mut object = config_map(name, "1");
        object.labels_mut().insert("tier".to_owned(), tier.to_owned());
        api.create(&PostParams::default(), &object).await.unwrap();
    }
    let names = |params: ListParams| {
        let api = api.clone();
        async move {
            let list = api.list(&params).await.unwrap();
            list.iter()
                .map(kube::ResourceExt::name_any)
                .filter(|n| n.len() == 1)
                .collect::<Vec<_>>()
        }
    };
    assert_eq!(names(ListParams::default().labels("tier=back")).await, ["b", "c"]);
    assert_eq!(names(ListParams::default().labels("tier in (front),!gone")).await, ["a"]);
    assert_eq!(names(ListParams::default().fields("metadata.name=b")).await, ["b"]);
    let status = refusal(api.list(&ListParams::default().fields("spec.colour=red")).await);
    assert_eq!(status.code, 400);
    let status = refusal(api.list(&ListParams::default().labels("a in b")).await);
    assert_eq!(status.code, 400);
}

#[tokio::test]
async fn pages_show_one_moment() {
    let subject = Subject::new().await;
    let api = subject.api::<ConfigMap>();
    for number in 0..5 {
        api.create(&PostParams::default(), &config_map(&format!("p{number}"), "1")).await.unwrap();
    }
    let params = ListParams::default().fields("metadata.name!=kube-root-ca.crt").limit(2);
    let first = api.list(&params).await.unwrap();
    assert_eq!(first.items.len(), 2);
    api.create(&PostParams::default(), &config_map("p9", "1")).await.unwrap();
    let mut names: Vec<String> = first.iter().map(kube::ResourceExt::name_any).collect();
    let mut token = first.metadata.continue_.clone();
    while let Some(next) = token.filter(|token| !token.is_empty()) {
        let page = api.list(&params.clone().continue_token(&next)).await.unwrap();
        assert_eq!(page.metadata.resource_version, first.metadata.resource_version);
        names.extend(page.iter().map(kube::ResourceExt::name_any));
        token = page.metadata.continue_;
    }
    assert_eq!(names, ["p0", "p1", "p2", "p3", "p4"]);
}

#[tokio::test]
async fn a_deletion_may_insist_on_uid_and_version() {
    let subject = Subject::new().await;
    let api = subject.api::<ConfigMap>();
    let created = api.create(&PostParams::default(), &config_map("a", "1")).await.unwrap();
    let wrong = Preconditions { uid: Some("other".to_owned()), resource_version: None };
    let status = refusal(api.delete("a", &DeleteParams::default().preconditions(wrong)).await);
    assert_eq!((status.code, status.reason.as_str()), (409, "Conflict"));
    let right = Preconditions { uid: created.uid(), resource_version: created.resource_version() };
    api.delete("a", &DeleteParams::default().preconditions(right)).await.unwrap();
    assert_eq!(refusal(api.get("a").await).code, 404);
}

#[tokio::test]
async fn a_dry_run_answers_like_a_real_one_and_changes_nothing() {
    let subject = Subject::new().await;
    let api = subject.api::<ConfigMap>();
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let created = api.create(&dry, &config_map("a", "1")).await.unwrap();
    assert!(created.uid().is_some());
    assert_eq!(refusal(api.get("a").await).code, 404);
    api.create(&PostParams::default(), &config_map("a", "1")).await.unwrap();
    api.delete("a", &DeleteParams::default().dry_run()).await.unwrap();
    let patch = json!({"data": {"key": "2"}});
    let params = PatchParams { dry_run: true, ..PatchParams::default() };
    let patched = api.patch("a", &params, &Patch::Merge(&patch)).await.unwrap();
    assert_eq!(patched.data.unwrap()["key"], "2");
    assert_eq!(api.get("a").await.unwrap().data.unwrap()["key"], "1");
}

#[tokio::test]
async fn a_collection_is_deleted_by_selector() {
    let subject = Subject::new().await;
    let api = subject.api::<ConfigMap>();
    for name in ["a", "b"] {
        let mut object = config_map(name, "1");
        object.labels_mut().insert("name".to_owned(), name.to_owned());
        api.create(&PostParams::default(), &object).await.unwrap();
    }
    api.delete_collection(&DeleteParams::default(), &ListParams::default().labels("name=a"))
        .await
        .unwrap();
    assert_eq!(refusal(api.get("a").await).code, 404);
    api.get("b").await.unwrap();
}

#[tokio::test]
async fn a_cluster_wide_object_has_no_namespace() {
    let subject = Subject::new().await;
    let api: Api<Node> = Api::all(subject.client.clone());
    let name = subject.unique("node");
    let node = Node {
        metadata: ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() },
        ..Node::default()
    };
    let created = api.create(&PostParams::default(), &node).await.unwrap();
    assert_eq!(created.namespace(), None);
    api.delete(&name, &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn an_unknown_resource_is_not_found() {
    let subject = Subject::new().await;
    let kind = kube::core::GroupVersionKind::gvk("none.dev", "v1", "None");
    let resource = kube::core::ApiResource::from_gvk(&kind);
    let api: Api<DynamicObject> = Api::all_with(subject.client.clone(), &resource);
    let status = refusal(api.list(&ListParams::default()).await);
    assert_eq!(status.code, 404);
    assert_eq!(ConfigMap::kind(&()), "ConfigMap");
}
