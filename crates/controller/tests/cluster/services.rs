//! Services get addresses of their tenant.

use std::collections::BTreeSet;

use atoll_api::{Tenant, marks};
use k8s_openapi::api::core::v1::Service;
use kube::api::{Api, DeleteParams, ListParams};
use serde_json::{Value, json};

use crate::subject::{Subject, eventually, hasty, make};

fn service(name: &str, vip: Option<&str>) -> Value {
    let annotations = vip.map_or_else(|| json!({}), |vip| json!({marks::VIP: vip}));
    json!({"metadata": {"name": name, "annotations": annotations},
           "spec": {"ports": [{"port": 80}], "selector": {"app": name}}})
}

/// The addresses of so many services, once all have one.
async fn vips(services: &Api<Service>, count: usize) -> BTreeSet<String> {
    eventually(|| async {
        let list = services.list(&ListParams::default()).await.unwrap().items.into_iter();
        let vip = |it: Service| it.metadata.annotations?.get(marks::VIP).cloned();
        let vips: Vec<String> = list.filter_map(vip).collect();
        (vips.len() == count).then(|| vips.into_iter().collect())
    })
    .await
}

impl Subject {
    /// How many claims on addresses of a tenant's services there are.
    async fn vip_claims(&self, tenant: &str) -> usize {
        let prefix = format!("vip.{tenant}.");
        let claims = self.claims().await.into_iter();
        let names = claims.filter_map(|claim| claim.metadata.name);
        names.filter(|name| name.starts_with(&prefix)).count()
    }

    async fn remove_services(&self, tenant: &str) {
        let services: Api<Service> = self.inside(tenant);
        for service in services.list(&ListParams::default()).await.unwrap() {
            let name = service.metadata.name.unwrap();
            services.delete(&name, &DeleteParams::default()).await.unwrap();
        }
        eventually(|| async { (self.vip_claims(tenant).await == 0).then_some(()) }).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn services_of_two_tenants_get_vips_once_each_from_two_controllers_and_give_them_back() {
    const COUNT: usize = 20;
    let subject = Subject::new("vips").await;
    let _controllers = [subject.start(hasty()), subject.start(hasty())];
    let tenants = [subject.unique("acme"), subject.unique("globex")];
    for tenant in &tenants {
        subject.make_tenant(tenant, "10.0.0.0/16").await;
    }
    for number in 0..COUNT {
        for tenant in &tenants {
            make(&subject.inside::<Service>(tenant), service(&format!("svc-{number}"), None)).await;
        }
    }
    for tenant in &tenants {
        let vips = vips(&subject.inside(tenant), COUNT).await;
        assert_eq!(vips.len(), COUNT, "all are distinct");
        assert!(vips.iter().all(|vip| vip.starts_with("198.18.0.")), "{vips:?}");
        eventually(|| async {
            let status = subject.all::<Tenant>().get(tenant).await.unwrap().status.unwrap();
            (usize::try_from(status.vips) == Ok(COUNT)).then_some(())
        })
        .await;
        subject.remove_services(tenant).await;
        subject.remove_tenant(tenant).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vip_that_was_asked_for_is_given_and_one_that_cannot_be_gets_an_event() {
    let subject = Subject::new("vip-asked").await;
    let _controller = subject.start(hasty());
    let acme = subject.unique("acme");
    subject.make_tenant(&acme, "10.0.0.0/16").await;
    let services: Api<Service> = subject.inside(&acme);
    make(&services, service("web", Some("198.18.7.7"))).await;
    eventually(|| async { (subject.vip_claims(&acme).await == 1).then_some(()) }).await;
    make(&services, service("far", Some("10.9.9.9"))).await;
    let message = subject.event("far", "AddressOutside").await;
    assert!(message.contains("name an address of 198.18.0.0/16, or none"), "{message}");
    make(&services, service("late", Some("198.18.7.7"))).await;
    let message = subject.event("late", "AddressInUse").await;
    assert!(message.contains(&format!("is in use by service {acme}/web")), "{message}");
    subject.remove_services(&acme).await;
    subject.remove_tenant(&acme).await;
}
