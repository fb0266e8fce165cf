//! Replicas: what becomes of Deployments, ReplicaSets and StatefulSets. No kubelet is needed; the
//! cases say themselves when a pod is ready.

use crate::Subject;
use crate::server::until;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

fn spec(replicas: i32, image: &str) -> Value {
    json!({"replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": image}]}}})
}

async fn deploy(subject: &Subject, replicas: i32) -> Deployment {
    let object = json!({"metadata": {"name": "web"}, "spec": spec(replicas, "one")});
    let object: Deployment = serde_json::from_value(object).unwrap();
    subject.api().create(&PostParams::default(), &object).await.unwrap()
}

async fn make_set(subject: &Subject, replicas: i32) -> ReplicaSet {
    let object = json!({"metadata": {"name": "web"}, "spec": spec(replicas, "one")});
    let object: ReplicaSet = serde_json::from_value(object).unwrap();
    subject.api().create(&PostParams::default(), &object).await.unwrap()
}

async fn make_stateful(subject: &Subject, replicas: i32) -> StatefulSet {
    let mut spec = spec(replicas, "one");
    spec["serviceName"] = "peers".into();
    let object: StatefulSet =
        serde_json::from_value(json!({"metadata": {"name": "db"}, "spec": spec})).unwrap();
    subject.api().create(&PostParams::default(), &object).await.unwrap()
}

/// The pods that are not about to go.
async fn pods(subject: &Subject) -> Vec<Pod> {
    let all = subject.api::<Pod>().list(&ListParams::default()).await.unwrap().items;
    all.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).collect()
}

async fn names(subject: &Subject) -> Vec<String> {
    pods(subject).await.iter().map(kube::ResourceExt::name_any).collect()
}

async fn until_pods(subject: &Subject, wanted: usize) {
    until(async || pods(subject).await.len() == wanted, "the number of pods").await;
}

/// Says of every pod that is there that it is ready.
async fn make_ready(subject: &Subject) {
    for pod in pods(subject).await {
        subject.make_ready(&pod.name_any(), &["10.0.0.9"]).await;
    }
}

async fn sets(subject: &Subject) -> Vec<ReplicaSet> {
    subject.api::<ReplicaSet>().list(&ListParams::default()).await.unwrap().items
}

fn image(pod: &Pod) -> &str {
    pod.spec.as_ref().unwrap().containers[0].image.as_deref().unwrap()
}

#[tokio::test]
async fn a_deployment_makes_one_set_with_as_many_pods_as_it_wants() {
    let subject = Subject::new().await;
    deploy(&subject, 3).await;
    until_pods(&subject, 3).await;
    let sets = sets(&subject).await;
    assert_eq!(sets.len(), 1);
    assert_eq!(sets[0].owner_references()[0].kind, "Deployment");
    let hash = &sets[0].labels()["pod-template-hash"];
    assert_eq!(sets[0].name_any(), format!("web-{hash}"));
    for pod in pods(&subject).await {
        assert!(pod.name_any().starts_with(&format!("web-{hash}-")), "{}", pod.name_any());
        assert_eq!((&pod.labels()["pod-template-hash"], &*pod.labels()["app"]), (hash, "web"));
        let owner = &pod.owner_references()[0];
        assert_eq!((owner.controller, &*owner.kind), (Some(true), "ReplicaSet"));
    }
}

#[tokio::test]
async fn a_deployment_follows_its_number_up_and_down() {
    let subject = Subject::new().await;
    deploy(&subject, 1).await;
    until_pods(&subject, 1).await;
    let first = names(&subject).await.remove(0);
    make_ready(&subject).await;
    subject.kubectl(&["scale", "deployment", "web", "--replicas", "4"]);
    until_pods(&subject, 4).await;
    subject.kubectl(&["scale", "deployment", "web", "--replicas", "1"]);
    until_pods(&subject, 1).await;
    assert_eq!(names(&subject).await, [first], "the pod that was ready is gone");
    subject.kubectl(&["scale", "deployment", "web", "--replicas", "0"]);
    until_pods(&subject, 0).await;
}

#[tokio::test]
async fn a_deployment_is_available_once_its_pods_are_ready() {
    let subject = Subject::new().await;
    deploy(&subject, 2).await;
    until_pods(&subject, 2).await;
    let api = subject.api::<Deployment>();
    let unavailable =
        async || api.get("web").await.unwrap().status.unwrap().unavailable_replicas == Some(2);
    until(unavailable, "both are missed").await;
    make_ready(&subject).await;
    subject.kubectl(&["wait", "deployment", "web", "--for=condition=Available", "--timeout=30s"]);
    let told = subject.kubectl(&["rollout", "status", "deployment", "web", "--timeout=30s"]);
    assert!(told.contains("successfully rolled out"), "{told}");
    let shown = subject.kubectl(&["get", "deployment", "web", "--no-headers"]);
    assert_eq!(shown.split_whitespace().take(4).collect::<Vec<_>>(), ["web", "2/2", "2", "2"]);
    let status = api.get("web").await.unwrap().status.unwrap();
    assert_eq!(
        (status.replicas, status.ready_replicas, status.available_replicas),
        (Some(2), Some(2), Some(2))
    );
    assert_eq!((status.updated_replicas, status.unavailable_replicas), (Some(2), None));
    assert_eq!(status.observed_generation, Some(1));
    let progressing =
        status.conditions.unwrap().into_iter().find(|condition| condition.type_ == "Progressing");
    assert_eq!(progressing.unwrap().reason.as_deref(), Some("NewReplicaSetAvailable"));
}

