//! EndpointSlices: which pods stand behind a service, and in what state.

use crate::Subject;
use crate::server::until;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};

async fn serve(subject: &Subject, spec: Value) -> Service {
    let service = json!({"metadata": {"name": "web", "labels": {"tier": "1"}}, "spec": spec});
    let service: Service = serde_json::from_value(service).unwrap();
    subject.api().create(&PostParams::default(), &service).await.unwrap()
}

fn web() -> Value {
    json!({"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]})
}

/// A pod on a node without a kubelet, so that nobody touches it.
async fn run(subject: &Subject, name: &str, more: Value) -> Pod {
    let node = subject.make_node().await;
    let mut pod = json!({"metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "x"}]}});
    for (field, value) in more.as_object().unwrap() {
        pod["spec"][field] = value.clone();
    }
    let pod: Pod = serde_json::from_value(pod).unwrap();
    subject.api().create(&PostParams::default(), &pod).await.unwrap()
}

/// The slices of the service, those of IPv4 first.
async fn slices(subject: &Subject) -> Vec<EndpointSlice> {
    let of_service = ListParams::default().labels("kubernetes.io/service-name=web");
    let mut found = subject.api::<EndpointSlice>().list(&of_service).await.unwrap().items;
    found.sort_by_key(|slice| (slice.address_type.clone(), slice.name_any()));
    found
}

async fn endpoints(subject: &Subject) -> Vec<Endpoint> {
    let mut all: Vec<Endpoint> =
        slices(subject).await.into_iter().flat_map(|s| s.endpoints).collect();
    all.sort_by_key(|endpoint| endpoint.addresses.clone());
    all
}

async fn addresses(subject: &Subject) -> Vec<String> {
    endpoints(subject).await.into_iter().flat_map(|endpoint| endpoint.addresses).collect()
}

/// Ready, serving, terminating.
fn state(endpoint: &Endpoint) -> [bool; 3] {
    let conditions = endpoint.conditions.clone().unwrap_or_default();
    [conditions.ready, conditions.serving, conditions.terminating].map(|holds| holds == Some(true))
}

async fn until_state(subject: &Subject, wanted: [bool; 3]) {
    let found = async || endpoints(subject).await.first().map(state) == Some(wanted);
    until(found, &format!("an endpoint that is {wanted:?}")).await;
}

#[tokio::test]
async fn a_ready_pod_is_an_endpoint_of_its_service() {
    let subject = Subject::new().await;
    let service = serve(&subject, web()).await;
    let pod = run(&subject, "a", json!({})).await;
    subject.make_ready("a", &["10.0.0.1"]).await;
    until_state(&subject, [true, true, false]).await;
    let slice = slices(&subject).await.remove(0);
    assert_eq!((slice.address_type.as_str(), slice.endpoints.len()), ("IPv4", 1));
    assert!(slice.name_any().starts_with("web-"), "{}", slice.name_any());
    let manager = "endpointslice.kubernetes.io/managed-by";
    assert_eq!(slice.labels()[manager], "endpointslice-controller.k8s.io");
    assert_eq!(slice.labels()["tier"], "1");
    assert_eq!(Some(slice.owner_references()[0].uid.clone()), service.uid());
    let port = &slice.ports.as_ref().unwrap()[0];
    assert_eq!((port.name.as_deref(), port.port), (Some("http"), Some(8080)));
    assert_eq!(port.protocol.as_deref(), Some("TCP"));
    let endpoint = &slice.endpoints[0];
    assert_eq!(endpoint.addresses, ["10.0.0.1"]);
    assert_eq!(endpoint.node_name, Some(subject.make_node().await));
    assert_eq!(endpoint.zone.as_deref(), Some("east"));
    let target = endpoint.target_ref.clone().unwrap();
    assert_eq!((target.kind.as_deref(), target.uid), (Some("Pod"), pod.uid()));
}

#[tokio::test]
async fn a_service_without_pods_has_one_empty_slice() {
    let subject = Subject::new().await;
    serve(&subject, web()).await;
    until(async || slices(&subject).await.len() == 1, "one slice").await;
    let slice = slices(&subject).await.remove(0);
    assert!(slice.endpoints.is_empty() && slice.ports.unwrap_or_default().is_empty());
}

#[tokio::test]
async fn a_pod_that_is_not_ready_is_listed_as_such() {
    let subject = Subject::new().await;
    serve(&subject, web()).await;
    run(&subject, "a", json!({})).await;
    subject.make_unready("a", &["10.0.0.1"]).await;
    until_state(&subject, [false, false, false]).await;
    subject.make_ready("a", &["10.0.0.1"]).await;
    until_state(&subject, [true, true, false]).await;
    subject.make_unready("a", &["10.0.0.1"]).await;
    until_state(&subject, [false, false, false]).await;
}

#[tokio::test]
async fn a_service_may_publish_addresses_that_are_not_ready() {
    let subject = Subject::new().await;
    let mut spec = web();
    spec["publishNotReadyAddresses"] = true.into();
    serve(&subject, spec).await;
    run(&subject, "a", json!({})).await;
    subject.make_unready("a", &["10.0.0.1"]).await;
    until_state(&subject, [true, false, false]).await;
}

#[tokio::test]
async fn a_pod_that_ends_still_serves_and_is_no_longer_ready() {
    let subject = Subject::new().await;
    serve(&subject, web()).await;
    run(&subject, "a", json!({})).await;
    subject.make_ready("a", &["10.0.0.1"]).await;
    until_state(&subject, [true, true, false]).await;
    let api = subject.api::<Pod>();
    api.delete("a", &DeleteParams::default()).await.unwrap();
    until_state(&subject, [false, true, true]).await;
    api.delete("a", &DeleteParams::default().grace_period(0)).await.unwrap();
    until(async || endpoints(&subject).await.is_empty(), "no endpoint").await;
}

#[tokio::test]
async fn a_named_port_is_the_number_that_each_pod_gives_it() {
    let subject = Subject::new().await;
    let ports = json!([{"name": "http", "port": 80, "targetPort": "web"}]);
    serve(&subject, json!({"selector": {"app": "web"}, "ports": ports})).await;
    for (name, address, port) in [("a", "10.0.0.1", 8080), ("b", "10.0.0.2", 9090)] {
        let containers = json!([{"name": "c", "image": "x",
            "ports": [{"name": "web", "containerPort": port}]}]);
        run(&subject, name, json!({"containers": containers})).await;
        subject.make_ready(name, &[address]).await;
    }
    until(async || addresses(&subject).await.len() == 2, "two endpoints").await;
    for slice in slices(&subject).await.iter().filter(|slice| !slice.endpoints.is_empty()) {
        let port = slice.ports.as_ref().unwrap()[0].port;
        let expected = if slice.endpoints[0].addresses == ["10.0.0.1"] { 8080 } else { 9090 };
        assert_eq!(port, Some(expected));
    }
}

#[tokio::test]
async fn a_headless_service_gives_its_pods_their_host_names() {
    let subject = Subject::new().await;
    serve(&subject, json!({"clusterIP": "None", "selector": {"app": "web"}})).await;
    run(&subject, "a", json!({"hostname": "first", "subdomain": "web"})).await;
    run(&subject, "b", json!({"hostname": "second", "subdomain": "other"})).await;
    subject.make_ready("a", &["10.0.0.1"]).await;
    subject.make_ready("b", &["10.0.0.2"]).await;
    until(async || addresses(&subject).await.len() == 2, "two endpoints").await;
    let hosts: Vec<_> = endpoints(&subject).await.into_iter().map(|e| e.hostname).collect();
    assert_eq!(hosts, [Some("first".to_owned()), None]);
    let slice = slices(&subject).await.remove(0);
    assert_eq!(slice.labels()["service.kubernetes.io/headless"], "");
}

#[tokio::test]
async fn each_address_family_has_its_own_slice() {
    let subject = Subject::new().await;
    let spec = json!({"clusterIP": "None", "selector": {"app": "web"}, "ports": [{"port": 80}],
        "ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv4", "IPv6"]});
    serve(&subject, spec).await;
    run(&subject, "a", json!({})).await;
    subject.make_ready("a", &["10.0.0.1", "fd00::1"]).await;
    until(async || addresses(&subject).await == ["10.0.0.1", "fd00::1"], "both families").await;
    let types: Vec<_> = slices(&subject).await.into_iter().map(|s| s.address_type).collect();
    assert_eq!(types, ["IPv4", "IPv6"]);
}

#[tokio::test]
async fn a_pod_with_other_labels_or_that_failed_is_no_endpoint_any_more() {
    let subject = Subject::new().await;
    serve(&subject, web()).await;
    for (name, address) in [("a", "10.0.0.1"), ("b", "10.0.0.2"), ("c", "10.0.0.3")] {
        run(&subject, name, json!({})).await;
        subject.make_ready(name, &[address]).await;
    }
    until(async || addresses(&subject).await.len() == 3, "three endpoints").await;
    subject.kubectl(&["label", "pod", "a", "app=debug", "--overwrite"]);
    let failed = "{\"status\":{\"phase\":\"Failed\"}}";
    subject.kubectl(&["patch", "pod", "b", "--subresource=status", "--type=merge", "-p", failed]);
    until(async || addresses(&subject).await == ["10.0.0.3"], "one endpoint").await;
}

#[tokio::test]
async fn slices_go_with_their_service() {
    let subject = Subject::new().await;
    serve(&subject, web()).await;
    until(async || slices(&subject).await.len() == 1, "one slice").await;
    subject.api::<Service>().delete("web", &DeleteParams::default()).await.unwrap();
    until(async || slices(&subject).await.is_empty(), "no slice").await;
}

#[tokio::test]
async fn a_slice_that_is_taken_away_comes_back() {
    let subject = Subject::new().await;
    serve(&subject, web()).await;
    run(&subject, "a", json!({})).await;
    subject.make_ready("a", &["10.0.0.1"]).await;
    until(async || addresses(&subject).await == ["10.0.0.1"], "one endpoint").await;
    let name = slices(&subject).await[0].name_any();
    subject.api::<EndpointSlice>().delete(&name, &DeleteParams::default()).await.unwrap();
    let back = async || {
        let slices = slices(&subject).await;
        slices.len() == 1 && slices[0].name_any() != name && slices[0].endpoints.len() == 1
    };
    until(back, "another slice").await;
}

#[tokio::test]
async fn slices_made_by_hand_are_left_alone() {
    let subject = Subject::new().await;
    let by_hand: EndpointSlice = serde_json::from_value(json!({
        "metadata": {"name": "mine", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4", "endpoints": [{"addresses": ["192.0.2.1"]}],
        "ports": [{"port": 5432}]}))
    .unwrap();
    let api = subject.api::<EndpointSlice>();
    let made = api.create(&PostParams::default(), &by_hand).await.unwrap();
    let port = json!({"ports": [{"port": 5432}]});
    serve(&subject, port).await;
    let selecting: Service = serde_json::from_value(json!({"metadata": {"name": "other"},
        "spec": web()}))
    .unwrap();
    subject.api().create(&PostParams::default(), &selecting).await.unwrap();
    let of_other = ListParams::default().labels("kubernetes.io/service-name=other");
    until(async || api.list(&of_other).await.unwrap().items.len() == 1, "the other's slice").await;
    assert_eq!(slices(&subject).await, [made]);
}
