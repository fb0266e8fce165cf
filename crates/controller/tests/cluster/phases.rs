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

use crate::subject::{Subject, make, network, pod, ready, remove, remove_pods, tenant};

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

/// Every change that was seen is one that may be.
fn assert_legal(phases: &[NetworkPhase]) {
    let mut changes = phases.iter().zip(&phases[1..]);
    assert!(changes.all(|(before, after)| before.may_become(*after)), "{phases:?}");
}

/// What was seen from the first phase on that is not `Initializing`, which may be over before one looks.
fn after_the_beginning(phases: &[NetworkPhase]) -> Vec<NetworkPhase> {
    assert_legal(phases);
    phases.iter().copied().skip_while(|phase| *phase == NetworkPhase::Initializing).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn who_watches_a_network_that_cannot_be_sees_it_fail_recover_and_end() {
    let subject = Subject::new("failed").await;
    let _controller = subject.start(ControllerConfig::default());
    let acme = subject.unique("acme");
    make(&subject.all::<Tenant>(), tenant(&acme, None)).await;
    let [first, second] = ["first", "second"].map(|name| format!("{acme}.{name}"));
    let networks = subject.all::<Network>();
    make(&networks, network(&first, "vpc", Some("one"), &["10.0.0.0/16"])).await;
    subject.network_in_phase(&first, "Active").await;
    let watched = phases_of(networks.clone(), &second);
    make(&networks, network(&second, "vpc", Some("one"), &["10.0.0.0/24"])).await;
    let failed = subject.network_in_phase(&second, "Failed").await;
    let (reason, message) = ready(&failed);
    assert_eq!(reason, "CidrOverlap");
    assert!(message.contains(&first), "{message}");
    remove(&networks, &first).await;
    subject.network_in_phase(&second, "Active").await;
    remove(&networks, &second).await;
    let phases = after_the_beginning(&watched.await.unwrap());
    let ended = phases.strip_suffix(&[NetworkPhase::Terminating]).unwrap_or(&phases);
    assert_eq!(ended, [NetworkPhase::Failed, NetworkPhase::Active], "{phases:?}");
    remove(&subject.all::<Tenant>(), &acme).await;
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
    let from_pending = after_the_beginning(&phases);
    let wanted = [NetworkPhase::Pending, NetworkPhase::Active, NetworkPhase::Terminating];
    assert_eq!(from_pending, wanted, "{phases:?}");
    subject.remove_tenant(&acme).await;
}
