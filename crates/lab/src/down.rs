//! `atoll lab down`: removes everything of a lab, whatever state it is in.
//!
//! The rule: it goes on after every failure and reports each one, and may be repeated.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use atoll_types::Label;
use nix::mount::{MntFlags, umount2};

use crate::home::{Home, Presence, absent_is_fine};
use crate::namespace::NamespaceId;
use crate::process::{self, Process};
use crate::shim;

const SUPERVISOR_GRACE: Duration = Duration::from_secs(5);
const OTHERS_GRACE: Duration = Duration::from_secs(3);
/// Processes may start others while they end; looking once more finds those.
const ROUNDS: usize = 3;

/// Takes the lab down. A lab that does not exist is down already.
pub(crate) fn run(name: &Label) -> anyhow::Result<ExitCode> {
    let home = Home::of(name);
    if home.presence() == Presence::Absent {
        println!("There is no lab {name}.");
        return Ok(ExitCode::SUCCESS);
    }
    crate::require_root("take a lab down")?;
    let problems = take_down(&home);
    for problem in &problems {
        eprintln!("atoll: {problem}");
    }
    if problems.is_empty() {
        println!("Lab {name} is down.");
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("atoll: run `atoll lab down{}` again to go on", home.name_option());
    Ok(ExitCode::FAILURE)
}

/// Removes processes, mounts, namespaces and files; what could not be removed, in sentences.
pub(crate) fn take_down(home: &Home) -> Vec<String> {
    let mut problems = end_supervisor(home);
    problems.extend(end_processes(home));
    problems.extend(unmount(home.path()));
    problems.extend(remove_files(home));
    problems
}

/// First, so that it starts nothing again.
fn end_supervisor(home: &Home) -> Vec<String> {
    let supervisor = Process::read(&home.supervisor_record());
    still_running(process::end(supervisor.as_slice(), SUPERVISOR_GRACE))
}

fn end_processes(home: &Home) -> Vec<String> {
    let mut left = Vec::new();
    for _ in 0..ROUNDS {
        let found = processes_of(home);
        if found.is_empty() {
            return Vec::new();
        }
        left = process::end(&found, OTHERS_GRACE);
    }
    still_running(left)
}

/// The agents that were written down, and everyone who lives in one of the lab's namespaces.
fn processes_of(home: &Home) -> Vec<Process> {
    let records = home.node_names().into_iter().map(|node| home.node(&node).agent_record());
    let agents = records.filter_map(|record| Process::read(&record)).filter(Process::is_alive);
    let found: HashSet<_> = agents.chain(process::inside(&namespaces(home))).collect();
    found.into_iter().collect()
}

/// Never this process's own: a file that lost its mount must not make us end the machine.
fn namespaces(home: &Home) -> Vec<NamespaceId> {
    let own = NamespaceId::of(Path::new("/proc/self/ns/net")).ok();
    let files = fs::read_dir(home.namespaces()).into_iter().flatten().flatten();
    let ids = files.filter_map(|file| NamespaceId::of(&file.path()).ok());
    ids.filter(|id| Some(*id) != own).collect()
}

fn still_running(processes: Vec<Process>) -> Vec<String> {
    let sentence = |process: Process| format!("process {} does not end", process.pid());
    processes.into_iter().map(sentence).collect()
}

fn unmount(directory: &Path) -> Vec<String> {
    let table = match fs::read_to_string("/proc/self/mountinfo") {
        Ok(table) => table,
        Err(error) => return vec![format!("cannot list the mounts: {error}")],
    };
    let points = shim::mounted_below(&table, directory);
    let failed = points.into_iter().filter_map(|point| {
        let error = umount2(&point, MntFlags::MNT_DETACH).err()?;
        Some(format!("cannot unmount {}: {error}", point.display()))
    });
    failed.collect()
}

/// Also the directories above, once no other lab needs them.
fn remove_files(home: &Home) -> Option<String> {
    let removed = absent_is_fine(fs::remove_dir_all(home.path()));
    for parent in home.path().ancestors().skip(1).take(2) {
        if fs::remove_dir(parent).is_err() {
            break;
        }
    }
    let sentence = |error: io::Error| format!("cannot remove {}: {error}", home.path().display());
    removed.err().map(sentence)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;
    use crate::args::Underlay;
    use crate::fabric::{self, NodeAddresses};
    use crate::namespace;

    /// A home with a fabric, one node, and a process in it that does not want to end.
    fn half_a_lab(root: &Path) -> (Home, std::process::Child) {
        let home = Home::below(&root.join("atoll/lab"), &"half".parse().unwrap());
        home.create().unwrap();
        fabric::create(&home).expect("this test needs root");
        let node = home.node("node1");
        node.create().unwrap();
        fabric::plug(&home, &node, NodeAddresses::of(1, Underlay::Ipv4)).unwrap();
        let stubborn = namespace::within(&node.namespace, || {
            let script = "trap '' TERM; echo on; while :; do sleep 0.1; done";
            let mut child =
                Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn()?;
            let mut line = String::new();
            let stdout = child.stdout.take().unwrap();
            io::BufRead::read_line(&mut io::BufReader::new(stdout), &mut line)?;
            Ok(child)
        });
        (home, stubborn.unwrap())
    }

    fn mounts_below(path: &Path) -> usize {
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        shim::mounted_below(&table, path).len()
    }

    #[test]
    fn half_a_lab_without_a_supervisor_is_removed_whole_and_twice() {
        let root = tempfile::tempdir().unwrap();
        let (home, mut stubborn) = half_a_lab(root.path());
        assert_eq!(mounts_below(home.path()), 2);
        assert_eq!(take_down(&home), [] as [String; 0]);
        assert!(stubborn.try_wait().unwrap().is_some(), "the process in the node has ended");
        assert_eq!(mounts_below(root.path()), 0);
        assert!(!root.path().join("atoll").exists());
        assert_eq!(take_down(&home), [] as [String; 0], "and again");
    }

    #[test]
    fn a_process_whose_number_was_given_out_again_is_left_alone() {
        let root = tempfile::tempdir().unwrap();
        let home = Home::below(root.path(), &"old".parse().unwrap());
        home.create().unwrap();
        let record = format!("{{\"pid\":{},\"began\":1}}", std::process::id());
        fs::write(home.supervisor_record(), record).unwrap();
        assert_eq!(take_down(&home), [] as [String; 0]);
    }

    #[test]
    fn the_machines_own_namespace_is_never_taken_for_the_labs() {
        let root = tempfile::tempdir().unwrap();
        let home = Home::below(root.path(), &"odd".parse().unwrap());
        home.create().unwrap();
        std::os::unix::fs::symlink("/proc/self/ns/net", home.namespace("odd")).unwrap();
        assert_eq!(namespaces(&home), []);
    }
}
