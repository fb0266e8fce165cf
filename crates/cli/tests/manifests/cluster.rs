//! An API with our definitions, for one case: the embedded one, or where a case is for any cluster
//! the one that `CONTRACT_KUBECONFIG` names.

use std::net::TcpListener;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use atoll_apiserver::{ApiConfig, ApiServer};
use kube::api::{Api, DynamicObject};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, Config};

use crate::{Said, atoll};

const CRD: (&str, &str, &str) = ("apiextensions.k8s.io", "v1", "CustomResourceDefinition");

/// A server of one case's own. Its thread lives as long as the test program.
pub(crate) struct Cluster {
    kubeconfig: PathBuf,
    _folder: Option<tempfile::TempDir>,
}

impl Cluster {
    pub(crate) fn start() -> Cluster {
        let cluster = Cluster::embedded();
        cluster.define();
        cluster
    }

    /// The cluster that is named, or one of the case's own.
    pub(crate) fn any() -> Cluster {
        let cluster = match std::env::var_os("CONTRACT_KUBECONFIG") {
            Some(kubeconfig) => Cluster { kubeconfig: kubeconfig.into(), _folder: None },
            None => Cluster::embedded(),
        };
        cluster.define();
        cluster
    }

    fn embedded() -> Cluster {
        let folder = tempfile::tempdir().unwrap();
        let server = ApiServer::open(&ApiConfig {
            store: folder.path().join("store.redb"),
            tls_dir: folder.path().join("tls"),
            names: vec!["127.0.0.1".to_owned()],
        })
        .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let kubeconfig = folder.path().join("kubeconfig");
        std::fs::write(&kubeconfig, server.kubeconfig(&url)).unwrap();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            runtime.block_on(server.serve(vec![listener], std::future::pending())).unwrap();
        });
        Cluster { kubeconfig, _folder: Some(folder) }
    }

    /// Makes our kinds known, and waits until they are.
    fn define(&self) {
        for crd in atoll_api::crds() {
            let mut crd = serde_json::to_value(crd).unwrap();
            crd["apiVersion"] = "apiextensions.k8s.io/v1".into();
            crd["kind"] = "CustomResourceDefinition".into();
            let said = self.apply(&["-f", "-"], &crd.to_string());
            assert!(said.ok, "{}", said.err);
        }
        for crd in atoll_api::crds() {
            let name = crd.metadata.name.unwrap();
            self.until(|| self.get(CRD, "", &name).is_some_and(|crd| is_served(&crd)), &name);
        }
    }

    /// Waits until something holds.
    pub(crate) fn until(&self, holds: impl Fn() -> bool, what: &str) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !holds() {
            assert!(Instant::now() < deadline, "waited in vain for {what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// `atoll apply` against this cluster.
    pub(crate) fn apply(&self, arguments: &[&str], input: &str) -> Said {
        self.run_with("apply", arguments, input)
    }

    /// Another command of `atoll` against this cluster.
    pub(crate) fn run(&self, command: &str, arguments: &[&str]) -> Said {
        self.run_with(command, arguments, "")
    }

    fn run_with(&self, command: &str, arguments: &[&str], input: &str) -> Said {
        let cluster = [command, "--kubeconfig", self.kubeconfig.to_str().unwrap()];
        atoll(&[&cluster, arguments].concat(), input)
    }

    /// The object, if there is one.
    pub(crate) fn get(
        &self,
        kind: (&str, &str, &str),
        namespace: &str,
        name: &str,
    ) -> Option<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(kind.0, kind.1, kind.2));
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let kubeconfig = Kubeconfig::read_from(&self.kubeconfig).unwrap();
            let config =
                Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
            let client = Client::try_from(config.unwrap()).unwrap();
            let api: Api<DynamicObject> = match namespace {
                "" => Api::all_with(client, &resource),
                namespace => Api::namespaced_with(client, namespace, &resource),
            };
            api.get_opt(name).await.unwrap()
        })
    }
}

fn is_served(crd: &DynamicObject) -> bool {
    let conditions = crd.data["status"]["conditions"].as_array();
    let holds = |condition: &serde_json::Value| {
        condition["type"] == "Established" && condition["status"] == "True"
    };
    conditions.is_some_and(|conditions| conditions.iter().any(holds))
}
