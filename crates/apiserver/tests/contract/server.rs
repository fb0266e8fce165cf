//! The server under test, shared by all cases of the run, and a namespace for each case.

use atoll_apiserver::{ApiConfig, ApiServer};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::json;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A server and a namespace of one case's own.
pub(crate) struct Subject {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    kubeconfig: PathBuf,
}

/// Whether the cases run against the embedded API.
pub(crate) fn is_embedded() -> bool {
    std::env::var_os("CONTRACT_KUBECONFIG").is_none()
}

struct Running {
    kubeconfig: PathBuf,
    _dir: Option<tempfile::TempDir>,
}

/// Starts the embedded API once, on a thread that lives as long as the test program.
fn running() -> &'static Running {
    static RUNNING: OnceLock<Running> = OnceLock::new();
    RUNNING.get_or_init(|| match std::env::var_os("CONTRACT_KUBECONFIG") {
        Some(path) => Running { kubeconfig: path.into(), _dir: None },
        None => start(),
    })
}

fn start() -> Running {
    let dir = tempfile::tempdir().unwrap();
    let config = ApiConfig {
        store: dir.path().join("store.redb"),
        tls_dir: dir.path().join("tls"),
        names: vec!["localhost".to_owned(), "127.0.0.1".to_owned()],
    };
    let server = ApiServer::open(&config).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let kubeconfig = dir.path().join("kubeconfig");
    std::fs::write(&kubeconfig, server.kubeconfig(&url)).unwrap();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(server.serve(vec![listener], std::future::pending())).unwrap();
    });
    Running { kubeconfig, _dir: Some(dir) }
}

impl Subject {
    /// A client and a fresh namespace.
    pub(crate) async fn new() -> Subject {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let kubeconfig = running().kubeconfig.clone();
        let client = client(&kubeconfig).await;
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let namespace = format!("contract-{}-{number}", std::process::id());
        let subject = Subject { client, namespace, kubeconfig };
        let metadata =
            ObjectMeta { name: Some(subject.namespace.clone()), ..ObjectMeta::default() };
        let object = Namespace { metadata, ..Namespace::default() };
        subject.namespaces().create(&PostParams::default(), &object).await.unwrap();
        subject
    }

    pub(crate) fn namespaces(&self) -> Api<Namespace> {
        Api::all(self.client.clone())
    }

    /// An API in the case's namespace.
    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// A name no other case and no other run uses, for cluster-wide objects.
    pub(crate) fn unique(&self, stem: &str) -> String {
        format!("{stem}-{}", self.namespace)
    }

    /// The name of a node of the case's own, in the zone `east`; made when it is missing.
    pub(crate) async fn make_node(&self) -> String {
        let node = json!({"metadata": {"name": self.namespace,
            "labels": {"topology.kubernetes.io/zone": "east"}}});
        let node: Node = serde_json::from_value(node).unwrap();
        match Api::all(self.client.clone()).create(&PostParams::default(), &node).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            other => drop(other.unwrap()),
        }
        self.namespace.clone()
    }

    /// Says as a kubelet does that a pod runs under these addresses and is ready.
    pub(crate) async fn make_ready(&self, pod: &str, addresses: &[&str]) {
        self.tell(pod, addresses, "True").await;
    }

    /// The same of a pod that runs and is not ready.
    pub(crate) async fn make_unready(&self, pod: &str, addresses: &[&str]) {
        self.tell(pod, addresses, "False").await;
    }

    /// A pod that went in the meantime need not be told of.
    async fn tell(&self, pod: &str, addresses: &[&str], ready: &str) {
        let listed: Vec<_> = addresses.iter().map(|address| json!({"ip": address})).collect();
        let status = json!({"status": {"phase": "Running", "podIP": addresses[0], "podIPs": listed,
            "conditions": [{"type": "Ready", "status": ready,
                "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
        let (api, patch) = (self.api::<Pod>(), Patch::Strategic(&status));
        match api.patch_status(pod, &PatchParams::default(), &patch).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            other => drop(other.unwrap()),
        }
    }

    /// Runs kubectl in the case's namespace; panics with its output when it fails.
    pub(crate) fn kubectl(&self, arguments: &[&str]) -> String {
        let (ok, out, err) = self.try_kubectl(arguments, None);
        assert!(ok, "kubectl {arguments:?} failed:\n{out}\n{err}");
        out
    }

    /// The same with standard input.
    pub(crate) fn kubectl_with(&self, arguments: &[&str], input: &str) -> String {
        let (ok, out, err) = self.try_kubectl(arguments, Some(input));
        assert!(ok, "kubectl {arguments:?} failed:\n{out}\n{err}");
        out
    }

    /// Whether it succeeded, its output and its errors.
    pub(crate) fn try_kubectl(
        &self,
        arguments: &[&str],
        input: Option<&str>,
    ) -> (bool, String, String) {
        use std::io::Write as _;
        use std::process::Stdio;
        let mut child = Command::new("kubectl")
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .args(["--namespace", &self.namespace, "--request-timeout", "20s"])
            .env("KUBECACHEDIR", self.kubeconfig.with_extension("cache"))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("kubectl must be installed to run the contract");
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(input.unwrap_or("").as_bytes()).unwrap();
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.success(), text(output.stdout), text(output.stderr))
    }
}

impl Drop for Subject {
    /// Asks a server that others use for namespace and node to go; nobody need wait for it.
    fn drop(&mut self) {
        if !is_embedded() {
            let (namespace, node) =
                (format!("namespace/{}", self.namespace), format!("node/{}", self.namespace));
            let lenient = ["--ignore-not-found", "--wait=false"];
            let _ =
                self.try_kubectl(&[&["delete", &namespace, &node], &lenient[..]].concat(), None);
        }
    }
}

async fn client(kubeconfig: &PathBuf) -> Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let config =
        Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

/// Waits until something holds.
pub(crate) async fn until(mut holds: impl AsyncFnMut() -> bool, what: &str) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while !holds().await {
        assert!(tokio::time::Instant::now() < deadline, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The `Status` of a call that must fail.
pub(crate) fn refusal<T: std::fmt::Debug>(result: kube::Result<T>) -> kube::core::Status {
    match result {
        Err(kube::Error::Api(status)) => *status,
        other => panic!("expected a refusal, got {other:?}"),
    }
}
