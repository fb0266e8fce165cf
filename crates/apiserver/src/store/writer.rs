//! The one thread that writes. It takes every transaction that waits, runs them in order, commits
//! them in one flush, publishes, tells the observer, and only then answers.

use super::disk::Disk;
use super::state::State;
use super::transaction::{Pending, Transaction};
use super::{Change, Observer};
use crate::failure::Failure;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use tokio::sync::oneshot;

/// Transactions committed together at most; bounds how long the first one waits.
const BATCH: usize = 256;

/// Sends the answer; gets the reason when the commit failed.
type Answer = Box<dyn FnOnce(Result<(), Failure>) + Send>;
type Job = Box<dyn FnOnce(Transaction<'_>) -> Answer + Send>;

/// The way to the writing thread. The thread ends when the last clone is dropped.
#[derive(Clone)]
pub(super) struct Writer {
    jobs: Sender<Job>,
    observer: Arc<Mutex<Option<Observer>>>,
}

impl Writer {
    pub(super) fn start(disk: Disk, state: Arc<RwLock<State>>) -> Writer {
        let (jobs, waiting) = channel();
        let observer = Arc::new(Mutex::new(None));
        let thread = Thread { disk, state, observer: Arc::clone(&observer) };
        std::thread::spawn(move || thread.run(&waiting));
        Writer { jobs, observer }
    }

    pub(super) fn observe(&self, observer: Observer) {
        *self.observer.lock().unwrap_or_else(PoisonError::into_inner) = Some(observer);
    }

    /// Queues a transaction; the receiver gets its answer after the commit.
    pub(super) fn submit<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Transaction<'_>) -> Result<T, Failure> + Send + 'static,
    ) -> Result<oneshot::Receiver<Result<T, Failure>>, Failure> {
        let (answer, receiver) = oneshot::channel();
        let job: Job = Box::new(move |mut transaction| {
            let outcome = job(&mut transaction);
            if outcome.is_ok() {
                transaction.keep();
            } else {
                transaction.forget();
            }
            Box::new(move |committed| {
                // A client that went away no longer needs its answer.
                let _ = answer.send(committed.and(outcome));
            })
        });
        self.jobs.send(job).map_err(|_| Failure::shutting_down())?;
        Ok(receiver)
    }
}

struct Thread {
    disk: Disk,
    state: Arc<RwLock<State>>,
    observer: Arc<Mutex<Option<Observer>>>,
}

impl Thread {
    fn run(&self, waiting: &Receiver<Job>) {
        while let Ok(first) = waiting.recv() {
            let batch = std::iter::once(first).chain(waiting.try_iter()).take(BATCH);
            self.run_batch(batch);
        }
    }

    fn run_batch(&self, jobs: impl Iterator<Item = Job>) {
        let mut pending = Pending::default();
        let (answers, revision) = self.decide(jobs, &mut pending);
        let committed = self.commit(pending.changes(), revision);
        for answer in answers {
            answer(committed.clone());
        }
    }

    fn decide(&self, jobs: impl Iterator<Item = Job>, pending: &mut Pending) -> (Vec<Answer>, u64) {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let mut revision = state.revision();
        let answers =
            jobs.map(|job| job(Transaction::new(&state, pending, &mut revision))).collect();
        (answers, revision)
    }

    fn commit(&self, changes: &[Arc<Change>], revision: u64) -> Result<(), Failure> {
        if changes.is_empty() {
            return Ok(());
        }
        self.disk.commit(changes, revision).map_err(|error| {
            tracing::error!(%error, revision, "cannot write to the object store");
            Failure::internal(format!("cannot write to the object store: {error}"))
        })?;
        self.state.write().unwrap_or_else(PoisonError::into_inner).apply(changes, revision);
        if let Some(observer) =
            self.observer.lock().unwrap_or_else(PoisonError::into_inner).as_ref()
        {
            observer(changes);
        }
        Ok(())
    }
}
