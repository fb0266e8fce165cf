//! The certificate by which the API knows us: made by the first replica that finds none, kept in a
//! Secret, and taken from there by all others. It does not expire; who deletes the Secret and
//! restarts the controllers has another.

use std::sync::Arc;

use anyhow::{Context, Result};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, PostParams};
use kube::{Client, ResourceExt};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;

/// An authority, and a certificate that it has signed, as PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Credentials {
    /// Whom the API must believe.
    pub(super) authority: String,
    certificate: String,
    key: String,
}

/// The fields of the Secret.
const AUTHORITY: &str = "ca.crt";
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";

impl Credentials {
    /// Those in the Secret `namespace/name`, made where there are none.
    pub(super) async fn kept_in(client: &Client, namespace: &str, name: &str) -> Result<Self> {
        let secrets = Api::<Secret>::namespaced(client.clone(), namespace);
        if let Some(secret) = secrets.get_opt(name).await? {
            return Credentials::read(&secret);
        }
        let made = Credentials::make(&format!("{name}.{namespace}.svc"))?;
        match secrets.create(&PostParams::default(), &made.secret(name)?).await {
            Ok(_) => Ok(made),
            Err(kube::Error::Api(refusal)) if refusal.code == 409 => {
                Credentials::read(&secrets.get(name).await?)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn make(host: &str) -> Result<Self> {
        let (authority_key, key) = (KeyPair::generate()?, KeyPair::generate()?);
        let mut authority = CertificateParams::new(Vec::new())?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let root = authority.self_signed(&authority_key)?.pem();
        let issuer = Issuer::new(authority, authority_key);
        let certificate =
            CertificateParams::new(vec![host.to_owned()])?.signed_by(&key, &issuer)?;
        Ok(Credentials {
            authority: root,
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        })
    }

    fn secret(&self, name: &str) -> Result<Secret> {
        let data =
            [(AUTHORITY, &self.authority), (CERTIFICATE, &self.certificate), (KEY, &self.key)];
        let secret: Secret = serde_json::from_value(json!({
            "metadata": {"name": name}, "type": "kubernetes.io/tls",
        }))?;
        let data =
            data.map(|(field, pem)| (field.to_owned(), ByteString(pem.clone().into_bytes())));
        Ok(Secret { data: Some(data.into()), ..secret })
    }

    fn read(secret: &Secret) -> Result<Self> {
        let field = |name: &str| {
            let bytes =
                secret.data.iter().flatten().find(|it| it.0 == name).map(|it| it.1.0.clone());
            let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
            let secret = secret.name_any();
            text.with_context(|| {
                format!("secret {secret} has no {name}; delete it to have it made anew")
            })
        };
        let [authority, certificate, key] = [AUTHORITY, CERTIFICATE, KEY].map(field);
        Ok(Credentials { authority: authority?, certificate: certificate?, key: key? })
    }

    /// TLS with this certificate.
    pub(super) fn server_config(&self) -> Result<ServerConfig> {
        let certificate = CertificateDer::from_pem_slice(self.certificate.as_bytes())?;
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes())?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)?;
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_in_a_secret_is_what_was_made_and_can_be_served() {
        let made = Credentials::make("atoll-probes.atoll-system.svc").unwrap();
        let read = Credentials::read(&made.secret("atoll-probes").unwrap()).unwrap();
        assert_eq!(read, made);
        read.server_config().unwrap();
    }

    #[test]
    fn a_secret_that_lacks_a_part_says_which_and_what_to_do() {
        let made = Credentials::make("x").unwrap();
        let mut secret = made.secret("atoll-probes").unwrap();
        secret.data.as_mut().unwrap().remove(KEY);
        let said = Credentials::read(&secret).unwrap_err().to_string();
        assert_eq!(said, "secret atoll-probes has no tls.key; delete it to have it made anew");
    }
}
