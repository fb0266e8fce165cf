//! The way to the API server: many watches share few connections.
//!
//! A node has some watches for each network it hosts, and a cluster has many nodes. Over HTTP/1 each
//! watch would be a connection with its own handshake and its own memory on the server. Over HTTP/2
//! they share one. The rule of this file: a server limits what may be under way on one connection,
//! and a watch is under way for good, so whoever would not find a place opens the next connection
//! instead of waiting for one. Before a connection stands, one request alone tries: only then is it
//! known whether the others can share it.

#[cfg(test)]
mod tests;

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use anyhow::Result;
use http_body::{Frame, SizeHint};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response};
use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder};
use hyper_util::client::legacy::{self, connect::HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ClientBuilder, ConfigExt as _, retry::RetryPolicy};
use kube::{Client, Config};
use tower::retry::RetryLayer;
use tower::{BoxError, Service, ServiceBuilder};

/// What may be under way on one connection. Servers allow a hundred or more.
const PLACES: usize = 80;
/// A connection on which nothing came for so long is asked whether it lives, and given up if it does
/// not answer.
const ASK_AFTER: Duration = Duration::from_secs(15);
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

type Connector = hyper_rustls::HttpsConnector<HttpConnector>;
type Connection = legacy::Client<Connector, Body>;

/// A client of the API that `config` names.
pub fn connect(config: Config) -> Result<Client> {
    if config.proxy_url.is_some() {
        return Ok(Client::try_from(config)?);
    }
    let (namespace, connector) = (config.default_namespace.clone(), connector(&config)?);
    let retry = config.default_retry.then(|| RetryLayer::new(RetryPolicy::server_retry()));
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(retry)
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(Lanes::new(connector));
    Ok(ClientBuilder::new(service, namespace).build())
}

fn connector(config: &Config) -> Result<Connector> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(config.connect_timeout);
    let tls = config.rustls_client_config()?;
    let mut builder = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    if let Some(name) = &config.tls_server_name {
        let resolver = FixedServerNameResolver::new(name.clone().try_into()?);
        builder = builder.with_server_name_resolver(resolver);
    }
    Ok(builder.enable_all_versions().wrap_connector(tcp))
}

/// Connections side by side, each with a number of places.
#[derive(Clone)]
struct Lanes {
    connector: Connector,
    lanes: Arc<Mutex<Vec<Lane>>>,
}

struct Lane {
    connection: Connection,
    door: Arc<Door>,
    /// Held once by the lane, and once for each place that is taken.
    places: Arc<()>,
}

/// A place on a connection. It is free again when this value is gone.
type Place = Arc<()>;

/// Where requests wait while one of them opens the connection.
#[derive(Default)]
struct Door {
    open: AtomicBool,
    first: tokio::sync::Mutex<()>,
}

impl Door {
    /// Nothing when the connection stands; else a turn to try it.
    async fn pass(&self) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        if self.open.load(Ordering::Acquire) {
            return None;
        }
        let turn = self.first.lock().await;
        (!self.open.load(Ordering::Acquire)).then_some(turn)
    }

    fn set(&self, open: bool) {
        self.open.store(open, Ordering::Release);
    }
}

impl Lanes {
    fn new(connector: Connector) -> Self {
        Lanes { connector, lanes: Arc::default() }
    }

    /// A connection with a free place, its door, and the place.
    fn take(&self) -> (Connection, Arc<Door>, Place) {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let free = lanes.iter().position(|lane| lane.taken() < PLACES);
        let chosen = free.unwrap_or_else(|| {
            lanes.push(Lane::open(&self.connector));
            lanes.len() - 1
        });
        let Lane { connection, door, places } = &lanes[chosen];
        let taken = (connection.clone(), door.clone(), places.clone());
        close_unused(&mut lanes);
        taken
    }
}

/// Lanes behind the first that nobody uses any more are closed.
fn close_unused(lanes: &mut Vec<Lane>) {
    let mut first = true;
    lanes.retain(|lane| std::mem::take(&mut first) || lane.taken() > 0);
}

impl Lane {
    fn open(connector: &Connector) -> Self {
        let connection = legacy::Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .http2_keep_alive_interval(ASK_AFTER)
            .http2_keep_alive_timeout(ANSWER_WITHIN)
            .http2_keep_alive_while_idle(true)
            .build(connector.clone());
        Lane { connection, door: Arc::default(), places: Arc::new(()) }
    }

    fn taken(&self) -> usize {
        Arc::strong_count(&self.places) - 1
    }
}

impl Service<Request<Body>> for Lanes {
    type Response = Response<Placed>;
    type Error = legacy::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Placed>, legacy::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), legacy::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (connection, door, place) = self.take();
        Box::pin(async move {
            let turn = door.pass().await;
            let answered = connection.request(request).await;
            door.set(answered.is_ok());
            drop(turn);
            Ok(answered?.map(|body| Placed { body, door, _place: place }))
        })
    }
}

/// A body that keeps its place until it was read. One that breaks tells that the connection may be
/// gone.
struct Placed {
    body: Incoming,
    door: Arc<Door>,
    _place: Place,
}

impl http_body::Body for Placed {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Err(_))) = &polled {
            self.door.set(false);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
