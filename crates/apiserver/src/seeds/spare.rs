//! What a patch of kubectl must not take along. A manifest without labels whose `network` became a
//! label looks to kubectl as if all labels had been taken out of it, and its next patch says so.
//! Only what the manifest itself led to may go: the labels of others stay.

use super::LAST_APPLIED;
use crate::object;
use crate::patch::Patch;
use atoll_api::marks;
use serde_json::{Map, Value};

const MARKS: [&str; 4] = [marks::NETWORK, marks::TENANT, marks::NICS, marks::EXTRA_NETWORKS];

/// The patch of an apply without what it would take along; none when it takes nothing.
pub(crate) fn spare(live: &Value, patch: &Patch) -> Option<Patch> {
    let (wanted, rebuilt): (_, fn(Value) -> Patch) = match patch {
        Patch::Merge(wanted) => (wanted, Patch::Merge),
        Patch::Strategic(wanted) => (wanted, Patch::Strategic),
        Patch::Json(_) | Patch::Apply(_) => return None,
    };
    last_applied(wanted)?;
    let applied: Value = serde_json::from_str(last_applied(live)?).ok()?;
    let mut spared = wanted.clone();
    spare_at(&mut spared, &applied);
    (spared != *wanted).then(|| rebuilt(spared))
}

fn last_applied(value: &Value) -> Option<&str> {
    object::metadata(value).get("annotations")?.get(LAST_APPLIED)?.as_str()
}

fn spare_at(patch: &mut Value, applied: &Value) {
    let Value::Object(fields) = patch else { return };
    for (field, wanted) in fields {
        match (applied.get(field), wanted.is_null()) {
            (Some(before), true) => *wanted = only_marks(before).unwrap_or(Value::Null),
            (Some(before), false) => spare_at(wanted, before),
            (None, _) => {}
        }
    }
}

/// Nulls in place of the marks, where there is nothing but marks.
fn only_marks(before: &Value) -> Option<Value> {
    let fields = before.as_object().filter(|fields| !fields.is_empty())?;
    let nulls = fields.iter().map(|(field, inner)| {
        let gone = if MARKS.contains(&field.as_str()) { Value::Null } else { only_marks(inner)? };
        Some((field.clone(), gone))
    });
    nulls.collect::<Option<Map<_, _>>>().map(Value::Object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn spared(applied: &Value, wanted: &Value) -> Option<Value> {
        let live = json!({"metadata": {"annotations": {LAST_APPLIED: applied.to_string()}}});
        let mut wanted = wanted.clone();
        wanted["metadata"]["annotations"] = json!({LAST_APPLIED: "{}"});
        match spare(&live, &Patch::Merge(wanted))? {
            Patch::Merge(mut value) => {
                value["metadata"].as_object_mut().unwrap().remove("annotations");
                Some(value)
            }
            other => panic!("another kind of patch: {other:?}"),
        }
    }

    #[test]
    fn of_labels_that_go_as_a_whole_only_ours_go() {
        let applied = json!({"metadata": {"labels": {"atoll.dev/network": "a"}}});
        let wanted = json!({"metadata": {"labels": null}, "spec": {"network": "b"}});
        let expected =
            json!({"metadata": {"labels": {"atoll.dev/network": null}}, "spec": {"network": "b"}});
        assert_eq!(spared(&applied, &wanted), Some(expected));
    }

    #[test]
    fn a_template_that_got_its_metadata_from_us_keeps_that_of_others() {
        let template = json!({"metadata": {"annotations": {"atoll.dev/nics": "[]"}}});
        let applied = json!({"spec": {"template": template}});
        let wanted = json!({"spec": {"template": {"metadata": null}}});
        let nulls = json!({"metadata": {"annotations": {"atoll.dev/nics": null}}});
        let spared = spared(&applied, &wanted).unwrap();
        assert_eq!(spared["spec"]["template"], nulls);
    }

    #[test]
    fn what_the_manifest_itself_held_goes_as_it_says() {
        let applied = json!({"metadata": {"labels": {"atoll.dev/network": "a", "app": "web"}}});
        assert_eq!(spared(&applied, &json!({"metadata": {"labels": null}})), None);
    }
}
