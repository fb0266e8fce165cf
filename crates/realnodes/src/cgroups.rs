//! Control groups: each node gets a group of its own in every hierarchy, below the caller's, and
//! sees nothing above it. Without that, several kubelets would remove each other's pods.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::mount::{MsFlags, mount};

use crate::fabric::Node;
use crate::home::Home;
use crate::patience::wait_until;

/// How long the kernel may take to let go of a group whose processes have ended.
const RELEASE: Duration = Duration::from_secs(30);

/// What a node weighs among the processes of its machine, of which one weighs 1024.
const SHARES_OF_A_NODE: usize = 2048;

/// What the group of a cluster is called in every hierarchy.
pub(crate) fn name(home: &Home) -> String {
    format!("atoll-real-{}", home.name())
}

/// One mounted hierarchy of control groups (version 1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hierarchy {
    /// Where it is mounted.
    mount_point: PathBuf,
    /// How to mount it again: its controllers, or its name.
    options: String,
    /// The caller's group.
    own_group: PathBuf,
}

impl Hierarchy {
    fn group_of_cluster(&self, home: &Home) -> PathBuf {
        self.own_group.join(name(home))
    }

    fn mount_below(&self, folder: &Path) -> Result<()> {
        let name = self.mount_point.file_name().context("a hierarchy is mounted at /")?;
        let target = folder.join(name);
        fs::create_dir_all(&target)?;
        let options = Some(self.options.as_str());
        mount(Some("cgroup"), &target, Some("cgroup"), MsFlags::empty(), options)
            .with_context(|| format!("cannot mount control groups {} again", self.options))
    }
}

/// The hierarchies of this machine, and the caller's group in each.
pub(crate) fn hierarchies() -> Result<Vec<Hierarchy>> {
    let found = parse(
        &fs::read_to_string("/proc/self/mountinfo")?,
        &fs::read_to_string("/proc/self/cgroup")?,
    );
    ensure!(
        found.iter().any(|hierarchy| hierarchy.options.split(',').any(|name| name == "memory")),
        "this machine has no control groups of version 1, and nodes of version 2 are not made yet: \
         boot with systemd.unified_cgroup_hierarchy=0"
    );
    Ok(found)
}

fn parse(mountinfo: &str, cgroup: &str) -> Vec<Hierarchy> {
    mountinfo.lines().filter_map(|line| hierarchy(line, cgroup)).collect()
}

/// The hierarchy that a line of mountinfo tells of, if it is of version 1.
fn hierarchy(line: &str, cgroup: &str) -> Option<Hierarchy> {
    let (mount, source) = line.split_once(" - ")?;
    let mut source = source.split(' ');
    let (kind, options) = (source.next()?, source.nth(1)?);
    let mount_point = PathBuf::from(mount.split(' ').nth(4)?);
    let options = remount_options(options);
    let own_group = joined(&mount_point, own_path(cgroup, &options)?);
    (kind == "cgroup").then_some(Hierarchy { mount_point, options, own_group })
}

/// What names a hierarchy: its controllers, or its name where it has none.
fn remount_options(super_options: &str) -> String {
    let plain = ["rw", "ro", "xattr", "clone_children", "noprefix"];
    let naming = super_options
        .split(',')
        .filter(|option| !plain.contains(option) && !option.starts_with("release_agent="));
    let naming: Vec<_> = naming.collect();
    let unbound = naming.iter().all(|option| option.starts_with("name="));
    if unbound { format!("none,{}", naming.join(",")) } else { naming.join(",") }
}

/// The caller's group, from the lines of `/proc/self/cgroup` (number:controllers:path).
fn own_path<'a>(cgroup: &'a str, options: &str) -> Option<&'a str> {
    let options = options.strip_prefix("none,").unwrap_or(options);
    cgroup.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        (controllers == options).then_some(path)
    })
}

fn joined(mount_point: &Path, group: &str) -> PathBuf {
    mount_point.join(group.trim_start_matches('/'))
}

/// Makes the groups of a cluster and of its nodes; what is made is written down first.
pub(crate) fn create(home: &Home, nodes: &[Node]) -> Result<()> {
    let hierarchies = hierarchies()?;
    let groups: Vec<_> = hierarchies.iter().map(|found| found.group_of_cluster(home)).collect();
    let list: Vec<_> = groups.iter().map(|group| group.to_string_lossy()).collect();
    fs::write(home.cgroups(), list.join("\n"))?;
    for group in groups {
        make_group(&group)?;
        weigh(&group, nodes.len())?;
        nodes.iter().try_for_each(|node| make_group(&group.join(node.to_string())))?;
    }
    Ok(())
}

