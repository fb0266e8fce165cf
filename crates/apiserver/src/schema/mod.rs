//! Structural schemas: what objects of a version may look like. Parsed once from the OpenAPI of a
//! CustomResourceDefinition or of a built-in type; then they prune, default and validate.
//!
//! Rule: these functions are pure; whether a complaint becomes an error, a warning or nothing is
//! the caller's business.

mod default;
mod merge_keys;
mod node;
mod prune;
mod rules;
mod validate;

pub(crate) use merge_keys::annotate;
pub(crate) use node::{Additional, ListType, Node};

use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;

/// The schema of one version of one resource.
pub(crate) struct Schema {
    root: Node,
    definitions: std::sync::Arc<Definitions>,
    /// CEL rules of the whole tree, compiled; only custom resources have them.
    rules: Option<kube_cel::CompiledSchema>,
    raw: Value,
}

/// Named schemas that others refer to; they may refer to each other in circles.
pub(crate) type Definitions = BTreeMap<String, Node>;

impl fmt::Debug for Schema {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Schema").field("root", &self.root).finish_non_exhaustive()
    }
}

impl Schema {
    /// The schema of a CustomResourceDefinition's version.
    pub(crate) fn from_crd(raw: &Value) -> Result<Schema, String> {
        let mut root = Node::parse(raw)?;
        root.add_object_fields();
        let rules = has_rules(raw).then(|| kube_cel::compile_schema(raw));
        Ok(Schema { root, definitions: Default::default(), rules, raw: raw.clone() })
    }

    /// A schema that is one of many definitions.
    pub(crate) fn reference(name: &str, definitions: &std::sync::Arc<Definitions>) -> Schema {
        let root = Node { reference: Some(name.to_owned()), ..Node::default() };
        let raw = serde_json::json!({"$ref": format!("#/components/schemas/{name}")});
        Schema { root, definitions: std::sync::Arc::clone(definitions), rules: None, raw }
    }

    /// The schema as it was written, for OpenAPI documents.
    pub(crate) fn raw(&self) -> &Value {
        &self.raw
    }

    pub(crate) fn root(&self) -> &Node {
        self.resolve(&self.root)
    }

    #[cfg(test)]
    pub(crate) fn root_field(&self, field: &str) -> Option<&Node> {
        self.root().properties.get(field).map(|node| self.resolve(node))
    }

    /// Follows a reference to what it names.
    pub(crate) fn resolve<'a>(&'a self, node: &'a Node) -> &'a Node {
        match &node.reference {
            Some(name) => self.definitions.get(name).unwrap_or(node),
            None => node,
        }
    }

    /// The schema of a field of an object described by `node`.
    pub(crate) fn field<'a>(&'a self, node: &'a Node, field: &str) -> Option<&'a Node> {
        if let Some(found) = node.properties.get(field) {
            return Some(found);
        }
        match &node.additional {
            Additional::Of(values) => Some(values),
            Additional::No | Additional::Any => None,
        }
    }

    /// The compiled CEL rules, if the schema has any.
    pub(crate) fn rules(&self) -> Option<&kube_cel::CompiledSchema> {
        self.rules.as_ref()
    }
}

fn has_rules(raw: &Value) -> bool {
    match raw {
        Value::Object(map) => {
            map.contains_key("x-kubernetes-validations") || map.values().any(has_rules)
        }
        Value::Array(list) => list.iter().any(has_rules),
        _ => false,
    }
}

/// Fields that every object has and no CRD schema needs to name.
pub(super) fn object_fields() -> Map<String, Value> {
    let text = serde_json::json!({"type": "string"});
    let metadata = serde_json::json!({
        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
        "properties": {
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
            "finalizers": {
                "type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"},
            },
            "ownerReferences": {
                "type": "array", "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["uid"],
                "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            },
        },
    });
    Map::from_iter([
        ("apiVersion".to_owned(), text.clone()),
        ("kind".to_owned(), text),
        ("metadata".to_owned(), metadata),
    ])
}

/// Appends a field name to a path.
fn join(path: &str, field: &str) -> String {
    if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") }
}

#[cfg(test)]
mod tests;
