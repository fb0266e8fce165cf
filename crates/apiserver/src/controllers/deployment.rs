//! A Deployment has one ReplicaSet for its template, and rolls from older ones to it.

use super::claim::{claim, controller, reference_to};
use super::condition::{self, Condition};
use super::replica_set::{age, revision};
use super::rollout::{Bounds, Size};
use super::{DEPLOYMENTS, Decision, Moment, REPLICA_SETS, Step};
use super::{key, number, pods, set_count, template};
use crate::object;
use serde_json::{Map, Value, json};

pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";
const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
const MOST: &str = "deployment.kubernetes.io/max-replicas";
const HASH: &str = "pod-template-hash";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// What is due for a deployment, seen beside the sets and pods of its namespace.
pub(super) fn decide<'a>(
    deployment: &Value,
    sets: impl IntoIterator<Item = &'a Value>,
    pods: &[&Value],
    now: Moment,
) -> Decision {
    let claimed = claim(deployment, REPLICA_SETS, sets);
    let fleet = Fleet::new(deployment, claimed.mine);
    let mut steps = claimed.steps;
    if !object::is_terminating(deployment) {
        steps.extend(fleet.move_on(pods));
        steps.extend(fleet.note_revision());
    }
    let status = fleet.status(now);
    steps.push(Step::Status(key(DEPLOYMENTS, deployment), status));
    Decision { steps, again: false }
}

/// A deployment with its sets.
struct Fleet<'a> {
    deployment: &'a Value,
    bounds: Bounds,
    /// The set of the present template.
    new: Option<Value>,
    /// All others, oldest first.
    old: Vec<Value>,
}

