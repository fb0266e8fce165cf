//! What only the embedded API promises: who may use it, and that nothing answered is ever lost.

#![allow(clippy::unwrap_used, reason = "a case that meets the unexpected is to stop")]

use atoll_apiserver::{ApiConfig, ApiServer};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Service};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, ObjectMeta, Patch, PatchParams};
use kube::api::{PostParams, WatchEvent, WatchParams};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, Config, ResourceExt as _};
use serde_json::json;
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A server of one case's own.
struct Server {
    kubeconfig: Kubeconfig,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

fn config(dir: &Path) -> ApiConfig {
    ApiConfig {
        store: dir.join("store.redb"),
        tls_dir: dir.join("tls"),
        names: vec!["127.0.0.1".to_owned()],
    }
}

impl Server {
    fn start(dir: &Path) -> Server {
        let server = ApiServer::open(&config(dir)).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig(&url)).unwrap();
        let (stop, stopped) = oneshot::channel();
        let shutdown = async {
            let _ = stopped.await;
        };
        let task = tokio::spawn(async { server.serve(vec![listener], shutdown).await.unwrap() });
        Server { kubeconfig, stop, task }
    }

    async fn stop(self) {
        self.stop.send(()).unwrap();
        self.task.await.unwrap();
    }
}

async fn client(kubeconfig: Kubeconfig) -> Client {
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
    Client::try_from(config).unwrap()
}

fn config_map(name: &str) -> ConfigMap {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    ConfigMap { metadata, ..ConfigMap::default() }
}

fn code<T: std::fmt::Debug>(result: kube::Result<T>) -> u16 {
    match result {
        Err(kube::Error::Api(status)) => status.code,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

#[tokio::test]
async fn strangers_may_ask_whether_it_lives_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let mut stranger = server.kubeconfig.clone();
    stranger.auth_infos[0].auth_info = Some(AuthInfo::default());
    let client = client(stranger).await;
    for path in ["/healthz", "/readyz", "/version"] {
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        assert!(client.request_text(request).await.is_ok(), "{path} is closed");
    }
    assert_eq!(code(Api::<Namespace>::all(client.clone()).list(&ListParams::default()).await), 401);
    for path in ["/apis", "/openapi/v3", "/nothing"] {
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        assert_eq!(code(client.request_text(request).await), 401, "{path}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_certificate_of_another_authority_is_refused() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (server, foreign) = (Server::start(dir.path()), Server::start(other.path()));
    let mut mixed = server.kubeconfig.clone();
    mixed.auth_infos = foreign.kubeconfig.auth_infos.clone();
    let api: Api<Namespace> = Api::all(client(mixed).await);
    assert!(api.list(&ListParams::default()).await.is_err());
    server.stop().await;
    foreign.stop().await;
}

#[tokio::test]
async fn a_new_cluster_has_its_namespaces_and_the_kubernetes_service() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let client = client(server.kubeconfig.clone()).await;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    for name in ["default", "kube-system"] {
        namespaces.get(name).await.unwrap();
    }
    let service = Api::<Service>::namespaced(client, "default").get("kubernetes").await.unwrap();
    assert_eq!(service.spec.unwrap().cluster_ip.as_deref(), Some("10.96.0.1"));
    server.stop().await;
}

#[tokio::test]
async fn objects_kinds_and_certificates_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let old = server.kubeconfig.clone();
    let before = client(old.clone()).await;
    let maps: Api<ConfigMap> = Api::namespaced(before.clone(), "default");
    let created = maps.create(&PostParams::default(), &config_map("kept")).await.unwrap();
    let crd: CustomResourceDefinition = serde_json::from_value(json!({
        "metadata": {"name": "nets.x.dev"},
        "spec": {"group": "x.dev", "scope": "Cluster", "names": {"plural": "nets", "kind": "Net"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}}]}}))
    .unwrap();
    Api::all(before).create(&PostParams::default(), &crd).await.unwrap();
    server.stop().await;

    let server = Server::start(dir.path());
    let mut unchanged_user = server.kubeconfig.clone();
    unchanged_user.auth_infos = old.auth_infos;
    let after = client(unchanged_user).await;
    let maps: Api<ConfigMap> = Api::namespaced(after.clone(), "default");
    assert_eq!(maps.get("kept").await.unwrap(), created);
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("x.dev", "v1", "Net"));
    let nets: Api<DynamicObject> = Api::all_with(after, &kind);
    assert!(nets.list(&ListParams::default()).await.unwrap().items.is_empty());
    server.stop().await;
}

