//! Conditions of a status: one per type, with times that change only with what they are about.

use super::Moment;
use serde_json::{Value, json};

/// What a condition is to say.
pub(super) struct Condition {
    pub(super) kind: &'static str,
    pub(super) holds: bool,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// The conditions with this one in its place, as the real controllers keep them.
pub(super) fn place(conditions: &mut Vec<Value>, condition: &Condition, now: Moment) {
    let status = if condition.holds { "True" } else { "False" };
    let old = conditions.iter().find(|old| old["type"] == condition.kind).cloned();
    let same = |field: &str, text: &str| old.as_ref().is_some_and(|old| old[field] == text);
    if same("status", status) && same("reason", condition.reason) {
        return;
    }
    let since = match &old {
        Some(old) if same("status", status) => old["lastTransitionTime"].clone(),
        _ => now.text().into(),
    };
    conditions.retain(|old| old["type"] != condition.kind);
    conditions.push(json!({
        "type": condition.kind, "status": status, "reason": condition.reason,
        "message": condition.message, "lastUpdateTime": now.text(), "lastTransitionTime": since,
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    fn at(second: i64) -> Moment {
        Moment(clock::at_second(second).unwrap())
    }

    fn condition(holds: bool, reason: &'static str) -> Condition {
        Condition { kind: "Available", holds, reason, message: String::new() }
    }

    #[test]
    fn the_time_of_a_condition_changes_with_its_status_only() {
        let mut conditions = Vec::new();
        place(&mut conditions, &condition(true, "A"), at(1));
        place(&mut conditions, &condition(true, "A"), at(2));
        assert_eq!(conditions[0]["lastUpdateTime"], at(1).text());
        place(&mut conditions, &condition(true, "B"), at(3));
        assert_eq!(conditions[0]["lastTransitionTime"], at(1).text());
        assert_eq!(conditions[0]["lastUpdateTime"], at(3).text());
        place(&mut conditions, &condition(false, "B"), at(4));
        assert_eq!(conditions[0]["lastTransitionTime"], at(4).text());
        assert_eq!(conditions.len(), 1);
    }
}
