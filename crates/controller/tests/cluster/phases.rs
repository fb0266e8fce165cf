//! The phases of a network, as everybody sees them who watches.

use atoll_api::{Network, NetworkPhase, Tenant};
use atoll_controller::ControllerConfig;
use futures::{StreamExt, pin_mut};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::DeleteParams;
use kube::runtime::watcher::{self, Event, watcher};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::subject::{Subject, make, network, pod, remove_pods, tenant};

/// Every phase that a network shows, one after the other, until it is gone.
fn phases_of(networks: Api<Network>, name: &str) -> JoinHandle<Vec<NetworkPhase>> {
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    tokio::spawn(async move {
        let events = watcher(networks, config);
        pin_mut!(events);
        let mut phases = Vec::new();
        while let Some(event) = events.next().await {
            match event.unwrap() {
                Event::Apply(network) | Event::InitApply(network) => {
                    phases.extend(network.status.map(|status| status.phase));
                }
                Event::Delete(_) => break,
                Event::Init | Event::InitDone => {}
            }
        }
        phases.dedup();
        phases
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn who_watches_a_network_sees_it_wait_serve_and_end_and_never_go_back() {
    let subject = Subject::new("phases").await;
    let _controller = subject.start(ControllerConfig::default());
    let acme = subject.unique("acme");
    let (networks, name) = (subject.all::<Network>(), format!("{acme}.web"));
    let watched = phases_of(networks.clone(), &name);

    make(&networks, network(&name, "vpc", None, &["10.0.0.0/16"])).await;
    subject.network_in_phase(&name, "Pending").await;
    make(&subject.all::<Tenant>(), tenant(&acme, None)).await;
    subject.network_in_phase(&name, "Active").await;
    let labels = json!({"atoll.dev/tenant": acme, "atoll.dev/network": "web"});
    make(&subject.all::<Namespace>(), json!({"metadata": {"name": acme, "labels": labels}})).await;
    make(&subject.pods(&acme), pod("web")).await;
    subject.port_of(&acme, "web").await;
    networks.delete(&name, &DeleteParams::default()).await.unwrap();
    subject.network_in_phase(&name, "Terminating").await;
    remove_pods(&subject.pods(&acme)).await;

    let phases = watched.await.unwrap();
    let from_pending = phases.iter().skip_while(|phase| **phase == NetworkPhase::Initializing);
    let from_pending: Vec<_> = from_pending.copied().collect();
    let wanted = [NetworkPhase::Pending, NetworkPhase::Active, NetworkPhase::Terminating];
    assert_eq!(from_pending, wanted, "{phases:?}");
    subject.remove_tenant(&acme).await;
}
