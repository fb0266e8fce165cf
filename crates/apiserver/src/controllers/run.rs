//! The loop of the controllers: what changed, what is due, and the writes; one transaction for
//! each thing looked at.

use super::tasks::{self, Task};
use super::{Decision, Moment, NODES, PODS, REPLICA_SETS, SLICES, Step};
use super::{deployment, replica_set, slices, stateful_set};
use crate::clock;
use crate::failure::Failure;
use crate::object;
use crate::registry::Snapshot;
use crate::store::{Change, Key, Stored, Transaction};
use crate::verbs::{Api, DeleteOptions, Target, WriteOptions, change_in, create_own, delete_in};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;

/// As whom the controllers write, under the name that users know.
const MANAGER: &str = "kube-controller-manager";

/// How often something that waits for time to pass is looked at.
const PATIENCE: Duration = Duration::from_secs(1);

/// Works off what the changes make necessary, until the sender of changes is gone.
pub(crate) async fn run(api: Api, mut changes: UnboundedReceiver<Arc<Change>>) {
    let mut due: BTreeSet<Task> = tasks::at_start(&api.store.read()).into_iter().collect();
    let mut later = BTreeSet::new();
    let mut tick = tokio::time::interval(PATIENCE);
    loop {
        while let Some(task) = due.pop_first() {
            if perform(&api, task.clone()).await {
                later.insert(task);
            }
        }
        tokio::select! {
            change = changes.recv() => match change {
                Some(change) => due.extend(take_in(&api, &change, &mut changes)),
                None => return,
            },
            _ = tick.tick(), if !later.is_empty() => due.append(&mut later),
        }
    }
}

/// What follows from a change and all that wait behind it.
fn take_in(
    api: &Api,
    first: &Change,
    changes: &mut UnboundedReceiver<Arc<Change>>,
) -> BTreeSet<Task> {
    let state = api.store.read();
    let mut due: BTreeSet<Task> = tasks::after(first, &state).into_iter().collect();
    while let Ok(change) = changes.try_recv() {
        due.extend(tasks::after(&change, &state));
    }
    due
}

/// Does what is due; says whether to look again later.
async fn perform(api: &Api, task: Task) -> bool {
    let snapshot = api.registry.snapshot();
    let shown = format!("{task:?}");
    let done = api.store.transact(move |tx| Work { tx, snapshot: &snapshot }.perform(&task)).await;
    done.unwrap_or_else(|failure| {
        tracing::warn!(task = shown, why = failure.message, "cannot do what is due");
        false
    })
}

struct Work<'a, 'tx> {
    tx: &'a mut Transaction<'tx>,
    snapshot: &'a Snapshot,
}

impl Work<'_, '_> {
    fn perform(&mut self, task: &Task) -> Result<bool, Failure> {
        let Some(subject) = self.tx.get(task.key()) else { return Ok(false) };
        let decision = self.decide(task, &subject.value);
        for step in decision.steps {
            self.take(step)?;
        }
        Ok(decision.again)
    }

    fn decide(&self, task: &Task, subject: &Value) -> Decision {
        let namespace = &task.key().namespace;
        let now = Moment(clock::now());
        let (pods, sets, found);
        let pods = {
            pods = self.tx.list(PODS, namespace);
            pods.iter().map(|stored| &stored.value)
        };
        match task {
            Task::ReplicaSet(_) => replica_set::decide(subject, pods, now),
            Task::StatefulSet(_) => stateful_set::decide(subject, pods, now),
            Task::Deployment(_) => {
                sets = self.tx.list(REPLICA_SETS, namespace);
                let pods: Vec<&Value> = pods.collect();
                deployment::decide(subject, sets.iter().map(|stored| &stored.value), &pods, now)
            }
            Task::Service(_) => {
                found = self.tx.list(SLICES, namespace);
                let slices = found.iter().map(|stored| &stored.value);
                slices::decide(subject, pods, slices, |node| {
                    self.tx.get(&Key::new(NODES, "", node))
                })
            }
        }
    }

    fn take(&mut self, step: Step) -> Result<(), Failure> {
        match step {
            Step::Create(collection, object) => self.create(collection, object),
            Step::Update(key, object) => self.change(&key, None, |_| object),
            Step::Status(key, status) => self.change(&key, Some("status"), |old| {
                let mut new = old.value.clone();
                new["status"] = status;
                new
            }),
            Step::Delete(key) => self.delete(&key),
        }
    }

    fn target(&self, key: &Key) -> Result<Target, Failure> {
        let resource = self.snapshot.by_collection(&key.collection);
        Ok(Target::stored(resource.ok_or_else(Failure::no_such_path)?, key))
    }

    fn create(&mut self, collection: &str, object: Value) -> Result<(), Failure> {
        let key = Key::new(collection, object::namespace(&object), object::name(&object));
        let target = self.target(&key)?;
        create_own(self.tx, &target, object, &options()).map(|_| ())
    }

    /// Writes onto the newest form of an object, which an earlier step of the same decision may
    /// have made.
    fn change(
        &mut self,
        key: &Key,
        subresource: Option<&str>,
        edit: impl FnOnce(&Stored) -> Value,
    ) -> Result<(), Failure> {
        let Some(current) = self.tx.get(key) else { return Ok(()) };
        let mut target = self.target(key)?;
        target.subresource = subresource.map(str::to_owned);
        let mut object = edit(&current);
        object::metadata_mut(&mut object).remove("resourceVersion");
        change_in(self.tx, &target, &current, object, &options()).map(|_| ())
    }

    fn delete(&mut self, key: &Key) -> Result<(), Failure> {
        match delete_in(self.tx, &self.target(key)?, &DeleteOptions::default()) {
            Err(failure) if failure.code != 404 => Err(failure),
            _ => Ok(()),
        }
    }
}

fn options() -> WriteOptions {
    WriteOptions { field_manager: MANAGER.to_owned(), ..WriteOptions::default() }
}
