//! A BPF file system of one's own.

use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use tempfile::TempDir;

/// A BPF file system that only the thread that mounted it, and threads it starts later, can see.
/// With the last of them it is gone, and so is every pin in it.
#[derive(Debug)]
pub struct BpfFileSystem {
    dir: TempDir,
}

impl BpfFileSystem {
    /// Gives the current thread a mount namespace of its own and mounts there.
    ///
    /// # Panics
    /// Without root.
    pub fn mount_for_this_thread() -> Self {
        let fail = |error| panic!("cannot mount a BPF file system ({error}): run as root");
        unshare(CloneFlags::CLONE_NEWNS).unwrap_or_else(fail);
        let nothing: Option<&str> = None;
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        mount(nothing, "/", nothing, private, nothing).unwrap_or_else(fail);
        let dir = tempfile::tempdir().expect("make a directory to mount on");
        mount(Some("bpf"), dir.path(), Some("bpf"), MsFlags::empty(), nothing).unwrap_or_else(fail);
        BpfFileSystem { dir }
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Everything that was pinned in it.
    pub fn files(&self) -> Vec<PathBuf> {
        let mut found = vec![];
        let mut unread = vec![self.path().to_owned()];
        while let Some(dir) = unread.pop() {
            for entry in dir.read_dir().expect("read a directory").flatten() {
                let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
                if is_dir { unread.push(entry.path()) } else { found.push(entry.path()) }
            }
        }
        found.retain(|path| !is_the_kernels_own(path));
        found
    }
}

/// Every BPF file system begins with two listings that the kernel puts there.
fn is_the_kernels_own(path: &Path) -> bool {
    path.ends_with("maps.debug") || path.ends_with("progs.debug")
}

impl Drop for BpfFileSystem {
    fn drop(&mut self) {
        // Only the directory below would stay; the mount ends with the thread in any case.
        let _ = umount2(self.dir.path(), MntFlags::MNT_DETACH);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_do_not_see_it_and_the_directory_goes_with_it() {
        let (mounted, path) = std::thread::spawn(|| {
            let own = BpfFileSystem::mount_for_this_thread();
            let mounts = std::fs::read_to_string("/proc/thread-self/mounts").unwrap();
            (mounts.contains(own.path().to_str().unwrap()), own.path().to_owned())
        })
        .join()
        .unwrap();
        assert!(mounted);
        assert!(!path.exists());
    }
}
