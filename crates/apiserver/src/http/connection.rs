//! Connections: TLS on every listener, a task per connection, and an orderly end.

use super::handle::handle;
use crate::verbs::Api;
use axum::body::Body;
use hyper::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// A client has this long to greet.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);

/// Serves one listener until `stop` becomes true and its last connection is closed.
pub(crate) async fn serve(
    api: Api,
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    stop: watch::Receiver<bool>,
) {
    let acceptor = TlsAcceptor::from(tls);
    let mut ending = stop.clone();
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(
                        api.clone(),
                        acceptor.clone(),
                        stream,
                        stop.clone(),
                    ));
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            },
            Some(_) = connections.join_next() => {}
            () = told_to_stop(&mut ending) => break,
        }
    }
    connections.join_all().await;
}

/// Ends when serving is to end; a sender that is gone means the same.
async fn told_to_stop(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stopped| *stopped).await;
}

async fn connection(
    api: Api,
    acceptor: TlsAcceptor,
    stream: TcpStream,
    mut stop: watch::Receiver<bool>,
) {
    // Answers are small and come one at a time: waiting to fill packets only adds delay.
    let _ = stream.set_nodelay(true);
    let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE_LIMIT, acceptor.accept(stream)).await
    else {
        return;
    };
    let trusted = is_trusted(&stream);
    let service = service_fn(move |request: Request<Incoming>| {
        let api = api.clone();
        async move { Ok::<_, Infallible>(handle(&api, trusted, request.map(Body::new)).await) }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        ended = connection => {
            if let Err(error) = ended {
                tracing::debug!(%error, "connection ended early");
            }
        }
        () = told_to_stop(&mut stop) => {}
    }
}

/// A certificate that TLS accepted was signed by our own authority.
fn is_trusted(stream: &TlsStream<TcpStream>) -> bool {
    stream.get_ref().1.peer_certificates().is_some_and(|chain| !chain.is_empty())
}
