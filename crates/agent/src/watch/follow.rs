//! One watch, from its first list on: what comes is sent on as changes.
//!
//! The rule of this file: a list comes out whole, once it is complete, and everything after it in order.

use std::collections::BTreeMap;
use std::fmt::Debug;

use futures::{Stream, StreamExt};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::Sender;

use crate::seen::{Change, Delta};

/// How objects are listed before they are followed: as the API server has them in its memory, which may
/// be a moment ago. It never has to wait, nor to read and decode what is stored, however many nodes
/// start at once; what happened in that moment is told next. Policies, and the pods and namespaces that
/// they speak of, are listed in their newest state: none that is in force may be missing for a moment.
pub(crate) fn at_hand() -> watcher::Config {
    watcher::Config::default().any_semantic()
}

/// Watches for good and sends every change. `read` turns an object into its entry, or into `None`
/// where it has nothing to say; `key` names it.
pub(crate) async fn follow<R, K, V>(
    api: Api<R>,
    config: watcher::Config,
    read: impl Fn(&R) -> Option<(K, V)> + Send,
    key: impl Fn(&R) -> K + Send,
    (changes, wrap): (Sender<Change>, impl Fn(Delta<K, V>) -> Change + Send),
) where
    R: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    K: Ord,
{
    let mut deltas = std::pin::pin!(deltas(watcher(api, config).default_backoff(), read, key));
    while let Some(delta) = deltas.next().await {
        if changes.send(wrap(delta)).await.is_err() {
            return;
        }
    }
}

/// Watches for good objects that say two things, and sends every change as a change of each.
pub(super) async fn follow_twofold<R, A, B, F>(
    api: Api<R>,
    config: watcher::Config,
    read: impl Fn(&R) -> (Option<A>, Option<B>) + Send,
    name: F,
    (changes, first, second): (
        Sender<Change>,
        impl Fn(Delta<String, A>) -> Change + Send,
        impl Fn(Delta<String, B>) -> Change + Send,
    ),
) where
    R: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    F: Fn(&R) -> String + Send + Copy,
{
    let events = watcher(api, config).default_backoff();
    let read = |object: &R| Some((name(object), read(object)));
    let mut deltas = std::pin::pin!(deltas(events, read, name));
    while let Some(delta) = deltas.next().await {
        let (one, other) = split(delta);
        for change in [first(one), second(other)] {
            if changes.send(change).await.is_err() {
                return;
            }
        }
    }
}

/// What has nothing to say in one respect is gone there.
fn split<K: Ord + Clone, A, B>(
    delta: Delta<K, (Option<A>, Option<B>)>,
) -> (Delta<K, A>, Delta<K, B>) {
    match delta {
        Delta::All(all) => {
            let (mut ones, mut others) = (BTreeMap::new(), BTreeMap::new());
            for (key, (a, b)) in all {
                ones.extend(a.map(|a| (key.clone(), a)));
                others.extend(b.map(|b| (key, b)));
            }
            (Delta::All(ones), Delta::All(others))
        }
        Delta::Put(key, (a, b)) => (put_or_gone(key.clone(), a), put_or_gone(key, b)),
        Delta::Gone(key) => (Delta::Gone(key.clone()), Delta::Gone(key)),
    }
}

fn put_or_gone<K, V>(key: K, value: Option<V>) -> Delta<K, V> {
    match value {
        Some(value) => Delta::Put(key, value),
        None => Delta::Gone(key),
    }
}

/// Events as deltas: a list comes out whole, once it is complete.
pub(crate) fn deltas<R, K: Ord, V>(
    events: impl Stream<Item = watcher::Result<Event<R>>>,
    read: impl Fn(&R) -> Option<(K, V)>,
    key: impl Fn(&R) -> K,
) -> impl Stream<Item = Delta<K, V>>
where
    R: Resource<DynamicType = ()>,
{
    let mut listing = BTreeMap::new();
    events.filter_map(move |event| {
        let delta = match event {
            Ok(Event::Init) => {
                listing.clear();
                None
            }
            Ok(Event::InitApply(object)) => {
                listing.extend(read(&object));
                None
            }
            Ok(Event::InitDone) => Some(Delta::All(std::mem::take(&mut listing))),
            Ok(Event::Apply(object)) => Some(match read(&object) {
                Some((key, value)) => Delta::Put(key, value),
                None => Delta::Gone(key(&object)),
            }),
            Ok(Event::Delete(object)) => Some(Delta::Gone(key(&object))),
            Err(error) => {
                tracing::warn!(kind = %R::kind(&()), %error, "watch interrupted, trying again");
                None
            }
        };
        std::future::ready(delta)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_says_two_things_is_split_and_silence_means_gone() {
        let (one, other) = split(Delta::Put("web", (Some(1), None::<u8>)));
        assert!(matches!((one, other), (Delta::Put("web", 1), Delta::Gone("web"))));
        let all = [("web", (Some(1), None)), ("db", (Some(2), Some('b')))];
        let (Delta::All(ones), Delta::All(others)) = split(Delta::All(all.into())) else {
            panic!("a list stays a list")
        };
        assert_eq!(ones, [("db", 2), ("web", 1)].into());
        assert_eq!(others, [("db", 'b')].into());
    }
}
