//! A GET as the kubelet makes it: success is an answer from 200 to 399, and over TLS nobody looks at
//! the certificate. A redirect is an answer and is not followed.

use std::sync::Arc;

use atoll_model::probes::HttpCheck;
use bytes::Bytes;
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, CONNECTION, HOST, HeaderName, HeaderValue, USER_AGENT};
use hyper::{HeaderMap, Request};
use hyper_util::rt::TokioIo;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use super::Line;
use super::check::connect;

/// What programs know probes by.
const AGENT: &str = "kube-probe/atoll";

/// Asks, and judges the answer; a hook is content with any.
pub(super) async fn get(check: &HttpCheck, is_hook: bool, line: Line) -> Result<(), String> {
    let request = request(check, line)?;
    let stream = connect(line, check.port).await?;
    let status = if check.tls {
        let name = ServerName::IpAddress(line.own.into());
        let greeted = connector()?.connect(name, stream).await;
        send(greeted.map_err(|error| format!("no TLS: {error}"))?, request).await?
    } else {
        send(stream, request).await?
    };
    if is_hook || (200..400).contains(&status) {
        return Ok(());
    }
    Err(format!("HTTP probe failed with statuscode: {status}"))
}

fn request(check: &HttpCheck, line: Line) -> Result<Request<Empty<Bytes>>, String> {
    let mut headers = HeaderMap::new();
    let host = std::net::SocketAddr::new(line.own, check.port).to_string();
    for (name, value) in [(HOST, host.as_str()), (USER_AGENT, AGENT), (ACCEPT, "*/*")] {
        headers.insert(name, HeaderValue::from_str(value).map_err(|error| error.to_string())?);
    }
    for (name, value) in &check.headers {
        let unfit = || format!("the header {name:?} cannot be sent");
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| unfit())?;
        headers.insert(name, HeaderValue::from_str(value).map_err(|_| unfit())?);
    }
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    let mut request = Request::get(&check.path)
        .body(Empty::new())
        .map_err(|error| format!("the path {:?} cannot be asked for: {error}", check.path))?;
    *request.headers_mut() = headers;
    Ok(request)
}

async fn send(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    request: Request<Empty<Bytes>>,
) -> Result<u16, String> {
    let handshake = http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|error| error.to_string())?;
    let mut driver = JoinSet::new();
    driver.spawn(connection);
    let answer = sender.send_request(request).await;
    answer.map(|answer| answer.status().as_u16()).map_err(|error| error.to_string())
}

fn connector() -> Result<TlsConnector, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// A probe asks whether the pod is well, not who it is: that is known by the interface.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
