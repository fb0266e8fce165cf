//! The kubelet's questions, with addresses of the loopback in place of aliases: two pods that know
//! themselves by one address and are called by two.

use atoll_model::probes::{How, HttpCheck};
use bytes::Bytes;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;

/// The pods' own address, which nobody here could call.
const OWN: [u8; 4] = [10, 0, 0, 5];

fn check(how: How) -> Check {
    Check { how, timeout: 5, hook: false }
}

fn get(port: u16, path: &str) -> How {
    How::Http(HttpCheck { port, path: path.to_owned(), tls: false, headers: vec![] })
}

fn pod(namespace: &str, sheet: &str, checks: &[(&str, Check)]) -> (PodName, Probed) {
    let checks = checks.iter().map(|(key, check)| ((*key).to_owned(), check.clone())).collect();
    let sheet = Arc::new(ProbeSheet { id: sheet.to_owned(), checks });
    ((namespace.to_owned(), "web".to_owned()), Probed { uid: format!("uid-{namespace}"), sheet })
}

/// The kubelet's side of it.
struct Node {
    probes: Probes,
    at: SocketAddr,
}

impl Node {
    /// The pod of acme is called by 127.0.1.1, that of globex by 127.0.1.2.
    async fn with(pods: impl IntoIterator<Item = (PodName, Probed)>) -> Node {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let node = Node { probes: Probes::start_at(listener), at };
        node.know(pods);
        node
    }

    fn know(&self, pods: impl IntoIterator<Item = (PodName, Probed)>) {
        let from = Ipv4Addr::LOCALHOST.into();
        let line = |called: [u8; 4]| Some(Line { own: OWN.into(), called: called.into(), from });
        self.probes.know_lines(&pods.into_iter().collect(), |uid| match uid.as_str() {
            "uid-acme" => line([127, 0, 1, 1]),
            "uid-globex" => line([127, 0, 1, 2]),
            _ => None,
        });
    }

    /// What is answered: the code and the reason; nothing where the connection just ends.
    async fn ask(&self, path: &str) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect(self.at).await.unwrap();
        let ask = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(ask.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        let code = text.split(' ').nth(1)?.parse().ok()?;
        Some((code, text.rsplit("\r\n\r\n").next()?.trim().to_owned()))
    }
}

/// An HTTP server at `ip` that answers with this code and keeps what it was asked.
async fn http_server(ip: [u8; 4], port: u16, code: u16) -> (u16, Arc<std::sync::Mutex<String>>) {
    let listener = TcpListener::bind((Ipv4Addr::from(ip), port)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let asked = Arc::new(std::sync::Mutex::new(String::new()));
    let kept = asked.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut buffer = vec![0; 4096];
            let length = stream.read(&mut buffer).await.unwrap();
            *kept.lock().unwrap() = String::from_utf8_lossy(&buffer[..length]).into_owned();
            let answer = format!("HTTP/1.1 {code} x\r\nContent-Length: 0\r\n\r\n");
            let _gone = stream.write_all(answer.as_bytes()).await;
        }
    });
    (port, asked)
}

#[tokio::test]
async fn of_two_pods_with_one_address_each_is_probed_itself_and_may_recover() {
    let (port, asked) = http_server([127, 0, 1, 1], 0, 204).await;
    let checks = [("web/readiness", check(get(port, "/healthz?deep=1")))];
    let node = Node::with([pod("acme", "x1", &checks), pod("globex", "x2", &checks)]).await;
    assert_eq!(node.ask("/probe/acme/x1/web/readiness").await, Some((200, "ok".into())));
    let question = asked.lock().unwrap().to_lowercase();
    assert!(question.starts_with("get /healthz?deep=1 http/1.1"), "{question}");
    assert!(question.contains(&format!("host: 10.0.0.5:{port}")), "{question}");
    assert!(question.contains("user-agent: kube-probe/"), "{question}");
    let (code, why) = node.ask("/probe/globex/x2/web/readiness").await.unwrap();
    assert_eq!(code, 503);
    assert!(why.contains("cannot connect") && why.contains("of 10.0.0.5"), "{why}");
    let _recovered = http_server([127, 0, 1, 2], port, 301).await;
    assert_eq!(node.ask("/probe/globex/x2/web/readiness").await, Some((200, "ok".into())));
}

