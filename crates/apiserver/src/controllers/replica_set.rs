//! A ReplicaSet has as many active pods as it wants.

use super::claim::claim;
use super::{Decision, Moment, PODS, REPLICA_SETS, Step, key, number, pods, set_count, template};
use crate::object::{self, text};
use crate::selector::Selector;
use serde_json::{Value, json};

/// What is due for a set, seen beside the pods of its namespace.
pub(super) fn decide<'a>(
    set: &Value,
    candidates: impl IntoIterator<Item = &'a Value>,
    now: Moment,
) -> Decision {
    let claimed = claim(set, PODS, candidates);
    let active: Vec<&Value> = claimed.mine.iter().filter(|pod| pods::is_active(pod)).collect();
    let counts = Counts::of(set, &active, now);
    let again = counts.available < counts.ready;
    let status = Step::Status(key(REPLICA_SETS, set), counts.status(set));
    let mut steps = claimed.steps;
    if !object::is_terminating(set) {
        steps.extend(balance(set, active));
    }
    steps.push(status);
    Decision { steps, again }
}

fn balance(set: &Value, active: Vec<&Value>) -> Vec<Step> {
    let wanted = usize::try_from(number(set, "spec.replicas")).unwrap_or(0);
    if active.len() <= wanted {
        return (active.len()..wanted).map(|_| Step::Create(PODS, new_pod(set))).collect();
    }
    let surplus = active.len() - wanted;
    let doomed = pods::least_missed(active).into_iter().take(surplus);
    doomed.map(|pod| Step::Delete(key(PODS, pod))).collect()
}

fn new_pod(set: &Value) -> Value {
    let mut pod = template::pod(set);
    object::set_meta(&mut pod, "generateName", format!("{}-", object::name(set)));
    pod
}

struct Counts {
    active: i64,
    labelled: i64,
    ready: i64,
    available: i64,
}

impl Counts {
    fn of(set: &Value, active: &[&Value], now: Moment) -> Counts {
        let labels = &set["spec"]["template"]["metadata"]["labels"];
        let labels = Selector::of_labels(labels);
        let patience = number(set, "spec.minReadySeconds");
        let count = |holds: &dyn Fn(&Value) -> bool| {
            i64::try_from(active.iter().filter(|pod| holds(pod)).count()).unwrap_or(i64::MAX)
        };
        Counts {
            active: count(&|_| true),
            labelled: count(&|pod| labels.matches(pod)),
            ready: count(&pods::is_ready),
            available: count(&|pod| pods::is_available(pod, patience, now)),
        }
    }

    fn status(&self, set: &Value) -> Value {
        let mut status = json!({
            "replicas": self.active, "observedGeneration": number(set, "metadata.generation"),
        });
        set_count(&mut status, "fullyLabeledReplicas", self.labelled);
        set_count(&mut status, "readyReplicas", self.ready);
        set_count(&mut status, "availableReplicas", self.available);
        status
    }
}

/// The revision of the deployment that a set stands for.
pub(super) fn revision(set: &Value) -> i64 {
    let revision = set["metadata"]["annotations"][super::deployment::REVISION].as_str();
    revision.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// When a set was made; older ones are smaller.
pub(super) fn age(set: &Value) -> (String, String) {
    (text(set, "metadata.creationTimestamp").to_owned(), object::name(set).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    fn set(replicas: i64) -> Value {
        json!({"apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": {"name": "web", "namespace": "a", "uid": "1", "generation": 2},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": {}}}})
    }

    fn pod(name: &str, phase: &str, ready: bool) -> Value {
        json!({"metadata": {"name": name, "namespace": "a", "labels": {"app": "web"},
                "ownerReferences": [{"uid": "1", "controller": true}]},
            "status": {"phase": phase, "conditions": [
                {"type": "Ready", "status": if ready { "True" } else { "False" }}]}})
    }

    fn now() -> Moment {
        Moment(clock::at_second(0).unwrap())
    }

    fn kinds(decision: &Decision) -> (usize, Vec<&str>) {
        let created = decision.steps.iter().filter(|step| matches!(step, Step::Create(..))).count();
        let deleted = decision.steps.iter().filter_map(|step| match step {
            Step::Delete(key) => Some(key.name.as_str()),
            _ => None,
        });
        (created, deleted.collect())
    }

    #[test]
    fn missing_pods_are_made_and_ended_ones_do_not_count() {
        let pods = [pod("a", "Running", true), pod("b", "Failed", false)];
        assert_eq!(kinds(&decide(&set(3), &pods, now())), (2, vec![]));
        assert_eq!(kinds(&decide(&set(1), &pods, now())), (0, vec![]));
    }

    #[test]
    fn of_too_many_the_one_that_is_not_ready_goes() {
        let pods = [pod("a", "Running", true), pod("b", "Running", false)];
        assert_eq!(kinds(&decide(&set(1), &pods, now())), (0, vec!["b"]));
    }

    #[test]
    fn a_set_that_ends_makes_nothing() {
        let mut set = set(3);
        object::set_meta(&mut set, "deletionTimestamp", "t");
        assert_eq!(kinds(&decide(&set, &[], now())), (0, vec![]));
    }

    #[test]
    fn the_status_counts_what_is_there() {
        let pods = [pod("a", "Running", true), pod("b", "Pending", false)];
        let decision = decide(&set(2), &pods, now());
        let status = json!({"replicas": 2, "observedGeneration": 2, "fullyLabeledReplicas": 2,
            "readyReplicas": 1, "availableReplicas": 1});
        assert_eq!(decision.steps, [Step::Status(key(REPLICA_SETS, &set(2)), status)]);
    }
}
