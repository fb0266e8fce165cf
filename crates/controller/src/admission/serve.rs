//! HTTPS for the API's questions.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use axum::Router;
use axum::extract::Json;
use axum::http::StatusCode;
use axum::routing::{get, post};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use serde_json::Value;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::answer;

const BACKLOG: u32 = 256;
/// A client has this long to greet.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(5);
/// How long after a failed accept the next is tried.
const PAUSE: Duration = Duration::from_millis(100);

/// Replicas on one node share the port: each can answer.
pub(super) fn listen(address: SocketAddr) -> Result<TcpListener> {
    let bind = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        socket.set_reuseaddr(true)?;
        socket.set_reuseport(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    bind().with_context(|| format!("cannot answer the API's questions at {address}"))
}

/// Answers for good.
pub(super) async fn run(listener: TcpListener, tls: Arc<ServerConfig>) {
    let acceptor = TlsAcceptor::from(tls);
    let routes =
        Router::new().route("/probes", post(review)).route("/ready", get(|| async { "ok" }));
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(converse(stream, acceptor.clone(), routes.clone()));
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a question of the API");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn converse(stream: TcpStream, acceptor: TlsAcceptor, routes: Router) {
    let greeted = tokio::time::timeout(HANDSHAKE_LIMIT, acceptor.accept(stream)).await;
    let Ok(Ok(stream)) = greeted else { return };
    let service = TowerToHyperService::new(routes);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a question of the API ended early");
    }
}

async fn review(Json(review): Json<Value>) -> Result<Json<Value>, (StatusCode, String)> {
    let id = uuid::Uuid::new_v4().simple().to_string();
    let answered = answer(&review, &id);
    answered.map(Json).map_err(|error| (StatusCode::BAD_REQUEST, error.to_string()))
}
