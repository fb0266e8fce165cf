//! The cluster's certificate authority, and the identities it vouches for.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};

/// Who a certificate says its holder is.
#[derive(Clone, Debug)]
pub(crate) struct Identity<'a> {
    /// The name of its files.
    pub(crate) file: &'a str,
    /// The user, as Kubernetes sees it.
    pub(crate) user: &'a str,
    /// The group, as Kubernetes sees it.
    pub(crate) group: Option<&'a str>,
    /// The names and addresses it serves under.
    pub(crate) serves: Vec<String>,
}

/// An authority made for one cluster.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new() -> Result<Self> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, "atoll test cluster");
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)
            .context("cannot make a certificate authority")?;
        Ok(Authority { issuer })
    }

    /// Writes `ca.crt` into `folder`.
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        write_secret(&folder.join("ca.crt"), &self.issuer.pem())
    }

    /// Writes `<file>.crt` and `<file>.key` of a fresh identity into `folder`.
    pub(crate) fn issue(&self, identity: &Identity<'_>, folder: &Path) -> Result<()> {
        let cannot = || format!("cannot make a certificate for {}", identity.user);
        let key = KeyPair::generate().with_context(cannot)?;
        let certificate = params(identity)
            .and_then(|params| Ok(params.signed_by(&key, &self.issuer)?))
            .with_context(cannot)?;
        write_secret(&folder.join(format!("{}.crt", identity.file)), &certificate.pem())?;
        write_secret(&folder.join(format!("{}.key", identity.file)), &key.serialize_pem())
    }
}

fn params(identity: &Identity<'_>) -> Result<CertificateParams> {
    let mut params = CertificateParams::new(identity.serves.clone())?;
    params.distinguished_name.push(DnType::CommonName, identity.user);
    if let Some(group) = identity.group {
        params.distinguished_name.push(DnType::OrganizationName, group);
    }
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
    Ok(params)
}

/// Writes the key that service account tokens are signed with (`<file>.key`), and the one they are
/// checked with (`<file>.pub`).
pub(crate) fn write_signing_key(folder: &Path, file: &str) -> Result<()> {
    let key = KeyPair::generate().context("cannot make a signing key")?;
    write_secret(&folder.join(format!("{file}.key")), &key.serialize_pem())?;
    write_secret(&folder.join(format!("{file}.pub")), &key.public_key_pem())
}

/// Writes a file that only root reads.
pub(crate) fn write_secret(path: &Path, text: &str) -> Result<()> {
    let write = || {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let mut file =
            OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(path)?;
        file.write_all(text.as_bytes())
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn identity() -> Identity<'static> {
        Identity {
            file: "kubelet",
            user: "system:node:node1",
            group: Some("system:nodes"),
            serves: vec!["node1".into(), "172.30.0.11".into()],
        }
    }

    fn openssl(arguments: &[&str], folder: &Path) -> String {
        let output = Command::new("openssl").args(arguments).current_dir(folder).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn an_identity_names_user_and_group_and_is_vouched_for_by_the_authority() {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new().unwrap();
        authority.write(folder.path()).unwrap();
        authority.issue(&identity(), folder.path()).unwrap();
        let verified = openssl(&["verify", "-CAfile", "ca.crt", "kubelet.crt"], folder.path());
        assert_eq!(verified.trim(), "kubelet.crt: OK");
        let text = openssl(&["x509", "-in", "kubelet.crt", "-noout", "-text"], folder.path());
        for part in ["CN = system:node:node1", "O = system:nodes", "IP Address:172.30.0.11"] {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
    }

    #[test]
    fn keys_are_readable_by_their_owner_only() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        Authority::new().unwrap().issue(&identity(), folder.path()).unwrap();
        let mode = fs::metadata(folder.path().join("kubelet.key")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
