//! A thread that lives in a namespace and works for the test.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use crate::Namespace;

type Job<S> = Box<dyn FnOnce(&mut S) + Send>;

/// A thread inside a namespace that owns a state of type `S`. It ends, and the state with it, when
/// this value is dropped.
#[derive(Debug)]
pub struct Worker<S> {
    jobs: Option<mpsc::Sender<Job<S>>>,
    thread: Option<JoinHandle<()>>,
}

impl<S: 'static> Worker<S> {
    /// Starts the thread inside `namespace` and waits until `make` has run there.
    pub fn start(namespace: &Namespace, make: impl FnOnce() -> S + Send + 'static) -> Self {
        let (jobs, todo) = mpsc::channel::<Job<S>>();
        let inside = namespace.run(|| {
            thread::spawn(move || {
                let mut state = make();
                todo.into_iter().for_each(|job| job(&mut state));
            })
        });
        let worker = Worker { jobs: Some(jobs), thread: Some(inside) };
        worker.run(|_| ());
        worker
    }

    /// Runs `job` there and gives its result; its panic is ours.
    pub fn run<T: Send + 'static>(&self, job: impl FnOnce(&mut S) -> T + Send + 'static) -> T {
        let (answer, result) = mpsc::channel();
        let guarded = move |state: &mut S| {
            let outcome = catch_unwind(AssertUnwindSafe(|| job(state)));
            answer.send(outcome).expect("the test waits for the answer");
        };
        let jobs = self.jobs.as_ref().expect("a worker that was not dropped");
        jobs.send(Box::new(guarded)).expect("a worker that is alive");
        match result.recv().expect("a worker that is alive") {
            Ok(result) => result,
            Err(panic) => resume_unwind(panic),
        }
    }
}

impl<S> Drop for Worker<S> {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A panic in it was reported to whoever asked for the job.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_keeps_its_state_and_its_place() {
        let namespace = Namespace::new();
        let here = || std::fs::read_link("/proc/thread-self/ns/net").unwrap();
        let worker = Worker::start(&namespace, || 1);
        worker.run(|count| *count += 1);
        assert_eq!(worker.run(|count| *count), 2);
        assert_eq!(worker.run(move |_| here()), namespace.run(here));
    }

    #[test]
    #[should_panic(expected = "told to the caller")]
    fn a_panic_is_told_to_the_caller() {
        Worker::start(&Namespace::new(), || ()).run(|()| panic!("told to the caller"));
    }
}
