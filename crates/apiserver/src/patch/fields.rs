//! Sets of fields, as `managedFields` keep them: which paths an object has, which of them two
//! objects differ in, and the `FieldsV1` form. Paths are lists of steps in that form: `f:name`
//! for a field, `k:{…}` for an item of a keyed list, `v:…` for a value of a set.

use crate::schema::{ListType, Node, Schema};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

pub(super) type Path = Vec<String>;
pub(super) type FieldSet = BTreeSet<Path>;

/// What stands at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// A value that is owned as a whole.
    Leaf,
    /// An item of a keyed list.
    Item,
    /// A map with free keys.
    Map,
    /// An object with named fields.
    Struct,
}

/// Fields that belong to the server.
const UNOWNED: [&[&str]; 11] = [
    &["f:apiVersion"],
    &["f:kind"],
    &["f:metadata"],
    &["f:metadata", "f:name"],
    &["f:metadata", "f:namespace"],
    &["f:metadata", "f:creationTimestamp"],
    &["f:metadata", "f:selfLink"],
    &["f:metadata", "f:uid"],
    &["f:metadata", "f:generation"],
    &["f:metadata", "f:managedFields"],
    &["f:metadata", "f:resourceVersion"],
];

/// All places of an object with what stands there.
struct Places<'a> {
    schema: &'a Schema,
    found: BTreeMap<Path, (Place, &'a Value)>,
}

impl<'a> Places<'a> {
    fn of(schema: &'a Schema, object: &'a Value) -> BTreeMap<Path, (Place, &'a Value)> {
        let mut places = Places { schema, found: BTreeMap::new() };
        places.visit(Some(schema.root()), &mut Vec::new(), object);
        places.found.retain(|path, _| !path.is_empty() && !is_unowned(path));
        places.found
    }

    fn visit(&mut self, node: Option<&'a Node>, path: &mut Path, value: &'a Value) {
        let inner = node.map(|node| self.schema.resolve(node));
        let atomic = node.is_some_and(|n| n.atomic_map) || inner.is_some_and(|n| n.atomic_map);
        match value {
            Value::Object(map) if !atomic && !map.is_empty() => {
                let named = inner.is_some_and(|node| !node.properties.is_empty());
                let place = if named { Place::Struct } else { Place::Map };
                self.found.insert(path.clone(), (place, value));
                self.visit_fields(inner, path, map);
            }
            Value::Array(list) if !list.is_empty() => self.visit_list(node, path, value, list),
            _ => {
                self.found.insert(path.clone(), (Place::Leaf, value));
            }
        }
    }

    fn visit_fields(
        &mut self,
        node: Option<&'a Node>,
        path: &mut Path,
        map: &'a Map<String, Value>,
    ) {
        for (field, value) in map {
            let inner = node.and_then(|node| self.schema.field(node, field));
            path.push(format!("f:{field}"));
            self.visit(inner, path, value);
            path.pop();
        }
    }

    fn visit_list(
        &mut self,
        node: Option<&'a Node>,
        path: &mut Path,
        whole: &'a Value,
        list: &'a [Value],
    ) {
        let items = node.and_then(|node| node.items.as_deref());
        match node.map_or(&ListType::Atomic, |node| &node.list_type) {
            ListType::Atomic => {
                self.found.insert(path.clone(), (Place::Leaf, whole));
            }
            ListType::Set => {
                for item in list {
                    path.push(format!("v:{item}"));
                    self.found.insert(path.clone(), (Place::Leaf, item));
                    path.pop();
                }
            }
            ListType::Map(keys) => {
                for item in list {
                    path.push(item_step(self.schema, items, keys, item));
                    self.visit(items, path, item);
                    self.found.insert(path.clone(), (Place::Item, item));
                    path.pop();
                }
            }
        }
    }
}

fn is_unowned(path: &Path) -> bool {
    UNOWNED.iter().any(|unowned| path.iter().map(String::as_str).eq(unowned.iter().copied()))
}

/// The step to an item of a keyed list; keys that are left out count with their defaults.
pub(super) fn item_step(
    schema: &Schema,
    node: Option<&Node>,
    keys: &[String],
    item: &Value,
) -> String {
    let keys: Map<String, Value> = keys
        .iter()
        .filter_map(|key| {
            let default = || {
                let node = schema.resolve(node?);
                schema.field(node, key)?.default.clone()
            };
            Some((key.clone(), item.get(key).cloned().or_else(default)?))
        })
        .collect();
    format!("k:{}", Value::Object(keys))
}

/// What whoever applies this configuration owns.
pub(super) fn applied(schema: &Schema, configuration: &Value) -> FieldSet {
    Places::of(schema, configuration)
        .into_iter()
        .filter(|(_, (place, _))| matches!(place, Place::Leaf | Place::Item))
        .map(|(path, _)| path)
        .collect()
}

/// What differs between two states of an object.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Difference {
    /// New in the second, or with another value there.
    pub(super) written: FieldSet,
    /// Only in the first.
    pub(super) removed: FieldSet,
}