/// Gives a cluster its part of a busy machine. A group weighs as much as one process beside it, and
/// a cluster has some hundred: it would stand still while others build.
fn weigh(group: &Path, nodes: usize) -> Result<()> {
    let file = group.join("cpu.shares");
    if file.exists() {
        fs::write(&file, (SHARES_OF_A_NODE * nodes).to_string())
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

fn make_group(group: &Path) -> Result<()> {
    let cannot = || format!("cannot make the control group {}", group.display());
    match fs::create_dir(group) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(error).with_context(cannot);
        }
        _ => {}
    }
    inherit_cpuset(group).with_context(cannot)
}

/// A cpuset begins empty, and nothing can run in an empty one.
fn inherit_cpuset(group: &Path) -> io::Result<()> {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let own = group.join(file);
        if own.exists() && fs::read_to_string(&own)?.trim().is_empty() {
            let parent = group.parent().unwrap_or(group).join(file);
            fs::write(&own, fs::read_to_string(parent)?.trim())?;
        }
    }
    Ok(())
}

/// Moves this process into the groups of `node`.
pub(crate) fn join(home: &Home, node: Node) -> Result<()> {
    for group in recorded(home)? {
        let members = group.join(node.to_string()).join("cgroup.procs");
        fs::write(&members, "0")
            .with_context(|| format!("cannot enter the control group {}", members.display()))?;
    }
    Ok(())
}

/// Mounts every hierarchy below `folder`. In a control group namespace its root is the node's
/// own group.
pub(crate) fn mount_all(folder: &Path, hierarchies: &[Hierarchy]) -> Result<()> {
    hierarchies.iter().try_for_each(|hierarchy| hierarchy.mount_below(folder))
}

/// Removes every group of the cluster.
pub(crate) fn remove(home: &Home) -> Result<()> {
    for group in recorded(home)? {
        wait_until(&format!("the end of the control group {}", group.display()), RELEASE, || {
            remove_tree(&group)?;
            Ok(true)
        })?;
    }
    Ok(())
}

fn recorded(home: &Home) -> Result<Vec<PathBuf>> {
    match fs::read_to_string(home.cgroups()) {
        Ok(list) => Ok(list.lines().map(PathBuf::from).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error).context("cannot read the list of control groups"),
    }
}

/// Groups are removed from the leaves up; their files go with them.
fn remove_tree(group: &Path) -> io::Result<()> {
    if !group.exists() {
        return Ok(());
    }
    for entry in fs::read_dir(group)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    fs::remove_dir(group)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTINFO: &str = "\
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,release_agent=/x,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw";
    const CGROUP: &str = "9:name=systemd:/\n4:memory:/session/1\n1:cpu,cpuacct:/\n0::/";

    #[test]
    fn each_hierarchy_is_found_with_the_callers_group_and_how_to_mount_it_again() {
        let found = parse(MOUNTINFO, CGROUP);
        let told: Vec<_> = found
            .iter()
            .map(|found| (found.options.as_str(), found.own_group.to_str().unwrap()))
            .collect();
        assert_eq!(
            told,
            [
                ("cpu,cpuacct", "/sys/fs/cgroup/cpu,cpuacct/"),
                ("memory", "/sys/fs/cgroup/memory/session/1"),
                ("none,name=systemd", "/sys/fs/cgroup/systemd/"),
            ]
        );
    }

    #[test]
    fn a_cluster_weighs_more_than_one_process_where_processes_are_weighed() {
        let folder = tempfile::tempdir().unwrap();
        weigh(folder.path(), 3).unwrap();
        assert!(!folder.path().join("cpu.shares").exists(), "this hierarchy weighs nothing");
        fs::write(folder.path().join("cpu.shares"), "1024").unwrap();
        weigh(folder.path(), 3).unwrap();
        let weight = fs::read_to_string(folder.path().join("cpu.shares")).unwrap();
        assert_eq!(weight, (3 * SHARES_OF_A_NODE).to_string());
    }

    #[test]
    fn a_tree_of_groups_is_removed_from_the_leaves_up() {
        let folder = tempfile::tempdir().unwrap();
        let group = folder.path().join("group");
        fs::create_dir_all(group.join("a/b")).unwrap();
        fs::create_dir_all(group.join("c")).unwrap();
        remove_tree(&group).unwrap();
        remove_tree(&group).unwrap();
        assert!(!group.exists());
    }
}
