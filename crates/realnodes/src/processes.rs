//! The processes of a cluster, found by the network namespace they are in.
//!
//! Nothing is written down: what runs in one of the cluster's namespaces belongs to it, also after
//! a crash of whoever started it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, ensure};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::namespace::NamespaceId;
use crate::patience::wait_until;

/// How long the kernel may take to end a process that was killed.
const END: Duration = Duration::from_secs(30);

/// The living processes whose network namespace is kept at one of `paths`.
pub(crate) fn inside(paths: &[PathBuf]) -> Vec<i32> {
    let ids: Vec<_> = paths.iter().filter_map(|path| NamespaceId::of(path).ok()).collect();
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| namespace_of(*pid).is_some_and(|id| ids.contains(&id))).collect()
}

/// A process that has ended, but was not collected by its parent, has no namespace any more.
fn namespace_of(pid: i32) -> Option<NamespaceId> {
    NamespaceId::of(Path::new(&format!("/proc/{pid}/ns/net"))).ok()
}

/// The first process of the node whose namespace is kept at `path`.
pub(crate) fn init_of(path: &Path) -> Option<i32> {
    inside(&[path.to_owned()]).into_iter().find(|pid| {
        let status = fs::read_to_string(format!("/proc/{pid}/status"));
        status.is_ok_and(|status| is_init_of_a_node(&status))
    })
}

/// Whether a process is number 1 of a PID namespace right below ours. (A pod's is one deeper.)
fn is_init_of_a_node(status: &str) -> bool {
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let numbers: Vec<_> = numbers.unwrap_or_default().split_ascii_whitespace().collect();
    numbers.len() == 2 && numbers[1] == "1"
}

/// Kills every process in the namespaces kept at `paths`, and waits until they are gone. With a
/// node's first process everything goes that runs on the node.
pub(crate) fn end_inside(paths: &[PathBuf]) -> Result<()> {
    let _ = wait_until("the end of the cluster's processes", END, || {
        let left = inside(paths);
        left.iter().try_for_each(|pid| end(*pid))?;
        Ok(left.is_empty())
    });
    let left = inside(paths);
    ensure!(left.is_empty(), "these processes do not end: {left:?}");
    Ok(())
}

/// Kills the processes of one program in the namespace kept at `path`, and waits until they are
/// gone.
pub(crate) fn end_named(path: &Path, program: &str) -> Result<()> {
    let running = || {
        let all = inside(&[path.to_owned()]).into_iter();
        all.filter(|pid| name_of(*pid).is_some_and(|name| is_called(program, &name)))
            .collect::<Vec<_>>()
    };
    ensure!(!running().is_empty(), "{program} is not running");
    wait_until(&format!("the end of {program}"), END, || {
        running().iter().try_for_each(|pid| end(*pid))?;
        Ok(running().is_empty())
    })
}

/// The kernel keeps the first 15 letters of a program's name.
fn is_called(program: &str, kept: &str) -> bool {
    program.get(..15).unwrap_or(program) == kept
}

fn name_of(pid: i32) -> Option<String> {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim_end().to_owned())
}

fn end(pid: i32) -> Result<()> {
    match kill(Pid::from_raw(pid), Signal::SIGKILL) {
        Ok(()) | Err(Errno::ESRCH) => Ok(()),
        Err(error) => Err(anyhow::anyhow!("cannot kill process {pid}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::namespace;

    #[test]
    fn the_first_process_of_a_node_is_told_from_a_pods_and_from_the_hosts() {
        assert!(is_init_of_a_node("Name:\trealnodes\nNSpid:\t4711\t1\n"));
        for other in ["NSpid:\t4711\n", "NSpid:\t4711\t17\n", "NSpid:\t4711\t30\t1\n", ""] {
            assert!(!is_init_of_a_node(other), "{other:?}");
        }
    }

    #[test]
    fn a_program_with_a_long_name_is_known_by_what_the_kernel_keeps_of_it() {
        assert!(is_called("etcd", "etcd"));
        assert!(is_called("kube-controller-manager", "kube-controller"));
        assert!(!is_called("kube-controller-manager", "kube-scheduler"));
        assert!(!is_called("etcd", "etcdctl"));
    }

    #[test]
    fn of_the_processes_in_a_namespace_one_program_is_ended() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ns");
        namespace::create(&path).expect("this test needs root");
        let start = |program: &str| {
            let mut command = Command::new(program);
            namespace::within(&path, move || Ok(command.arg("60").spawn()?)).unwrap()
        };
        let mut wanted = start("sleep");
        let mut other = Command::new("sleep").arg("60").spawn().unwrap();
        let missing = end_named(&path, "etcd").unwrap_err();
        let ended = end_named(&path, "sleep");
        wanted.wait().unwrap();
        let lives = other.try_wait().unwrap().is_none();
        other.kill().unwrap();
        other.wait().unwrap();
        namespace::remove(&path).unwrap();
        ended.unwrap();
        assert!(lives);
        assert_eq!(missing.to_string(), "etcd is not running");
    }

    #[test]
    fn processes_are_found_and_ended_by_their_namespace() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ns");
        namespace::create(&path).expect("this test needs root");
        let spawned = namespace::within(&path, || Ok(Command::new("sleep").arg("60").spawn()?));
        let mut child = spawned.unwrap();
        let paths = [path.clone()];
        let found = inside(&paths);
        let ended = end_inside(&paths);
        namespace::remove(&path).unwrap();
        child.wait().unwrap();
        assert_eq!(found, [child.id() as i32]);
        ended.unwrap();
    }
}
