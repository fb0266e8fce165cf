//! Finalizers, owners, grace periods and the ends of namespaces.

use crate::Subject;
use crate::crud::pod;
use crate::server::refusal;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service, ServiceAccount};
use kube::api::{Api, DeleteParams, ObjectMeta, Patch, PatchParams, PostParams, PropagationPolicy};
use kube::{Resource as _, ResourceExt as _};
use serde_json::json;
use std::time::Duration;

fn config_map(name: &str) -> ConfigMap {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    ConfigMap { metadata, ..ConfigMap::default() }
}

async fn create(api: &Api<ConfigMap>, object: &ConfigMap) -> ConfigMap {
    api.create(&PostParams::default(), object).await.unwrap()
}

/// Waits until an object is gone.
async fn gone<K>(api: &Api<K>, name: &str)
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while api.get_opt(name).await.unwrap().is_some() {
        assert!(tokio::time::Instant::now() < deadline, "{name} is still there");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_finalizer_holds_an_object_until_it_is_removed() {
    let subject = Subject::new().await;
    let api = subject.api::<ConfigMap>();
    let mut object = config_map("a");
    object.metadata.finalizers = Some(vec!["atoll.dev/hold".to_owned()]);
    create(&api, &object).await;
    api.delete("a", &DeleteParams::default()).await.unwrap();
    let held = api.get("a").await.unwrap();
    assert!(held.metadata.deletion_timestamp.is_some());
    let add = json!({"metadata": {"finalizers": ["atoll.dev/hold", "atoll.dev/more"]}});
    let status = refusal(api.patch("a", &PatchParams::default(), &Patch::Merge(&add)).await);
    assert_eq!(status.code, 422);
    let none = json!({"metadata": {"finalizers": null}});
    api.patch("a", &PatchParams::default(), &Patch::Merge(&none)).await.unwrap();
    assert_eq!(refusal(api.get("a").await).code, 404);
}

#[tokio::test]
async fn a_pod_on_a_node_stays_until_its_kubelet_deletes_it() {
    let subject = Subject::new().await;
    let api = subject.api::<Pod>();
    let mut object = pod("web");
    object.spec.as_mut().unwrap().node_name = Some("no-such-node".to_owned());
    api.create(&PostParams::default(), &object).await.unwrap();
    api.delete("web", &DeleteParams::default()).await.unwrap();
    let held = api.get("web").await.unwrap();
    assert!(held.metadata.deletion_timestamp.is_some());
    assert_eq!(held.metadata.deletion_grace_period_seconds, Some(5));
    api.delete("web", &DeleteParams::default().grace_period(0)).await.unwrap();
    assert_eq!(refusal(api.get("web").await).code, 404);
}

#[tokio::test]
async fn a_pod_on_no_node_goes_at_once() {
    let subject = Subject::new().await;
    let api = subject.api::<Pod>();
    api.create(&PostParams::default(), &pod("web")).await.unwrap();
    api.delete("web", &DeleteParams::default()).await.unwrap();
    assert_eq!(refusal(api.get("web").await).code, 404);
}

#[tokio::test]
async fn dependents_go_with_their_owner() {
    let subject = Subject::new().await;
    let api = subject.api::<ConfigMap>();
    let owner = create(&api, &config_map("owner")).await;
    let mut child = config_map("child");
    child.metadata.owner_references = Some(vec![owner.owner_ref(&()).unwrap()]);
    create(&api, &child).await;
    api.delete("owner", &DeleteParams::default()).await.unwrap();
    gone(&api, "child").await;
}

#[tokio::test]
async fn a_dependent_stays_while_another_owner_lives() {
    let subject = Subject::new().await;
    let api = subject.api::<ConfigMap>();
    let one = create(&api, &config_map("one")).await;
    let two = create(&api, &config_map("two")).await;
    let mut child = config_map("child");
    child.metadata.owner_references =
        Some(vec![one.owner_ref(&()).unwrap(), two.owner_ref(&()).unwrap()]);
    create(&api, &child).await;
    api.delete("one", &DeleteParams::default()).await.unwrap();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while api.get("child").await.unwrap().owner_references().len() > 1 {
        assert!(tokio::time::Instant::now() < deadline, "the dead owner is still named");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    api.delete("two", &DeleteParams::default()).await.unwrap();
    gone(&api, "child").await;
}

#[tokio::test]
async fn orphans_lose_their_owner_and_stay() {
    let subject = Subject::new().await;
    let api = subject.api::<ConfigMap>();
    let owner = create(&api, &config_map("owner")).await;
    let mut child = config_map("child");
    child.metadata.owner_references = Some(vec![owner.owner_ref(&()).unwrap()]);
    create(&api, &child).await;
    let orphan = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Orphan),
        ..DeleteParams::default()
    };
    api.delete("owner", &orphan).await.unwrap();
    gone(&api, "owner").await;
    assert!(api.get("child").await.unwrap().owner_references().is_empty());
}

