//! A network namespace that lives as long as its value.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;

use nix::sched::{CloneFlags, setns, unshare};
use nix::unistd::{Uid, setfsuid};

use crate::wait::eventually;

/// Who has no rights of its own.
const NOBODY: Uid = Uid::from_raw(65_534);

/// A network namespace with its loopback up. It has no name and no mount: when the last holder of
/// its descriptor is gone, so is everything in it.
#[derive(Debug)]
pub struct Namespace {
    file: File,
}

impl Namespace {
    /// A new, empty namespace.
    ///
    /// # Panics
    /// Without root.
    #[expect(clippy::new_without_default, reason = "making one is work, not a default")]
    pub fn new() -> Self {
        let file = thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET)
                .unwrap_or_else(|error| panic!("cannot make a namespace ({error}): run as root"));
            current()
        })
        .join()
        .expect("the thread that makes a namespace");
        let namespace = Namespace { file };
        namespace.ip("link set lo up");
        namespace
    }

    /// One that somebody else keeps at `path`. It lives on without this value.
    ///
    /// # Panics
    /// When there is none.
    pub fn at(path: &Path) -> Self {
        let file = File::open(path);
        let file = file.unwrap_or_else(|error| panic!("no namespace {}: {error}", path.display()));
        Namespace { file }
    }

    /// A path by which every process of this machine can open the namespace.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()))
    }

    /// Runs `job` on a thread inside and gives its result; its panic is ours. Sockets made there
    /// stay in the namespace and may be used anywhere.
    pub fn run<T: Send>(&self, job: impl FnOnce() -> T + Send) -> T {
        let inside = || {
            self.enter();
            job()
        };
        match thread::scope(|scope| scope.spawn(inside).join()) {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// The same by somebody who is not root where files and sockets of this machine are concerned.
    pub fn run_as_nobody<T: Send>(&self, job: impl FnOnce() -> T + Send) -> T {
        self.run(|| {
            setfsuid(NOBODY);
            assert_eq!(setfsuid(NOBODY), NOBODY, "run as root");
            job()
        })
    }

    /// Moves the current thread into the namespace for good.
    pub(crate) fn enter(&self) {
        setns(&self.file, CloneFlags::CLONE_NEWNET).expect("enter a namespace");
    }

    /// Runs a program inside to its end.
    pub fn command(&self, program: &str, arguments: &[&str]) -> Output {
        let started = self.run(|| Command::new(program).args(arguments).output());
        started.unwrap_or_else(|error| panic!("cannot run {program}: {error}"))
    }

    /// Runs `ip` inside and gives what it prints.
    ///
    /// # Panics
    /// When it fails.
    pub fn ip(&self, arguments: &str) -> String {
        let arguments: Vec<_> = arguments.split_whitespace().collect();
        let output = self.command("ip", &arguments);
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "ip {arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// Waits until every link that is up carries: the kernel connects an end to its queue only some time after
    /// its other end came up, on a busy machine long after, and loses what is sent before.
    ///
    /// # Panics
    /// When one does not for a minute, as where its other end is down.
    pub fn await_links(&self) {
        eventually("every link that is up carries", || {
            let links = self.ip("-o link show up");
            let carries =
                |link: &str| !link.contains("NO-CARRIER") && !link.contains("qdisc noop ");
            links.lines().all(carries).then_some(())
        });
    }

    /// Has the stack compute every checksum and cut every packet of a link by itself.
    ///
    /// # Panics
    /// When `ethtool` fails.
    pub fn switch_offloads_off(&self, link: &str) {
        let features = ["tx", "rx", "tso", "gso", "gro"].into_iter().flat_map(|it| [it, "off"]);
        let arguments: Vec<_> = ["-K", link].into_iter().chain(features).collect();
        let output = self.command("ethtool", &arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

fn current() -> File {
    File::open("/proc/thread-self/ns/net").expect("open the current namespace")
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_new_namespace_has_its_loopback_up_and_nothing_else() {
        let links = Namespace::new().ip("-o link");
        assert_eq!(links.lines().count(), 1, "{links}");
        assert!(links.contains("lo:") && links.contains("UP"), "{links}");
    }

    #[test]
    fn what_happens_inside_stays_inside() {
        let (one, other) = (Namespace::new(), Namespace::new());
        one.ip("link add only-here type veth peer name its-peer");
        assert!(one.ip("-o link").contains("only-here"));
        assert!(!other.ip("-o link").contains("only-here"));
    }

    #[test]
    fn links_are_awaited_until_both_ends_are_up() {
        let namespace = Namespace::new();
        namespace.ip("link add one type veth peer name other");
        namespace.await_links();
        for link in ["one", "other"] {
            namespace.ip(&format!("link set {link} up"));
        }
        namespace.await_links();
        let links = namespace.ip("-o link");
        assert_eq!(links.matches("LOWER_UP").count(), 3, "{links}");
    }

    #[test]
    fn nobody_reads_what_only_root_may_and_root_still_does() {
        let (namespace, folder) = (Namespace::new(), tempfile::tempdir().unwrap());
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o700)).unwrap();
        let read = || std::fs::read_dir(folder.path()).map(drop).map_err(|error| error.kind());
        assert_eq!(namespace.run_as_nobody(read), Err(std::io::ErrorKind::PermissionDenied));
        assert_eq!(namespace.run(read), Ok(()));
    }

    #[test]
    fn the_path_opens_the_same_namespace() {
        let namespace = Namespace::new();
        let inside = namespace.run(|| std::fs::read_link("/proc/thread-self/ns/net").unwrap());
        assert_eq!(std::fs::read_link(namespace.path()).unwrap(), inside);
        let again = Namespace::at(&namespace.path());
        assert_eq!(again.run(|| std::fs::read_link("/proc/thread-self/ns/net").unwrap()), inside);
    }
}
