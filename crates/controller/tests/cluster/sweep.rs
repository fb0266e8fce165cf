//! What was forgotten is found.

use atoll_api::{AddressPool, Claim};
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::subject::{Subject, hasty, make, pod, remove, remove_pods, until};

fn claim(name: &str, holder: &Value) -> Value {
    json!({"apiVersion": "atoll.dev/v1alpha1", "kind": "Claim", "metadata": {"name": name},
           "spec": {"holder": holder}})
}

/// Makes a claim that nobody stands behind, and waits until it was given back and that was said.
async fn is_repaired(subject: &Subject, name: &str, holder: Value, whose: &str) {
    let claims = subject.all::<Claim>();
    make(&claims, claim(name, &holder)).await;
    until(&claims, name, |claim: Option<&Claim>| claim.is_none()).await;
    let said = format!("{name} was given back: {whose} has it no more");
    assert_eq!(subject.event(name, "Repaired").await, said);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_nobody_holds_any_more_is_given_back_with_an_event_and_others_stay() {
    let subject = Subject::new("sweep").await;
    let _controller = subject.start(hasty());
    let acme = subject.unique("acme");
    subject.make_tenant(&acme, "10.0.0.0/16").await;
    make(&subject.pods(&acme), pod("web")).await;
    let port = subject.port_of(&acme, "web").await;
    let (id, ip) = (port.spec.network_id, &port.spec.ips[0]);
    let lost = format!("address.{id}.10.0.200.9");
    let holder =
        json!({"kind": "Port", "namespace": acme, "name": "gone.eth0", "uid": "of-nobody"});
    is_repaired(&subject, &lost, holder, &format!("port {acme}/gone.eth0")).await;
    let held = subject.all::<Claim>().get(&format!("address.{id}.{ip}")).await.unwrap();
    assert_eq!(held.spec.holder.name, "web.eth0", "what is held stays");
    remove_pods(&subject.pods(&acme)).await;
    subject.remove_tenant(&acme).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn blocks_numbers_vips_and_addresses_of_the_outside_that_nobody_has_are_given_back_and_said()
{
    let subject = Subject::new("leaks").await;
    let _controller = subject.start(hasty());
    let acme = subject.unique("acme");
    subject.make_tenant(&acme, "10.0.0.0/16").await;
    let pool = subject.unique("edge");
    let range = json!({"apiVersion": "atoll.dev/v1alpha1", "kind": "AddressPool",
        "metadata": {"name": pool}, "spec": {"cidrs": ["203.0.113.8/29"]}});
    make(&subject.all::<AddressPool>(), range).await;
    let plain = json!({"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}});
    let services = subject.inside::<Service>(&acme);
    make(&services, plain).await;
    let has_vip = |service: Option<&Service>| {
        service.is_some_and(|it| it.annotations().contains_key("atoll.dev/vip"))
    };
    let service = until(&services, "web", has_vip).await.unwrap();
    let service = json!({"kind": "Service", "namespace": acme, "name": "web",
                         "uid": service.metadata.uid});
    let gone = format!("{acme}.gone");
    let network = json!({"kind": "Network", "name": gone, "uid": "of-nobody"});
    let whose = format!("Network {gone}");
    is_repaired(&subject, "block.100-127-250-0-24", network.clone(), &whose).await;
    is_repaired(&subject, "outside.203.0.113.9", network, &whose).await;
    let vpc = json!({"kind": "VPC", "name": gone});
    is_repaired(&subject, "network-id.9999999", vpc, &format!("VPC {gone}")).await;
    let number = json!({"kind": "NetworkID", "name": "9999998"});
    is_repaired(&subject, &format!("vpc.{gone}"), number, "NetworkID 9999998").await;
    let vip = format!("vip.{acme}.198.18.200.9");
    is_repaired(&subject, &vip, service, &format!("service {acme}/web")).await;
    remove(&services, "web").await;
    remove(&subject.all::<AddressPool>(), &pool).await;
    subject.remove_tenant(&acme).await;
}
