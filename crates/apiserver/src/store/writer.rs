//! The one thread that writes. It takes every transaction that waits, runs them in order, commits
//! them in one flush, publishes, tells the observer, and only then answers.

use super::disk::Disk;
use super::state::State;
use super::transaction::{Pending, Transaction};
use super::{Change, Observer};
use crate::failure::Failure;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;
use tokio::sync::oneshot;

/// Transactions committed together at most; bounds how long the first one waits.
const BATCH: usize = 256;

/// Sends the answer; gets the reason when the commit failed.
type Answer = Box<dyn FnOnce(Result<(), Failure>) + Send>;
type Job = Box<dyn FnOnce(Transaction<'_>) -> Answer + Send>;

/// The way to the writing thread. Dropping the last clone waits until everything submitted is on
/// disk and the file is free for another.
#[derive(Clone)]
pub(super) struct Writer {
    handle: Arc<Handle>,
    observer: Arc<Mutex<Option<Observer>>>,
}

struct Handle {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.jobs = None;
        // A transaction may hold the last clone; the thread then ends by itself.
        let other = self.thread.take().filter(|t| t.thread().id() != std::thread::current().id());
        if other.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the writer of the object store has panicked");
        }
    }
}

impl Writer {
    pub(super) fn start(disk: Disk, state: Arc<RwLock<State>>) -> Writer {
        let (jobs, waiting) = channel();
        let observer = Arc::new(Mutex::new(None));
        let thread = Thread { disk, state, observer: Arc::clone(&observer) };
        let thread = Some(std::thread::spawn(move || thread.run(&waiting)));
        Writer { handle: Arc::new(Handle { jobs: Some(jobs), thread }), observer }
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
        let jobs = self.handle.jobs.as_ref().ok_or_else(Failure::shutting_down)?;
        jobs.send(job).map_err(|_| Failure::shutting_down())?;
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

    /// Runs the transactions. One that panics changes nothing, and whoever asked for it is told
    /// to try again.
    fn decide(&self, jobs: impl Iterator<Item = Job>, pending: &mut Pending) -> (Vec<Answer>, u64) {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let mut revision = state.revision();
        let mut answers = Vec::new();
        for job in jobs {
            let before = revision;
            let turn = AssertUnwindSafe(|| job(Transaction::new(&state, pending, &mut revision)));
            match catch_unwind(turn) {
                Ok(answer) => answers.push(answer),
                Err(_) => revision = before,
            }
        }
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
