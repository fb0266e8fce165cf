//! Events are one thing with two APIs: kept as core/v1, shown as events.k8s.io/v1 on request.

use serde_json::{Map, Value};

/// Names of the same field in core/v1 and in events.k8s.io/v1.
const RENAMED: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

pub(crate) fn to_core(event: Value) -> Value {
    rename(event, "v1", |field| RENAMED.iter().find(|(_, new)| *new == field).map(|(old, _)| *old))
}

pub(crate) fn from_core(event: Value) -> Value {
    rename(event, "events.k8s.io/v1", |field| {
        RENAMED.iter().find(|(old, _)| *old == field).map(|(_, new)| *new)
    })
}

fn rename(event: Value, version: &str, other: impl Fn(&str) -> Option<&'static str>) -> Value {
    let Value::Object(map) = event else { return event };
    let mut renamed: Map<String, Value> = map
        .into_iter()
        .map(|(field, value)| (other(&field).map_or(field, str::to_owned), value))
        .collect();
    renamed.insert("apiVersion".to_owned(), version.into());
    Value::Object(renamed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn both_apis_show_the_same_event() {
        let event = json!({"apiVersion": "events.k8s.io/v1", "regarding": {"name": "x"},
            "note": "n", "reportingController": "c", "reason": "r", "eventTime": "t"});
        let core = to_core(event.clone());
        assert_eq!(
            core,
            json!({"apiVersion": "v1", "involvedObject": {"name": "x"}, "message": "n",
                   "reportingComponent": "c", "reason": "r", "eventTime": "t"})
        );
        assert_eq!(from_core(core), event);
    }
}
