//! What is said about a service at its port, in the words that load balancers know from kube-proxy.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::json;
use tokio::net::TcpStream;

/// How long somebody may take from the first word to the last.
const PATIENCE: Duration = Duration::from_secs(5);

/// By which load balancers share clients out among nodes.
const WEIGHT: HeaderName = HeaderName::from_static("x-load-balancing-endpoint-weight");

/// How a service fares on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Health {
    /// The service, by namespace and name.
    pub(crate) service: (String, String),
    /// How many of those behind it are ready here.
    pub(crate) ready: usize,
    /// Whether the kernel leads clients to them.
    pub(crate) is_led: bool,
}

impl Health {
    fn status(&self) -> StatusCode {
        match self.ready > 0 && self.is_led {
            true => StatusCode::OK,
            false => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    fn body(&self) -> String {
        let (namespace, name) = &self.service;
        json!({
            "service": {"namespace": namespace, "name": name},
            "localEndpoints": self.ready,
            "serviceProxyHealthy": self.is_led,
        })
        .to_string()
    }
}

/// Answers one question, whatever its path, and ends.
pub(super) async fn converse(stream: TcpStream, health: Arc<Health>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let response = answer(request.method(), &health);
        async move { Ok::<_, Infallible>(response) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    if !matches!(tokio::time::timeout(PATIENCE, connection).await, Ok(Ok(()))) {
        tracing::debug!("a question about health ended early");
    }
}

fn answer(method: &Method, health: &Health) -> Response<Full<Bytes>> {
    if ![Method::GET, Method::HEAD].contains(method) {
        let mut refusal = Response::new(Full::default());
        *refusal.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
        return refusal;
    }
    let mut response = Response::new(Full::new(Bytes::from(health.body())));
    *response.status_mut() = health.status();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(WEIGHT, HeaderValue::from(health.ready));
    response
}