#[tokio::test]
async fn an_answer_from_400_on_has_failed_and_headers_are_sent_as_written() {
    let (port, asked) = http_server([127, 0, 1, 1], 0, 500).await;
    let headers = vec![("Host".into(), "shop".into()), ("X-Token".into(), "t".into())];
    let request = HttpCheck { port, path: "/".into(), tls: false, headers };
    let checks = [("web/liveness", check(How::Http(request)))];
    let node = Node::with([pod("acme", "x1", &checks)]).await;
    let (code, why) = node.ask("/probe/acme/x1/web/liveness").await.unwrap();
    assert_eq!((code, why.as_str()), (503, "HTTP probe failed with statuscode: 500"));
    let question = asked.lock().unwrap().to_lowercase();
    assert!(question.contains("host: shop") && question.contains("x-token: t"), "{question}");
}

/// A server over TLS, with a certificate that nobody has signed, that answers with 200.
async fn tls_server(ip: [u8; 4]) -> u16 {
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(vec!["elsewhere".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key.into())
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind((Ipv4Addr::from(ip), 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let _asked = stream.read(&mut [0; 4096]).await.unwrap();
            let _gone = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
        }
    });
    port
}

#[tokio::test]
async fn a_probe_over_tls_is_content_with_any_certificate() {
    let port = tls_server([127, 0, 1, 1]).await;
    let over = |tls| check(How::Http(HttpCheck { port, path: "/".into(), tls, headers: vec![] }));
    let checks = [("web/readiness", over(true)), ("web/liveness", over(false))];
    let node = Node::with([pod("acme", "x1", &checks)]).await;
    assert_eq!(node.ask("/probe/acme/x1/web/readiness").await, Some((200, "ok".into())));
    assert_eq!(node.ask("/probe/acme/x1/web/liveness").await.unwrap().0, 503);
}

