//! A node's file system: the machine's own, with a layer of the node's on top, and the places that
//! must be the node's alone.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::unistd::{chdir, pivot_root};

use crate::cgroups::{self, Hierarchy};
use crate::control_plane;
use crate::fabric::Node;
use crate::home::Home;

/// Where a node finds the Kubernetes programs.
pub(super) const KUBERNETES: &str = "/opt/kubernetes";

/// Where Debian keeps the reference CNI plugins.
pub(crate) const REFERENCE_PLUGINS: &str = "/usr/lib/cni";

/// Folders on the node's disk that are not layers over the machine's: a container's layers cannot
/// lie on top of layers, and what other programs of this machine put there is not the node's.
const ON_DISK: [&str; 6] = [
    "/var/lib/containerd",
    "/var/lib/kubelet",
    "/var/lib/cni",
    "/var/log/pods",
    "/etc/cni/net.d",
    "/opt/cni/bin",
];

/// Settings of the whole machine that kubelet wants to write, and the values it wants: it finds
/// them there already.
const MACHINE_SETTINGS: [(&str, &str); 6] = [
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/keys/root_maxbytes", "25000000"),
];

/// Makes the node's file system and moves this process into it.
pub(super) fn enter(home: &Home, node: Node) -> Result<()> {
    let hierarchies = cgroups::hierarchies()?;
    let disk = home.disk(node);
    propagate("/", MsFlags::MS_PRIVATE)?;
    let root = lay_over(&disk)?;
    ON_DISK.iter().try_for_each(|path| bind_from_disk(&disk, &root, path))?;
    bind(&control_plane::node_folder(home, node), &inside(&root, "/etc/kubernetes"))?;
    bind(&fs::canonicalize(home.binaries())?, &inside(&root, KUBERNETES))?;
    mount_system(&root, &hierarchies)?;
    pretend_machine_settings(&disk, &root)?;
    offer_reference_plugins(&root)?;
    write_names(&root, node)?;
    move_to(&root)?;
    propagate("/", MsFlags::MS_SHARED)
}

fn propagate(path: &str, how: MsFlags) -> Result<()> {
    mount(None::<&str>, path, None::<&str>, MsFlags::MS_REC | how, None::<&str>)
        .with_context(|| format!("cannot change how mounts of {path} propagate"))
}

fn inside(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

/// The machine's file system with the disk's `upper` over it.
fn lay_over(disk: &Path) -> Result<PathBuf> {
    let [upper, work, root] = ["upper", "work", "root"].map(|part| disk.join(part));
    for folder in [&upper, &work, &root] {
        fs::create_dir_all(folder)?;
    }
    let layers = format!("lowerdir=/,upperdir={},workdir={}", upper.display(), work.display());
    mount_kind("overlay", &root, &layers)?;
    Ok(root)
}

fn mount_kind(kind: &str, target: &Path, options: &str) -> Result<()> {
    fs::create_dir_all(target)?;
    mount(Some(kind), target, Some(kind), MsFlags::empty(), Some(options))
        .with_context(|| format!("cannot mount {kind} at {}", target.display()))
}

fn bind(source: &Path, target: &Path) -> Result<()> {
    let made = if source.is_dir() { fs::create_dir_all(target) } else { Ok(()) };
    made.with_context(|| format!("cannot make {}", target.display()))?;
    let recursive = MsFlags::MS_BIND | MsFlags::MS_REC;
    mount(Some(source), target, None::<&str>, recursive, None::<&str>)
        .with_context(|| format!("cannot bind {} to {}", source.display(), target.display()))
}

fn bind_from_disk(disk: &Path, root: &Path, path: &str) -> Result<()> {
    let source = disk.join(path.trim_start_matches('/').replace('/', "-"));
    fs::create_dir_all(&source)?;
    bind(&source, &inside(root, path))
}

fn mount_system(root: &Path, hierarchies: &[Hierarchy]) -> Result<()> {
    for folder in ["/run", "/tmp"] {
        mount_kind("tmpfs", &inside(root, folder), "")?;
    }
    bind(Path::new("/dev"), &inside(root, "/dev"))?;
    mount_kind("proc", &inside(root, "/proc"), "")?;
    mount_kind("sysfs", &inside(root, "/sys"), "")?;
    mount_kind("bpf", &inside(root, "/sys/fs/bpf"), "")?;
    let groups = inside(root, "/sys/fs/cgroup");
    mount_kind("tmpfs", &groups, "mode=755")?;
    cgroups::mount_all(&groups, hierarchies)
}

fn pretend_machine_settings(disk: &Path, root: &Path) -> Result<()> {
    let folder = disk.join("machine-settings");
    fs::create_dir_all(&folder)?;
    for (setting, value) in MACHINE_SETTINGS {
        let file = folder.join(setting.replace('/', "-"));
        fs::write(&file, format!("{value}\n"))?;
        bind(&file, &inside(root, "/proc/sys").join(setting))?;
    }
    Ok(())
}

/// An ordinary node has the reference plugins, and containerd calls one of them for each pod's
/// loopback. None is configured.
fn offer_reference_plugins(root: &Path) -> Result<()> {
    let folder = inside(root, "/opt/cni/bin");
    for plugin in fs::read_dir(REFERENCE_PLUGINS)? {
        let plugin = plugin?;
        let offered = folder.join(plugin.file_name());
        if !offered.is_symlink() {
            std::os::unix::fs::symlink(plugin.path(), offered)?;
        }
    }
    Ok(())
}

fn write_names(root: &Path, node: Node) -> Result<()> {
    let etc = inside(root, "/etc");
    let hosts = format!("127.0.0.1 localhost\n{} {node}\n", node.address());
    let write = |file: &str, text: String| {
        let path = etc.join(file);
        // The machine's own may be a link to a place that the node does not have.
        let _ = fs::remove_file(&path);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    write("hostname", format!("{node}\n"))?;
    write("hosts", hosts)?;
    write("resolv.conf", String::new())?;
    write("machine-id", format!("{:0>32}\n", node.address().to_bits()))
}

fn move_to(root: &Path) -> Result<()> {
    chdir(root)?;
    pivot_root(".", ".").context("cannot move into the node's file system")?;
    umount2(".", MntFlags::MNT_DETACH).context("cannot leave the machine's file system")?;
    chdir("/")?;
    Ok(())
}
