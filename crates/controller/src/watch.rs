//! The API as the controller sees it: every kind is listed, then followed.
//!
//! A list comes as a stream where the server has that: it then writes each object as it has it,
//! where for a page it copies all of them first. Servers may have it turned off, and say so.

use std::collections::BTreeSet;
use std::sync::Arc;

use atoll_api::{AddressPool, Claim, Network, NetworkType, Port, Subnet, Tenant, marks};
use atoll_model::intent::ObjectName;
use futures::future::ready;
use futures::{Stream, StreamExt, pin_mut};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use tokio::task::JoinSet;

use crate::heard::Heard;
use crate::kinds::Known;
use crate::reconcile::{Desk, News};

/// How many objects are asked for at once, and taken in at once.
const PAGE: u16 = 500;

/// Starts to follow every kind.
pub(crate) fn start(client: &Client, desk: &Arc<Desk>, tasks: &mut JoinSet<()>) {
    let all = || watcher::Config::default().page_size(u32::from(PAGE));
    let of_tenants = all().labels(marks::TENANT);
    tasks.spawn(follow::<Tenant>(client.clone(), all(), desk.clone()));
    tasks.spawn(follow::<Network>(client.clone(), all(), desk.clone()));
    tasks.spawn(follow::<Subnet>(client.clone(), all(), desk.clone()));
    tasks.spawn(follow::<Port>(client.clone(), all(), desk.clone()));
    tasks.spawn(follow::<Claim>(client.clone(), all(), desk.clone()));
    tasks.spawn(follow::<Namespace>(client.clone(), all(), desk.clone()));
    tasks.spawn(follow::<Pod>(client.clone(), all(), desk.clone()));
    tasks.spawn(follow::<Service>(client.clone(), all(), desk.clone()));
    tasks.spawn(follow::<ClusterRole>(client.clone(), of_tenants, desk.clone()));
    tasks.spawn(follow::<AddressPool>(client.clone(), all(), desk.clone()));
    tasks.spawn(follow::<NetworkType>(client.clone(), all(), desk.clone()));
    tasks.spawn(follow::<Node>(client.clone(), all(), desk.clone()));
    tasks.spawn(follow::<EndpointSlice>(client.clone(), all(), desk.clone()));
}

/// Follows a kind: its list as a stream, or by pages where the server has no streams.
async fn follow<K: Known>(client: Client, pages: watcher::Config, desk: Arc<Desk>) {
    let api = Api::<Heard<K>>::all(client);
    let streams = watcher(api.clone(), pages.clone().streaming_lists());
    listen(streams.take_while(|event| ready(!is_refused(event))), &desk).await;
    tracing::info!(kind = ?K::KIND, "the server streams no lists; they are read by pages");
    listen(watcher(api, pages), &desk).await;
}

/// Tells the desk what comes, until nothing comes any more. What has come by the time it is looked at
/// is told together.
async fn listen<K: Known>(
    events: impl Stream<Item = watcher::Result<Event<Heard<K>>>>,
    desk: &Desk,
) {
    let events = events.default_backoff().ready_chunks(usize::from(PAGE));
    pin_mut!(events);
    let mut listed = BTreeSet::new();
    while let Some(events) = events.next().await {
        let mut news = Vec::with_capacity(events.len());
        for event in events {
            match event {
                Ok(event) => news.extend(told(event, &mut listed)),
                Err(error) => {
                    tracing::warn!(kind = ?K::KIND, %error, "the watch broke; tried again");
                }
            }
        }
        desk.hear(news);
    }
}

/// Whether the server has understood what a watch shall begin with, and does not do that.
fn is_refused<T>(event: &watcher::Result<T>) -> bool {
    const UNPROCESSABLE: u16 = 422;
    let Err(watcher::Error::WatchStartFailed(kube::Error::Api(status))) = event else {
        return false;
    };
    status.code == UNPROCESSABLE
}

/// What an event tells. A list is one piece of news of its own, at its end.
fn told<K: Known>(event: Event<Heard<K>>, listed: &mut BTreeSet<ObjectName>) -> Option<News> {
    match event {
        Event::Init => {
            listed.clear();
            None
        }
        Event::InitApply(Heard(object)) => {
            listed.insert(object.key().name);
            Some(News::There(Box::new(object.seen())))
        }
        Event::InitDone => Some(News::All(K::KIND, std::mem::take(listed))),
        Event::Apply(Heard(object)) => Some(News::There(Box::new(object.seen()))),
        Event::Delete(Heard(object)) => {
            let uid = object.meta().uid.clone().unwrap_or_default();
            Some(News::Gone(object.key(), uid))
        }
    }
}
