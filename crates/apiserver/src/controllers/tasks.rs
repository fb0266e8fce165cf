//! Which workloads and services a change may concern.

use super::claim::reference;
use super::{DEPLOYMENTS, NODES, PODS, REPLICA_SETS, SERVICES, SLICES, STATEFUL_SETS, slices};
use crate::object::{self, text};
use crate::selector::Selector;
use crate::store::{Change, Key, State, Stored};
use serde_json::Value;

/// Something to look at anew, in the order in which it is best done. Looking for nothing does no
/// harm.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Task {
    ReplicaSet(Key),
    StatefulSet(Key),
    Deployment(Key),
    Service(Key),
}

impl Task {
    fn of(key: &Key) -> Option<Task> {
        match &*key.collection {
            REPLICA_SETS => Some(Task::ReplicaSet(key.clone())),
            STATEFUL_SETS => Some(Task::StatefulSet(key.clone())),
            DEPLOYMENTS => Some(Task::Deployment(key.clone())),
            SERVICES => Some(Task::Service(key.clone())),
            _ => None,
        }
    }

    pub(super) fn key(&self) -> &Key {
        let (Task::ReplicaSet(key)
        | Task::StatefulSet(key)
        | Task::Deployment(key)
        | Task::Service(key)) = self;
        key
    }
}

/// What follows from one change.
pub(super) fn after(change: &Change, state: &State) -> Vec<Task> {
    if &*change.object.key.collection == NODES {
        return of_node(change, state);
    }
    let sides = change.before.iter().chain([&change.object]);
    sides.flat_map(|stored| concerned(stored, state)).collect()
}

/// Everything there is to look at when the server starts.
pub(super) fn at_start(state: &State) -> Vec<Task> {
    let kinds = [REPLICA_SETS, STATEFUL_SETS, DEPLOYMENTS, SERVICES];
    let all = kinds.iter().flat_map(|kind| state.list(kind, ""));
    all.filter_map(|stored| Task::of(&stored.key)).collect()
}

/// Any service may have pods on the node.
fn of_node(change: &Change, state: &State) -> Vec<Task> {
    let before = change.before.as_ref().map(|stored| &stored.value);
    if !slices::concerns(before, change.after().map(|stored| &stored.value)) {
        return Vec::new();
    }
    state.list(SERVICES, "").filter_map(|stored| Task::of(&stored.key)).collect()
}

fn concerned(stored: &Stored, state: &State) -> Vec<Task> {
    let mut tasks = Vec::from_iter(Task::of(&stored.key));
    match &*stored.key.collection {
        PODS => {
            let own = of_controller(stored);
            // A deployment may wait for the last pod of an old set.
            let set = own.as_ref().and_then(|task| state.get(task.key()));
            tasks.extend(set.and_then(|set| of_controller(set)));
            tasks.extend(own);
            tasks.extend(selecting(stored, state));
        }
        REPLICA_SETS => tasks.extend(of_controller(stored)),
        SLICES => tasks.extend(of_service(stored)),
        _ => {}
    }
    tasks
}

/// The workload that controls an object.
fn of_controller(stored: &Stored) -> Option<Task> {
    let owner = reference(&stored.value)?;
    let collection = match text(owner, "kind") {
        "ReplicaSet" => REPLICA_SETS,
        "StatefulSet" => STATEFUL_SETS,
        "Deployment" => DEPLOYMENTS,
        _ => return None,
    };
    Task::of(&Key::new(collection, &stored.key.namespace, text(owner, "name")))
}

fn of_service(stored: &Stored) -> Option<Task> {
    let name = stored.value["metadata"]["labels"]["kubernetes.io/service-name"].as_str()?;
    Task::of(&Key::new(SERVICES, &stored.key.namespace, name))
}

/// The services whose pod it is, and the workloads that may adopt one that nobody controls.
fn selecting(pod: &Stored, state: &State) -> Vec<Task> {
    let namespace = &pod.key.namespace;
    let of = |kind: &str, selects: &dyn Fn(&Value) -> bool| -> Vec<Task> {
        let found = state.list(kind, namespace).filter(|stored| selects(&stored.value));
        found.filter_map(|stored| Task::of(&stored.key)).collect()
    };
    let serves = |service: &Value| slices::selector(service).is_some_and(|s| s.matches(&pod.value));
    let mut tasks = of(SERVICES, &serves);
    if reference(&pod.value).is_none() {
        let selects = |workload: &Value| {
            let selector = Selector::of_workload(&workload["spec"]["selector"]);
            !object::is_terminating(&pod.value) && selector.matches(&pod.value)
        };
        tasks.extend(of(REPLICA_SETS, &selects));
        tasks.extend(of(STATEFUL_SETS, &selects));
    }
    tasks
}
