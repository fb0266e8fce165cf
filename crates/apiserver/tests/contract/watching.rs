//! Watches: what they show, from where, and how they end; reflectors and controllers on top.

use crate::Subject;
use crate::server::refusal;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::api::{
    Api, DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams, WatchEvent,
    WatchParams,
};
use kube::runtime::{WatchStreamExt as _, reflector, watcher};
use serde_json::json;
use std::time::Duration;

fn config_map(name: &str) -> ConfigMap {
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        labels: Some([("app".to_owned(), name.to_owned())].into()),
        ..ObjectMeta::default()
    };
    ConfigMap { metadata, ..ConfigMap::default() }
}

async fn create(api: &Api<ConfigMap>, name: &str) -> ConfigMap {
    api.create(&PostParams::default(), &config_map(name)).await.unwrap()
}

async fn version(api: &Api<ConfigMap>) -> String {
    api.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap()
}

/// Event types and names until `count` have come.
async fn events(
    api: &Api<ConfigMap>,
    params: &WatchParams,
    from: &str,
    count: usize,
) -> Vec<String> {
    let stream = api.watch(params, from).await.unwrap();
    let shown = stream.map(|event| match event.unwrap() {
        WatchEvent::Added(o) => format!("added {}", o.name_any()),
        WatchEvent::Modified(o) => format!("modified {}", o.name_any()),
        WatchEvent::Deleted(o) => format!("deleted {}", o.name_any()),
        WatchEvent::Bookmark(_) => "bookmark".to_owned(),
        WatchEvent::Error(status) => format!("error {}", status.code),
    });
    let taken = shown.take(count).collect::<Vec<_>>();
    tokio::time::timeout(Duration::from_secs(60), taken).await.expect("the events never came")
}

#[tokio::test]
async fn a_watch_shows_what_happened_after_its_version() {
    let subject = Subject::new().await;
    let api = subject.api::<ConfigMap>();
    create(&api, "before").await;
    let from = version(&api).await;
    create(&api, "a").await;
    let patch = json!({"data": {"k": "v"}});
    api.patch("a", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    api.delete("a", &DeleteParams::default()).await.unwrap();
    let seen = events(&api, &WatchParams::default(), &from, 3).await;
    assert_eq!(seen, ["added a", "modified a", "deleted a"]);
}

#[tokio::test]
async fn a_watch_without_a_version_begins_with_what_exists() {
    let subject = Subject::new().await;
    let api = subject.api::<ConfigMap>();
    create(&api, "a").await;
    // What exists may be told late by a server that serves it from memory, a bookmark before it.
    let params = WatchParams::default().labels("app=a").disable_bookmarks();
    assert_eq!(events(&api, &params, "0", 1).await, ["added a"]);
}

#[tokio::test]
async fn a_selective_watch_sees_objects_enter_and_leave() {
    let subject = Subject::new().await;
    let api = subject.api::<ConfigMap>();
    let from = version(&api).await;
    create(&api, "a").await;
    create(&api, "other").await;
    for value in ["no", "a"] {
        let patch = json!({"metadata": {"labels": {"app": value}}});
        api.patch("a", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    }
    let seen = events(&api, &WatchParams::default().labels("app=a"), &from, 3).await;
    assert_eq!(seen, ["added a", "deleted a", "added a"]);
}

#[tokio::test]
async fn a_watch_ends_when_its_time_is_up() {
    let subject = Subject::new().await;
    let api = subject.api::<ConfigMap>();
    let from = version(&api).await;
    let quiet = WatchParams::default().timeout(1).labels("app=nobody");
    let stream = api.watch(&quiet, &from).await.unwrap();
    let all = tokio::time::timeout(Duration::from_secs(60), stream.try_collect::<Vec<_>>());
    let seen = all.await.expect("the watch did not end").unwrap();
    assert!(seen.iter().all(|event| matches!(event, WatchEvent::Bookmark(_))), "{seen:?}");
}

#[tokio::test]
async fn initial_events_end_with_a_marked_bookmark() {
    let subject = Subject::new().await;
    let api = subject.api::<ConfigMap>();
    create(&api, "a").await;
    let params = WatchParams::default().labels("app=a").initial_events();
    let stream = api.watch(&params, "0").await.unwrap();
    let first_two = stream.take(2).try_collect::<Vec<_>>().await.unwrap();
    assert!(matches!(&first_two[0], WatchEvent::Added(o) if o.name_any() == "a"));
    let WatchEvent::Bookmark(mark) = &first_two[1] else { panic!("{first_two:?}") };
    assert_eq!(mark.metadata.annotations["k8s.io/initial-events-end"], "true");
}

#[tokio::test]
async fn a_version_that_is_no_number_is_refused() {
    let subject = Subject::new().await;
    let api = subject.api::<ConfigMap>();
    let Err(error) = api.watch(&WatchParams::default(), "x").await else {
        panic!("the watch began");
    };
    assert_eq!(refusal::<()>(Err(error)).code, 500);
    let params = ListParams::default().at("x");
    assert_eq!(refusal(api.list(&params).await).code, 400);
}

#[tokio::test]
async fn a_reflector_mirrors_the_collection() {
    for streaming in [false, true] {
        let subject = Subject::new().await;
        let api = subject.api::<ConfigMap>();
        create(&api, "a").await;
        let (store, writer) = reflector::store();
        let mut config = watcher::Config::default().fields("metadata.name!=kube-root-ca.crt");
        if streaming {
            config = config.streaming_lists();
        }
        let events = reflector(writer, watcher(api.clone(), config)).applied_objects();
        let mirror = tokio::spawn(events.for_each(|_| std::future::ready(())));
        store.wait_until_ready().await.unwrap();
        create(&api, "b").await;
        api.delete("a", &DeleteParams::default()).await.unwrap();
        let names = || store.state().iter().map(|o| o.name_any()).collect::<Vec<_>>();
        let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
        while names() != ["b"] {
            assert!(tokio::time::Instant::now() < deadline, "mirror holds {:?}", names());
            tokio::task::yield_now().await;
        }
        mirror.abort();
    }
}
