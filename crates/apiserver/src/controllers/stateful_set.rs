//! A StatefulSet has pods with lasting names, `name-0` and on, made and taken away in order.
//!
//! One revision is kept, that of the present template: a pod that is made anew below the partition
//! of a rolling update gets the present template too, where the real controller remembers the
//! former one. Volume claims are not made; a lab has no volumes.

use super::claim::claim;
use super::{Decision, Moment, PODS, STATEFUL_SETS, Step, key, number, pods, set_count, template};
use crate::object::{self, text};
use serde_json::{Value, json};

const REVISION: &str = "controller-revision-hash";
const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
const POD_INDEX: &str = "apps.kubernetes.io/pod-index";

/// What is due for a set, seen beside the pods of its namespace.
pub(super) fn decide<'a>(
    set: &Value,
    candidates: impl IntoIterator<Item = &'a Value>,
    now: Moment,
) -> Decision {
    let name = object::name(set);
    let own_name = |pod: &&Value| ordinal(name, pod).is_some();
    let claimed = claim(set, PODS, candidates.into_iter().filter(own_name));
    let crew = Crew::new(set, claimed.mine);
    let mut steps = claimed.steps;
    if !object::is_terminating(set) {
        steps.extend(crew.move_on());
    }
    let (status, again) = crew.status(now);
    steps.push(Step::Status(key(STATEFUL_SETS, set), status));
    Decision { steps, again }
}

/// The number at the end of a pod's name, if the pod is one of the set.
fn ordinal(set: &str, pod: &Value) -> Option<i64> {
    let number = object::name(pod).strip_prefix(set)?.strip_prefix('-')?;
    number.parse().ok().filter(|parsed: &i64| parsed.to_string() == number)
}

/// A set with its pods.
struct Crew<'a> {
    set: &'a Value,
    revision: String,
    /// In the order of their numbers.
    pods: Vec<(i64, Value)>,
}

