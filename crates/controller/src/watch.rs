//! The API as the controller sees it: every kind is listed, then followed.

use std::collections::BTreeSet;
use std::sync::Arc;

use atoll_api::{AddressPool, Claim, Network, NetworkType, Port, Subnet, Tenant, marks};
use atoll_model::intent::ObjectName;
use futures::{StreamExt, pin_mut};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use tokio::task::JoinSet;

use crate::kinds::Known;
use crate::reconcile::{Desk, News};

/// How many objects are asked for at once.
const PAGE: u32 = 500;

/// Starts to follow every kind.
pub(crate) fn start(client: &Client, desk: &Arc<Desk>, tasks: &mut JoinSet<()>) {
    let all = || watcher::Config::default().page_size(PAGE);
    let of_tenants = all().labels(marks::TENANT);
    tasks.spawn(follow(Api::<Tenant>::all(client.clone()), all(), desk.clone()));
    tasks.spawn(follow(Api::<Network>::all(client.clone()), all(), desk.clone()));
    tasks.spawn(follow(Api::<Subnet>::all(client.clone()), all(), desk.clone()));
    tasks.spawn(follow(Api::<Port>::all(client.clone()), all(), desk.clone()));
    tasks.spawn(follow(Api::<Claim>::all(client.clone()), all(), desk.clone()));
    tasks.spawn(follow(Api::<Namespace>::all(client.clone()), all(), desk.clone()));
    tasks.spawn(follow(Api::<Pod>::all(client.clone()), all(), desk.clone()));
    tasks.spawn(follow(Api::<Service>::all(client.clone()), all(), desk.clone()));
    tasks.spawn(follow(Api::<ClusterRole>::all(client.clone()), of_tenants, desk.clone()));
    tasks.spawn(follow(Api::<AddressPool>::all(client.clone()), all(), desk.clone()));
    tasks.spawn(follow(Api::<NetworkType>::all(client.clone()), all(), desk.clone()));
    tasks.spawn(follow(Api::<Node>::all(client.clone()), all(), desk.clone()));
    tasks.spawn(follow(Api::<EndpointSlice>::all(client.clone()), all(), desk.clone()));
}

async fn follow<K: Known>(api: Api<K>, config: watcher::Config, desk: Arc<Desk>) {
    let events = watcher(api, config).default_backoff();
    pin_mut!(events);
    let mut listed = BTreeSet::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => hear(event, &mut listed, &desk),
            Err(error) => tracing::warn!(kind = ?K::KIND, %error, "the watch broke; tried again"),
        }
    }
}

fn hear<K: Known>(event: Event<K>, listed: &mut BTreeSet<ObjectName>, desk: &Desk) {
    match event {
        Event::Init => listed.clear(),
        Event::InitApply(object) => {
            listed.insert(object.key().name);
            desk.hear(News::There(Box::new(object.seen())));
        }
        Event::InitDone => desk.hear_list(K::KIND, &std::mem::take(listed)),
        Event::Apply(object) => desk.hear(News::There(Box::new(object.seen()))),
        Event::Delete(object) => {
            let uid = object.meta().uid.clone().unwrap_or_default();
            desk.hear(News::Gone(object.key(), uid));
        }
    }
}
