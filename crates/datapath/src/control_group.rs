//! The control group that the programs of a node's processes are attached to: the topmost one that can be
//! seen from here, by version 2 of groups, in which every process of the node is.
//!
//! The rule: nothing is mounted at any place for it. Where nobody has mounted the groups, they are
//! mounted at none, for as long as the descriptor lives.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::ptr;

use nix::errno::Errno;

use crate::error::{Attempt, DatapathError};

/// Of the thread, whose mounts need not be those of its process.
const MOUNTS: &str = "/proc/thread-self/mountinfo";

const FSOPEN_CLOEXEC: libc::c_uint = 1;
const FSMOUNT_CLOEXEC: libc::c_uint = 1;
const FSCONFIG_CMD_CREATE: libc::c_uint = 6;

/// Opens the group.
pub(crate) fn topmost() -> Result<File, DatapathError> {
    let mounts = fs::read_to_string(MOUNTS).attempt(|| format!("read {MOUNTS}"))?;
    let Some(folder) = highest(&mounts) else {
        return mounted_nowhere().attempt(|| {
            "mount control groups of version 2, of which none are to be seen here: let the agent \
             see the node's /sys/fs/cgroup"
                .into()
        });
    };
    File::open(&folder).attempt(|| format!("open the control group {}", folder.display()))
}

/// Where the highest group of all that are mounted is.
fn highest(mountinfo: &str) -> Option<PathBuf> {
    let mounted = mountinfo.lines().filter_map(mounted_groups);
    mounted.max_by_key(|(height, _)| *height).map(|(_, folder)| folder)
}

/// How far above the reader's own root of groups a mount of them begins, and where it is; none where the
/// line tells of another file system, or of a part of the groups that others are not in.
fn mounted_groups(line: &str) -> Option<(usize, PathBuf)> {
    let (mount, source) = line.split_once(" - ")?;
    if source.split(' ').next()? != "cgroup2" {
        return None;
    }
    let mut fields = mount.split(' ').skip(3);
    let (root, folder) = (fields.next()?, fields.next()?);
    let steps: Vec<_> = root.split('/').filter(|step| !step.is_empty()).collect();
    let is_above = steps.iter().all(|step| *step == "..");
    is_above.then(|| (steps.len(), PathBuf::from(folder)))
}

/// The groups' own root, mounted at no place.
#[allow(unsafe_code, reason = "a mount without a place is made by calls that no library has")]
fn mounted_nowhere() -> io::Result<File> {
    // SAFETY: the name is a string that ends with a zero, and lives on.
    let context =
        owned(unsafe { libc::syscall(libc::SYS_fsopen, c"cgroup2".as_ptr(), FSOPEN_CLOEXEC) })?;
    let nothing = ptr::null::<libc::c_char>();
    // SAFETY: the descriptor is open, and this command reads no pointers.
    Errno::result(unsafe {
        let context = context.as_raw_fd();
        libc::syscall(libc::SYS_fsconfig, context, FSCONFIG_CMD_CREATE, nothing, nothing, 0)
    })?;
    // SAFETY: the descriptor is open, and the rest are numbers.
    let mount = owned(unsafe {
        libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), FSMOUNT_CLOEXEC, 0)
    })?;
    Ok(File::from(mount))
}

/// A descriptor that the kernel has just given, or its error.
#[allow(unsafe_code, reason = "nobody else knows the descriptor")]
fn owned(answer: libc::c_long) -> io::Result<OwnedFd> {
    let descriptor = i32::try_from(Errno::result(answer)?).map_err(io::Error::other)?;
    // SAFETY: the kernel gave it to this call alone.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const LEGACY: &str = "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu";

    fn found(lines: &[&str]) -> Option<PathBuf> {
        highest(&lines.join("\n"))
    }

    #[test]
    fn the_groups_of_a_machine_are_found_beside_those_of_version_1() {
        let unified = "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 none rw";
        assert_eq!(found(&[LEGACY, unified]).unwrap(), Path::new("/sys/fs/cgroup/unified"));
        assert_eq!(found(&[LEGACY]), None);
    }

    #[test]
    fn of_a_containers_own_groups_and_the_nodes_the_nodes_are_taken() {
        let own = "50 40 0:27 / /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw,nsdelegate";
        let nodes = "51 40 0:27 /../../.. /host/sys/fs/cgroup ro - cgroup2 cgroup2 rw,nsdelegate";
        for lines in [[own, nodes], [nodes, own]] {
            assert_eq!(found(&lines).unwrap(), Path::new("/host/sys/fs/cgroup"));
        }
    }

    #[test]
    fn a_part_of_the_groups_is_not_taken_for_the_whole() {
        let part = "50 40 0:27 /kubepods/pod1 /sys/fs/cgroup ro - cgroup2 cgroup rw";
        let other = "50 40 0:27 /../pod2 /mnt ro - cgroup2 cgroup rw";
        let whole = "51 40 0:27 / /host/sys/fs/cgroup ro - cgroup2 cgroup2 rw";
        assert_eq!(found(&[part, other, whole]).unwrap(), Path::new("/host/sys/fs/cgroup"));
        assert_eq!(found(&[part, other]), None);
    }

    /// Where groups are mounted now.
    fn places() -> Vec<(usize, PathBuf)> {
        fs::read_to_string(MOUNTS).unwrap().lines().filter_map(mounted_groups).collect()
    }

    #[test]
    fn where_nobody_mounted_the_groups_their_root_is_there_and_at_no_place() {
        let before = places();
        let root = mounted_nowhere().unwrap();
        let members = format!("/proc/self/fd/{}/cgroup.procs", root.as_raw_fd());
        assert!(Path::new(&members).exists());
        assert_eq!(places(), before);
    }
}