/// Compares two states. `structs` says whether objects with named fields count by themselves,
/// as they do in custom resources.
pub(super) fn difference(
    schema: &Schema,
    before: &Value,
    after: &Value,
    structs: bool,
) -> Difference {
    let counts = |place: Place| structs || place != Place::Struct;
    let (old, new) = (Places::of(schema, before), Places::of(schema, after));
    let written = new
        .iter()
        .filter(|(_, (place, _))| counts(*place))
        .filter(|(path, (place, value))| match old.get(*path) {
            None => true,
            Some((_, known)) => *place == Place::Leaf && known != value,
        })
        .map(|(path, _)| path.clone())
        .collect();
    let removed = old.into_keys().filter(|path| !new.contains_key(path)).collect();
    Difference { written, removed }
}

/// The value at a path.
pub(super) fn value_at<'a>(
    schema: &Schema,
    object: &'a Value,
    path: &[String],
) -> Option<&'a Value> {
    let start = (Some(schema.root()), object);
    let found =
        path.iter().try_fold(start, |(node, value), step| follow(schema, node, value, step))?;
    Some(found.1)
}

fn follow<'s, 'v>(
    schema: &'s Schema,
    node: Option<&'s Node>,
    value: &'v Value,
    step: &str,
) -> Option<(Option<&'s Node>, &'v Value)> {
    if let Some(field) = step.strip_prefix("f:") {
        let inner = node.map(|node| schema.resolve(node));
        return Some((inner.and_then(|n| schema.field(n, field)), value.get(field)?));
    }
    let items = node.and_then(|node| node.items.as_deref());
    let place = position(schema, node, value, step)?;
    Some((items, value.get(place)?))
}

/// The index of the item a step names.
fn position(schema: &Schema, node: Option<&Node>, list: &Value, step: &str) -> Option<usize> {
    let list = list.as_array()?;
    if let Some(json) = step.strip_prefix("v:") {
        let wanted: Value = serde_json::from_str(json).ok()?;
        return list.iter().position(|item| *item == wanted);
    }
    let items = node.and_then(|node| node.items.as_deref());
    let Some(ListType::Map(keys)) = node.map(|node| &node.list_type) else { return None };
    list.iter().position(|item| item_step(schema, items, keys, item) == step)
}

/// Removes what a path names; maps and lists that become empty by it go too.
pub(super) fn remove(schema: &Schema, object: &mut Value, path: &[String]) {
    remove_at(schema, Some(schema.root()), object, path);
}

/// Returns whether the value itself is empty now and should go.
fn remove_at(schema: &Schema, node: Option<&Node>, value: &mut Value, path: &[String]) -> bool {
    let Some((step, rest)) = path.split_first() else { return true };
    if let Some(field) = step.strip_prefix("f:") {
        let inner = node.map(|node| schema.resolve(node)).and_then(|n| schema.field(n, field));
        let Some(map) = value.as_object_mut() else { return false };
        let Some(child) = map.get_mut(field) else { return false };
        if remove_at(schema, inner, child, rest) {
            map.remove(field);
        }
        return map.is_empty();
    }
    let items = node.and_then(|node| node.items.as_deref());
    let Some(place) = position(schema, node, value, step) else { return false };
    let Some(list) = value.as_array_mut() else { return false };
    if remove_at(schema, items, &mut list[place], rest) {
        list.remove(place);
    }
    list.is_empty()
}

/// The set in its `FieldsV1` form.
pub(super) fn to_json(fields: &FieldSet) -> Value {
    let mut root = Map::new();
    for path in fields {
        let mut map = &mut root;
        for (depth, step) in path.iter().enumerate() {
            let child = map.entry(step.clone()).or_insert_with(|| Value::Object(Map::new()));
            map = crate::object::as_map(child);
            let inner = fields.range(path.clone()..).nth(1);
            let has_more =
                inner.is_some_and(|next| next.len() > path.len() && next.starts_with(path));
            if depth + 1 == path.len() && has_more {
                map.insert(".".to_owned(), Value::Object(Map::new()));
            }
        }
    }
    Value::Object(root)
}

/// Reads the `FieldsV1` form.
pub(super) fn from_json(json: &Value) -> FieldSet {
    let mut fields = FieldSet::new();
    collect(json, &mut Vec::new(), &mut fields);
    fields
}

fn collect(json: &Value, path: &mut Path, fields: &mut FieldSet) {
    let Some(map) = json.as_object() else { return };
    if map.is_empty() && !path.is_empty() {
        fields.insert(path.clone());
    }
    for (step, inner) in map {
        if step == "." {
            fields.insert(path.clone());
        } else {
            path.push(step.clone());
            collect(inner, path, fields);
            path.pop();
        }
    }
}

/// A path as people read it: `.spec.containers[name="a"].image`.
pub(super) fn shown(path: &Path) -> String {
    path.iter().map(|step| shown_step(step)).collect()
}

fn shown_step(step: &str) -> String {
    if let Some(field) = step.strip_prefix("f:") {
        return format!(".{field}");
    }
    if let Some(value) = step.strip_prefix("v:") {
        return format!("[={value}]");
    }
    let keys: Map<String, Value> = step
        .strip_prefix("k:")
        .and_then(|json| serde_json::from_str(json).ok())
        .unwrap_or_default();
    let keys: Vec<String> = keys.iter().map(|(key, value)| format!("{key}={value}")).collect();
    format!("[{}]", keys.join(","))
}
