//! Custom kinds: served as soon as they are defined, validated, defaulted, pruned.

use crate::Subject;
use crate::server::refusal;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::wait::{await_condition, conditions};
use serde_json::{Value, json};
use std::time::Duration;

/// A kind of one case's own.
struct Custom {
    subject: Subject,
    group: String,
    api: Api<DynamicObject>,
}

fn definition(group: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("nets.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"plural": "nets", "singular": "net", "kind": "Net", "shortNames": ["nt"]},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": {"status": {}},
                "selectableFields": [{"jsonPath": ".spec.tenant"}],
                "additionalPrinterColumns": [
                    {"name": "Tenant", "type": "string", "jsonPath": ".spec.tenant"},
                    {"name": "Size", "type": "integer", "jsonPath": ".spec.size", "priority": 1}],
                "schema": {"openAPIV3Schema": {
                    "type": "object", "required": ["spec"],
                    "properties": {
                        "spec": {
                            "type": "object", "required": ["tenant"],
                            "x-kubernetes-validations": [
                                {"rule": "self.low <= self.high", "message": "low must not exceed high"}],
                            "properties": {
                                "tenant": {"type": "string", "maxLength": 20, "x-kubernetes-validations": [
                                    {"rule": "self == oldSelf", "message": "tenant is immutable"}]},
                                "size": {"type": "integer", "minimum": 1, "default": 3},
                                "low": {"type": "integer", "default": 0},
                                "high": {"type": "integer", "default": 10},
                                "mode": {"type": "string", "enum": ["A", "B"]},
                                "cidrs": {"type": "array", "maxItems": 2, "items": {
                                    "type": "string", "pattern": "^[0-9./]+$", "maxLength": 18}}}},
                        "status": {"type": "object", "properties": {
                            "phase": {"type": "string"}}}}}},
            }],
        },
    })
}

impl Custom {
    async fn new() -> Custom {
        let subject = Subject::new().await;
        let group = format!("{}.example.dev", subject.namespace);
        let crd: CustomResourceDefinition = serde_json::from_value(definition(&group)).unwrap();
        let crds: Api<CustomResourceDefinition> = Api::all(subject.client.clone());
        crds.create(&PostParams::default(), &crd).await.unwrap();
        let name = crd.name_any();
        let established = await_condition(crds, &name, conditions::is_crd_established());
        tokio::time::timeout(Duration::from_secs(60), established).await.unwrap().unwrap();
        let kind = GroupVersionKind::gvk(&group, "v1", "Net");
        let resource = ApiResource::from_gvk_with_plural(&kind, "nets");
        let api = Api::namespaced_with(subject.client.clone(), &subject.namespace, &resource);
        let custom = Custom { subject, group, api };
        custom.wait_until_served().await;
        custom
    }

    /// The real API serves a new kind a moment after it says so.
    async fn wait_until_served(&self) {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
        while self.api.list(&Default::default()).await.is_err() {
            assert!(tokio::time::Instant::now() < deadline, "the kind is never served");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn net(&self, name: &str, spec: &Value) -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": format!("{}/v1", self.group), "kind": "Net",
            "metadata": {"name": name}, "spec": spec}))
        .unwrap()
    }

    async fn create(&self, name: &str, spec: Value) -> kube::Result<DynamicObject> {
        self.api.create(&PostParams::default(), &self.net(name, &spec)).await
    }

    async fn end(self) {
        let crds: Api<CustomResourceDefinition> = Api::all(self.subject.client.clone());
        crds.delete(&format!("nets.{}", self.group), &DeleteParams::default()).await.unwrap();
    }
}

#[tokio::test]
async fn a_defined_kind_is_served_defaulted_and_pruned() {
    let custom = Custom::new().await;
    let created = custom.create("a", json!({"tenant": "acme", "unknown": true})).await.unwrap();
    assert_eq!(created.data["spec"], json!({"tenant": "acme", "size": 3, "low": 0, "high": 10}));
    assert_eq!(created.metadata.generation, Some(1));
    custom.end().await;
}

#[tokio::test]
async fn an_invalid_object_is_refused_with_every_field_named() {
    let custom = Custom::new().await;
    let spec = json!({"tenant": "acme", "size": 0, "mode": "C", "cidrs": ["10.0.0.0/8", "abc"]});
    let status = refusal(custom.create("a", spec).await);
    assert_eq!((status.code, status.reason.as_str()), (422, "Invalid"));
    let mut fields: Vec<_> =
        status.details.unwrap().causes.into_iter().map(|cause| cause.field).collect();
    fields.sort();
    assert_eq!(fields, ["<nil>", "spec.cidrs[1]", "spec.mode", "spec.size"]);
    assert!(status.message.contains("spec.cidrs[1]: Invalid value: \"abc\""), "{}", status.message);
    assert!(
        status
            .message
            .contains("spec.mode: Unsupported value: \"C\": supported values: \"A\", \"B\""),
        "{}",
        status.message
    );
    custom.end().await;
}

