//! Load balancers get addresses that the outside knows, and a node answers for each.

use std::collections::BTreeSet;

use atoll_api::AddressPool;
use k8s_openapi::api::core::v1::{Node, Service};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::subject::{Subject, eventually, hasty, make};

fn balancer(name: &str) -> Value {
    json!({"metadata": {"name": name},
           "spec": {"type": "LoadBalancer", "ports": [{"port": 80}], "selector": {"app": name}}})
}

/// The addresses that services say that they have, once so many have one.
async fn told(services: &Api<Service>, count: usize) -> Vec<String> {
    eventually(|| async {
        let list = services.list(&ListParams::default()).await.unwrap().items.into_iter();
        let ingress = |it: Service| it.status?.load_balancer?.ingress?.pop()?.ip;
        let told: Vec<String> = list.filter_map(ingress).collect();
        (told.len() == count).then_some(told)
    })
    .await
}

impl Subject {
    /// Claims on addresses of the outside, each with the node that answers for it.
    async fn outside_claims(&self) -> Vec<(String, Option<String>)> {
        let claims = self.claims().await.into_iter();
        let named = claims.filter_map(|claim| Some((claim.metadata.name?, claim.spec.node)));
        named.filter(|(name, _)| name.starts_with("outside.")).collect()
    }

    async fn set_ready(&self, node: &str, ready: &str) {
        let condition = json!({"type": "Ready", "status": ready});
        let status = json!({"status": {"conditions": [condition]}});
        let nodes = self.all::<Node>();
        nodes.patch_status(node, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn load_balancers_get_addresses_once_each_from_two_controllers_and_move_with_their_nodes() {
    const COUNT: usize = 6;
    let subject = Subject::new("balancers").await;
    let _controllers = [subject.start(hasty()), subject.start(hasty())];
    let nodes = [subject.unique("one"), subject.unique("two")];
    for node in &nodes {
        make(&subject.all::<Node>(), json!({"metadata": {"name": node}})).await;
        subject.set_ready(node, "True").await;
    }
    let pool = subject.unique("edge");
    let cidrs = json!({"metadata": {"name": pool}, "spec": {"cidrs": ["203.0.113.0/28"]}});
    make(&subject.all::<AddressPool>(), cidrs).await;
    let tenants = [subject.unique("acme"), subject.unique("globex")];
    for tenant in &tenants {
        subject.make_tenant(tenant, "10.0.0.0/16").await;
        for number in 0..COUNT {
            make(&subject.inside::<Service>(tenant), balancer(&format!("lb-{number}"))).await;
        }
    }
    let mut given = BTreeSet::new();
    for tenant in &tenants {
        given.extend(told(&subject.inside(tenant), COUNT).await);
    }
    assert_eq!(given.len(), 2 * COUNT, "all are distinct: {given:?}");
    assert!(given.iter().all(|ip| ip.starts_with("203.0.113.")), "{given:?}");
    subject.set_ready(&nodes[0], "Unknown").await;
    eventually(|| async {
        let claims = subject.outside_claims().await;
        let moved = claims.iter().all(|(_, node)| node.as_ref() == Some(&nodes[1]));
        (claims.len() == 2 * COUNT && moved).then_some(())
    })
    .await;
    for tenant in &tenants {
        let services = subject.inside::<Service>(tenant);
        for number in 0..COUNT {
            services.delete(&format!("lb-{number}"), &DeleteParams::default()).await.unwrap();
        }
    }
    eventually(|| async { subject.outside_claims().await.is_empty().then_some(()) }).await;
    subject.all::<AddressPool>().delete(&pool, &DeleteParams::default()).await.unwrap();
    for node in &nodes {
        subject.all::<Node>().delete(node, &DeleteParams::default()).await.unwrap();
    }
    for tenant in &tenants {
        subject.remove_tenant(tenant).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_balancer_without_a_pool_hears_so_and_a_pool_that_is_none_is_refused() {
    let subject = Subject::new("no-pool").await;
    let _controller = subject.start(hasty());
    let acme = subject.unique("acme");
    subject.make_tenant(&acme, "10.0.0.0/16").await;
    make(&subject.inside::<Service>(&acme), balancer("web")).await;
    let message = subject.event("web", "NoPool").await;
    assert!(message.contains(&format!("no AddressPool gives addresses of IPv4 to tenant {acme}")));
    let name = subject.unique("wrong");
    let wrong = json!({"metadata": {"name": name}, "spec": {"cidrs": ["203.0.113.5/28"]}});
    let pool: AddressPool = serde_json::from_value(json!({
        "apiVersion": "atoll.dev/v1alpha1", "kind": "AddressPool",
        "metadata": wrong["metadata"], "spec": wrong["spec"],
    }))
    .unwrap();
    let refused = subject.all::<AddressPool>().create(&Default::default(), &pool).await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("each of cidrs must be a CIDR like 192.0.2.0/28"), "{refused}");
    let services = subject.inside::<Service>(&acme);
    services.delete("web", &DeleteParams::default()).await.unwrap();
    subject.remove_tenant(&acme).await;
}
