//! Where the kubelet asks: HTTP on the node's loopback.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};

use super::{Check, Line, Subjects, check, find};

/// How long after a failed accept the next is tried.
const PAUSE: Duration = Duration::from_millis(100);

/// How long a hook waits until its pod is known here. It is asked for once, often right after the
/// pod's network was made.
const HOOK_PATIENCE: Duration = Duration::from_secs(3);

/// How often it looks.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

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
    let (check, line) = match find_in_time(subjects, path).await {
        Ok(found) => found,
        Err(why) if is_hook(path) => return Err(HookFailed(why)),
        Err(why) => return Ok(plain(StatusCode::SERVICE_UNAVAILABLE, &why)),
    };
    match check::make(&check, line).await {
        Ok(()) => Ok(plain(StatusCode::OK, "ok")),
        Err(why) if check.hook => Err(HookFailed(why)),
        Err(why) => Ok(plain(StatusCode::SERVICE_UNAVAILABLE, &why)),
    }
}

/// By its moment: of a hook that is in no sheet, nothing else is known.
fn is_hook(path: &str) -> bool {
    path.ends_with("/postStart") || path.ends_with("/preStop")
}

/// A probe is asked for again, and needs no patience.
async fn find_in_time(subjects: &Subjects, path: &str) -> Result<(Check, Line), String> {
    let begun = Instant::now();
    loop {
        match find(subjects, path) {
            Err(_) if is_hook(path) && begun.elapsed() < HOOK_PATIENCE => {
                tokio::time::sleep(LOOK_AGAIN).await;
            }
            found => return found,
        }
    }
}

fn plain(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(format!("{text}\n"))));
    *response.status_mut() = status;
    response
}
