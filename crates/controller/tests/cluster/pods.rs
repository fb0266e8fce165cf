//! Pods, their ports and their addresses.

use std::collections::BTreeSet;

use atoll_api::{Network, Port};
use atoll_controller::ControllerConfig;
use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::subject::{
    Subject, eventually, hasty, make, network, pod, pod_asking, remove, remove_pods, until,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_gets_its_port_and_the_port_its_node() {
    let subject = Subject::new("port").await;
    let _controller = subject.start(ControllerConfig::default());
    let acme = subject.unique("acme");
    subject.make_tenant(&acme, "10.0.0.0/16").await;
    let pods = subject.pods(&acme);
    let made = make(&pods, pod_asking("web", r#"[{"ip": "10.0.0.5"}]"#)).await;
    let port = subject.port_of(&acme, "web").await;
    assert_eq!(port.spec.ips, ["10.0.0.5"]);
    assert_eq!(port.spec.network, format!("{acme}.default"));
    assert_eq!(Some(&port.spec.pod_uid), made.metadata.uid.as_ref());
    bind(&subject, &acme, "web", "node1").await;
    let placed = |port: Option<&Port>| port.is_some_and(|it| it.spec.node.is_some());
    let port = until(&subject.ports(&acme), "web.eth0", placed).await.unwrap();
    assert_eq!(port.spec.node.as_deref(), Some("node1"));
    subject.remove_tenant(&acme).await;
}

async fn bind(subject: &Subject, namespace: &str, pod: &str, node: &str) {
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod},
                         "target": {"kind": "Node", "name": node}});
    let api = subject.pods(namespace);
    let params = PostParams::default();
    let _: serde_json::Value =
        api.create_subresource("binding", pod, &params, &binding).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_waits_for_its_network_with_an_event() {
    let subject = Subject::new("later").await;
    let _controller = subject.start(ControllerConfig::default());
    let acme = subject.unique("acme");
    subject.make_tenant(&acme, "10.0.0.0/16").await;
    let mut manifest = pod("web");
    manifest["metadata"]["labels"] = json!({"arktos.futurewei.com/network": "later"});
    make(&subject.pods(&acme), manifest).await;
    let message = subject.event("web", "NetworkNotFound").await;
    let name = format!("{acme}.later");
    assert_eq!(message, format!("network {name} does not exist; the pod starts once it does"));
    make(&subject.all::<Network>(), network(&name, "vpc", None, &["10.3.0.0/24"])).await;
    assert_eq!(subject.port_of(&acme, "web").await.spec.ips, ["10.3.0.2"]);
    remove_pods(&subject.pods(&acme)).await;
    remove(&subject.all::<Network>(), &name).await;
    subject.remove_tenant(&acme).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_cannot_be_had_gets_an_event_that_says_which() {
    let subject = Subject::new("refused").await;
    let _controller = subject.start(ControllerConfig::default());
    let acme = subject.unique("acme");
    subject.make_tenant(&acme, "10.0.0.0/16").await;
    let pods = subject.pods(&acme);
    make(&pods, pod_asking("first", r#"[{"ip": "10.0.0.5"}]"#)).await;
    subject.port_of(&acme, "first").await;
    for (name, ip) in [("twin", "10.0.0.5"), ("out", "10.1.0.5"), ("gateway", "10.0.0.1")] {
        make(&pods, pod_asking(name, &format!(r#"[{{"ip": "{ip}"}}]"#))).await;
    }
    make(&pods, pod_asking("words", "give me one")).await;
    let twin = subject.event("twin", "AddressInUse").await;
    assert!(twin.ends_with(&format!("is in use by port {acme}/first.eth0")), "{twin}");
    assert!(subject.event("out", "AddressOutside").await.contains("10.1.0.5"));
    assert!(subject.event("gateway", "AddressReserved").await.contains("10.0.0.1"));
    assert!(subject.event("words", "RequestMalformed").await.contains("atoll.dev/nics"));
    subject.remove_tenant(&acme).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_finished_pod_gives_its_address_back() {
    let subject = Subject::new("finished").await;
    let _controller = subject.start(ControllerConfig::default());
    let acme = subject.unique("acme");
    subject.make_tenant(&acme, "10.0.0.0/16").await;
    make(&subject.pods(&acme), pod("job")).await;
    let port = subject.port_of(&acme, "job").await;
    let done = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
    let pods = subject.pods(&acme);
    pods.patch_status("job", &PatchParams::default(), &done).await.unwrap();
    let uid = port.metadata.uid.unwrap();
    let gone = kube::runtime::conditions::is_deleted(&uid);
    until(&subject.ports(&acme), "job.eth0", gone).await;
    subject.remove_tenant(&acme).await;
}

/// Addresses of all ports, after every pod has one.
async fn addresses(subject: &Subject, namespace: &str, pods: usize) -> Vec<(u32, String)> {
    let ports = eventually(|| async {
        let ports = subject.ports(namespace).list(&ListParams::default()).await.unwrap().items;
        (ports.len() == pods).then_some(ports)
    })
    .await;
    ports.into_iter().map(|port| (port.spec.network_id, port.spec.ips[0].clone())).collect()
}

async fn no_address_claim_is_left(subject: &Subject, network_id: u32) {
    let prefix = format!("address.{network_id}.");
    eventually(|| async {
        let claims = subject.claims().await;
        let mut left = claims.iter().filter_map(|claim| claim.metadata.name.as_ref());
        (!left.any(|name| name.starts_with(&prefix))).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_controllers_at_once_give_no_address_twice_and_leave_no_claim() {
    const PODS: usize = 300;
    let subject = Subject::new("pair").await;
    let _one = subject.start(hasty());
    let _other = subject.start(hasty());
    let acme = subject.unique("acme");
    subject.make_tenant(&acme, "10.0.0.0/16").await;
    let pods = subject.pods(&acme);
    let creates = (0..PODS).map(|number| make::<Pod>(&pods, pod(&format!("web-{number}"))));
    join_all(creates).await;
    let given = addresses(&subject, &acme, PODS).await;
    let id = given[0].0;
    let distinct: BTreeSet<_> = given.into_iter().collect();
    assert_eq!(distinct.len(), PODS);
    remove_pods(&pods).await;
    no_address_claim_is_left(&subject, id).await;
    subject.remove_tenant(&acme).await;
    no_claim_is_left(&subject, &acme).await;
}

async fn no_claim_is_left(subject: &Subject, tenant: &str) {
    eventually(|| async {
        let claims = subject.claims().await;
        let held = claims.iter().any(|claim| {
            claim.spec.holder.name.starts_with(tenant)
                || claim.metadata.name.as_ref().is_some_and(|name| name.contains(tenant))
        });
        (!held).then_some(())
    })
    .await;
}
