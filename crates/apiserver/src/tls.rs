//! Certificates: an authority of the lab's own, one certificate for the server, one for its user.
//! Made on first start, reused after; the server's is made anew when its names change.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why there are no usable certificates.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages are the documentation")]
pub enum TlsError {
    #[error("cannot read or write {path}: {source}; check the permissions of its folder")]
    File { path: PathBuf, source: std::io::Error },
    #[error("cannot make a certificate for {subject}: {source}")]
    Make { subject: String, source: rcgen::Error },
    #[error(
        "the certificates in {path} cannot be used: {why}; move them away to have new ones made"
    )]
    Unusable { path: PathBuf, why: String },
}

/// The certificates and keys in use, as PEM.
#[derive(Debug, Clone)]
pub(crate) struct Certificates {
    pub(crate) authority: String,
    server: Pair,
    client: Pair,
}

#[derive(Debug, Clone)]
struct Pair {
    certificate: String,
    key: String,
}

impl Certificates {
    /// Reads the certificates in `dir`, making what is missing.
    pub(crate) fn open(dir: &Path, names: &[String]) -> Result<Certificates, TlsError> {
        fs::create_dir_all(dir).map_err(|source| TlsError::File { path: dir.into(), source })?;
        let authority = match Pair::read(dir, "ca")? {
            Some(pair) => pair,
            None => make_authority(dir)?,
        };
        let issuer = issuer(dir, &authority)?;
        let server = server_pair(dir, &issuer, names)?;
        let client = match Pair::read(dir, "client")? {
            Some(pair) => pair,
            None => make_client(dir, &issuer)?,
        };
        Ok(Certificates { authority: authority.certificate, server, client })
    }

    /// TLS that asks for our client certificate but lets strangers in to be told 401.
    pub(crate) fn server_config(&self, dir: &Path) -> Result<ServerConfig, TlsError> {
        let unusable = |why: String| TlsError::Unusable { path: dir.into(), why };
        let mut roots = RootCertStore::empty();
        roots.add(certificate(&self.authority, dir)?).map_err(|e| unusable(e.to_string()))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
                .allow_unauthenticated()
                .build()
                .map_err(|e| unusable(e.to_string()))?;
        let key = PrivateKeyDer::from_pem_slice(self.server.key.as_bytes())
            .map_err(|e| unusable(e.to_string()))?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| unusable(e.to_string()))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![certificate(&self.server.certificate, dir)?], key)
            .map_err(|e| unusable(e.to_string()))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }

    /// A kubeconfig with everything in it.
    pub(crate) fn kubeconfig(&self, server_url: &str) -> String {
        let encoded = |pem: &str| STANDARD.encode(pem);
        let config = serde_json::json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "atoll", "cluster": {
                "server": server_url, "certificate-authority-data": encoded(&self.authority)}}],
            "users": [{"name": "admin", "user": {
                "client-certificate-data": encoded(&self.client.certificate),
                "client-key-data": encoded(&self.client.key)}}],
            "contexts": [{"name": "atoll", "context": {"cluster": "atoll", "user": "admin"}}],
            "current-context": "atoll",
        });
        // A tree of strings always serializes; JSON, which is YAML too, is the way out.
        serde_yaml_ng::to_string(&config).unwrap_or_else(|_| config.to_string())
    }
}

fn certificate(pem: &str, dir: &Path) -> Result<CertificateDer<'static>, TlsError> {
    CertificateDer::from_pem_slice(pem.as_bytes())
        .map_err(|e| TlsError::Unusable { path: dir.into(), why: e.to_string() })
}

impl Pair {
    /// The pair named `name`, or `None` when it was never made.
    fn read(dir: &Path, name: &str) -> Result<Option<Pair>, TlsError> {
        let certificate = read_if_there(&dir.join(format!("{name}.crt")))?;
        let key = read_if_there(&dir.join(format!("{name}.key")))?;
        Ok(certificate.zip(key).map(|(certificate, key)| Pair { certificate, key }))
    }

    fn write(&self, dir: &Path, name: &str) -> Result<(), TlsError> {
        write_secret(&dir.join(format!("{name}.key")), &self.key)?;
        write_secret(&dir.join(format!("{name}.crt")), &self.certificate)
    }
}

fn read_if_there(path: &Path) -> Result<Option<String>, TlsError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(TlsError::File { path: path.into(), source }),
    }
}

