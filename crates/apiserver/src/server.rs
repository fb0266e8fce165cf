//! The server as others hold it: opened from a configuration, then served on any listeners.

use crate::controllers;
use crate::http;
use crate::lifecycle;
use crate::registry::Registry;
use crate::store::{Change, Store, StoreError};
use crate::tls::{Certificates, TlsError};
use crate::verbs::Api;
use std::future::Future;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Where the server keeps its things and under which names it is reached.
#[derive(Debug, Clone)]
pub struct ApiConfig {
    /// The redb file with all objects; made when missing.
    pub store: PathBuf,
    /// The folder of the authority, server and client certificates; made on first start, reused
    /// after.
    pub tls_dir: PathBuf,
    /// DNS names and addresses that clients use for the server.
    pub names: Vec<String>,
}

/// Why the server cannot start or go on.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages are the documentation")]
pub enum ApiError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("cannot make the first objects of the cluster: {0}")]
    Bootstrap(String),
    #[error("cannot listen on {address}: {source}")]
    Listen { address: String, source: std::io::Error },
}

type Changes = UnboundedReceiver<Arc<Change>>;

/// The embedded API; clones are handles to the same one.
#[derive(Clone)]
pub struct ApiServer {
    api: Api,
    certificates: Certificates,
    tls: Arc<rustls::ServerConfig>,
    /// Taken by whoever serves first: one is enough to clean up and to keep the replicas.
    changes: Arc<Mutex<Option<[Changes; 2]>>>,
}

impl ApiServer {
    /// Opens the store, makes the certificates and registers all kinds.
    ///
    /// # Errors
    /// When the store or the certificates cannot be read, written or understood.
    pub fn open(config: &ApiConfig) -> Result<ApiServer, ApiError> {
        let certificates = Certificates::open(&config.tls_dir, &config.names)?;
        let tls = Arc::new(certificates.server_config(&config.tls_dir)?);
        let api = Api::new(Store::open(&config.store)?, Registry::with_builtins());
        let changes = Arc::new(Mutex::new(Some(lifecycle::follow(&api))));
        lifecycle::bootstrap(&api).map_err(|failure| ApiError::Bootstrap(failure.message))?;
        Ok(ApiServer { api, certificates, tls, changes })
    }

    /// Serves on every listener, over TLS, until `shutdown` is ready. The listeners may have been
    /// made in other network namespaces. When it returns and no other handle is left, everything is
    /// on disk and the store may be opened again.
    ///
    /// # Errors
    /// When a listener cannot be used.
    pub async fn serve(
        self,
        listeners: Vec<TcpListener>,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), ApiError> {
        let (stop, stopped) = watch::channel(false);
        let mut tasks = JoinSet::new();
        for listener in listeners {
            let listener = usable(listener)?;
            let tls = Arc::clone(&self.tls);
            tasks.spawn(http::serve(self.api.clone(), listener, tls, stopped.clone()));
        }
        let changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut own_work = JoinSet::new();
        if let Some([to_clean, to_control]) = changes {
            own_work.spawn(lifecycle::clean_up(self.api.clone(), to_clean));
            own_work.spawn(controllers::run(self.api.clone(), to_control));
        }
        shutdown.await;
        stop.send_replace(true);
        tasks.join_all().await;
        own_work.shutdown().await;
        Ok(())
    }

    /// A kubeconfig that kubectl and kube-rs accept, with the client certificate in it.
    #[must_use]
    pub fn kubeconfig(&self, server_url: &str) -> String {
        self.certificates.kubeconfig(server_url)
    }
}

fn usable(listener: TcpListener) -> Result<tokio::net::TcpListener, ApiError> {
    let address = listener.local_addr().map_or_else(|_| "a listener".to_owned(), |a| a.to_string());
    listener
        .set_nonblocking(true)
        .and_then(|()| tokio::net::TcpListener::from_std(listener))
        .map_err(|source| ApiError::Listen { address, source })
}
