//! What was forgotten is found.

use atoll_api::Claim;
use serde_json::json;

use crate::subject::{Subject, hasty, make, pod, remove_pods, until};

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_nobody_holds_any_more_is_given_back_with_an_event_and_others_stay() {
    let subject = Subject::new("sweep").await;
    let _controller = subject.start(hasty());
    let acme = subject.unique("acme");
    subject.make_tenant(&acme, "10.0.0.0/16").await;
    make(&subject.pods(&acme), pod("web")).await;
    let port = subject.port_of(&acme, "web").await;
    let (id, ip) = (port.spec.network_id, &port.spec.ips[0]);
    let claims = subject.all::<Claim>();
    let lost = format!("address.{id}.10.0.200.9");
    let holder =
        json!({"kind": "Port", "namespace": acme, "name": "gone.eth0", "uid": "of-nobody"});
    make(
        &claims,
        json!({"apiVersion": "atoll.dev/v1alpha1", "kind": "Claim",
                         "metadata": {"name": lost}, "spec": {"holder": holder}}),
    )
    .await;
    until(&claims, &lost, |claim: Option<&Claim>| claim.is_none()).await;
    let said = format!("{lost} was given back: port {acme}/gone.eth0 has it no more");
    assert_eq!(subject.event(&lost, "Repaired").await, said);
    let held = claims.get(&format!("address.{id}.{ip}")).await.unwrap();
    assert_eq!(held.spec.holder.name, "web.eth0", "what is held stays");
    remove_pods(&subject.pods(&acme)).await;
    subject.remove_tenant(&acme).await;
}
