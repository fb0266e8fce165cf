//! What happens when a run is told to end: what would outlive it is taken away, and what was measured
//! before is on the page already.
//!
//! The rule: whatever of a run lives on without its process is noted here before it is made, and
//! struck off once it is gone. Processes end with the thread that started them, or with their input; only
//! one that would make anew what is taken away is noted, too.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::signal::unix::{SignalKind, signal};

/// What a shell says of a program that was interrupted.
const INTERRUPTED: i32 = 130;

/// What lives on without this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// A folder of the machine's state.
    Folder(PathBuf),
    /// A process that writes into such a folder.
    Writer(u32),
    /// A lab, by the program that takes it down and its name.
    Lab(PathBuf, String),
    /// Real nodes, by the name of their cluster.
    Nodes(&'static str),
}

/// All that is left now, the newest last.
static ALL: Mutex<Vec<Left>> = Mutex::new(vec![]);

/// Whether this program was told to end.
static ENDING: AtomicBool = AtomicBool::new(false);
/// How often a folder is removed into which somebody may still write, and how long after another.
const AGAIN: (usize, Duration) = (20, Duration::from_millis(50));

/// A note of something that lives on; it is struck off with this value.
#[derive(Debug)]
pub(crate) struct Noted(Left);

impl Noted {
    /// Notes it.
    pub(crate) fn new(left: Left) -> Self {
        lock().push(left.clone());
        Noted(left)
    }
}

/// Starts a process that writes into a folder which was noted. Nobody is told to end in between, and whoever
/// was told before starts nothing more.
pub(crate) fn start_writer(command: &mut Command) -> Result<(Child, Noted)> {
    let mut all = lock();
    while ENDING.load(Ordering::SeqCst) {
        drop(all);
        hold();
        all = lock();
    }
    let child = command.spawn()?;
    let left = Left::Writer(child.id());
    all.push(left.clone());
    Ok((child, Noted(left)))
}

impl Drop for Noted {
    fn drop(&mut self) {
        let mut all = lock();
        if let Some(place) = all.iter().rposition(|left| *left == self.0) {
            all.remove(place);
        }
    }
}

fn lock() -> MutexGuard<'static, Vec<Left>> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on, whoever interrupts this program or asks it to end leaves nothing behind.
pub(crate) fn watch() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut interrupt, mut end) = {
        let _inside = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
    };
    let waiting = move || {
        runtime.block_on(async {
            tokio::select! { _ = interrupt.recv() => {} _ = end.recv() => {} }
        });
        ENDING.store(true, Ordering::SeqCst);
        eprintln!("\ntold to end: what is left goes; what was measured stays");
        take_away();
        std::process::exit(INTERRUPTED)
    };
    let watching = std::thread::Builder::new().name("interrupts".into()).spawn(waiting);
    watching.map(drop).context("cannot watch for interrupts")
}

/// Whoever was told to end says nothing more: what fails now, fails because of that.
pub(crate) fn hold() {
    while ENDING.load(Ordering::SeqCst) {
        std::thread::park();
    }
}

/// Takes everything away, the newest first, and tells what cannot be.
fn take_away() {
    let all: Vec<Left> = lock().drain(..).rev().collect();
    for left in all {
        if let Err(error) = left.remove() {
            eprintln!("{error:#}");
        }
    }
}

fn remove(path: &Path) -> std::io::Result<()> {
    let (times, pause) = AGAIN;
    for _ in 0..times {
        match std::fs::remove_dir_all(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(_) => std::thread::sleep(pause),
            Ok(()) => return Ok(()),
        }
    }
    std::fs::remove_dir_all(path)
}

/// Ends a process, and waits until it does nothing more.
fn end(process: u32) -> Result<()> {
    let pid = Pid::from_raw(i32::try_from(process)?);
    match kill(pid, Signal::SIGKILL) {
        Ok(()) | Err(Errno::ESRCH) => {}
        Err(error) => return Err(error).context(format!("cannot end process {process}")),
    }
    let (times, pause) = AGAIN;
    for _ in 0..times {
        if has_ended(process) {
            return Ok(());
        }
        std::thread::sleep(pause);
    }
    bail!("process {process} does not end")
}

/// Whether a process is gone, or waits only to be asked how it ended.
fn has_ended(process: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"));
    status.map_or(true, |status| status.lines().any(|line| line.starts_with("State:\tZ")))
}

impl Left {
    fn remove(&self) -> Result<()> {
        match self {
            Left::Writer(process) => end(*process),
            Left::Folder(path) => {
                let removed = remove(path);
                removed.with_context(|| format!("cannot remove {}", path.display()))
            }
            Left::Lab(atoll, name) => {
                let output = Command::new(atoll).args(["lab", "down", "--name", name]).output();
                output.map(drop).with_context(|| format!("cannot take lab {name} down"))
            }
            Left::Nodes(name) => atoll_realnodes::Cluster::named(&name.parse()?).down(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_noted_as_long_as_it_is_used_and_goes_with_an_interrupt() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        std::fs::create_dir(&path).unwrap();
        let left = Left::Folder(path.clone());
        drop(Noted::new(left.clone()));
        assert!(!lock().contains(&left), "what is gone is struck off");
        let noted = Noted::new(left.clone());
        take_away();
        assert!(!path.exists());
        left.remove().unwrap();
        drop(noted);
    }

    #[test]
    fn a_process_that_writes_ends_before_the_folder_that_it_writes_into_goes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        std::fs::create_dir(&path).unwrap();
        let left = Left::Folder(path.clone());
        let made_anew = format!("while mkdir -p {}/again; do :; done", path.display());
        let (mut child, noted) = start_writer(Command::new("sh").args(["-c", &made_anew])).unwrap();
        noted.0.remove().unwrap();
        left.remove().unwrap();
        assert!(!path.exists());
        child.wait().unwrap();
        noted.0.remove().unwrap();
    }
}
