//! A provider of a type of network: a small one that serves type `sdn`, beside the controller.

use atoll_api::{Network, NetworkPhase, NetworkStatus, NetworkType, Port};
use atoll_controller::ControllerConfig;
use futures::StreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::conditions::is_deleted;
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::subject::{Subject, make, network, pod, ready, remove, remove_pods, until};

const NAME: &str = "sdn.example/provider";

/// A provider that goes with this value.
struct Provider(JoinHandle<()>);

impl Drop for Provider {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Serves every network that it is given of a type.
fn provide(client: Client, type_: &str) -> Provider {
    let type_ = type_.to_owned();
    Provider(tokio::spawn(async move {
        let networks = Api::<Network>::all(client.clone());
        let seen = watcher(networks.clone(), watcher::Config::default()).default_backoff();
        let mut seen = std::pin::pin!(seen.applied_objects());
        while let Some(network) = seen.next().await {
            if let Some(network) = network.ok().filter(|it| it.spec.type_ == type_) {
                serve(&networks, &network).await;
            }
        }
    }))
}

fn holds(status: &NetworkStatus, type_: &str) -> bool {
    status.conditions.iter().any(|it| it.type_ == type_ && it.status == "True")
}

/// What it was given becomes Active; of what is being deleted, nothing is left.
async fn serve(networks: &Api<Network>, network: &Network) {
    let Some(status) = network.status.clone().filter(|it| holds(it, "Provided")) else { return };
    let deleted = network.metadata.deletion_timestamp.is_some();
    let (told, reason) = if deleted { ("Released", "TakenDown") } else { ("Ready", "Wired") };
    if holds(&status, told) {
        return;
    }
    let mut conditions = status.conditions.clone();
    let first: Condition = conditions[0].clone();
    conditions.retain(|it| it.type_ != told);
    let done = Condition { type_: told.into(), status: "True".into(), ..first };
    conditions.push(Condition { reason: reason.into(), message: "by the sdn".into(), ..done });
    let phase = if deleted { NetworkPhase::Terminating } else { NetworkPhase::Active };
    let status = json!({"metadata": {"resourceVersion": network.resource_version()},
        "status": {"phase": phase, "cidrs": ["192.168.0.0/24"], "conditions": conditions}});
    let (name, patch) = (network.name_any(), Patch::Merge(status));
    // Who wrote first is seen next.
    networks.patch_status(&name, &PatchParams::default(), &patch).await.map(drop).ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_registers_for_a_type_and_its_networks_are_its_own_until_they_go() {
    let subject = Subject::new("sdn").await;
    let controller = subject.start(ControllerConfig::default());
    let (acme, type_) = (subject.unique("acme"), subject.unique("sdn"));
    subject.make_tenant(&acme, "10.0.0.0/16").await;
    let (networks, types) = (subject.all::<Network>(), subject.all::<NetworkType>());
    let name = format!("{acme}.wide");
    make(&networks, network(&name, &type_, None, &[])).await;
    let waiting = subject.network_in_phase(&name, "Pending").await;
    assert_eq!(ready(&waiting).0, "NoProvider");

    let _provider = provide(subject.client.clone(), &type_);
    make(&types, json!({"metadata": {"name": type_}, "spec": {"provider": NAME}})).await;
    let served = subject.network_in_phase(&name, "Active").await;
    assert_eq!(ready(&served), ("Wired".into(), "by the sdn".into()));
    assert_eq!(served.status.as_ref().unwrap().cidrs, ["192.168.0.0/24"]);
    controller.stop().await;
    let _next = subject.start(ControllerConfig::default());
    assert_pods_wait_there_and_start_elsewhere(&subject, &acme, "wide").await;
    let after = networks.get(&name).await.unwrap();
    assert_eq!(after.status, served.status, "another controller leaves it alone");

    types.delete(&type_, &DeleteParams::default()).await.unwrap();
    let refused = |it: Option<&NetworkType>| {
        let status = it.and_then(|it| it.status.clone()).unwrap_or_default();
        status.conditions.iter().any(|it| it.reason == "InUse" && it.message.contains(".wide"))
    };
    let standing = until(&types, &type_, refused).await.unwrap();
    remove_pods(&subject.pods(&acme)).await;
    remove(&networks, &name).await;
    until(&types, &type_, is_deleted(&standing.metadata.uid.unwrap())).await;
    subject.remove_tenant(&acme).await;
}

/// A pod in the provider's network gets nothing of ours, and hears so.
async fn assert_pods_wait_there_and_start_elsewhere(subject: &Subject, acme: &str, there: &str) {
    let mut theirs = pod("theirs");
    theirs["metadata"]["labels"]["atoll.dev/network"] = json!(there);
    make(&subject.pods(acme), theirs).await;
    make(&subject.pods(acme), pod("ours")).await;
    subject.port_of(acme, "ours").await;
    let said = subject.event("theirs", "NetworkNotReady").await;
    assert!(said.contains("its provider gives its addresses, and Atoll none"), "{said}");
    let port: Option<Port> = subject.ports(acme).get_opt("theirs.eth0").await.unwrap();
    assert!(port.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_writes_no_number_and_no_phase_that_goes_back() {
    let subject = Subject::new("words").await;
    let acme = subject.unique("acme");
    let (networks, name) = (subject.all::<Network>(), format!("{acme}.wide"));
    make(&networks, network(&name, "sdn", None, &[])).await;
    let write = async |status: serde_json::Value| {
        let patch = Patch::Merge(json!({"status": status}));
        let written = networks.patch_status(&name, &PatchParams::default(), &patch).await;
        written.map(drop).map_err(|error| error.to_string())
    };
    let refused = write(json!({"phase": "Active", "id": 7})).await.unwrap_err();
    assert!(refused.contains("status.id: only networks of type vpc and flat have a number"));
    write(json!({"phase": "Active"})).await.unwrap();
    let back = write(json!({"phase": "Initializing"})).await.unwrap_err();
    assert!(back.contains("none becomes Initializing again"), "{back}");
    write(json!({"phase": "Pending"})).await.unwrap();
    write(json!({"phase": "Terminating"})).await.unwrap();
    let back = write(json!({"phase": "Active"})).await.unwrap_err();
    assert!(back.contains("a network that is Terminating stays so"), "{back}");
    networks.delete(&name, &DeleteParams::default()).await.unwrap();
}
