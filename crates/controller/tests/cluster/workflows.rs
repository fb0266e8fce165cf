//! The three workflows of the design that tenants on VPCs come from, by its own manifests.

use std::path::Path;

use atoll_api::{Claim, Network, Port, Subnet, Tenant};
use atoll_controller::ControllerConfig;
use atoll_convert::{Settings, convert};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::subject::{Subject, make, remove, remove_pods, tenant};

/// A manifest of the seeds for another tenant, as it is converted.
fn seed(name: &str, tenant: &str, changes: &[(&str, &str)]) -> Value {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../convert/tests/seeds");
    let text = std::fs::read_to_string(folder.join(name)).unwrap().replace("acme", tenant);
    let text = changes.iter().fold(text, |text, (from, to)| text.replace(from, to));
    let settings = Settings { tenant: Some(tenant.parse().unwrap()), ..Settings::default() };
    let mut object = convert(&text, &settings).unwrap().objects().remove(0);
    if object["kind"] == "Pod" {
        object["metadata"].as_object_mut().unwrap().remove("namespace");
        object["spec"]["containers"] = json!([{"name": "main", "image": "none"}]);
    }
    object
}

async fn tenant_with_namespace(subject: &Subject, name: &str, range: Option<&str>) {
    let network = range.map(|range| json!({"type": "vpc", "cidrs": [range]}));
    make(&subject.all::<Tenant>(), tenant(name, network.as_ref())).await;
    let labels = json!({"atoll.dev/tenant": name});
    let namespace = json!({"metadata": {"name": name, "labels": labels}});
    make(&subject.all::<Namespace>(), namespace).await;
}

fn place(port: &Port) -> (&str, &str) {
    (port.spec.network.as_str(), port.spec.ips[0].as_str())
}

#[tokio::test(flavor = "multi_thread")]
async fn workflow_1_a_tenant_gets_its_network_and_a_pod_is_attached_without_annotation() {
    let subject = Subject::new("workflow1").await;
    let _controller = subject.start(ControllerConfig::default());
    let acme = subject.unique("acme");
    let labels = json!({"atoll.dev/tenant": acme});
    make(&subject.all::<Namespace>(), json!({"metadata": {"name": acme, "labels": labels}})).await;
    let early = seed("s0-3-pod-on-the-default-network.yaml", &acme, &[]);
    make(&subject.pods(&acme), early).await;
    let waits = subject.event("nginx", "NetworkNotFound").await;
    assert!(waits.contains(&format!("{acme}.default")), "{waits}");
    let network = json!({"type": "vpc", "cidrs": ["10.0.0.0/16"]});
    make(&subject.all::<Tenant>(), tenant(&acme, Some(&network))).await;
    let port = subject.port_of(&acme, "nginx").await;
    assert_eq!(place(&port), (format!("{acme}.default").as_str(), "10.0.0.2"));
    subject.remove_tenant(&acme).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn workflow_2_a_second_network_has_a_vpc_of_its_own_for_pods_that_name_it() {
    let subject = Subject::new("workflow2").await;
    let _controller = subject.start(ControllerConfig::default());
    let acme = subject.unique("acme");
    tenant_with_namespace(&subject, &acme, Some("10.0.0.0/16")).await;
    let networks = subject.all::<Network>();
    make(&networks, seed("s4-4-arktos-network.yaml", &acme, &[])).await;
    make(&subject.pods(&acme), seed("s4-5-arktos-pod.yaml", &acme, &[])).await;
    let plain = seed("s0-3-pod-on-the-default-network.yaml", &acme, &[]);
    make(&subject.pods(&acme), plain).await;
    let second = subject.port_of(&acme, "web").await;
    let first = subject.port_of(&acme, "nginx").await;
    assert_eq!(place(&second), (format!("{acme}.vpc-1").as_str(), "10.0.0.2"));
    assert_eq!(place(&first), (format!("{acme}.default").as_str(), "10.0.0.2"));
    assert_ne!(first.spec.network_id, second.spec.network_id, "equal addresses, two networks");
    remove_pods(&subject.pods(&acme)).await;
    remove(&networks, &format!("{acme}.vpc-1")).await;
    subject.remove_tenant(&acme).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn workflow_3_a_network_of_an_existing_vpc_makes_only_a_subnet() {
    let subject = Subject::new("workflow3").await;
    let _controller = subject.start(ControllerConfig::default());
    let acme = subject.unique("acme");
    tenant_with_namespace(&subject, &acme, None).await;
    let networks = subject.all::<Network>();
    make(&networks, seed("s4-4-arktos-network.yaml", &acme, &[])).await;
    let first = subject.network_in_phase(&format!("{acme}.vpc-1"), "Active").await;
    let of_vpc = async || {
        let claims = subject.all::<Claim>().list(&ListParams::default()).await.unwrap();
        let vpc = format!("{acme}.vpc-{acme}");
        claims.into_iter().filter(|claim| claim.spec.holder.name == vpc).count()
    };
    assert_eq!(of_vpc().await, 1);
    let changes = [("vpc-1", "vpc-2"), ("spec:\n", "spec:\n  cidrs: [10.1.0.0/16]\n")];
    make(&networks, seed("s4-4-arktos-network.yaml", &acme, &changes)).await;
    let second = subject.network_in_phase(&format!("{acme}.vpc-2"), "Active").await;
    assert_eq!(first.status.unwrap().id, second.status.unwrap().id, "one VPC, one number");
    assert_eq!(of_vpc().await, 1, "no VPC was made");
    let subnet = subject.all::<Subnet>().get(&format!("{acme}.vpc-2.10-1-0-0-16")).await.unwrap();
    assert_eq!(subnet.spec.cidr, "10.1.0.0/16");
    let named = [("vpc-1", "vpc-2")];
    make(&subject.pods(&acme), seed("s4-5-arktos-pod.yaml", &acme, &named)).await;
    let port = subject.port_of(&acme, "web").await;
    assert_eq!(place(&port), (format!("{acme}.vpc-2").as_str(), "10.1.0.2"));
    remove_pods(&subject.pods(&acme)).await;
    for name in ["vpc-1", "vpc-2"] {
        remove(&networks, &format!("{acme}.{name}")).await;
    }
    subject.remove_tenant(&acme).await;
}