#[tokio::test]
async fn a_tcp_probe_is_content_with_a_connection() {
    let listener = TcpListener::bind("127.0.1.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let checks = [("web/startup", check(How::Tcp { port }))];
    let node = Node::with([pod("acme", "x1", &checks), pod("globex", "x2", &checks)]).await;
    assert_eq!(node.ask("/probe/acme/x1/web/startup").await, Some((200, "ok".into())));
    assert_eq!(node.ask("/probe/globex/x2/web/startup").await.unwrap().0, 503);
}

#[tokio::test]
async fn one_that_does_not_answer_in_its_time_has_failed() {
    let listener = TcpListener::bind("127.0.1.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let slow = Check { timeout: 1, ..check(get(port, "/")) };
    let node = Node::with([pod("acme", "x1", &[("web/liveness", slow)])]).await;
    let (code, why) = node.ask("/probe/acme/x1/web/liveness").await.unwrap();
    assert_eq!((code, why.as_str()), (503, "no answer within 1 s"));
}

#[tokio::test]
async fn a_hook_takes_any_answer_and_one_that_gets_none_fails() {
    let (port, _) = http_server([127, 0, 1, 1], 0, 500).await;
    let hook = Check { hook: true, ..check(get(port, "/bye")) };
    let checks = [("web/preStop", hook)];
    let node = Node::with([pod("acme", "x1", &checks), pod("globex", "x2", &checks)]).await;
    assert_eq!(node.ask("/probe/acme/x1/web/preStop").await.unwrap().0, 200);
    assert_eq!(node.ask("/probe/globex/x2/web/preStop").await, None, "the kubelet hears nothing");
}

#[tokio::test]
async fn a_hook_of_a_pod_that_is_not_known_fails_and_one_that_becomes_known_is_made() {
    let node = Node::with([]).await;
    assert_eq!(node.ask("/probe/acme/x1/web/postStart").await, None, "the kubelet hears nothing");
    let (port, asked) = http_server([127, 0, 1, 1], 0, 200).await;
    let hook = Check { hook: true, ..check(get(port, "/hello")) };
    let learned = async { node.know([pod("acme", "x1", &[("web/postStart", hook)])]) };
    let (answer, ()) = tokio::join!(node.ask("/probe/acme/x1/web/postStart"), learned);
    assert_eq!(answer, Some((200, "ok".into())));
    assert!(asked.lock().unwrap().contains("/hello"));
}

#[tokio::test]
async fn what_is_in_no_sheet_or_in_two_has_failed_with_the_reason() {
    let checks = [("web/readiness", check(How::Tcp { port: 80 }))];
    let mut twin = pod("acme", "x1", &checks);
    twin.0.1 = "twin".to_owned();
    let mut away = pod("acme", "x3", &checks);
    (away.0.1, away.1.uid) = ("away".to_owned(), "uid-elsewhere".to_owned());
    let node =
        Node::with([pod("acme", "x1", &checks), twin, pod("globex", "x2", &checks), away]).await;
    let cases = [
        ("/probe/acme/x1/web/readiness", "two pods claim this sheet"),
        ("/probe/acme/x2/web/readiness", "no pod of this node"),
        ("/probe/acme/x3/web/readiness", "no pod of this node"),
        ("/probe/globex/x2/web/liveness", "no such check"),
        ("/probe/globex/x2", "the path must be"),
        ("/", "the path must be"),
    ];
    for (path, expected) in cases {
        let (code, why) = node.ask(path).await.unwrap();
        assert!(code == 503 && why.contains(expected), "{path}: {code} {why}");
    }
}

/// A server of gRPC's health service that says this status of `cart`, and has no other.
async fn grpc_server(ip: [u8; 4], status: u8) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::from(ip), 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = service_fn(move |request| answer_health(request, status));
            let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            tokio::spawn(server.serve_connection(TokioIo::new(stream), service));
        }
    });
    port
}

async fn answer_health(
    request: Request<Incoming>,
    status: u8,
) -> Result<
    Response<impl hyper::body::Body<Data = Bytes, Error = std::convert::Infallible>>,
    hyper::Error,
> {
    assert_eq!(request.uri().path(), "/grpc.health.v1.Health/Check");
    let asked = request.into_body().collect().await?.to_bytes();
    let knows = asked[5..] == [0x0a, 4, b'c', b'a', b'r', b't'];
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", if knows { "0" } else { "5" }.parse().unwrap());
    let message = knows.then(|| Frame::data(Bytes::from(vec![0, 0, 0, 0, 2, 0x08, status])));
    let frames = message.into_iter().chain([Frame::trailers(trailers)]).map(Ok);
    Ok(Response::new(StreamBody::new(futures::stream::iter(frames.collect::<Vec<_>>()))))
}

#[tokio::test]
async fn a_grpc_probe_asks_the_health_service_about_the_service_it_names() {
    let ask = |port, service: &str| check(How::Grpc { port, service: service.to_owned() });
    let (well, ill) = (grpc_server([127, 0, 1, 1], 1).await, grpc_server([127, 0, 1, 1], 2).await);
    let checks = [
        ("web/liveness", ask(well, "cart")),
        ("web/readiness", ask(ill, "cart")),
        ("web/startup", ask(well, "unknown")),
    ];
    let node = Node::with([pod("acme", "x1", &checks)]).await;
    assert_eq!(node.ask("/probe/acme/x1/web/liveness").await, Some((200, "ok".into())));
    for (moment, expected) in [("readiness", "not serving"), ("startup", "status 5")] {
        let (code, why) = node.ask(&format!("/probe/acme/x1/web/{moment}")).await.unwrap();
        assert!(code == 503 && why.contains(expected), "{moment}: {code} {why}");
    }
}
