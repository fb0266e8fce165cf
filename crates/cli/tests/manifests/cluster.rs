//! An embedded API with our definitions, for one case.

use std::net::TcpListener;
use std::path::PathBuf;

use atoll_apiserver::{ApiConfig, ApiServer};
use kube::api::{Api, DynamicObject};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, Config};

use crate::{Said, atoll};

/// A server of one case's own. Its thread lives as long as the test program.
pub(crate) struct Cluster {
    folder: tempfile::TempDir,
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
        for crd in atoll_api::crds() {
            let mut crd = serde_json::to_value(crd).unwrap();
            crd["apiVersion"] = "apiextensions.k8s.io/v1".into();
            crd["kind"] = "CustomResourceDefinition".into();
            let said = cluster.apply(&["-f", "-"], &crd.to_string());
            assert!(said.ok, "{}", said.err);
        }
        cluster
    }

    /// `atoll apply` against this cluster.
    pub(crate) fn apply(&self, arguments: &[&str], input: &str) -> Said {
        let kubeconfig = self.kubeconfig();
        let cluster = ["apply", "--kubeconfig", kubeconfig.to_str().unwrap()];
        atoll(&[&cluster, arguments].concat(), input)
    }

    /// Another command of `atoll` against this cluster.
    pub(crate) fn run(&self, command: &str, arguments: &[&str]) -> Said {
        let kubeconfig = self.kubeconfig();
        let cluster = [command, "--kubeconfig", kubeconfig.to_str().unwrap()];
        atoll(&[&cluster, arguments].concat(), "")
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
            let kubeconfig = Kubeconfig::read_from(self.kubeconfig()).unwrap();
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

    fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }
}
