//! Network namespaces that live as long as a file does.
//!
//! The rule: a foreign namespace is entered only by a thread that ends there, or by a process that
//! stays in it for good.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};

/// What tells two namespaces apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NamespaceId {
    device: u64,
    inode: u64,
}

impl NamespaceId {
    /// The namespace behind `path`: a file that keeps one, or one of `/proc/<pid>/ns`.
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        let metadata = fs::metadata(path)?;
        Ok(NamespaceId { device: metadata.dev(), inode: metadata.ino() })
    }
}

/// Makes a network namespace and keeps it at `path`.
pub(crate) fn create(path: &Path) -> Result<()> {
    let cannot = || format!("cannot make the network namespace {}", path.display());
    File::create(path).with_context(cannot)?;
    on_own_thread(|| {
        unshare(CloneFlags::CLONE_NEWNET)?;
        let own = Some("/proc/thread-self/ns/net");
        mount(own, path, None::<&str>, MsFlags::MS_BIND, None::<&str>)?;
        Ok(())
    })
    .with_context(cannot)
}

/// Stops keeping the namespace at `path`; it ends with its last process. Repeatable.
pub(crate) fn remove(path: &Path) -> Result<()> {
    unmount(path)?;
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// Takes away what is mounted at `path`, if anything is.
pub(crate) fn unmount(path: &Path) -> Result<()> {
    match umount2(path, MntFlags::MNT_DETACH) {
        Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => Ok(()),
        Err(error) => Err(error).with_context(|| format!("cannot unmount {}", path.display())),
    }
}

/// Puts this thread into the namespace kept at `path`, for good.
pub(crate) fn enter(path: &Path) -> Result<()> {
    let cannot = || format!("cannot enter the network namespace {}", path.display());
    let file = File::open(path).with_context(cannot)?;
    setns(file, CloneFlags::CLONE_NEWNET).with_context(cannot)
}

/// Runs `work` inside the namespace kept at `path`; processes that it starts stay there.
pub(crate) fn within<T: Send>(path: &Path, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    on_own_thread(|| {
        enter(path)?;
        work()
    })
}

fn on_own_thread<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| scope.spawn(work).join())
        .unwrap_or_else(|_| Err(anyhow!("the thread of a namespace panicked")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> NamespaceId {
        NamespaceId::of(Path::new("/proc/thread-self/ns/net")).unwrap()
    }

    #[test]
    fn a_namespace_is_entered_by_a_thread_and_the_caller_stays_outside() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ns");
        create(&path).expect("this test needs root");
        let (kept, outside) = (NamespaceId::of(&path).unwrap(), own());
        let inside = within(&path, || Ok(own()));
        remove(&path).unwrap();
        assert_eq!(inside.unwrap(), kept);
        assert_eq!(own(), outside);
        assert_ne!(kept, outside);
    }

    #[test]
    fn removing_twice_is_as_good_as_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ns");
        create(&path).expect("this test needs root");
        remove(&path).unwrap();
        remove(&path).unwrap();
        assert!(!path.exists());
    }
}
