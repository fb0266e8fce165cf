//! One agent on a node at a time.
//!
//! Two would each take away what only the other one knows of. The kernel gives the lock back when
//! its holder ends, however it ends.

use std::fs::{self, File, TryLockError};
use std::path::Path;

use anyhow::{Context, Result, bail};

/// The right to be this node's agent, until it is dropped.
#[derive(Debug)]
pub(crate) struct Alone {
    _lock: File,
}

impl Alone {
    /// Takes the lock in the agent's state folder.
    pub(crate) fn on(state_dir: &Path) -> Result<Self> {
        let path = state_dir.join("lock");
        let lock = fs::create_dir_all(state_dir)
            .and_then(|()| File::create(&path))
            .with_context(|| format!("cannot make {}", path.display()))?;
        match lock.try_lock() {
            Ok(()) => Ok(Alone { _lock: lock }),
            Err(TryLockError::WouldBlock) => {
                bail!("another agent of this node holds {}; it must end first", path.display())
            }
            Err(TryLockError::Error(error)) => {
                Err(error).with_context(|| format!("cannot lock {}", path.display()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_agent_of_a_node_is_refused_until_the_first_has_ended() {
        let dir = tempfile::tempdir().unwrap();
        let first = Alone::on(&dir.path().join("agent")).unwrap();
        let refused = Alone::on(&dir.path().join("agent")).unwrap_err();
        assert!(refused.to_string().starts_with("another agent of this node"), "{refused}");
        drop(first);
        // A process that another test is about to start holds the file for a moment more.
        let again = || Alone::on(&dir.path().join("agent")).ok();
        atoll_testkit::eventually("the lock is free", again);
    }
}
