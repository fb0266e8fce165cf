//! The health service of gRPC, asked as the kubelet asks it: without TLS, for one service or for the
//! server as a whole. Its two messages are small enough to be written here.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::task::JoinSet;

use super::Line;
use super::check::connect;

const SERVING: u8 = 1;
const UNIMPLEMENTED: &str = "12";

/// Asks whether `service` is well.
pub(super) async fn ask_health(port: u16, service: &str, line: Line) -> Result<(), String> {
    let stream = connect(line, port).await?;
    let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|error| error.to_string())?;
    let mut driver = JoinSet::new();
    driver.spawn(connection);
    let answer = sender.send_request(request(port, service, line)?).await;
    judge(answer.map_err(|error| error.to_string())?).await
}

fn request(port: u16, service: &str, line: Line) -> Result<Request<Full<Bytes>>, String> {
    let authority = std::net::SocketAddr::new(line.own, port);
    Request::post(format!("http://{authority}/grpc.health.v1.Health/Check"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("user-agent", "kube-probe/atoll")
        .body(Full::new(question(service)))
        .map_err(|error| error.to_string())
}

/// A frame around `HealthCheckRequest { service }`; an empty service is left out.
fn question(service: &str) -> Bytes {
    let mut message = Vec::new();
    if !service.is_empty() {
        message.push(0x0a);
        message.extend(varint(service.len()));
        message.extend(service.as_bytes());
    }
    let size = u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes();
    [&[0][..], &size, &message].concat().into()
}

fn varint(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

async fn judge(answer: Response<Incoming>) -> Result<(), String> {
    let at_once = status(answer.headers());
    let body = answer.into_body().collect().await.map_err(|error| error.to_string())?;
    let status = at_once.or_else(|| body.trailers().and_then(status));
    match status.as_deref() {
        Some("0") => {}
        Some(UNIMPLEMENTED) => return Err("the server has no health service of gRPC".to_owned()),
        Some(other) => return Err(format!("gRPC answered with status {other}")),
        None => return Err("the answer is none of gRPC".to_owned()),
    }
    let body = body.to_bytes();
    match body.get(5..7) {
        Some([0x08, SERVING]) => Ok(()),
        _ => Err("the service says that it is not serving".to_owned()),
    }
}

fn status(headers: &HeaderMap) -> Option<String> {
    headers.get("grpc-status")?.to_str().ok().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_framed_with_the_service_it_is_about() {
        assert_eq!(question("")[..], [0, 0, 0, 0, 0]);
        assert_eq!(question("cart")[..], [0, 0, 0, 0, 6, 0x0a, 4, b'c', b'a', b'r', b't']);
        let long = question(&"x".repeat(300));
        assert_eq!(long[..8], [0, 0, 0, 1, 47, 0x0a, 0xac, 0x02]);
    }
}
