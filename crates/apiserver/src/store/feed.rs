//! The recent changes of one collection, which is also what watchers read: a watcher remembers
//! the revision it has seen and takes what is newer. Who falls behind the oldest kept change is
//! told so and must list again; nobody can make a writer wait.

use super::Stored;
use crate::failure::Failure;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// Changes kept for watchers that come late or read slowly.
const KEPT: usize = 4096;

/// One committed change. A deletion carries the object as it was last, at the deletion's revision.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) before: Option<Arc<Stored>>,
    pub(crate) object: Arc<Stored>,
    pub(crate) deleted: bool,
}

impl Change {
    pub(crate) fn revision(&self) -> u64 {
        self.object.revision
    }

    pub(crate) fn is_deletion(&self) -> bool {
        self.deleted
    }

    /// The object after the change.
    pub(crate) fn after(&self) -> Option<&Arc<Stored>> {
        (!self.deleted).then_some(&self.object)
    }
}

/// The changes of one collection, newest last.
#[derive(Debug)]
pub(crate) struct Feed {
    recent: Mutex<Recent>,
    newest: watch::Sender<u64>,
}

#[derive(Debug)]
struct Recent {
    /// Everything after this revision is in `changes`.
    complete_after: u64,
    changes: VecDeque<Arc<Change>>,
}

impl Feed {
    /// A feed that knows nothing before `revision`.
    pub(super) fn new(revision: u64) -> Feed {
        let recent = Recent { complete_after: revision, changes: VecDeque::new() };
        Feed { recent: Mutex::new(recent), newest: watch::Sender::new(revision) }
    }

    fn recent(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds committed changes, in order, and wakes the watchers once.
    pub(super) fn publish(&self, changes: impl Iterator<Item = Arc<Change>>) {
        let mut recent = self.recent();
        recent.changes.extend(changes);
        while recent.changes.len() > KEPT {
            if let Some(dropped) = recent.changes.pop_front() {
                recent.complete_after = dropped.revision();
            }
        }
        let newest = recent.changes.back().map_or(0, |change| change.revision());
        drop(recent);
        self.newest.send_replace(newest);
    }

    /// Wakes when something newer is published.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    /// All changes after `revision`, or `Expired` when some of them are no longer kept.
    pub(crate) fn since(&self, revision: u64) -> Result<Vec<Arc<Change>>, Failure> {
        let recent = self.recent();
        if revision < recent.complete_after {
            return Err(Failure::expired(format!(
                "too old resource version: {revision} ({})",
                recent.complete_after
            )));
        }
        let start = recent.changes.partition_point(|change| change.revision() <= revision);
        Ok(recent.changes.range(start..).cloned().collect())
    }
}
