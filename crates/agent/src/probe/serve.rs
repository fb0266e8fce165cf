//! Where the kubelet asks: HTTP on the node's loopback.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};

use super::{Subjects, check, find};

/// How long after a failed accept the next is tried.
const PAUSE: Duration = Duration::from_millis(100);

/// Answers for good.
pub(super) async fn run(listener: TcpListener, subjects: Subjects) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(converse(stream, subjects.clone()))),
            Err(error) => {
                tracing::warn!(%error, "cannot accept a question of the kubelet");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn converse(stream: TcpStream, subjects: Subjects) {
    let service = service_fn(move |request: Request<Incoming>| {
        let subjects = subjects.clone();
        async move { answer(request.uri().path(), &subjects).await }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a question of the kubelet ended early");
    }
}

/// The kubelet takes any answer to a hook for success, so a hook that failed gets none.
#[derive(Debug, thiserror::Error)]
#[error("the hook failed: {0}")]
struct HookFailed(String);

async fn answer(path: &str, subjects: &Subjects) -> Result<Response<Full<Bytes>>, HookFailed> {
    let (check, line) = match find(subjects, path) {
        Ok(found) => found,
        Err(why) => return Ok(plain(StatusCode::SERVICE_UNAVAILABLE, &why)),
    };
    match check::make(&check, line).await {
        Ok(()) => Ok(plain(StatusCode::OK, "ok")),
        Err(why) if check.hook => Err(HookFailed(why)),
        Err(why) => Ok(plain(StatusCode::SERVICE_UNAVAILABLE, &why)),
    }
}

fn plain(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(format!("{text}\n"))));
    *response.status_mut() = status;
    response
}
