//! Filling in the defaults of a schema.

use super::{Node, Schema};
use serde_json::{Map, Value};

impl Schema {
    /// Sets every missing field that has a default, also inside what was defaulted.
    pub(crate) fn fill_defaults(&self, value: &mut Value) {
        self.default_at(&self.root, value);
    }

    fn default_at(&self, node: &Node, value: &mut Value) {
        let node = self.resolve(node);
        match value {
            Value::Object(map) => self.default_map(node, map),
            Value::Array(list) => {
                let Some(items) = &node.items else { return };
                list.iter_mut().for_each(|item| self.default_at(items, item));
            }
            _ => {}
        }
    }

    fn default_map(&self, node: &Node, map: &mut Map<String, Value>) {
        for (field, inner) in &node.properties {
            let Some(default) = &self.resolve(inner).default else { continue };
            let replaced_null = map.get(field).is_some_and(Value::is_null) && !inner.nullable;
            if replaced_null || !map.contains_key(field) {
                map.insert(field.clone(), default.clone());
            }
        }
        for (field, value) in map.iter_mut() {
            if let Some(inner) = self.field(node, field) {
                self.default_at(inner, value);
            }
        }
    }
}