#[tokio::test]
async fn another_template_rolls_to_new_pods_and_can_be_undone() {
    let subject = Subject::new().await;
    deploy(&subject, 2).await;
    until_pods(&subject, 2).await;
    make_ready(&subject).await;
    let rolled = async |wanted: &str| {
        make_ready(&subject).await;
        let pods = pods(&subject).await;
        pods.len() == 2 && pods.iter().all(|pod| image(pod) == wanted)
    };
    subject.kubectl(&["set", "image", "deployment/web", "c=two"]);
    until(async || rolled("two").await, "the new image").await;
    subject.kubectl(&["rollout", "status", "deployment", "web", "--timeout=30s"]);
    let sizes: Vec<_> =
        sets(&subject).await.iter().map(|set| set.spec.as_ref().unwrap().replicas).collect();
    assert!(sizes.contains(&Some(0)) && sizes.contains(&Some(2)), "{sizes:?}");
    let revision = async || {
        let found = subject.api::<Deployment>().get("web").await.unwrap();
        found.annotations()["deployment.kubernetes.io/revision"].clone()
    };
    assert_eq!(revision().await, "2");
    subject.kubectl(&["rollout", "undo", "deployment", "web"]);
    until(async || rolled("one").await, "the old image").await;
    until(async || revision().await == "3", "the third revision").await;
    assert_eq!(sets(&subject).await.len(), 2);
}

#[tokio::test]
async fn an_update_waits_for_the_first_new_pod_before_an_old_one_goes() {
    let subject = Subject::new().await;
    deploy(&subject, 2).await;
    until_pods(&subject, 2).await;
    make_ready(&subject).await;
    subject.kubectl(&["wait", "deployment", "web", "--for=condition=Available", "--timeout=30s"]);
    subject.kubectl(&["set", "image", "deployment/web", "c=two"]);
    until_pods(&subject, 3).await;
    let old = pods(&subject).await.iter().filter(|pod| image(pod) == "one").count();
    assert_eq!(old, 2);
}

#[tokio::test]
async fn a_paused_deployment_does_not_roll_until_it_is_resumed() {
    let subject = Subject::new().await;
    deploy(&subject, 1).await;
    until_pods(&subject, 1).await;
    subject.kubectl(&["rollout", "pause", "deployment", "web"]);
    subject.kubectl(&["set", "image", "deployment/web", "c=two"]);
    subject.kubectl(&["scale", "deployment", "web", "--replicas", "2"]);
    until_pods(&subject, 2).await;
    assert!(pods(&subject).await.iter().all(|pod| image(pod) == "one"));
    subject.kubectl(&["rollout", "resume", "deployment", "web"]);
    let found = async || pods(&subject).await.iter().any(|pod| image(pod) == "two");
    until(found, "the new image").await;
}

