//! What controllers ask of a pod: does it count, is it ready and for how long, and which of many
//! is missed least.

use super::Moment;
use crate::clock;
use crate::object::{self, at, text};
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

/// Pods with a lower number in this annotation go first.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// Whether nothing will ever run in the pod again.
pub(super) fn has_ended(pod: &Value) -> bool {
    matches!(text(pod, "status.phase"), "Succeeded" | "Failed")
}

/// Whether the pod counts as a replica.
pub(super) fn is_active(pod: &Value) -> bool {
    !has_ended(pod) && !object::is_terminating(pod)
}

fn ready_condition(pod: &Value) -> Option<&Value> {
    let conditions = at(pod, "status.conditions")?.as_array()?;
    conditions.iter().find(|condition| condition["type"] == "Ready")
}

pub(super) fn is_ready(pod: &Value) -> bool {
    ready_condition(pod).is_some_and(|condition| condition["status"] == "True")
}

fn ready_since(pod: &Value) -> Option<Timestamp> {
    let condition = ready_condition(pod).filter(|condition| condition["status"] == "True")?;
    clock::parse(text(condition, "lastTransitionTime"))
}

/// Whether the pod has been ready for `seconds`.
pub(super) fn is_available(pod: &Value, seconds: i64, now: Moment) -> bool {
    let long_enough =
        || ready_since(pod).is_some_and(|since| clock::after(since, seconds) <= now.0);
    is_ready(pod) && (seconds == 0 || long_enough())
}

/// The pods in the order in which they are given up: those that do the least first, and of equal
/// ones the newest.
pub(super) fn least_missed(mut pods: Vec<&Value>) -> Vec<&Value> {
    pods.sort_by_cached_key(|pod| {
        let on_node = !text(pod, "spec.nodeName").is_empty();
        let phase = match text(pod, "status.phase") {
            "Pending" => 0,
            "Unknown" => 1,
            _ => 2,
        };
        let newest = std::cmp::Reverse(clock::parse(object::meta(pod, "creationTimestamp")));
        (on_node, phase, is_ready(pod), deletion_cost(pod), newest)
    });
    pods
}

fn deletion_cost(pod: &Value) -> i64 {
    let cost = pod["metadata"]["annotations"][DELETION_COST].as_str();
    cost.and_then(|cost| cost.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(name: &str, ready: bool, created: &str) -> Value {
        let status = if ready { "True" } else { "False" };
        json!({"metadata": {"name": name, "creationTimestamp": created},
            "spec": {"nodeName": "n"}, "status": {"phase": "Running", "conditions": [
                {"type": "Ready", "status": status, "lastTransitionTime": "2026-01-01T00:00:10Z"}]}})
    }

    #[test]
    fn pods_that_do_the_least_go_first() {
        let mut waiting = pod("waiting", false, "2026-01-01T00:00:00Z");
        waiting["spec"] = json!({});
        let mut cheap = pod("cheap", true, "2026-01-01T00:00:00Z");
        cheap["metadata"]["annotations"] = json!({DELETION_COST: "-5"});
        let (unready, old, new) = (
            pod("unready", false, "2026-01-01T00:00:00Z"),
            pod("old", true, "2026-01-01T00:00:00Z"),
            pod("new", true, "2026-01-01T00:00:05Z"),
        );
        let order = least_missed(vec![&old, &new, &cheap, &unready, &waiting]);
        let names: Vec<_> = order.into_iter().map(object::name).collect();
        assert_eq!(names, ["waiting", "unready", "cheap", "new", "old"]);
    }

    #[test]
    fn a_pod_is_available_after_it_was_ready_for_as_long_as_asked() {
        let pod = pod("a", true, "2026-01-01T00:00:00Z");
        let at = |text: &str| Moment(clock::parse(text).unwrap());
        assert!(is_available(&pod, 0, at("2026-01-01T00:00:10Z")));
        assert!(!is_available(&pod, 5, at("2026-01-01T00:00:14Z")));
        assert!(is_available(&pod, 5, at("2026-01-01T00:00:15Z")));
    }
}