#[tokio::test]
async fn in_the_foreground_dependents_go_first() {
    let subject = Subject::new().await;
    let api = subject.api::<ConfigMap>();
    let owner = create(&api, &config_map("owner")).await;
    let mut child = config_map("child");
    let mut reference = owner.owner_ref(&()).unwrap();
    reference.block_owner_deletion = Some(true);
    child.metadata.owner_references = Some(vec![reference]);
    child.metadata.finalizers = Some(vec!["atoll.dev/hold".to_owned()]);
    create(&api, &child).await;
    api.delete("owner", &DeleteParams::foreground()).await.unwrap();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while api.get("child").await.unwrap().metadata.deletion_timestamp.is_none() {
        assert!(tokio::time::Instant::now() < deadline, "the dependent is not deleted");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(api.get("owner").await.unwrap().metadata.deletion_timestamp.is_some());
    let none = json!({"metadata": {"finalizers": null}});
    api.patch("child", &PatchParams::default(), &Patch::Merge(&none)).await.unwrap();
    gone(&api, "owner").await;
}

#[tokio::test]
async fn a_namespace_takes_its_content_along() {
    let subject = Subject::new().await;
    let api = subject.api::<ConfigMap>();
    let mut held = config_map("held");
    held.metadata.finalizers = Some(vec!["atoll.dev/hold".to_owned()]);
    create(&api, &held).await;
    create(&api, &config_map("free")).await;
    let namespaces = subject.namespaces();
    namespaces.delete(&subject.namespace, &DeleteParams::default()).await.unwrap();
    gone(&api, "free").await;
    let namespace = namespaces.get(&subject.namespace).await.unwrap();
    assert_eq!(namespace.status.unwrap().phase.as_deref(), Some("Terminating"));
    let status = refusal(api.create(&PostParams::default(), &config_map("late")).await);
    assert_eq!((status.code, status.reason.as_str()), (403, "Forbidden"));
    assert!(status.message.contains("because it is being terminated"), "{}", status.message);
    let none = json!({"metadata": {"finalizers": null}});
    api.patch("held", &PatchParams::default(), &Patch::Merge(&none)).await.unwrap();
    gone(&namespaces, &subject.namespace).await;
}

#[tokio::test]
async fn a_namespace_has_a_default_service_account() {
    let subject = Subject::new().await;
    let api = subject.api::<ServiceAccount>();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while api.get_opt("default").await.unwrap().is_none() {
        assert!(tokio::time::Instant::now() < deadline, "no default service account");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_service_gets_a_cluster_address_and_keeps_it() {
    let subject = Subject::new().await;
    let api = subject.api::<Service>();
    let service: Service = serde_json::from_value(json!({
        "metadata": {"name": "web"}, "spec": {"selector": {"a": "b"}, "ports": [{"port": 80}]}}))
    .unwrap();
    let created = api.create(&PostParams::default(), &service).await.unwrap();
    let spec = created.spec.unwrap();
    let address = spec.cluster_ip.unwrap();
    assert!(address.parse::<std::net::IpAddr>().is_ok(), "{address}");
    assert_eq!(spec.type_.as_deref(), Some("ClusterIP"));
    assert_eq!(spec.ports.unwrap()[0].protocol.as_deref(), Some("TCP"));
    let patch = json!({"spec": {"clusterIP": "10.96.200.200"}});
    let status = refusal(api.patch("web", &PatchParams::default(), &Patch::Merge(&patch)).await);
    assert_eq!(status.code, 422);
    assert_eq!(Service::kind(&()), "Service");
}
