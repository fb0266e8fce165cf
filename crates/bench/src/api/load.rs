//! The client: creates, lists and watches, the same for every server.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use futures::{AsyncBufReadExt as _, StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, ListParams, ObjectMeta, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tokio::sync::{Barrier, Semaphore};

const NAMESPACE: &str = "load";

/// A client of one server.
pub(super) struct Load {
    client: Client,
    kubeconfig: PathBuf,
}

pub(crate) async fn client(kubeconfig: &Path) -> Result<Client> {
    let config = Kubeconfig::read_from(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

/// The text at a path.
pub(super) async fn get(client: &Client, path: &str) -> Result<String> {
    Ok(client.request_text(request(path)?).await?)
}

fn request(path: &str) -> Result<http::Request<Vec<u8>>> {
    Ok(http::Request::get(path).body(Vec::new())?)
}

fn maps() -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/configmaps")
}

fn config_map(name: String) -> ConfigMap {
    let data = BTreeMap::from([("key".to_owned(), "x".repeat(200))]);
    let metadata = ObjectMeta { name: Some(name), ..ObjectMeta::default() };
    ConfigMap { metadata, data: Some(data), ..ConfigMap::default() }
}

impl Load {
    /// Connects and makes a namespace to work in.
    pub(super) async fn connect(kubeconfig: &Path) -> Result<Load> {
        let client = client(kubeconfig).await?;
        let metadata = ObjectMeta { name: Some(NAMESPACE.to_owned()), ..ObjectMeta::default() };
        let namespace = Namespace { metadata, ..Namespace::default() };
        Api::all(client.clone()).create(&PostParams::default(), &namespace).await?;
        Ok(Load { client, kubeconfig: kubeconfig.to_owned() })
    }

    fn api(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// Creates per second, with so many under way.
    pub(super) async fn creates(&self, stem: &str, count: usize, at_once: usize) -> Result<f64> {
        let api = self.api();
        let start = Instant::now();
        futures::stream::iter(0..count)
            .map(|number| {
                let (api, object) = (api.clone(), config_map(format!("{stem}-{number}")));
                async move { api.create(&PostParams::default(), &object).await }
            })
            .buffer_unordered(at_once)
            .try_for_each(|_| std::future::ready(Ok(())))
            .await?;
        Ok(count as f64 / start.elapsed().as_secs_f64())
    }

    /// Milliseconds of one list of everything: the middle one of five.
    pub(super) async fn list(&self) -> Result<f64> {
        let mut times = vec![];
        for _ in 0..5 {
            let start = Instant::now();
            let bytes = get(&self.client, &maps()).await?.len();
            ensure!(bytes > 1 << 20, "the list has only {bytes} bytes");
            times.push(start.elapsed().as_secs_f64() * 1e3);
        }
        Ok(crate::sample::Sample::new(times).median())
    }

    /// Milliseconds of `kubectl get`.
    pub(super) fn kubectl(&self) -> Result<f64> {
        let start = Instant::now();
        let status = Command::new("kubectl")
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .args(["--namespace", NAMESPACE, "get", "configmaps"])
            .stdout(Stdio::null())
            .status()
            .context("cannot run kubectl")?;
        ensure!(status.success(), "kubectl get failed: {status}");
        Ok(start.elapsed().as_secs_f64() * 1e3)
    }

    /// Events per second to all watchers, from the first create to the last event seen.
    pub(super) async fn watches(&self, watchers: usize, events: usize) -> Result<f64> {
        let one = self.api().list(&ListParams::default().limit(1)).await?;
        let from = one.metadata.resource_version.context("the list has no version")?;
        let path = Arc::new(format!("{}?watch=true&resourceVersion={from}", maps()));
        let gate = Arc::new(Gate::new(watchers));
        let watching: Vec<_> = (0..watchers)
            .map(|_| tokio::spawn(watch(self.client.clone(), path.clone(), gate.clone(), events)))
            .collect();
        gate.all_begun.wait().await;
        let start = Instant::now();
        self.creates("watched", events, 1).await?;
        for watcher in watching {
            watcher.await??;
        }
        Ok((watchers * events) as f64 / start.elapsed().as_secs_f64())
    }
}

/// How watchers begin: a few at a time, since greeting a thousand at once is not what is measured,
/// and none is told anything before all have begun.
struct Gate {
    greeting: Semaphore,
    all_begun: Barrier,
}

impl Gate {
    fn new(watchers: usize) -> Gate {
        Gate { greeting: Semaphore::new(16), all_begun: Barrier::new(watchers + 1) }
    }
}

/// Reads a watch until it has shown so many new objects.
async fn watch(client: Client, path: Arc<String>, gate: Arc<Gate>, events: usize) -> Result<()> {
    let greeting = gate.greeting.acquire().await;
    let stream = client.request_stream(request(&path)?).await;
    drop(greeting);
    gate.all_begun.wait().await;
    let mut lines = std::pin::pin!(stream?.lines());
    for _ in 0..events {
        let line = lines.next().await.context("a watch ended too early")??;
        ensure!(line.contains("\"ADDED\""), "a watch was told {line}");
    }
    Ok(())
}