impl<'a> Crew<'a> {
    fn new(set: &'a Value, pods: Vec<Value>) -> Crew<'a> {
        let name = object::name(set);
        let numbered = pods.into_iter().filter_map(|pod| Some((ordinal(name, &pod)?, pod)));
        let mut pods: Vec<(i64, Value)> = numbered.collect();
        pods.sort_by_key(|(number, _)| *number);
        let revision = format!("{name}-{}", template::hash(&set["spec"]["template"]));
        Crew { set, revision, pods }
    }

    fn ordinals(&self) -> std::ops::Range<i64> {
        let start = number(self.set, "spec.ordinals.start");
        start..start + number(self.set, "spec.replicas")
    }

    fn pod(&self, ordinal: i64) -> Option<&Value> {
        self.pods.iter().find(|(number, _)| *number == ordinal).map(|(_, pod)| pod)
    }

    fn is_parallel(&self) -> bool {
        self.set["spec"]["podManagementPolicy"] == "Parallel"
    }

    /// One step at a time, unless the set says that order does not matter.
    fn move_on(&self) -> Vec<Step> {
        steps(self.fill().chain(self.shrink()).chain(self.renew()), !self.is_parallel())
    }

    /// What every wanted place needs, lowest first: nothing where its pod is well.
    fn fill(&self) -> impl Iterator<Item = Due> {
        self.ordinals().map(|ordinal| match self.pod(ordinal) {
            None => Due::Now(Step::Create(PODS, self.new_pod(ordinal))),
            Some(pod) if object::is_terminating(pod) => Due::Wait,
            Some(pod) if pods::has_ended(pod) => Due::Now(Step::Delete(key(PODS, pod))),
            Some(pod) if !is_well(pod) => Due::Wait,
            Some(_) => Due::Nothing,
        })
    }

    /// The pods in places that are not wanted, highest first.
    fn shrink(&self) -> impl Iterator<Item = Due> {
        let wanted = self.ordinals();
        let surplus = self.pods.iter().rev().filter(move |(number, _)| !wanted.contains(number));
        surplus.map(|(_, pod)| match object::is_terminating(pod) {
            true => Due::Wait,
            false => Due::Now(Step::Delete(key(PODS, pod))),
        })
    }

    /// The pods of another template, highest first, one at a time in any case.
    fn renew(&self) -> impl Iterator<Item = Due> {
        let strategy = &self.set["spec"]["updateStrategy"];
        let rolls = strategy["type"] != "OnDelete";
        let partition = number(strategy, "rollingUpdate.partition");
        let stale = self.pods.iter().rev().find(|(number, pod)| {
            rolls && *number >= partition && self.ordinals().contains(number) && !self.is_new(pod)
        });
        let unwell = self.pods.iter().any(|(_, pod)| !is_well(pod));
        stale.into_iter().map(move |(_, pod)| match unwell && is_well(pod) {
            true => Due::Wait,
            false if object::is_terminating(pod) => Due::Wait,
            false => Due::Now(Step::Delete(key(PODS, pod))),
        })
    }

    fn is_new(&self, pod: &Value) -> bool {
        pod["metadata"]["labels"][REVISION] == *self.revision
    }

    fn new_pod(&self, ordinal: i64) -> Value {
        let name = format!("{}-{ordinal}", object::name(self.set));
        let mut pod = template::pod(self.set);
        object::set_meta(&mut pod, "name", name.clone());
        let labels = object::child_mut(object::metadata_mut(&mut pod), "labels");
        labels.insert(REVISION.to_owned(), self.revision.clone().into());
        labels.insert(POD_NAME.to_owned(), name.clone().into());
        labels.insert(POD_INDEX.to_owned(), ordinal.to_string().into());
        pod["spec"]["hostname"] = name.into();
        if !text(self.set, "spec.serviceName").is_empty() {
            pod["spec"]["subdomain"] = self.set["spec"]["serviceName"].clone();
        }
        pod
    }

    /// The status, and whether time alone changes it.
    fn status(&self, now: Moment) -> (Value, bool) {
        let patience = number(self.set, "spec.minReadySeconds");
        let count = |holds: &dyn Fn(&Value) -> bool| {
            let found = self.pods.iter().filter(|(_, pod)| holds(pod)).count();
            i64::try_from(found).unwrap_or(i64::MAX)
        };
        let ready = count(&is_well);
        let available = count(&|pod| is_well(pod) && pods::is_available(pod, patience, now));
        let updated = count(&|pod| pods::is_active(pod) && self.is_new(pod));
        let all = count(&|_| true);
        let before = text(self.set, "status.currentRevision");
        let rolled = before.is_empty() || updated == all && ready == all;
        let current = if rolled { &self.revision } else { before };
        let of_current = |pod: &Value| pod["metadata"]["labels"][REVISION] == *current;
        let mut status = json!({
            "observedGeneration": number(self.set, "metadata.generation"),
            "replicas": all, "availableReplicas": available, "collisionCount": 0,
            "currentRevision": current, "updateRevision": self.revision,
        });
        set_count(&mut status, "readyReplicas", ready);
        set_count(&mut status, "updatedReplicas", updated);
        set_count(&mut status, "currentReplicas", count(&|p| pods::is_active(p) && of_current(p)));
        (status, available < ready)
    }
}

/// Whether the next in order may be touched.
fn is_well(pod: &Value) -> bool {
    pods::is_active(pod) && text(pod, "status.phase") == "Running" && pods::is_ready(pod)
}

/// What one place needs.
#[derive(Debug)]
enum Due {
    Nothing,
    /// Nothing can be done but to wait for the pod there.
    Wait,
    Now(Step),
}

/// The steps to take: all of them, or in order the first that need not wait for an earlier one.
fn steps(due: impl Iterator<Item = Due>, in_order: bool) -> Vec<Step> {
    let mut steps = Vec::new();
    for due in due {
        match due {
            Due::Nothing => continue,
            Due::Wait => {}
            Due::Now(step) => steps.push(step),
        }
        if in_order {
            break;
        }
    }
    steps
}

#[cfg(test)]
mod tests;
