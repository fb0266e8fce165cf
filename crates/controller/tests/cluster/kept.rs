//! Pods with several interfaces, and ports that outlive pods.

use atoll_api::{Network, Port, marks};
use atoll_controller::ControllerConfig;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::runtime::conditions::is_deleted;
use serde_json::{Value, json};

use crate::subject::{
    Subject, hasty, make, network, pod, pod_asking, remove, remove_pods, try_make, until,
};

/// A port without a pod.
fn port(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "atoll.dev/v1alpha1", "kind": "Port", "metadata": {"name": name},
           "spec": spec})
}

/// A port once it has its addresses and this pod (or none).
async fn port_of_pod(ports: &Api<Port>, name: &str, pod: &str) -> Port {
    let pod = pod.to_owned();
    let reached = move |port: Option<&Port>| {
        port.is_some_and(|port| !port.spec.ips.is_empty() && port.spec.pod == pod)
    };
    until(ports, name, reached).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_made_beforehand_is_filled_in_taken_and_left() {
    let subject = Subject::new("premade").await;
    let _controller = subject.start(ControllerConfig::default());
    let acme = subject.unique("acme");
    subject.make_tenant(&acme, "10.0.0.0/16").await;
    let (ports, pods) = (subject.ports(&acme), subject.pods(&acme));
    make(&ports, port("mine", &json!({"network": format!("{acme}.default")}))).await;
    let filled = port_of_pod(&ports, "mine", "").await.spec;
    assert_eq!((filled.ips.len(), filled.persistent), (1, true));

    make(&pods, pod_asking("web", r#"[{"port": "mine"}]"#)).await;
    let taken = port_of_pod(&ports, "mine", "web").await.spec;
    assert_eq!((taken.ips, taken.interface.as_str()), (filled.ips.clone(), "eth0"));
    remove_pods(&pods).await;
    assert_eq!(port_of_pod(&ports, "mine", "").await.spec, filled);
    remove(&ports, "mine").await;
    subject.remove_tenant(&acme).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn half_a_port_is_refused_with_what_would_be_right() {
    let subject = Subject::new("half").await;
    let acme = subject.unique("acme");
    subject.make_tenant(&acme, "10.0.0.0/16").await;
    let ports = subject.ports(&acme);
    let refused = async |changes: Value, words: &str| {
        let mut spec = json!({"network": format!("{acme}.default")});
        spec.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        let made = try_make(&ports, port("half", &spec)).await;
        let error = made.expect_err(&spec.to_string()).to_string();
        assert!(error.contains(words), "{spec}: {error}");
    };
    let whole = json!({"subnet": "s", "ips": ["10.0.0.5"], "mac": "02:00:00:00:00:05"});
    refused(json!({"pod": "web"}), "pod and podUID go together").await;
    refused(json!({"pod": "web", "podUID": "u"}), "needs networkID and interface").await;
    refused(json!({"node": "node1"}), "are of a port that a pod has").await;
    refused(json!({"networkID": 7}), "networkID needs subnet, ips and mac").await;
    refused(json!({"ips": ["ten"]}), "each of ips must be an IP address").await;
    make(
        &ports,
        port(
            "whole",
            &json!({"network": format!("{acme}.default"), "networkID": 7,
        "subnet": whole["subnet"], "ips": whole["ips"], "mac": whole["mac"]}),
        ),
    )
    .await;
    let change = async |spec: Value, words: &str| {
        let patch = Patch::Merge(json!({"spec": spec}));
        let error = ports.patch("whole", &PatchParams::default(), &patch).await.unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    };
    change(json!({"ips": ["10.0.0.6"]}), "keeps its networkID, ips and mac").await;
    change(json!({"network": "other.default"}), "cannot move to another network").await;
    remove(&ports, "whole").await;
    let _controller = subject.start(hasty());
    subject.remove_tenant(&acme).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_with_an_extra_network_gets_both_ports_and_is_told_when_they_are_attached() {
    let subject = Subject::new("extra").await;
    let _controller = subject.start(ControllerConfig::default());
    let acme = subject.unique("acme");
    subject.make_tenant(&acme, "10.0.0.0/16").await;
    let name = format!("{acme}.b");
    make(&subject.all::<Network>(), network(&name, "vpc", None, &["10.1.0.0/16"])).await;
    let (ports, pods) = (subject.ports(&acme), subject.pods(&acme));
    let mut web = pod("web");
    web["metadata"]["annotations"][marks::EXTRA_NETWORKS] = json!("b@data");
    make(&pods, web).await;
    let first = subject.port_of(&acme, "web").await.spec;
    assert_eq!((first.other_interfaces.as_slice(), first.primary), (&["data".into()][..], true));
    let other = ports.get("web.data").await.unwrap().spec;
    assert_eq!((other.network, other.routes), (name.clone(), vec!["10.1.0.0/16".into()]));

    for port in ["web.eth0", "web.data"] {
        let attached = Patch::Merge(json!({"status": {"phase": "Attached"}}));
        ports.patch_status(port, &PatchParams::default(), &attached).await.unwrap();
    }
    let told = |pod: Option<&Pod>| status_of(pod).is_some();
    let pod = until(&pods, "web", told).await;
    let status: Value = serde_json::from_str(&status_of(pod.as_ref()).unwrap()).unwrap();
    assert_eq!(status[0]["ips"], json!(first.ips));
    assert_eq!((&status[1]["interface"], &status[1]["default"]), (&json!("data"), &json!(false)));
    remove_pods(&pods).await;
    remove(&subject.all::<Network>(), &name).await;
    subject.remove_tenant(&acme).await;
}

/// What a pod was told of its interfaces.
pub(crate) fn status_of(pod: Option<&Pod>) -> Option<String> {
    pod?.metadata.annotations.as_ref()?.get(marks::NETWORK_STATUS).cloned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stateful_sets_pod_keeps_its_address_until_the_set_goes() {
    let subject = Subject::new("set").await;
    let _controller = subject.start(hasty());
    let acme = subject.unique("acme");
    subject.make_tenant(&acme, "10.0.0.0/16").await;
    let (ports, pods) = (subject.ports(&acme), subject.pods(&acme));
    let sets: Api<StatefulSet> = Api::namespaced(subject.client.clone(), &acme);
    let template = json!({"metadata": {"labels": {"app": "db"}},
                          "spec": {"containers": [{"name": "main", "image": "none"}]}});
    let set = make(
        &sets,
        json!({"metadata": {"name": "db"}, "spec": {"replicas": 1,
        "serviceName": "db", "selector": {"matchLabels": {"app": "db"}}, "template": template}}),
    )
    .await;
    // Where nobody runs StatefulSets, the pod is made as they would make it.
    let mut db = pod("db-0");
    db["metadata"]["labels"] = json!({"app": "db"});
    db["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "StatefulSet",
        "name": "db", "uid": set.metadata.uid, "controller": true}]);
    try_make(&pods, db.clone()).await.ok();
    let first = port_of_pod(&ports, "db-0.eth0", "db-0").await.spec;
    remove_pods(&pods).await;
    try_make(&pods, db).await.ok();
    let before = first.pod_uid.clone();
    let next = move |port: Option<&Port>| {
        port.is_some_and(|port| port.spec.pod == "db-0" && port.spec.pod_uid != before)
    };
    let again = until(&ports, "db-0.eth0", next).await.unwrap();
    assert_eq!(again.spec.ips, first.ips);

    remove(&sets, "db").await;
    until(&ports, "db-0.eth0", is_deleted(again.metadata.uid.as_deref().unwrap())).await;
    subject.remove_tenant(&acme).await;
}
