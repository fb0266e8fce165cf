//! DNS pods for the networks that have their own: made, repaired and removed with them.
//!
//! The rule: what they look like is decided in the model; here it is applied whole, so that what
//! somebody changed or took away is as it was.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use atoll_api::{DnsMode, Network, Tenant, marks};
use atoll_model::resolver::{DnsPods, dns_namespace, has_dns_pods};
use atoll_types::NetworkId;
use futures::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Service};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::reflector::{ObjectRef, Store, store};
use kube::runtime::watcher::{Config, watcher};
use kube::runtime::{WatchStreamExt, reflector};
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::heard::Heard;
use crate::reconcile::Desk;

const OURS: &str = "atoll-controller";
const AGAIN: Duration = Duration::from_secs(2);

/// What it takes to tend to one network.
struct Tools {
    client: Client,
    pods: DnsPods,
    /// The namespaces of DNS pods that are there.
    namespaces: Store<Namespace>,
}

/// Tends to all networks whenever this controller is the one that works.
pub(crate) async fn follow(client: Client, pods: DnsPods, desk: Arc<Desk>) {
    let mut leading = desk.leading();
    loop {
        if leading.wait_for(|leading| *leading).await.is_err() {
            return;
        }
        tokio::select! {
            () = run(&client, &pods) => {}
            lost = leading.wait_for(|leading| !*leading) => if lost.is_err() { return },
        }
    }
}

async fn run(client: &Client, pods: &DnsPods) {
    let ours = || Config::default().labels(marks::DNS_OF);
    let (namespaces, writer) = store();
    let seen = watcher(Api::<Namespace>::all(client.clone()), ours()).default_backoff();
    let seen = reflector(writer, seen).for_each(|_| std::future::ready(()));
    let tools = Tools { client: client.clone(), pods: pods.clone(), namespaces };
    let controller = Controller::new(Api::<Heard<Network>>::all(client.clone()), Config::default());
    let networks = controller.store();
    let of_tenant = move |Heard(tenant): Heard<Tenant>| match tenant.metadata.deletion_timestamp {
        Some(_) => networks_of(&networks, &tenant.name_any()),
        None => vec![],
    };
    let tending = controller
        .watches(Api::<Namespace>::all(client.clone()), ours(), |it| network_of(&it))
        .watches(Api::<Deployment>::all(client.clone()), ours(), |it| network_of(&it))
        .watches(Api::<Service>::all(client.clone()), ours(), |it| network_of(&it))
        .watches(Api::<Heard<Tenant>>::all(client.clone()), Config::default(), of_tenant)
        .run(tend, again, Arc::new(tools))
        .for_each(|_| std::future::ready(()));
    tokio::select! {
        () = seen => {}
        () = tending => {}
    }
}

/// The network that an object of ours is for.
fn network_of<K: Resource>(object: &K) -> Option<ObjectRef<Heard<Network>>> {
    object.annotations().get(marks::DNS_OF).map(|name| ObjectRef::new(name))
}

fn networks_of(networks: &Store<Heard<Network>>, tenant: &str) -> Vec<ObjectRef<Heard<Network>>> {
    let all = networks.state().into_iter().filter(|network| network.0.spec.tenant == tenant);
    all.map(|network| ObjectRef::from_obj(&*network)).collect()
}

#[expect(clippy::needless_pass_by_value, reason = "it is called so")]
fn again(network: Arc<Heard<Network>>, error: &kube::Error, _: Arc<Tools>) -> Action {
    tracing::warn!(network = network.name_any(), %error, "cannot tend to its DNS pods");
    Action::requeue(AGAIN)
}

async fn tend(network: Arc<Heard<Network>>, tools: Arc<Tools>) -> Result<Action, kube::Error> {
    let Heard(network) = &*network;
    match tools.wanted(network).await? {
        Some(id) => tools.apply(network, id).await?,
        None => tools.remove(network).await?,
    }
    Ok(Action::await_change())
}

impl Tools {
    async fn wanted(&self, network: &Network) -> Result<Option<NetworkId>, kube::Error> {
        let mode = network.status.as_ref().map(|status| status.dns_mode);
        if mode != Some(DnsMode::Dedicated) {
            return Ok(None);
        }
        let tenants = Api::<Tenant>::all(self.client.clone());
        let tenant = tenants.get_opt(&network.spec.tenant).await?;
        Ok(has_dns_pods(network, tenant.as_ref()))
    }

    async fn apply(&self, network: &Network, id: NetworkId) -> Result<(), kube::Error> {
        let objects = self.pods.objects(network, id).map_err(kube::Error::SerdeError)?;
        let namespace = dns_namespace(id);
        let client = || self.client.clone();
        apply(&Api::all(client()), &objects.namespace).await?;
        apply(&Api::namespaced(client(), &namespace), &objects.service).await?;
        apply(&Api::namespaced(client(), &namespace), &objects.deployment).await
    }

    /// Takes away what a network has no use for any more.
    async fn remove(&self, network: &Network) -> Result<(), kube::Error> {
        let id = network.status.as_ref().and_then(|status| status.id);
        let Some(id) = id.and_then(|id| NetworkId::try_from(id).ok()) else { return Ok(()) };
        let _listed = self.namespaces.wait_until_ready().await;
        let there = self.namespaces.get(&ObjectRef::new(&dns_namespace(id)));
        let Some(there) = there.filter(|it| is_for(it, network)) else { return Ok(()) };
        tracing::info!(network = network.name_any(), "its DNS pods go");
        let api = Api::<Namespace>::all(self.client.clone());
        match api.delete(&there.name_any(), &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            other => other.map(|_| ()),
        }
    }
}

fn is_for(namespace: &Namespace, network: &Network) -> bool {
    let name = namespace.annotations().get(marks::DNS_OF);
    namespace.metadata.deletion_timestamp.is_none() && name == network.metadata.name.as_ref()
}

async fn apply<K>(api: &Api<K>, object: &K) -> Result<(), kube::Error>
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned,
{
    let force = PatchParams::apply(OURS).force();
    api.patch(&object.name_any(), &force, &Patch::Apply(object)).await.map(|_| ())
}