#[tokio::test]
async fn a_deployment_that_recreates_has_no_two_templates_at_once() {
    let subject = Subject::new().await;
    deploy(&subject, 2).await;
    until_pods(&subject, 2).await;
    let patch = json!({"spec": {"strategy": {"type": "Recreate", "rollingUpdate": null},
        "template": {"spec": {"containers": [{"name": "c", "image": "two"}]}}}});
    let api = subject.api::<Deployment>();
    api.patch("web", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    let renewed = async || {
        let pods = pods(&subject).await;
        let new = pods.iter().filter(|pod| image(pod) == "two").count();
        assert!(new == 0 || new == pods.len(), "{new} of {}", pods.len());
        new == 2
    };
    until(renewed, "two pods with the new image").await;
}

#[tokio::test]
async fn a_deployment_takes_its_sets_and_pods_along() {
    let subject = Subject::new().await;
    deploy(&subject, 2).await;
    until_pods(&subject, 2).await;
    subject.kubectl(&["delete", "deployment", "web"]);
    until_pods(&subject, 0).await;
    until(async || sets(&subject).await.is_empty(), "the sets are gone").await;
}

#[tokio::test]
async fn a_set_replaces_pods_that_are_deleted_or_fail() {
    let subject = Subject::new().await;
    make_set(&subject, 2).await;
    until_pods(&subject, 2).await;
    let before = names(&subject).await;
    subject.api::<Pod>().delete(&before[0], &DeleteParams::default()).await.unwrap();
    let replaced = async || {
        let now = names(&subject).await;
        now.len() == 2 && !now.contains(&before[0]) && now.contains(&before[1])
    };
    until(replaced, "another pod").await;
    let failed = json!({"status": {"phase": "Failed"}});
    let pods = subject.api::<Pod>();
    pods.patch_status(&before[1], &PatchParams::default(), &Patch::Merge(&failed)).await.unwrap();
    until_pods(&subject, 3).await;
}

#[tokio::test]
async fn a_pod_with_other_labels_is_let_go_and_replaced() {
    let subject = Subject::new().await;
    make_set(&subject, 1).await;
    until_pods(&subject, 1).await;
    let first = names(&subject).await.remove(0);
    subject.kubectl(&["label", "pod", &first, "app=debug", "--overwrite"]);
    until_pods(&subject, 2).await;
    let freed =
        async || subject.api::<Pod>().get(&first).await.unwrap().owner_references().is_empty();
    until(freed, "the pod has no owner").await;
    subject.kubectl(&["label", "pod", &first, "app=web", "--overwrite"]);
    until_pods(&subject, 1).await;
}

#[tokio::test]
async fn a_set_counts_its_pods_in_its_status() {
    let subject = Subject::new().await;
    make_set(&subject, 2).await;
    until_pods(&subject, 2).await;
    let first = names(&subject).await.remove(0);
    subject.make_ready(&first, &["10.0.0.9"]).await;
    let counted = async || {
        let status = subject.api::<ReplicaSet>().get("web").await.unwrap().status.unwrap();
        (status.replicas, status.ready_replicas, status.available_replicas) == (2, Some(1), Some(1))
    };
    until(counted, "two pods, one ready").await;
}

#[tokio::test]
async fn a_stateful_set_makes_its_pods_in_order() {
    let subject = Subject::new().await;
    make_stateful(&subject, 3).await;
    until_pods(&subject, 1).await;
    for ordinal in 0..3 {
        let name = format!("db-{ordinal}");
        until(async || names(&subject).await.contains(&name), &name).await;
        assert_eq!(pods(&subject).await.len(), ordinal + 1);
        subject.make_ready(&name, &["10.0.0.9"]).await;
    }
    let pod = subject.api::<Pod>().get("db-2").await.unwrap();
    let spec = pod.spec.as_ref().unwrap();
    assert_eq!(
        (spec.hostname.as_deref(), spec.subdomain.as_deref()),
        (Some("db-2"), Some("peers"))
    );
    assert_eq!(pod.labels()["statefulset.kubernetes.io/pod-name"], "db-2");
    assert_eq!(pod.labels()["apps.kubernetes.io/pod-index"], "2");
    subject.kubectl(&["rollout", "status", "statefulset", "db", "--timeout=30s"]);
    let status = subject.api::<StatefulSet>().get("db").await.unwrap().status.unwrap();
    assert_eq!((status.replicas, status.ready_replicas), (3, Some(3)));
    assert_eq!(status.current_revision, status.update_revision);
}

#[tokio::test]
async fn a_stateful_set_shrinks_from_its_end() {
    let subject = Subject::new().await;
    make_stateful(&subject, 3).await;
    until(
        async || {
            make_ready(&subject).await;
            names(&subject).await.len() == 3
        },
        "three pods",
    )
    .await;
    make_ready(&subject).await;
    subject.kubectl(&["scale", "statefulset", "db", "--replicas", "1"]);
    until_pods(&subject, 1).await;
    assert_eq!(names(&subject).await, ["db-0"]);
}

#[tokio::test]
async fn a_pod_of_a_stateful_set_comes_back_under_its_name() {
    let subject = Subject::new().await;
    make_stateful(&subject, 1).await;
    until_pods(&subject, 1).await;
    let before = pods(&subject).await[0].uid();
    subject.api::<Pod>().delete("db-0", &DeleteParams::default()).await.unwrap();
    let back = async || {
        let pods = pods(&subject).await;
        pods.len() == 1 && pods[0].name_any() == "db-0" && pods[0].uid() != before
    };
    until(back, "another db-0").await;
}

#[tokio::test]
async fn a_stateful_set_renews_its_pods_from_the_end() {
    let subject = Subject::new().await;
    make_stateful(&subject, 2).await;
    let both = async || {
        make_ready(&subject).await;
        names(&subject).await.len() == 2
    };
    until(both, "two pods").await;
    make_ready(&subject).await;
    subject.kubectl(&["set", "image", "statefulset/db", "c=two"]);
    let images = async || -> Vec<String> {
        pods(&subject).await.iter().map(|pod| image(pod).to_owned()).collect()
    };
    until(async || images().await == ["one", "two"], "db-1 with the new image").await;
    subject.make_ready("db-1", &["10.0.0.9"]).await;
    until(async || images().await == ["two", "two"], "db-0 with the new image").await;
}
