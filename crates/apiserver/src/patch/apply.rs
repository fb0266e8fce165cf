//! Merging an applied configuration into an object: maps field by field, lists by their type.

use crate::object::as_map;
use crate::schema::{ListType, Node, Schema};
use serde_json::{Map, Value};

/// Sets everything that `applied` says; what it does not mention stays.
pub(crate) fn merge(schema: &Schema, live: &mut Value, applied: &Value) {
    merge_at(schema, Some(schema.root()), live, applied);
}

fn merge_at(schema: &Schema, node: Option<&Node>, live: &mut Value, applied: &Value) {
    let resolved = node.map(|node| schema.resolve(node));
    let atomic = node.is_some_and(|n| n.atomic_map) || resolved.is_some_and(|n| n.atomic_map);
    match applied {
        Value::Object(fields) if !atomic => merge_map(schema, resolved, as_map(live), fields),
        Value::Array(items) => merge_list(schema, node, live, items),
        other => *live = other.clone(),
    }
}

fn merge_map(
    schema: &Schema,
    node: Option<&Node>,
    live: &mut Map<String, Value>,
    fields: &Map<String, Value>,
) {
    for (field, value) in fields {
        let inner = node.and_then(|node| schema.field(node, field));
        if value.is_null() {
            live.insert(field.clone(), Value::Null);
        } else {
            merge_at(schema, inner, live.entry(field).or_insert(Value::Null), value);
        }
    }
}

fn merge_list(schema: &Schema, node: Option<&Node>, live: &mut Value, items: &[Value]) {
    let list_type = node.map_or(&ListType::Atomic, |node| &node.list_type);
    let Value::Array(list) = live else {
        *live = Value::Array(Vec::new());
        return merge_list(schema, node, live, items);
    };
    match list_type {
        ListType::Atomic => *list = items.to_vec(),
        ListType::Set => {
            let missing: Vec<_> = items.iter().filter(|i| !list.contains(i)).cloned().collect();
            list.extend(missing);
        }
        ListType::Map(keys) => {
            let item_node = node.and_then(|node| node.items.as_deref());
            for item in items {
                let place =
                    list.iter().position(|known| same_item(schema, item_node, keys, known, item));
                let place = place.unwrap_or_else(|| {
                    list.push(Value::Object(Map::new()));
                    list.len() - 1
                });
                merge_at(schema, item_node, &mut list[place], item);
            }
        }
    }
}

/// Whether two items have the same keys; a missing key counts as its default.
pub(super) fn same_item(
    schema: &Schema,
    node: Option<&Node>,
    keys: &[String],
    one: &Value,
    other: &Value,
) -> bool {
    keys.iter().all(|key| item_key(schema, node, key, one) == item_key(schema, node, key, other))
}

fn item_key<'a>(
    schema: &'a Schema,
    node: Option<&'a Node>,
    key: &str,
    item: &'a Value,
) -> Option<&'a Value> {
    item.get(key).or_else(|| {
        let node = schema.resolve(node?);
        schema.field(node, key)?.default.as_ref()
    })
}