#[tokio::test]
async fn a_watch_from_before_a_restart_is_told_to_begin_anew() {
    use futures::StreamExt as _;
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let maps: Api<ConfigMap> = Api::namespaced(client(server.kubeconfig.clone()).await, "default");
    let first = maps.create(&PostParams::default(), &config_map("a")).await.unwrap();
    maps.create(&PostParams::default(), &config_map("b")).await.unwrap();
    server.stop().await;
    let server = Server::start(dir.path());
    let maps: Api<ConfigMap> = Api::namespaced(client(server.kubeconfig.clone()).await, "default");
    let from = first.resource_version().unwrap();
    let events = maps.watch(&WatchParams::default(), &from).await.unwrap();
    let told = Box::pin(events).next().await.unwrap().unwrap();
    assert!(matches!(&told, WatchEvent::Error(status) if status.code == 410), "{told:?}");
    server.stop().await;
}

/// The other side of the case below: says its kubeconfig and serves until it is killed.
#[test]
#[ignore = "run by another case, in a process of its own"]
fn serves_until_it_is_killed() {
    let dir = std::env::var("EMBEDDED_DIR").expect("run by another case");
    let server = ApiServer::open(&config(Path::new(&dir))).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    std::fs::write(Path::new(&dir).join("kubeconfig"), server.kubeconfig(&url)).unwrap();
    eprintln!("serving");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(server.serve(vec![listener], std::future::pending())).unwrap();
}

/// How many writes are answered before each kill: from a server that has barely begun to one in
/// full swing.
const KILLED_AFTER: [usize; 6] = [1, 3, 20, 60, 7, 120];

/// What is known of each object: its value, or that it is gone. Of the one whose request got no
/// answer nothing is known.
type Known = BTreeMap<String, Option<String>>;

#[tokio::test]
async fn what_was_answered_survives_a_kill_at_any_moment() {
    let dir = tempfile::tempdir().unwrap();
    let mut known = Known::new();
    for (round, killed_after) in KILLED_AFTER.into_iter().enumerate() {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "serves_until_it_is_killed", "--ignored", "--nocapture"])
            .env("EMBEDDED_DIR", dir.path())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(process.stderr.take().unwrap()).lines();
        assert!(said.map_while(Result::ok).any(|line| line == "serving"), "the server ended");
        let kubeconfig = Kubeconfig::read_from(dir.path().join("kubeconfig")).unwrap();
        let maps: Api<ConfigMap> = Api::namespaced(client(kubeconfig).await, "default");
        check(&maps, &known).await;
        let answered = Arc::new(AtomicUsize::new(0));
        let writers: Vec<_> = (0..8)
            .map(|w| tokio::spawn(write(maps.clone(), format!("r{round}-w{w}"), answered.clone())))
            .collect();
        while answered.load(Ordering::Relaxed) < killed_after {
            tokio::task::yield_now().await;
        }
        process.kill().unwrap();
        process.wait().unwrap();
        for writer in writers {
            known.extend(writer.await.unwrap());
        }
    }
    let kept = known.values().filter(|value| value.is_some()).count();
    let gone = known.len() - kept;
    assert!(kept > 10 && gone > 5, "too little was answered: {kept} kept, {gone} gone");
}

async fn check(maps: &Api<ConfigMap>, known: &Known) {
    let found = maps.list(&ListParams::default()).await.unwrap().items.into_iter();
    let found: BTreeMap<String, String> = found
        .map(|map| (map.name_any(), map.data.unwrap_or_default().remove("v").unwrap_or_default()))
        .collect();
    for (name, value) in known {
        assert_eq!(found.get(name), value.as_ref(), "{name} is not as it was answered");
    }
}

/// Creates, changes and deletes objects until the server is gone.
async fn write(maps: Api<ConfigMap>, stem: String, answered: Arc<AtomicUsize>) -> Known {
    let mut known = Known::new();
    for number in 0.. {
        let name = format!("{stem}-{number}");
        if maps.create(&PostParams::default(), &config_map(&name)).await.is_err() {
            break;
        }
        answered.fetch_add(1, Ordering::Relaxed);
        let change = Patch::Merge(json!({"data": {"v": name}}));
        if maps.patch(&name, &PatchParams::default(), &change).await.is_err() {
            break;
        }
        answered.fetch_add(1, Ordering::Relaxed);
        known.insert(name.clone(), Some(name.clone()));
        if number % 2 == 1 {
            continue;
        }
        known.remove(&name);
        if maps.delete(&name, &DeleteParams::default()).await.is_err() {
            break;
        }
        answered.fetch_add(1, Ordering::Relaxed);
        known.insert(name, None);
    }
    known
}