impl<'a> Fleet<'a> {
    fn new(deployment: &'a Value, mut sets: Vec<Value>) -> Fleet<'a> {
        sets.sort_by_key(age);
        let wanted = &deployment["spec"]["template"];
        let found = sets.iter().position(|set| plain_template(set) == *wanted);
        let new = found.map(|index| sets.remove(index));
        Fleet { deployment, bounds: Bounds::of(deployment), new, old: sets }
    }

    fn sets(&self) -> impl Iterator<Item = &Value> {
        self.old.iter().chain(&self.new)
    }

    fn total(&self, path: &str) -> i64 {
        self.sets().map(|set| number(set, path)).sum()
    }

    fn move_on(&self, pods: &[&Value]) -> Vec<Step> {
        if self.deployment["spec"]["paused"] == true {
            return self.rescale_paused();
        }
        if self.deployment["spec"]["strategy"]["type"] == "Recreate" && self.old_live(pods) {
            return self.old.iter().filter_map(|set| self.resize(set, 0)).collect();
        }
        let old: i64 = self.old.iter().map(|set| number(set, "spec.replicas")).sum();
        let Some(new) = &self.new else {
            return vec![Step::Create(REPLICA_SETS, self.new_set(self.bounds.grow(0, old)))];
        };
        let grown = self.bounds.grow(number(new, "spec.replicas"), old);
        match self.refresh(new, grown) {
            Some(step) => vec![step],
            None => self.shrink(new),
        }
    }

    /// A deployment that is held keeps its template and follows its number.
    fn rescale_paused(&self) -> Vec<Step> {
        let active = self.sets().filter(|set| number(set, "spec.replicas") > 0);
        let newest = active.max_by_key(|set| revision(set)).or(self.new.as_ref());
        newest.and_then(|set| self.resize(set, self.bounds.wanted)).into_iter().collect()
    }

    /// Whether a set of an older template wants or has pods.
    fn old_live(&self, pods: &[&Value]) -> bool {
        self.old.iter().any(|set| {
            let mine = |pod: &&Value| controller(pod) == Some(object::uid(set));
            number(set, "spec.replicas") > 0
                || pods.iter().any(|pod| mine(pod) && !pods::has_ended(pod))
        })
    }

    fn shrink(&self, new: &Value) -> Vec<Step> {
        let sizes: Vec<Size> = self.old.iter().map(Size::of).collect();
        let smaller = self.bounds.shrink(Size::of(new), &sizes);
        let resized = self.old.iter().zip(smaller).filter_map(|(set, size)| self.resize(set, size));
        let steps: Vec<Step> = resized.collect();
        if steps.is_empty() && self.is_complete() { self.forget_history() } else { steps }
    }

    /// Old sets beyond the history, the oldest first.
    fn forget_history(&self) -> Vec<Step> {
        let limit =
            object::at(self.deployment, "spec.revisionHistoryLimit").and_then(Value::as_u64);
        let mut idle: Vec<&Value> = self
            .old
            .iter()
            .filter(|set| number(set, "status.replicas") == 0 && !object::is_terminating(set))
            .collect();
        idle.sort_by_key(|set| revision(set));
        let surplus = idle.len().saturating_sub(limit.map_or(10, |n| n.try_into().unwrap_or(10)));
        idle.into_iter().take(surplus).map(|set| Step::Delete(key(REPLICA_SETS, set))).collect()
    }

    fn resize(&self, set: &Value, size: i64) -> Option<Step> {
        if number(set, "spec.replicas") == size {
            return None;
        }
        let mut resized = set.clone();
        resized["spec"]["replicas"] = size.into();
        resized["metadata"]["annotations"][DESIRED] = self.bounds.wanted.to_string().into();
        resized["metadata"]["annotations"][MOST] = self.bounds.most().to_string().into();
        Some(Step::Update(key(REPLICA_SETS, set), resized))
    }

    /// The new set with its size and what it repeats of the deployment.
    fn refresh(&self, set: &Value, size: i64) -> Option<Step> {
        let mut fresh = set.clone();
        fresh["spec"]["replicas"] = size.into();
        object::set(&mut fresh, "metadata.annotations", self.annotations());
        if let Some(seconds) = self.deployment["spec"].get("minReadySeconds") {
            fresh["spec"]["minReadySeconds"] = seconds.clone();
        }
        (fresh != *set).then(|| Step::Update(key(REPLICA_SETS, set), fresh))
    }

    /// The revision of the present template: one more than any before.
    fn revision(&self) -> i64 {
        let before = self.old.iter().map(revision).max().unwrap_or(0);
        self.new.as_ref().map_or(0, revision).max(before + 1)
    }

    fn annotations(&self) -> Map<String, Value> {
        let own = self.deployment["metadata"]["annotations"].as_object();
        let mut annotations = own.cloned().unwrap_or_default();
        annotations.remove(LAST_APPLIED);
        annotations.insert(REVISION.to_owned(), self.revision().to_string().into());
        annotations.insert(DESIRED.to_owned(), self.bounds.wanted.to_string().into());
        annotations.insert(MOST.to_owned(), self.bounds.most().to_string().into());
        annotations
    }

    fn new_set(&self, size: i64) -> Value {
        let spec = &self.deployment["spec"];
        let hash = template::hash(&spec["template"]);
        let mut template = spec["template"].clone();
        object::set(&mut template, &format!("metadata.labels.{HASH}"), hash.clone());
        let mut selector = spec["selector"].clone();
        object::set(&mut selector, &format!("matchLabels.{HASH}"), hash.clone());
        let mut set = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": {
                "name": format!("{}-{hash}", object::name(self.deployment)),
                "namespace": object::namespace(self.deployment),
                "labels": template["metadata"]["labels"], "annotations": self.annotations(),
                "ownerReferences": [reference_to(self.deployment)],
            },
            "spec": {"replicas": size, "selector": selector, "template": template},
        });
        if let Some(seconds) = spec.get("minReadySeconds") {
            set["spec"]["minReadySeconds"] = seconds.clone();
        }
        set
    }

    /// The deployment names the revision of the set that it has.
    fn note_revision(&self) -> Option<Step> {
        let revision = revision(self.new.as_ref()?).to_string();
        if self.deployment["metadata"]["annotations"][REVISION] == *revision || revision == "0" {
            return None;
        }
        let mut noted = self.deployment.clone();
        let annotations = object::child_mut(object::metadata_mut(&mut noted), "annotations");
        annotations.insert(REVISION.to_owned(), revision.into());
        Some(Step::Update(key(DEPLOYMENTS, self.deployment), noted))
    }

    fn updated(&self) -> i64 {
        self.new.as_ref().map_or(0, |set| number(set, "status.replicas"))
    }

    fn is_complete(&self) -> bool {
        let wanted = self.bounds.wanted;
        self.updated() == wanted
            && self.total("status.replicas") == wanted
            && self.total("status.availableReplicas") == wanted
    }

    fn status(&self, now: Moment) -> Value {
        let available = self.total("status.availableReplicas");
        let missing = self.total("spec.replicas") - available;
        let mut status =
            json!({"observedGeneration": number(self.deployment, "metadata.generation")});
        set_count(&mut status, "replicas", self.total("status.replicas"));
        set_count(&mut status, "updatedReplicas", self.updated());
        set_count(&mut status, "readyReplicas", self.total("status.readyReplicas"));
        set_count(&mut status, "availableReplicas", available);
        set_count(&mut status, "unavailableReplicas", missing);
        let old = object::at(self.deployment, "status.conditions").and_then(Value::as_array);
        let mut conditions = old.cloned().unwrap_or_default();
        condition::place(&mut conditions, &self.availability(available), now);
        if let Some(progress) = self.progress() {
            condition::place(&mut conditions, &progress, now);
        }
        status["conditions"] = conditions.into();
        status
    }

    fn availability(&self, available: i64) -> Condition {
        let holds = available >= self.bounds.least_available();
        let (reason, verb) = if holds {
            ("MinimumReplicasAvailable", "has")
        } else {
            ("MinimumReplicasUnavailable", "does not have")
        };
        let message = format!("Deployment {verb} minimum availability.");
        Condition { kind: "Available", holds, reason, message }
    }

    fn progress(&self) -> Option<Condition> {
        let name = object::name(self.new.as_ref()?);
        let (reason, message) = if self.is_complete() {
            ("NewReplicaSetAvailable", format!("ReplicaSet {name:?} has successfully progressed."))
        } else {
            ("ReplicaSetUpdated", format!("ReplicaSet {name:?} is progressing."))
        };
        Some(Condition { kind: "Progressing", holds: true, reason, message })
    }
}

/// The template of a set without the mark that the deployment put on it.
fn plain_template(set: &Value) -> Value {
    let mut template = set["spec"]["template"].clone();
    if let Some(labels) = template["metadata"]["labels"].as_object_mut() {
        labels.remove(HASH);
    }
    template
}

#[cfg(test)]
mod tests;
