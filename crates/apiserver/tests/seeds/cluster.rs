//! An embedded API with our definitions, and kubectl.

use std::io::Write as _;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

use atoll_apiserver::{ApiConfig, ApiServer};
use serde_json::Value;

/// A server of one case's own. Its thread lives as long as the test program.
pub(crate) struct Cluster {
    folder: tempfile::TempDir,
}

/// What kubectl said.
pub(crate) struct Said {
    pub(crate) ok: bool,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Cluster {
    pub(crate) fn start() -> Cluster {
        let folder = tempfile::tempdir().unwrap();
        let server = ApiServer::open(&ApiConfig {
            store: folder.path().join("store.redb"),
            tls_dir: folder.path().join("tls"),
            names: vec!["127.0.0.1".to_owned()],
        })
        .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        std::fs::write(folder.path().join("kubeconfig"), server.kubeconfig(&url)).unwrap();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            runtime.block_on(server.serve(vec![listener], std::future::pending())).unwrap();
        });
        let cluster = Cluster { folder };
        let definitions = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds");
        cluster.kubectl(&["apply", "-f", definitions.to_str().unwrap()]);
        cluster
    }

    /// A namespace of a tenant.
    pub(crate) fn namespace(&self, name: &str, tenant: &str) {
        let labels = serde_json::json!({"atoll.dev/tenant": tenant});
        let manifest = serde_json::json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": name, "labels": labels}});
        self.apply("default", &manifest.to_string());
    }

    /// Runs kubectl; panics with its output when it fails.
    pub(crate) fn kubectl(&self, arguments: &[&str]) -> String {
        let said = self.say(arguments, "");
        assert!(said.ok, "kubectl {arguments:?} failed:\n{}\n{}", said.out, said.err);
        said.out
    }

    /// Applies a manifest in a namespace; panics when it is refused.
    pub(crate) fn apply(&self, namespace: &str, manifest: &str) -> Said {
        let said = self.say(&["apply", "-n", namespace, "-f", "-"], manifest);
        assert!(said.ok, "cannot apply:\n{manifest}\n{}", said.err);
        said
    }

    pub(crate) fn get(&self, arguments: &[&str]) -> Value {
        let arguments = [&["get", "-o", "json"], arguments].concat();
        serde_json::from_str(&self.kubectl(&arguments)).unwrap()
    }

    /// Runs kubectl with standard input.
    pub(crate) fn say(&self, arguments: &[&str], input: &str) -> Said {
        let mut child = Command::new("kubectl")
            .args(["--request-timeout", "20s"])
            .args(arguments)
            .env("KUBECONFIG", self.folder.path().join("kubeconfig"))
            .env("KUBECACHEDIR", self.folder.path().join("cache"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("kubectl must be installed to run these cases");
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Said { ok: output.status.success(), out: text(output.stdout), err: text(output.stderr) }
    }
}

/// A manifest of the seeds, by the beginning of its name.
pub(crate) fn seed(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../convert/tests/seeds");
    let found = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap())
        .find(|entry| entry.file_name().to_str().unwrap().starts_with(name));
    std::fs::read_to_string(found.unwrap().path()).unwrap()
}

/// The manifest of a pod with a container: Kubernetes takes none without, and some designs leave
/// containers out.
pub(crate) fn with_container(pod: &str) -> String {
    let mut pod: Value = serde_yaml_ng::from_str(pod).unwrap();
    pod["spec"]["containers"] = serde_json::json!([{"name": "main", "image": "none:1"}]);
    pod.to_string()
}
