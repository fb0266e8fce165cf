//! What the container runtime has asked for, remembered on disk.
//!
//! One file for each attachment, written whole or not at all as far as a process can see: it is to
//! outlive the agent. It need not outlive the machine, with which the pods' namespaces end, so that
//! nobody waits for a disk. The API knows which addresses a pod has; only the runtime knew where its
//! namespace is, and says it once.

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use atoll_cni::{AttachmentId, AttachmentRequest};
use atoll_model::compile::Attachment;
use atoll_plan::HostInterface;

/// The folder of attachments, and what is in it.
#[derive(Debug)]
pub(crate) struct AttachmentStore {
    folder: PathBuf,
    attachments: BTreeMap<AttachmentId, Attachment>,
}

impl AttachmentStore {
    /// Opens the folder under `state_dir` and reads what is there. A file that cannot be read is
    /// set aside: its pod keeps its links until the runtime asks again or goes.
    pub(crate) fn open(state_dir: &Path) -> Result<Self> {
        let folder = state_dir.join("attachments");
        fs::create_dir_all(&folder)
            .and_then(|()| fs::set_permissions(&folder, Permissions::from_mode(0o700)))
            .with_context(|| format!("cannot make {}", folder.display()))?;
        let mut store = AttachmentStore { folder, attachments: BTreeMap::new() };
        store.read_all()?;
        Ok(store)
    }

    fn read_all(&mut self) -> Result<()> {
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            match read(&path) {
                Ok(request) => self.remember(&request),
                Err(error) => {
                    tracing::warn!(file = %path.display(), %error, "unreadable attachment set aside");
                    fs::rename(&path, path.with_extension("unreadable"))?;
                }
            }
        }
        Ok(())
    }

    fn remember(&mut self, request: &AttachmentRequest) {
        self.attachments.insert(request.id.clone(), attachment(request));
    }

    /// The attachments by name.
    pub(crate) fn all(&self) -> &BTreeMap<AttachmentId, Attachment> {
        &self.attachments
    }

    /// Remembers one, on disk first.
    pub(crate) fn insert(&mut self, request: &AttachmentRequest) -> Result<()> {
        let path = self.path(&request.id);
        write_whole(&path, &serde_json::to_vec(request)?)
            .with_context(|| format!("cannot write {}", path.display()))?;
        self.remember(request);
        Ok(())
    }

    /// Forgets one. It is no error when it is not there.
    pub(crate) fn remove(&mut self, id: &AttachmentId) -> Result<()> {
        let path = self.path(id);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot remove {}", path.display()))
            }
            _ => {
                self.attachments.remove(id);
                Ok(())
            }
        }
    }

    fn path(&self, id: &AttachmentId) -> PathBuf {
        let name = HostInterface::for_attachment(&id.container_id, &id.interface);
        self.folder.join(format!("{name}.json"))
    }
}

/// An attachment as the compiler needs it.
pub(crate) fn attachment(request: &AttachmentRequest) -> Attachment {
    Attachment {
        container_id: request.id.container_id.clone(),
        sandbox: request.sandbox.clone(),
        interface: request.id.interface.clone(),
        pod: request.pod.clone(),
        pod_uid: request.pod_uid.clone(),
    }
}

fn read(path: &Path) -> Result<AttachmentRequest> {
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}

fn write_whole(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let draft = path.with_extension("draft");
    let mut file =
        File::options().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
    file.write_all(content)?;
    fs::rename(&draft, path)
}

#[cfg(test)]
mod tests {
    use atoll_types::PodRef;

    use super::*;

    fn request(container: &str) -> AttachmentRequest {
        AttachmentRequest {
            id: AttachmentId { container_id: container.into(), interface: "eth0".into() },
            sandbox: "/run/netns/pod".into(),
            pod: PodRef::new("acme", "web"),
            pod_uid: Some("u1".into()),
        }
    }

    #[test]
    fn attachments_survive_a_restart_of_the_agent() {
        let dir = tempfile::tempdir().unwrap();
        AttachmentStore::open(dir.path()).unwrap().insert(&request("c1")).unwrap();
        let reopened = AttachmentStore::open(dir.path()).unwrap();
        assert_eq!(reopened.all()[&request("c1").id], attachment(&request("c1")));
    }

    #[test]
    fn what_is_removed_stays_removed_and_may_be_removed_again() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = AttachmentStore::open(dir.path()).unwrap();
        store.insert(&request("c1")).unwrap();
        store.remove(&request("c1").id).unwrap();
        store.remove(&request("c1").id).unwrap();
        assert!(AttachmentStore::open(dir.path()).unwrap().all().is_empty());
    }

    #[test]
    fn a_half_written_file_does_not_keep_the_others_from_being_read() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = AttachmentStore::open(dir.path()).unwrap();
        store.insert(&request("c1")).unwrap();
        fs::write(dir.path().join("attachments/broken.json"), "{\"id\":").unwrap();
        fs::write(dir.path().join("attachments/later.draft"), "{").unwrap();
        let reopened = AttachmentStore::open(dir.path()).unwrap();
        assert_eq!(reopened.all().len(), 1);
        assert!(dir.path().join("attachments/broken.unreadable").exists());
    }
}
