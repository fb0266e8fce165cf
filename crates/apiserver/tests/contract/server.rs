//! The server under test, shared by all cases of the run, and a namespace for each case.

use atoll_apiserver::{ApiConfig, ApiServer};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

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
    /// Asks a server that others use for the namespace to go; nobody need wait for it.
    fn drop(&mut self) {
        if !is_embedded() {
            let _ =
                self.try_kubectl(&["delete", "namespace", &self.namespace, "--wait=false"], None);
        }
    }
}

async fn client(kubeconfig: &PathBuf) -> Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let config =
        Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

/// The `Status` of a call that must fail.
pub(crate) fn refusal<T: std::fmt::Debug>(result: kube::Result<T>) -> kube::core::Status {
    match result {
        Err(kube::Error::Api(status)) => *status,
        other => panic!("expected a refusal, got {other:?}"),
    }
}
