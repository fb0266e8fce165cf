//! What kube-controller-manager does for the users of a cluster, as far as a lab needs it: the
//! replicas of ReplicaSets, Deployments and StatefulSets, and the EndpointSlices of Services.
//!
//! Rule: each controller is a function from what is there to the steps that are due; the loop in
//! `run` alone looks, writes and knows the time. Every step starts from the newest state, so that
//! doing one twice does no harm.

mod claim;
mod condition;
mod deployment;
mod pods;
mod replica_set;
mod rollout;
mod run;
mod slices;
mod stateful_set;
mod tasks;
mod template;

pub(crate) use run::run;

use crate::store::Key;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

const NODES: &str = "nodes";
const PODS: &str = "pods";
const SERVICES: &str = "services";
const DEPLOYMENTS: &str = "deployments.apps";
const REPLICA_SETS: &str = "replicasets.apps";
const STATEFUL_SETS: &str = "statefulsets.apps";
const SLICES: &str = "endpointslices.discovery.k8s.io";

/// One write that is due.
#[derive(Debug, Clone, PartialEq)]
enum Step {
    /// Make this object; its namespace is in its metadata.
    Create(&'static str, Value),
    /// Replace everything but the status.
    Update(Key, Value),
    /// Replace the status.
    Status(Key, Value),
    Delete(Key),
}

/// What a controller decided.
#[derive(Debug, Default, PartialEq)]
struct Decision {
    steps: Vec<Step>,
    /// Whether time alone may change the decision.
    again: bool,
}

/// The moment a decision is made at.
#[derive(Debug, Clone, Copy)]
struct Moment(Timestamp);

impl Moment {
    fn text(self) -> String {
        crate::clock::seconds(self.0)
    }
}

/// The place of an object in its collection.
fn key(collection: &str, object: &Value) -> Key {
    Key::new(collection, crate::object::namespace(object), crate::object::name(object))
}

/// A number of an object, 0 when it is missing.
fn number(object: &Value, path: &str) -> i64 {
    crate::object::at(object, path).and_then(Value::as_i64).unwrap_or(0)
}

/// Sets a count, leaving out those that are 0 as the real API does.
fn set_count(status: &mut Value, field: &str, count: i64) {
    if count > 0 {
        status[field] = count.into();
    }
}
