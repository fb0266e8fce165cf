//! Strategic merge patch: like a merge patch, but lists whose items have a key are merged item by
//! item, and directives (`$patch`, `$retainKeys`, …) say what merging cannot.

use crate::failure::Failure;
use crate::object::as_map;
use crate::schema::{ListType, Node, Schema};
use serde_json::{Map, Value};

/// Merges `patch` into `original`.
pub(super) fn merge(schema: &Schema, original: &mut Value, patch: &Value) -> Result<(), Failure> {
    let patch = patch.as_object().ok_or_else(|| bad("the patch must be an object"))?;
    merge_map(schema, Some(schema.root()), as_map(original), patch)
}

fn bad(why: &str) -> Failure {
    Failure::bad_request(format!("invalid strategic merge patch: {why}"))
}

fn merge_map(
    schema: &Schema,
    node: Option<&Node>,
    original: &mut Map<String, Value>,
    patch: &Map<String, Value>,
) -> Result<(), Failure> {
    match patch.get("$patch").and_then(Value::as_str) {
        Some("replace" | "delete") => original.clear(),
        Some("merge") | None => {}
        Some(other) => return Err(bad(&format!("unknown directive $patch: {other}"))),
    }
    if patch.get("$patch").is_some_and(|directive| directive == "delete") {
        return Ok(());
    }
    retain_keys(original, patch);
    for (field, value) in patch.iter().filter(|(field, _)| !field.starts_with('$')) {
        let inner = node.and_then(|node| schema.field(node, field)).map(|n| (n, schema.resolve(n)));
        merge_field(schema, inner, original, field, value)?;
    }
    delete_from_lists(original, patch);
    order_lists(schema, node, original, patch);
    Ok(())
}

/// `outer` is the node as written (it may carry list annotations), `inner` what it refers to.
fn merge_field(
    schema: &Schema,
    nodes: Option<(&Node, &Node)>,
    original: &mut Map<String, Value>,
    field: &str,
    value: &Value,
) -> Result<(), Failure> {
    match value {
        Value::Null => {
            original.remove(field);
        }
        Value::Object(patch) => {
            let slot = original.entry(field).or_insert(Value::Null);
            merge_map(schema, nodes.map(|(_, inner)| inner), as_map(slot), patch)?;
        }
        Value::Array(patch) => {
            let slot = original.entry(field).or_insert(Value::Null);
            merge_list(schema, nodes.map(|(outer, _)| outer), slot, patch)?;
        }
        plain => {
            original.insert(field.to_owned(), plain.clone());
        }
    }
    Ok(())
}

fn merge_list(
    schema: &Schema,
    node: Option<&Node>,
    slot: &mut Value,
    patch: &[Value],
) -> Result<(), Failure> {
    let key = node.and_then(|node| node.patch_key.as_deref());
    let is_set = node.is_some_and(|node| node.list_type == ListType::Set);
    let replaces = patch.iter().any(|item| item.get("$patch").is_some_and(|d| d == "replace"));
    let Value::Array(list) = slot else {
        *slot = Value::Array(Vec::new());
        return merge_list(schema, node, slot, patch);
    };
    match key {
        Some(key) if !replaces => {
            let item = node.and_then(|node| node.items.as_deref()).map(|n| schema.resolve(n));
            patch.iter().try_for_each(|one| merge_item(schema, item, list, key, one))
        }
        None if is_set && !replaces => {
            for item in patch {
                if !list.contains(item) {
                    list.push(item.clone());
                }
            }
            Ok(())
        }
        _ => {
            *list = patch.iter().filter(|item| item.get("$patch").is_none()).cloned().collect();
            Ok(())
        }
    }
}

fn merge_item(
    schema: &Schema,
    node: Option<&Node>,
    list: &mut Vec<Value>,
    key: &str,
    patch: &Value,
) -> Result<(), Failure> {
    let (Some(map), Some(identity)) = (patch.as_object(), patch.get(key)) else {
        return Err(bad(&format!("an item has no {key}, by which the list is merged")));
    };
    let place = list.iter().position(|item| item.get(key) == Some(identity));
    if map.get("$patch").is_some_and(|directive| directive == "delete") {
        if let Some(place) = place {
            list.remove(place);
        }
        return Ok(());
    }
    let place = place.unwrap_or_else(|| {
        list.push(Value::Object(Map::new()));
        list.len() - 1
    });
    merge_map(schema, node, as_map(&mut list[place]), map)
}

/// `$retainKeys`: fields that are not named go.
fn retain_keys(original: &mut Map<String, Value>, patch: &Map<String, Value>) {
    if let Some(Value::Array(keys)) = patch.get("$retainKeys") {
        original.retain(|field, _| keys.iter().any(|key| key == field));
    }
}

/// `$deleteFromPrimitiveList/field`: these values go from the list.
fn delete_from_lists(original: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (directive, values) in patch {
        let Some(field) = directive.strip_prefix("$deleteFromPrimitiveList/") else { continue };
        let (Some(Value::Array(list)), Some(gone)) = (original.get_mut(field), values.as_array())
        else {
            continue;
        };
        list.retain(|item| !gone.contains(item));
    }
}

/// `$setElementOrder/field`: named items take the given order, others follow.
fn order_lists(
    schema: &Schema,
    node: Option<&Node>,
    original: &mut Map<String, Value>,
    patch: &Map<String, Value>,
) {
    for (directive, order) in patch {
        let Some(field) = directive.strip_prefix("$setElementOrder/") else { continue };
        let (Some(Value::Array(list)), Some(order)) = (original.get_mut(field), order.as_array())
        else {
            continue;
        };
        let key = node
            .and_then(|node| schema.field(node, field))
            .and_then(|node| node.patch_key.as_deref());
        list.sort_by_key(|item| rank(order, key, item));
    }
}

fn rank(order: &[Value], key: Option<&str>, item: &Value) -> usize {
    let same = |wanted: &Value| match key {
        Some(key) => wanted.get(key) == item.get(key),
        None => wanted == item,
    };
    order.iter().position(same).unwrap_or(order.len())
}
