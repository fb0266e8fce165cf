//! Measures a Kubernetes API, the embedded or a real one: creates, lists, watches.
//! `cargo run --release --example load -- KUBECONFIG [OBJECTS] [WATCHERS]`. Works in a namespace
//! of its own, which it deletes in the end.

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, DeleteParams, ListParams, ObjectMeta, PostParams, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Events that each watcher is to see.
const EVENTS: usize = 100;

type Failure = Box<dyn std::error::Error>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let kubeconfig = Kubeconfig::read_from(arguments.next().ok_or("give a kubeconfig")?)?;
    let objects = arguments.next().map_or(Ok(5_000), |text| text.parse())?;
    let watchers = arguments.next().map_or(Ok(100), |text| text.parse())?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let client = Client::try_from(config.clone())?;
    let namespace = format!("load-{}", std::process::id());
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let metadata = ObjectMeta { name: Some(namespace.clone()), ..ObjectMeta::default() };
    let object = Namespace { metadata, ..Namespace::default() };
    namespaces.create(&PostParams::default(), &object).await?;
    let api: Api<ConfigMap> = Api::namespaced(client, &namespace);
    measure_creates(&api, objects).await?;
    measure_list(&api).await?;
    measure_watches(&config, &namespace, watchers).await?;
    namespaces.delete(&namespace, &DeleteParams::default()).await?;
    Ok(())
}

fn config_map(name: String) -> ConfigMap {
    let data = BTreeMap::from([("key".to_owned(), "x".repeat(200))]);
    let metadata = ObjectMeta { name: Some(name), ..ObjectMeta::default() };
    ConfigMap { metadata, data: Some(data), ..ConfigMap::default() }
}

async fn measure_creates(api: &Api<ConfigMap>, objects: usize) -> Result<(), Failure> {
    let alone = objects.min(500);
    let begin = Instant::now();
    for number in 0..alone {
        api.create(&PostParams::default(), &config_map(format!("alone-{number}"))).await?;
    }
    report("creates, one after the other", alone, begin.elapsed());
    let begin = Instant::now();
    futures::stream::iter(0..objects)
        .map(|number| {
            let api = api.clone();
            async move {
                let object = config_map(format!("many-{number}"));
                api.create(&PostParams::default(), &object).await
            }
        })
        .buffer_unordered(32)
        .try_collect::<Vec<_>>()
        .await?;
    report("creates, 32 at a time", objects, begin.elapsed());
    Ok(())
}

async fn measure_list(api: &Api<ConfigMap>) -> Result<(), Failure> {
    let begin = Instant::now();
    let found = api.list(&ListParams::default()).await?.items.len();
    report("objects in one list", found, begin.elapsed());
    Ok(())
}

async fn measure_watches(config: &Config, namespace: &str, watchers: usize) -> Result<(), Failure> {
    let api: Api<ConfigMap> = Api::namespaced(Client::try_from(config.clone())?, namespace);
    let from = api.list(&ListParams::default().limit(1)).await?.metadata.resource_version;
    let from = from.ok_or("the list has no version")?;
    let watching: Vec<_> = (0..watchers)
        .map(|_| {
            let (api, from) = (api.clone(), from.clone());
            tokio::spawn(async move {
                let params = WatchParams::default().fields("metadata.name!=x");
                let events = api.watch(&params, &from).await.ok()?;
                let added = events
                    .try_filter(|event| std::future::ready(matches!(event, WatchEvent::Added(_))));
                Some(Box::pin(added).take(EVENTS).count().await)
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let begin = Instant::now();
    for number in 0..EVENTS {
        api.create(&PostParams::default(), &config_map(format!("watched-{number}"))).await?;
    }
    let mut seen = 0;
    for watcher in watching {
        seen += watcher.await?.ok_or("a watch was refused")?;
    }
    report("events to watchers", seen, begin.elapsed());
    Ok(())
}

fn report(what: &str, count: usize, taken: Duration) {
    let rate = count as f64 / taken.as_secs_f64();
    println!("{count:>8} {what}: {:.2} s, {rate:.0} per second", taken.as_secs_f64());
}
