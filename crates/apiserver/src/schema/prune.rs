//! Dropping what the schema does not know, and saying what was dropped.

use super::{Additional, Node, Schema, join};
use serde_json::{Map, Value};

impl Schema {
    /// Removes unknown fields from `value`, and nulls where none may be; returns the paths of the
    /// unknown ones.
    pub(crate) fn prune(&self, value: &mut Value) -> Vec<String> {
        let mut unknown = Vec::new();
        self.prune_at(&self.root, "", value, &mut unknown);
        unknown
    }

    fn prune_at(&self, node: &Node, path: &str, value: &mut Value, unknown: &mut Vec<String>) {
        let node = self.resolve(node);
        match value {
            Value::Object(map) => self.prune_map(node, path, map, unknown),
            Value::Array(list) => {
                let Some(items) = &node.items else { return };
                for (index, item) in list.iter_mut().enumerate() {
                    self.prune_at(items, &format!("{path}[{index}]"), item, unknown);
                }
            }
            _ => {}
        }
    }

    fn prune_map(
        &self,
        node: &Node,
        path: &str,
        map: &mut Map<String, Value>,
        unknown: &mut Vec<String>,
    ) {
        map.retain(|field, _| {
            let known = keeps(node, field);
            if !known {
                unknown.push(join(path, field));
            }
            known
        });
        map.retain(|field, value| {
            let field = self.field(node, field).map(|inner| self.resolve(inner));
            !value.is_null() || field.is_none_or(|field| field.nullable || field.is_anything())
        });
        for (field, value) in map.iter_mut() {
            if let Some(inner) = self.field(node, field) {
                self.prune_at(inner, &join(path, field), value, unknown);
            }
        }
    }
}

fn keeps(node: &Node, field: &str) -> bool {
    node.preserve_unknown
        || node.is_anything()
        || node.properties.contains_key(field)
        || !matches!(node.additional, Additional::No)
        || node.embedded && matches!(field, "apiVersion" | "kind" | "metadata")
}
