//! The objects: in memory for reading, in redb for keeping, with one global resource version.
//!
//! Rule: a change is seen by readers and watchers only after it is on disk, so nothing that was
//! answered or watched can be lost by a crash. All writes pass one thread that runs the waiting
//! transactions one after the other and commits them together: a transaction never meets a
//! conflict it did not ask for, and many writers share one disk flush.

mod disk;
mod feed;
mod state;
mod transaction;
mod writer;

pub use disk::StoreError;
pub(crate) use feed::{Change, Feed};
pub(crate) use state::State;
pub(crate) use transaction::Transaction;

use crate::failure::Failure;
use bytes::Bytes;
use serde_json::Value;
use std::path::Path;
use std::sync::{Arc, RwLock, RwLockReadGuard};
use writer::Writer;

/// A resource as the store knows it: `pods`, `networks.atoll.dev`.
pub(crate) type Collection = Arc<str>;

/// Where an object is kept. The namespace is empty for cluster-wide objects.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) collection: Collection,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Key {
    pub(crate) fn new(collection: &str, namespace: &str, name: &str) -> Key {
        Key { collection: collection.into(), namespace: namespace.into(), name: name.into() }
    }
}

/// One kept object, in its storage version, with the JSON it is served as.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) key: Key,
    pub(crate) revision: u64,
    pub(crate) value: Value,
    pub(crate) json: Bytes,
}

/// What is told about committed changes before their writers get an answer.
pub(crate) type Observer = Box<dyn Fn(&[Arc<Change>]) + Send>;

/// The store; clones share it.
#[derive(Clone)]
pub(crate) struct Store {
    state: Arc<RwLock<State>>,
    writer: Writer,
}

impl Store {
    /// Opens or makes the file and reads every object into memory.
    pub(crate) fn open(path: &Path) -> Result<Store, StoreError> {
        let disk = disk::Disk::open(path)?;
        let state = Arc::new(RwLock::new(State::from_disk(&disk)?));
        let writer = Writer::start(disk, Arc::clone(&state));
        Ok(Store { state, writer })
    }

    /// A view of what is committed. Hold it briefly: writers wait for it.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Runs `job` against the newest state and answers when its changes are on disk.
    /// When `job` fails, nothing of it is kept.
    pub(crate) async fn transact<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Transaction<'_>) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        self.writer.submit(job)?.await.unwrap_or_else(|_| Err(Failure::shutting_down()))
    }

    /// The same for callers outside the async world, such as start-up.
    pub(crate) fn transact_blocking<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Transaction<'_>) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let answer = self.writer.submit(job)?;
        futures::executor::block_on(answer).unwrap_or_else(|_| Err(Failure::shutting_down()))
    }

    /// The feed of a collection; made when nothing was ever written to it.
    pub(crate) fn feed(&self, collection: &Collection) -> Arc<Feed> {
        if let Some(feed) = self.read().feed(collection) {
            return feed;
        }
        self.state.write().unwrap_or_else(std::sync::PoisonError::into_inner).open_feed(collection)
    }

    /// Sets who is told about each committed batch.
    pub(crate) fn observe(&self, observer: Observer) {
        self.writer.observe(observer);
    }
}

#[cfg(test)]
mod tests;
