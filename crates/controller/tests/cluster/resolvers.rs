//! DNS pods of networks that have their own.

use atoll_api::{IsolationGrade, Network, Tenant};
use atoll_controller::ControllerConfig;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Service};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::subject::{Subject, until};

async fn patch(api: &Api<Network>, name: &str, dns: Value) {
    let patch = Patch::Merge(json!({"spec": {"dns": dns}}));
    api.patch(name, &PatchParams::default(), &patch).await.unwrap();
}

/// A tenant whose default network is dedicated, and the namespace of its DNS pods.
async fn dedicated(subject: &Subject, tenant: &str) -> (String, String) {
    subject.make_tenant(tenant, "10.0.0.0/16").await;
    let name = format!("{tenant}.default");
    let network = subject.network_in_phase(&name, "Active").await;
    patch(&subject.all(), &name, json!({"mode": "dedicated"})).await;
    (name, format!("atoll-dns-{}", network.status.unwrap().id.unwrap()))
}

fn replicas(wanted: i32) -> impl Fn(Option<&Deployment>) -> bool + Send + Sync {
    move |it| it.and_then(|it| it.spec.as_ref()?.replicas) == Some(wanted)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dedicated_network_gets_dns_pods_that_are_repaired_and_go_with_the_mode() {
    let subject = Subject::new("dedicated").await;
    let config = ControllerConfig { dns_replicas: 3, ..ControllerConfig::default() };
    let _controller = subject.start(config);
    let acme = subject.unique("acme");
    let (network, namespace) = dedicated(&subject, &acme).await;
    let deployments = Api::<Deployment>::namespaced(subject.client.clone(), &namespace);
    until(&deployments, "dns", replicas(3)).await;
    let services = Api::<Service>::namespaced(subject.client.clone(), &namespace);
    until(&services, "dns", |it: Option<&Service>| it.is_some()).await;
    let made = subject.all::<Namespace>().get(&namespace).await.unwrap();
    assert_eq!(made.metadata.labels.unwrap()["atoll.dev/tenant"], acme);
    let is_hard = |tenant: Option<&Tenant>| {
        let isolation = tenant.and_then(|it| it.status.as_ref()?.isolation.as_ref());
        isolation.is_some_and(|it| it.grade == IsolationGrade::Hard)
    };
    until(&subject.all::<Tenant>(), &acme, is_hard).await;

    let fewer = Patch::Merge(json!({"spec": {"replicas": 1}}));
    deployments.patch("dns", &PatchParams::default(), &fewer).await.unwrap();
    until(&deployments, "dns", replicas(3)).await;
    deployments.delete("dns", &DeleteParams::default()).await.unwrap();
    until(&deployments, "dns", replicas(3)).await;

    patch(&subject.all(), &network, json!({"mode": "shared"})).await;
    let is_gone =
        |it: Option<&Namespace>| it.is_none_or(|it| it.metadata.deletion_timestamp.is_some());
    until(&subject.all::<Namespace>(), &namespace, is_gone).await;
    subject.remove_tenant(&acme).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dns_pods_go_with_their_tenant() {
    let subject = Subject::new("leaving").await;
    let _controller = subject.start(ControllerConfig::default());
    let acme = subject.unique("acme");
    let (_, namespace) = dedicated(&subject, &acme).await;
    let there = |it: Option<&Namespace>| it.is_some();
    until(&subject.all::<Namespace>(), &namespace, there).await;
    subject.remove_tenant(&acme).await;
    let gone = |it: Option<&Tenant>| it.is_none();
    until(&subject.all::<Tenant>(), &acme, gone).await;
    assert!(subject.all::<Namespace>().get_opt(&namespace).await.unwrap().is_none());
}