#[tokio::test]
async fn a_missing_field_is_required() {
    let custom = Custom::new().await;
    let status = refusal(custom.create("a", json!({})).await);
    assert_eq!(status.details.unwrap().causes[0].reason, "FieldValueRequired");
    assert!(status.message.contains("spec.tenant: Required value"), "{}", status.message);
    custom.end().await;
}

#[tokio::test]
async fn rules_hold_for_new_objects_and_for_changes() {
    let custom = Custom::new().await;
    let status = refusal(custom.create("a", json!({"tenant": "x", "low": 9, "high": 1})).await);
    assert!(
        status.message.ends_with("spec: Invalid value: \"object\": low must not exceed high"),
        "{}",
        status.message
    );
    custom.create("a", json!({"tenant": "acme"})).await.unwrap();
    let patch = json!({"spec": {"tenant": "globex"}});
    let status =
        refusal(custom.api.patch("a", &PatchParams::default(), &Patch::Merge(&patch)).await);
    assert!(
        status.message.contains("spec.tenant: Invalid value: \"string\": tenant is immutable"),
        "{}",
        status.message
    );
    custom.end().await;
}

#[tokio::test]
async fn the_generation_counts_changes_of_the_spec_only() {
    let custom = Custom::new().await;
    custom.create("a", json!({"tenant": "acme"})).await.unwrap();
    let (api, params) = (&custom.api, PatchParams::default());
    let status = json!({"status": {"phase": "Active"}});
    let patched = api.patch_status("a", &params, &Patch::Merge(&status)).await.unwrap();
    assert_eq!(patched.metadata.generation, Some(1));
    assert_eq!(patched.data["status"]["phase"], "Active");
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    let patched = api.patch("a", &params, &Patch::Merge(&label)).await.unwrap();
    assert_eq!(patched.metadata.generation, Some(1));
    let spec = json!({"spec": {"size": 7}, "status": {"phase": "Lost"}});
    let patched = api.patch("a", &params, &Patch::Merge(&spec)).await.unwrap();
    assert_eq!(patched.metadata.generation, Some(2));
    assert_eq!(patched.data["status"]["phase"], "Active");
    custom.end().await;
}

#[tokio::test]
async fn selectable_fields_select() {
    let custom = Custom::new().await;
    custom.create("a", json!({"tenant": "acme"})).await.unwrap();
    custom.create("b", json!({"tenant": "globex"})).await.unwrap();
    let params = kube::api::ListParams::default().fields("spec.tenant=globex");
    let list = custom.api.list(&params).await.unwrap();
    assert_eq!(list.iter().map(kube::ResourceExt::name_any).collect::<Vec<_>>(), ["b"]);
    let params = kube::api::ListParams::default().fields("spec.size=3");
    assert_eq!(refusal(custom.api.list(&params).await).code, 400);
    custom.end().await;
}

#[tokio::test]
async fn a_strategic_patch_of_a_custom_kind_is_not_supported() {
    let custom = Custom::new().await;
    custom.create("a", json!({"tenant": "acme"})).await.unwrap();
    let patch = json!({"spec": {"size": 2}});
    let status =
        refusal(custom.api.patch("a", &PatchParams::default(), &Patch::Strategic(&patch)).await);
    assert_eq!((status.code, status.reason.as_str()), (415, "UnsupportedMediaType"));
    custom.end().await;
}

#[tokio::test]
async fn a_definition_takes_its_objects_along() {
    let custom = Custom::new().await;
    custom.create("a", json!({"tenant": "acme"})).await.unwrap();
    let crds: Api<CustomResourceDefinition> = Api::all(custom.subject.client.clone());
    let name = format!("nets.{}", custom.group);
    crds.delete(&name, &DeleteParams::default()).await.unwrap();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while crds.get_opt(&name).await.unwrap().is_some() {
        assert!(tokio::time::Instant::now() < deadline, "the definition is still there");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn kubectl_shows_the_printer_columns_of_a_custom_kind() {
    let custom = Custom::new().await;
    custom.create("a", json!({"tenant": "acme"})).await.unwrap();
    let resource = format!("nets.{}", custom.group);
    let table = custom.subject.kubectl(&["get", &resource]);
    let lines: Vec<Vec<&str>> =
        table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines, [["NAME", "TENANT"], ["a", "acme"]]);
    let wide = custom.subject.kubectl(&["get", &resource, "-o", "wide", "--no-headers"]);
    assert_eq!(wide.split_whitespace().collect::<Vec<_>>(), ["a", "acme", "3"]);
    custom.end().await;
}
