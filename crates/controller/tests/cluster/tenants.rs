//! Tenants and their default networks.

use atoll_api::{Network, Subnet, Tenant, TenantPhase};
use atoll_controller::ControllerConfig;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::DeleteParams;

use crate::subject::{Subject, make, remove, tenant, until};

fn in_phase(phase: TenantPhase) -> impl Fn(Option<&Tenant>) -> bool + Send + Sync {
    move |tenant| {
        let status = tenant.and_then(|tenant| tenant.status.as_ref());
        status.is_some_and(|status| status.phase == phase)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_gets_an_active_default_network_with_a_subnet() {
    let subject = Subject::new("born").await;
    let _controller = subject.start(ControllerConfig::default());
    let acme = subject.unique("acme");
    subject.make_tenant(&acme, "10.0.0.0/16").await;
    let network = subject.network_in_phase(&format!("{acme}.default"), "Active").await;
    assert!(network.status.unwrap().id.unwrap() > 0);
    let active = until(&subject.all::<Tenant>(), &acme, in_phase(TenantPhase::Active)).await;
    let status = active.unwrap().status.unwrap();
    assert_eq!((status.networks, status.default_network_created), (1, true));
    let subnet = subject.all::<Subnet>().get(&format!("{acme}.default.10-0-0-0-16")).await;
    assert_eq!(subnet.unwrap().spec.cidr, "10.0.0.0/16");
    subject.remove_tenant(&acme).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_malformed_template_gets_an_event_and_is_used_once_it_is_right() {
    let subject = Subject::new("template").await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("network.yaml");
    std::fs::write(&file, "kind: Network\nspec: {").unwrap();
    let _controller = subject.start(ControllerConfig {
        default_network_template: Some(file.clone()),
        ..ControllerConfig::default()
    });
    let acme = subject.unique("acme");
    make(&subject.all::<Tenant>(), tenant(&acme, None)).await;
    let message = subject.event(&acme, "TemplateInvalid").await;
    assert!(message.starts_with("the template for default networks"), "{message}");

    let text = "kind: Network\nspec: {type: vpc, vpcID: \"{{tenant}}\", cidrs: [10.8.0.0/16]}";
    std::fs::write(&file, text).unwrap();
    let network = subject.network_in_phase(&format!("{acme}.default"), "Active").await;
    assert_eq!(network.spec.vpc_id.as_deref(), Some(acme.as_str()));
    remove(&subject.all::<Tenant>(), &acme).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_with_a_namespace_waits_and_names_it() {
    let subject = Subject::new("waiting").await;
    let _controller = subject.start(ControllerConfig::default());
    let acme = subject.unique("acme");
    subject.make_tenant(&acme, "10.0.0.0/16").await;
    subject.network_in_phase(&format!("{acme}.default"), "Active").await;
    let tenants = subject.all::<Tenant>();
    tenants.delete(&acme, &DeleteParams::default()).await.unwrap();
    let waiting = until(&tenants, &acme, in_phase(TenantPhase::Terminating)).await.unwrap();
    let message = waiting.status.unwrap().conditions[0].message.clone();
    assert_eq!(message, format!("waits for its namespaces to be deleted: {acme}"));
    let uid = waiting.metadata.uid.unwrap();
    subject.all::<Namespace>().delete(&acme, &DeleteParams::default()).await.unwrap();
    until(&tenants, &acme, kube::runtime::conditions::is_deleted(&uid)).await;
    let network = subject.all::<Network>().get_opt(&format!("{acme}.default")).await.unwrap();
    assert!(network.is_none(), "the default network goes with its tenant");
}