/// Only the owner may read it.
fn write_secret(path: &Path, text: &str) -> Result<(), TlsError> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|source| TlsError::File { path: path.into(), source })
}

fn make_authority(dir: &Path) -> Result<Pair, TlsError> {
    let mut params = subject("atoll-lab-ca", "");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let refused = |source| TlsError::Make { subject: "the authority".to_owned(), source };
    let key = KeyPair::generate().map_err(refused)?;
    let certificate = params.self_signed(&key).map_err(refused)?;
    let pair = Pair { certificate: certificate.pem(), key: key.serialize_pem() };
    pair.write(dir, "ca")?;
    Ok(pair)
}

fn issuer(dir: &Path, authority: &Pair) -> Result<Issuer<'static, KeyPair>, TlsError> {
    let unusable = |e: rcgen::Error| TlsError::Unusable { path: dir.into(), why: e.to_string() };
    let key = KeyPair::from_pem(&authority.key).map_err(unusable)?;
    Issuer::from_ca_cert_pem(&authority.certificate, key).map_err(unusable)
}

/// The server's pair; the names it was made for are kept beside it.
fn server_pair(
    dir: &Path,
    issuer: &Issuer<'static, KeyPair>,
    names: &[String],
) -> Result<Pair, TlsError> {
    let list = dir.join("server.names");
    let wanted = names.join("\n");
    if let (Some(pair), Some(known)) = (Pair::read(dir, "server")?, read_if_there(&list)?)
        && known == wanted
    {
        return Ok(pair);
    }
    let mut params = subject("atoll-lab-api", "");
    params.subject_alt_names = CertificateParams::new(names.to_vec())
        .map_err(|source| TlsError::Make { subject: wanted.clone(), source })?
        .subject_alt_names;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let pair = signed(&params, issuer, "the server")?;
    pair.write(dir, "server")?;
    write_secret(&list, &wanted)?;
    Ok(pair)
}

fn make_client(dir: &Path, issuer: &Issuer<'static, KeyPair>) -> Result<Pair, TlsError> {
    let mut params = subject("atoll-lab-admin", "system:masters");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let pair = signed(&params, issuer, "the client")?;
    pair.write(dir, "client")?;
    Ok(pair)
}

fn subject(name: &str, organization: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    if !organization.is_empty() {
        params.distinguished_name.push(DnType::OrganizationName, organization);
    }
    params
}

fn signed(
    params: &CertificateParams,
    issuer: &Issuer<'static, KeyPair>,
    whom: &str,
) -> Result<Pair, TlsError> {
    let refused = |source| TlsError::Make { subject: whom.to_owned(), source };
    let key = KeyPair::generate().map_err(refused)?;
    let certificate = params.signed_by(&key, issuer).map_err(refused)?;
    Ok(Pair { certificate: certificate.pem(), key: key.serialize_pem() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn certificates_are_made_once_and_reused() {
        let dir = tempfile::tempdir().unwrap();
        let first = Certificates::open(dir.path(), &names(&["localhost", "127.0.0.1"])).unwrap();
        let second = Certificates::open(dir.path(), &names(&["localhost", "127.0.0.1"])).unwrap();
        assert_eq!(first.kubeconfig("https://x"), second.kubeconfig("https://x"));
        assert_eq!(first.server.certificate, second.server.certificate);
        first.server_config(dir.path()).unwrap();
    }

    #[test]
    fn new_names_make_a_new_server_certificate_under_the_same_authority() {
        let dir = tempfile::tempdir().unwrap();
        let first = Certificates::open(dir.path(), &names(&["localhost"])).unwrap();
        let second = Certificates::open(dir.path(), &names(&["localhost", "10.0.0.1"])).unwrap();
        assert_eq!(first.authority, second.authority);
        assert_ne!(first.server.certificate, second.server.certificate);
    }

    #[test]
    fn keys_are_readable_by_their_owner_only() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        Certificates::open(dir.path(), &names(&["localhost"])).unwrap();
        let mode = fs::metadata(dir.path().join("ca.key")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_broken_certificate_is_refused_with_advice() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("ca.crt"), "x").unwrap();
        fs::write(dir.path().join("ca.key"), "x").unwrap();
        let error = Certificates::open(dir.path(), &[]).unwrap_err();
        assert!(error.to_string().contains("move them away"), "{error}");
    }
}
