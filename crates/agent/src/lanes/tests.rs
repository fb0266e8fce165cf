//! Against a server that speaks HTTP/2 over TLS and allows a hundred requests on a connection, each
//! of which is answered by a first word and then stays open, as a watch does.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::AtomicUsize;

use futures::StreamExt;
use http_body_util::{BodyExt, StreamBody};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;

/// What the server allows on one connection.
const ALLOWED: u32 = 100;

struct Server {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    cut: tokio::sync::watch::Sender<()>,
}

impl Server {
    async fn start() -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, connections) = (listener.local_addr().unwrap(), Arc::default());
        let counter: Arc<AtomicUsize> = Arc::clone(&connections);
        let (acceptor, (cut, is_cut)) = (acceptor(), tokio::sync::watch::channel(()));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counter.fetch_add(1, Ordering::SeqCst);
                let stream = acceptor.accept(stream).await.unwrap();
                let serving = http2::Builder::new(TokioExecutor::new())
                    .max_concurrent_streams(ALLOWED)
                    .serve_connection(TokioIo::new(stream), service_fn(open_for_good));
                let mut is_cut = is_cut.clone();
                is_cut.mark_unchanged();
                tokio::spawn(async move {
                    tokio::select! { _ = serving => (), _ = is_cut.changed() => () }
                });
            }
        });
        Server { address, connections, cut }
    }

    fn client(&self) -> Client {
        let mut config = Config::new(format!("https://{}", self.address).parse().unwrap());
        config.accept_invalid_certs = true;
        connect(config).unwrap()
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

fn acceptor() -> TlsAcceptor {
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

type Frames = futures::stream::BoxStream<'static, Result<Frame<Bytes>, Infallible>>;

async fn open_for_good(_: Request<Incoming>) -> Result<Response<StreamBody<Frames>>, Infallible> {
    let word = futures::stream::once(async { Ok(Frame::data(Bytes::from_static(b"seen"))) });
    Ok(Response::new(StreamBody::new(word.chain(futures::stream::pending()).boxed())))
}

/// Asks, reads the first word, and gives the rest, which is still open.
async fn ask(client: &Client) -> Body {
    let request = Request::get("/watch").body(Body::empty()).unwrap();
    let mut body = client.send(request).await.unwrap().into_body();
    let word = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(word, "seen");
    body
}

async fn ask_often(client: &Client, count: usize) -> Vec<Body> {
    futures::future::join_all((0..count).map(|_| ask(client))).await
}

#[tokio::test]
async fn watches_share_a_connection() {
    let server = Server::start().await;
    let client = server.client();
    let watches = ask_often(&client, PLACES).await;
    assert_eq!((watches.len(), server.connections()), (PLACES, 1));
}

#[tokio::test]
async fn more_watches_than_a_connection_may_have_get_another_instead_of_waiting() {
    let server = Server::start().await;
    let client = server.client();
    let watches = ask_often(&client, 3 * PLACES).await;
    assert_eq!((watches.len(), server.connections()), (3 * PLACES, 3));
}

#[tokio::test]
async fn a_watch_that_ended_leaves_its_place_to_the_next() {
    let server = Server::start().await;
    let client = server.client();
    let mut watches = ask_often(&client, PLACES).await;
    for _ in 0..ALLOWED {
        watches.pop();
        watches.push(ask(&client).await);
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn watches_that_broke_with_their_connection_come_back_on_one() {
    let server = Server::start().await;
    let client = server.client();
    let watches = ask_often(&client, PLACES).await;
    server.cut.send(()).unwrap();
    for mut watch in watches {
        assert!(watch.frame().await.unwrap().is_err());
    }
    ask_often(&client, PLACES).await;
    assert_eq!(server.connections(), 2);
}
