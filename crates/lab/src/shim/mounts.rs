//! What a container sees of the file system: the machine's own, with the pod's `/etc` files, its
//! own `/proc` and `/sys`, and without the lab's home.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use super::launch::{Launch, Overlay};

const NOTHING: Option<&str> = None;

/// Arranges the mounts of the mount namespace that this process has just made for itself.
pub(super) fn arrange(launch: &Launch) -> anyhow::Result<()> {
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(NOTHING, "/", NOTHING, private, NOTHING).context("cannot make the mounts private")?;
    launch.files.iter().try_for_each(overlay)?;
    hide(&launch.hidden)?;
    mount_kernel_view("proc", "/proc")?;
    mount_kernel_view("sysfs", "/sys")
}

/// A view of the kernel that shows this process's own namespaces. Busy means that the very same
/// view is there already.
fn mount_kernel_view(kind: &str, target: &str) -> anyhow::Result<()> {
    let inert = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    match mount(Some(kind), target, Some(kind), inert, NOTHING) {
        Ok(()) | Err(nix::Error::EBUSY) => Ok(()),
        Err(error) => Err(error).with_context(|| format!("cannot mount {target}")),
    }
}

/// A machine without the file has no use for the pod's version of it.
fn overlay(file: &Overlay) -> anyhow::Result<()> {
    if !file.target.exists() {
        return Ok(());
    }
    mount(Some(&file.source), &file.target, NOTHING, MsFlags::MS_BIND, NOTHING)
        .with_context(|| format!("cannot put the pod's file over {}", file.target.display()))
}

/// Puts an empty directory over `directory`, after letting go of everything mounted below it and of
/// every namespace and BPF file system there is: the container must keep none of them alive.
fn hide(directory: &Path) -> anyhow::Result<()> {
    let table = fs::read_to_string("/proc/self/mountinfo").context("cannot list the mounts")?;
    let below = mounted_below(&table, directory);
    let kept = mounted_kinds(&table, &["nsfs", "bpf"]);
    for point in below.iter().chain(kept.iter().filter(|point| !below.contains(point))) {
        match umount2(point, MntFlags::MNT_DETACH) {
            // Whoever took the file away took the mount with it.
            Ok(()) | Err(Errno::ENOENT | Errno::EINVAL) => {}
            Err(error) => anyhow::bail!("cannot let go of {}: {error}", point.display()),
        }
    }
    mount(Some("tmpfs"), directory, Some("tmpfs"), MsFlags::MS_RDONLY, NOTHING)
        .with_context(|| format!("cannot hide {}", directory.display()))
}

/// The mount points below `directory`, innermost first.
pub(crate) fn mounted_below(table: &str, directory: &Path) -> Vec<PathBuf> {
    let all = entries(table);
    all.filter(|(point, _)| point.starts_with(directory)).map(|(point, _)| point).collect()
}

/// The mount points of file systems of these kinds, innermost first.
fn mounted_kinds(table: &str, kinds: &[&str]) -> Vec<PathBuf> {
    entries(table).filter(|(_, kind)| kinds.contains(kind)).map(|(point, _)| point).collect()
}

/// Mount points with the kind of what is mounted. The table has the newest last.
fn entries(table: &str) -> impl Iterator<Item = (PathBuf, &str)> {
    table.lines().rev().filter_map(|line| {
        let (place, what) = line.split_once(" - ")?;
        Some((unescape(place.split(' ').nth(4)?), what.split(' ').next()?))
    })
}

/// The kernel writes blanks and backslashes of a path as octal numbers.
fn unescape(text: &str) -> PathBuf {
    let escapes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    let plain = escapes.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to));
    PathBuf::from(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_below_are_found_innermost_first_and_neighbours_are_not() {
        let table = "22 1 8:1 / / rw - ext4 /dev/sda rw\n\
                     30 22 0:4 net:[1] /run/atoll/lab/a/netns/x rw - nsfs nsfs rw\n\
                     31 22 0:9 / /run/atoll/lab/a/bpf rw - bpf bpf rw\n\
                     32 22 0:9 / /run/atoll/lab/ab/bpf rw - bpf bpf rw\n";
        let found = mounted_below(table, Path::new("/run/atoll/lab/a"));
        let expected = ["/run/atoll/lab/a/bpf", "/run/atoll/lab/a/netns/x"];
        assert_eq!(found, expected.map(PathBuf::from));
    }

    #[test]
    fn namespaces_and_bpf_file_systems_are_found_wherever_they_are() {
        let table = "30 22 0:4 net:[1] /run/netns/x rw shared:3 - nsfs nsfs rw\n\
                     31 22 0:5 / /data rw - ext4 /dev/sdb rw\n\
                     32 22 0:9 / /sys/fs/bpf rw - bpf bpf rw\n";
        let found = mounted_kinds(table, &["nsfs", "bpf"]);
        assert_eq!(found, ["/sys/fs/bpf", "/run/netns/x"].map(PathBuf::from));
    }

    #[test]
    fn a_blank_in_a_mount_point_is_read_back() {
        let found = mounted_below("1 1 0:1 / /a\\040b/c rw - tmpfs x rw", Path::new("/a b"));
        assert_eq!(found, [PathBuf::from("/a b/c")]);
    }
}
