//! Reading and writing the parts that every Kubernetes object has, on plain JSON values.
//! The one place that knows where metadata lives.

use serde_json::{Map, Value};

/// `metadata` of an object, empty when it has none.
pub(crate) fn metadata(object: &Value) -> &Map<String, Value> {
    static EMPTY: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);
    object.get("metadata").and_then(Value::as_object).unwrap_or(&EMPTY)
}

/// `metadata` for writing; made when missing or not an object.
pub(crate) fn metadata_mut(object: &mut Value) -> &mut Map<String, Value> {
    child_mut(as_map(object), "metadata")
}

/// The value as a map, replaced by an empty one when it is anything else.
pub(crate) fn as_map(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("made an object above"),
    }
}

/// The map under `field`, made when missing.
pub(crate) fn child_mut<'a>(
    map: &'a mut Map<String, Value>,
    field: &str,
) -> &'a mut Map<String, Value> {
    as_map(map.entry(field).or_insert(Value::Null))
}

/// A text field of `metadata`, empty when missing.
pub(crate) fn meta<'a>(object: &'a Value, field: &str) -> &'a str {
    metadata(object).get(field).and_then(Value::as_str).unwrap_or("")
}

pub(crate) fn name(object: &Value) -> &str {
    meta(object, "name")
}

pub(crate) fn namespace(object: &Value) -> &str {
    meta(object, "namespace")
}

pub(crate) fn uid(object: &Value) -> &str {
    meta(object, "uid")
}

pub(crate) fn set_meta(object: &mut Value, field: &str, value: impl Into<Value>) {
    metadata_mut(object).insert(field.to_owned(), value.into());
}

pub(crate) fn is_terminating(object: &Value) -> bool {
    metadata(object).get("deletionTimestamp").is_some_and(|v| !v.is_null())
}

pub(crate) fn finalizers(object: &Value) -> Vec<&str> {
    metadata(object)
        .get("finalizers")
        .and_then(Value::as_array)
        .map(|list| list.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default()
}

/// Adds a finalizer unless it is there.
pub(crate) fn add_finalizer(object: &mut Value, finalizer: &str) {
    if finalizers(object).contains(&finalizer) {
        return;
    }
    let list = metadata_mut(object).entry("finalizers").or_insert(Value::Array(Vec::new()));
    match list {
        Value::Array(list) => list.push(finalizer.into()),
        other => *other = Value::Array(vec![finalizer.into()]),
    }
}

/// Removes a finalizer; the field goes when the last one went.
pub(crate) fn remove_finalizer(object: &mut Value, finalizer: &str) {
    let kept: Vec<Value> =
        finalizers(object).into_iter().filter(|f| *f != finalizer).map(Value::from).collect();
    if kept.is_empty() {
        metadata_mut(object).remove("finalizers");
    } else {
        set_meta(object, "finalizers", kept);
    }
}

/// The uids in `metadata.ownerReferences`.
pub(crate) fn owner_uids(object: &Value) -> impl Iterator<Item = &str> {
    owner_references(object).iter().filter_map(|owner| owner.get("uid")?.as_str())
}

pub(crate) fn owner_references(object: &Value) -> &[Value] {
    metadata(object).get("ownerReferences").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The value at a dotted path such as `spec.nodeName`.
pub(crate) fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(object, |value, step| value.get(step))
}

/// The text at a dotted path, empty when missing or not text.
pub(crate) fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    at(object, path).and_then(Value::as_str).unwrap_or("")
}

/// Sets a dotted path, making the maps on the way.
pub(crate) fn set(object: &mut Value, path: &str, value: impl Into<Value>) {
    let mut map = as_map(object);
    let mut steps = path.split('.').peekable();
    while let Some(step) = steps.next() {
        if steps.peek().is_none() {
            map.insert(step.to_owned(), value.into());
            return;
        }
        map = child_mut(map, step);
    }
}

/// Sets a dotted path only where nothing (or null) stands.
pub(crate) fn set_default(object: &mut Value, path: &str, value: impl Into<Value>) {
    if at(object, path).is_none_or(Value::is_null) {
        set(object, path, value);
    }
}

/// Removes what is at a dotted path, if anything is.
pub(crate) fn remove(object: &mut Value, path: &str) {
    let (parent, field) = path.rsplit_once('.').map_or((None, path), |(up, last)| (Some(up), last));
    let steps = parent.into_iter().flat_map(|parent| parent.split('.'));
    let map = steps.into_iter().try_fold(object, |value, step| value.get_mut(step));
    if let Some(Value::Object(map)) = map {
        map.remove(field);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_last_finalizer_takes_the_field_with_it() {
        let mut object = json!({"metadata": {"finalizers": ["a", "b"]}});
        remove_finalizer(&mut object, "a");
        assert_eq!(finalizers(&object), ["b"]);
        remove_finalizer(&mut object, "b");
        assert_eq!(object, json!({"metadata": {}}));
    }

    #[test]
    fn a_finalizer_is_added_once() {
        let mut object = json!({});
        add_finalizer(&mut object, "a");
        add_finalizer(&mut object, "a");
        assert_eq!(finalizers(&object), ["a"]);
    }

    #[test]
    fn a_default_never_replaces_what_is_there() {
        let mut object = json!({"spec": {"a": 1, "b": null}});
        set_default(&mut object, "spec.a", 2);
        set_default(&mut object, "spec.b", 3);
        set_default(&mut object, "spec.c.d", 4);
        assert_eq!(object, json!({"spec": {"a": 1, "b": 3, "c": {"d": 4}}}));
    }
}
