//! Network namespaces that live as long as a file does: made, entered, removed.
//!
//! The rule: a foreign namespace is entered only by a thread that ends there, or by a process that
//! becomes something else at once.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::Context;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};
use rtnetlink::LinkUnspec;

use crate::home::absent_is_fine;

/// The index that the loopback device has in every network namespace.
const LOOPBACK_INDEX: u32 = 1;

/// What tells two namespaces apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NamespaceId {
    device: u64,
    inode: u64,
}

impl NamespaceId {
    /// The namespace behind `path`: a bound file, or one of `/proc/<pid>/ns`.
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        let metadata = fs::metadata(path)?;
        Ok(NamespaceId { device: metadata.dev(), inode: metadata.ino() })
    }
}

/// Makes a network namespace with its loopback up and keeps it at `path`.
pub(crate) fn create(path: &Path) -> anyhow::Result<()> {
    File::create(path).with_context(|| format!("cannot make the file {}", path.display()))?;
    let made = on_own_thread(|| {
        unshare(CloneFlags::CLONE_NEWNET).context("cannot make a network namespace")?;
        bind("/proc/thread-self/ns/net", path)?;
        block_on(raise_loopback())
    });
    made.inspect_err(|_| drop(remove(path)))
        .with_context(|| format!("cannot make the namespace {}", path.display()))
}

/// Removes the namespace kept at `path`; it ends with its last process.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match umount2(path, MntFlags::MNT_DETACH) {
        Ok(()) | Err(nix::Error::EINVAL | nix::Error::ENOENT) => {}
        Err(error) => return Err(error.into()),
    }
    absent_is_fine(fs::remove_file(path))
}

/// Puts this thread into the namespace kept at `path`.
pub(crate) fn enter(path: &Path) -> anyhow::Result<()> {
    let cannot = || format!("cannot enter the namespace {}", path.display());
    let file = File::open(path).with_context(cannot)?;
    setns(file, CloneFlags::CLONE_NEWNET).with_context(cannot)
}

/// Runs `work` inside the namespace kept at `path`, on a thread that ends there.
pub(crate) fn within<T: Send>(
    path: &Path,
    work: impl FnOnce() -> anyhow::Result<T> + Send,
) -> anyhow::Result<T> {
    on_own_thread(|| {
        enter(path)?;
        work()
    })
}

/// The same for work that talks to the kernel over netlink.
pub(crate) fn within_async<T: Send, F: Future<Output = anyhow::Result<T>>>(
    path: &Path,
    work: impl FnOnce() -> F + Send,
) -> anyhow::Result<T> {
    within(path, || block_on(work()))
}

/// A netlink connection of the namespace that this thread is in.
pub(crate) fn netlink() -> anyhow::Result<rtnetlink::Handle> {
    let (connection, handle, _) = rtnetlink::new_connection().context("cannot open netlink")?;
    tokio::spawn(connection);
    Ok(handle)
}

fn on_own_thread<T: Send>(work: impl FnOnce() -> anyhow::Result<T> + Send) -> anyhow::Result<T> {
    std::thread::scope(|scope| scope.spawn(work).join())
        .unwrap_or_else(|_| Err(anyhow::anyhow!("the thread of a namespace panicked")))
}

/// A runtime that has no thread but this one, so that everything stays in its namespace.
fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(work)
}

fn bind(source: &str, target: &Path) -> anyhow::Result<()> {
    mount(Some(source), target, None::<&str>, MsFlags::MS_BIND, None::<&str>)
        .with_context(|| format!("cannot bind {source} to {}", target.display()))
}

async fn raise_loopback() -> anyhow::Result<()> {
    let up = LinkUnspec::new_with_index(LOOPBACK_INDEX).up().build();
    netlink()?.link().set(up).execute().await.context("cannot bring the loopback device up")
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    /// A namespace that is removed when the test ends, however it ends.
    struct Kept(tempfile::TempDir);

    impl Kept {
        fn create() -> Self {
            let directory = tempfile::tempdir().unwrap();
            create(&directory.path().join("ns")).expect("this test needs root");
            Kept(directory)
        }
        fn path(&self) -> std::path::PathBuf {
            self.0.path().join("ns")
        }
    }

    impl Drop for Kept {
        fn drop(&mut self) {
            remove(&self.path()).unwrap();
        }
    }

    fn own_namespace() -> NamespaceId {
        NamespaceId::of(Path::new("/proc/thread-self/ns/net")).unwrap()
    }

    #[test]
    fn a_new_namespace_is_another_one_and_its_loopback_works() {
        let kept = Kept::create();
        let outside = own_namespace();
        let inside = within(&kept.path(), || {
            UdpSocket::bind("127.0.0.1:0")?.send_to(b"x", "127.0.0.1:9")?;
            Ok(own_namespace())
        });
        assert_eq!(inside.unwrap(), NamespaceId::of(&kept.path()).unwrap());
        assert_eq!(own_namespace(), outside, "the caller stays where it was");
        assert_ne!(NamespaceId::of(&kept.path()).unwrap(), outside);
    }

    #[test]
    fn removing_twice_is_as_good_as_once() {
        let kept = Kept::create();
        remove(&kept.path()).unwrap();
        remove(&kept.path()).unwrap();
        assert!(!kept.path().exists());
    }

    #[test]
    fn entering_what_is_not_there_names_it() {
        let said = within(Path::new("/nowhere/ns"), || Ok(())).unwrap_err().to_string();
        assert_eq!(said, "cannot enter the namespace /nowhere/ns");
    }

    #[test]
    fn processes_inside_are_found_by_their_namespace() {
        let kept = Kept::create();
        let mut child =
            within(&kept.path(), || Ok(std::process::Command::new("sleep").arg("60").spawn()?))
                .unwrap();
        let found = crate::process::inside(&[NamespaceId::of(&kept.path()).unwrap()]);
        let pids: Vec<_> = found.iter().map(crate::process::Process::pid).collect();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(pids, [child.id() as i32]);
    }
}
