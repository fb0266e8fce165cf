//! The health service of gRPC, for probes that ask it: every service of this server is well.

use std::convert::Infallible;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

/// What a connection of HTTP/2, and so of gRPC, begins with.
pub(crate) const PREFACE: &[u8] = b"PRI";

const CHECK: &str = "/grpc.health.v1.Health/Check";
/// A frame around `HealthCheckResponse { status: SERVING }`.
const SERVING: &[u8] = &[0, 0, 0, 0, 2, 0x08, 1];
const DONE: &str = "0";
const UNIMPLEMENTED: &str = "12";

/// Answers every question of one connection.
pub(crate) async fn talk(stream: TcpStream) -> hyper::Result<()> {
    let server = http2::Builder::new(TokioExecutor::new());
    server.serve_connection(TokioIo::new(stream), service_fn(answer)).await
}

async fn answer(
    question: Request<Incoming>,
) -> Result<Response<impl Body<Data = Bytes, Error = Infallible>>, Infallible> {
    let (message, status) = match question.uri().path() {
        CHECK => (SERVING, DONE),
        _ => (&[][..], UNIMPLEMENTED),
    };
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static(status));
    let body = Full::new(Bytes::from_static(message)).with_trailers(async { Some(Ok(trailers)) });
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    Ok(response)
}

#[cfg(test)]
mod tests {
    use hyper::client::conn::http2;

    use super::*;
    use crate::serve::serve_for_test;

    /// The answer to a question, and the status that stands behind it.
    async fn ask(path: &str) -> (Bytes, String) {
        let stream = TcpStream::connect(("127.0.0.1", serve_for_test().await)).await.unwrap();
        let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.unwrap();
        tokio::spawn(connection);
        let question = Request::post(format!("http://web{path}")).body(Full::new(Bytes::new()));
        let answer = sender.send_request(question.unwrap()).await.unwrap();
        let answer = answer.into_body().collect().await.unwrap();
        let status = answer.trailers().unwrap()["grpc-status"].to_str().unwrap().to_owned();
        (answer.to_bytes(), status)
    }

    #[tokio::test]
    async fn a_health_check_on_the_same_port_is_told_that_all_is_well() {
        assert_eq!(ask(CHECK).await, (Bytes::from_static(SERVING), DONE.to_owned()));
        assert_eq!(ask("/shop.Cart/Buy").await, (Bytes::new(), UNIMPLEMENTED.to_owned()));
    }
}
