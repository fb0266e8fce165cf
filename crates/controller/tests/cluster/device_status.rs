//! Resource claims: where a pod uses them, they tell its interfaces.

use atoll_api::Network;
use atoll_controller::ControllerConfig;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use crate::kept::status_of;
use crate::subject::{Subject, make, network, pod, remove, remove_pods, until};

/// A claim for a device of a driver by each request.
fn claim(name: &str, requests: &[&str]) -> Value {
    let request = |request: &&str| json!({"name": request, "exactly": {"deviceClassName": "nets.example.org"}});
    let requests: Vec<Value> = requests.iter().map(request).collect();
    json!({"metadata": {"name": name}, "spec": {"devices": {"requests": requests}}})
}

/// Does what the scheduler does: gives the devices, for a pod.
async fn allocate(claims: &Api<ResourceClaim>, name: &str, given: &[(&str, &str)], pod_uid: &str) {
    let result = |(request, driver): &(&str, &str)| {
        json!({"request": request, "driver": driver, "pool": "node1",
               "device": format!("dev-{request}")})
    };
    let results: Vec<Value> = given.iter().map(result).collect();
    let status = json!({"allocation": {"devices": {"results": results}},
        "reservedFor": [{"resource": "pods", "name": "web", "uid": pod_uid}]});
    let change = Patch::Merge(json!({"status": status}));
    claims.patch_status(name, &PatchParams::default(), &change).await.unwrap();
}

fn devices(claim: Option<&ResourceClaim>) -> Value {
    let status = claim.and_then(|claim| claim.status.as_ref());
    serde_json::to_value(status.and_then(|status| status.devices.as_ref())).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_claims_of_a_pod_tell_its_interfaces_and_devices_of_others_are_left_alone() {
    let subject = Subject::new("devices").await;
    let _controller = subject.start(ControllerConfig::default());
    let acme = subject.unique("acme");
    subject.make_tenant(&acme, "10.0.0.0/16").await;
    let other = format!("{acme}.b");
    make(&subject.all::<Network>(), network(&other, "vpc", None, &["10.1.0.0/16"])).await;
    let (ports, pods) = (subject.ports(&acme), subject.pods(&acme));
    let claims: Api<ResourceClaim> = subject.inside(&acme);
    make(&claims, claim("nets", &["data", "gpu"])).await;
    make(&claims, claim("more", &["eth0", "eth7"])).await;
    let mut web = pod("web");
    web["metadata"]["annotations"]["atoll.dev/extra-networks"] = json!("b@data");
    web["spec"]["resourceClaims"] = json!([{"name": "nets", "resourceClaimName": "nets"},
        {"name": "more", "resourceClaimName": "more"},
        {"name": "none", "resourceClaimName": "missing"}]);
    let uid = make(&pods, web).await.metadata.uid.unwrap();
    allocate(&claims, "nets", &[("data", "atoll.dev"), ("gpu", "gpu.example.org")], &uid).await;
    allocate(&claims, "more", &[("eth0", "atoll.dev"), ("eth7", "atoll.dev")], &uid).await;

    let first = subject.port_of(&acme, "web").await.spec;
    for port in ["web.eth0", "web.data"] {
        let attached = Patch::Merge(json!({"status": {"phase": "Attached"}}));
        ports.patch_status(port, &PatchParams::default(), &attached).await.unwrap();
    }
    let told = |claim: Option<&ResourceClaim>| !devices(claim).is_null();
    let expected = |port: &atoll_api::PortSpec| {
        json!([{"driver": "atoll.dev", "pool": "node1", "device": format!("dev-{}", port.interface),
            "networkData": {"interfaceName": port.interface, "hardwareAddress": port.mac,
                            "ips": [format!("{}/32", port.ips[0])]}}])
    };
    let second = ports.get("web.data").await.unwrap().spec;
    assert_eq!(devices(until(&claims, "nets", told).await.as_ref()), expected(&second));
    assert_eq!(devices(until(&claims, "more", told).await.as_ref()), expected(&first));
    until(&pods, "web", |pod: Option<&Pod>| status_of(pod).is_some()).await;
    let message = subject.event("web", "PartlyServed").await;
    assert!(message.contains("request eth7 has the name of no interface"), "{message}");

    remove_pods(&pods).await;
    for claim in ["nets", "more"] {
        remove(&claims, claim).await;
    }
    remove(&subject.all::<Network>(), &other).await;
    subject.remove_tenant(&acme).await;
}
