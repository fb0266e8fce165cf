//! What a cluster has left on the machine. It looks everywhere, not only where the cluster wrote
//! down that it made something.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cgroups;
use crate::home::Home;

/// A line for each thing that is still there.
pub(crate) fn of(home: &Home) -> Vec<String> {
    let mut found = mounts(home);
    found.extend(processes(home));
    found.extend(groups(Path::new("/sys/fs/cgroup"), &cgroups::name(home)));
    if home.exists() {
        found.push(format!("folder {}", home.folder().display()));
    }
    found
}

fn mounts(home: &Home) -> Vec<String> {
    let folder = home.folder().to_string_lossy().into_owned();
    let mounted = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let points = mounted.lines().filter_map(|line| line.split(' ').nth(4));
    points
        .filter(|point| Path::new(point).starts_with(&folder))
        .map(|point| format!("mount {point}"))
        .collect()
}

/// Processes that were told the cluster's folder, or are in its groups.
fn processes(home: &Home) -> Vec<String> {
    let marks = [format!("{}/", home.folder().display()), format!("/{}/", cgroups::name(home))];
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| is_marked(*pid, &marks)).map(|pid| format!("process {pid}")).collect()
}

fn is_marked(pid: i32, marks: &[String]) -> bool {
    ["cmdline", "cgroup"].iter().any(|file| {
        let bytes = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        marks.iter().any(|mark| text.contains(mark))
    })
}

fn groups(folder: &Path, name: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let below = |path: PathBuf| match path.file_name().is_some_and(|found| found == name) {
        true => vec![format!("control group {}", path.display())],
        false => groups(&path, name),
    };
    folders.flat_map(|entry| below(entry.path())).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_cluster_that_never_was_has_left_nothing() {
        let home = Home::of(&"never-was".parse().unwrap());
        assert_eq!(of(&home), Vec::<String>::new());
    }

    #[test]
    fn a_process_that_was_told_the_clusters_folder_is_found() {
        let home = Home::of(&"found-by-its-words".parse().unwrap());
        // Words of the shell alone: a child that is about to be another program has its words too.
        let script = format!("echo here; read _; : {}/", home.folder().display());
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = shell.spawn().unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0; 5]).unwrap();
        let found = of(&home);
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(found, [format!("process {}", child.id())]);
    }

    #[test]
    fn groups_are_found_at_any_depth() {
        let folder = tempfile::tempdir().unwrap();
        let group = folder.path().join("memory/session/atoll-real-x");
        fs::create_dir_all(group.join("node1")).unwrap();
        let found = groups(folder.path(), "atoll-real-x");
        assert_eq!(found, [format!("control group {}", group.display())]);
    }
}
