//! One place in a structural schema, parsed from its OpenAPI form.

use regex::Regex;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// What keys beyond the named properties an object may have.
#[derive(Debug, Default, Clone)]
pub(crate) enum Additional {
    /// None: others are pruned.
    #[default]
    No,
    /// Any key with any value.
    Any,
    /// Any key with values of this schema.
    Of(Box<Node>),
}

/// How two versions of a list are merged.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) enum ListType {
    #[default]
    Atomic,
    Set,
    /// Items are told apart by these fields.
    Map(Vec<String>),
}

/// One place in a schema.
#[derive(Debug, Default, Clone)]
pub(crate) struct Node {
    /// A name in the definitions; everything else is empty then.
    pub(crate) reference: Option<String>,
    /// `object`, `array`, `string`, `integer`, `number`, `boolean`, or empty for any.
    pub(crate) kind: String,
    pub(crate) properties: BTreeMap<String, Node>,
    pub(crate) additional: Additional,
    pub(crate) items: Option<Box<Node>>,
    pub(crate) required: Vec<String>,
    pub(crate) default: Option<Value>,
    pub(crate) nullable: bool,
    pub(crate) preserve_unknown: bool,
    pub(crate) int_or_string: bool,
    pub(crate) embedded: bool,
    pub(crate) list_type: ListType,
    /// The strategic merge patch key, where it differs from the list's map keys.
    pub(crate) patch_key: Option<String>,
    pub(crate) atomic_map: bool,
    pub(crate) limits: Limits,
    pub(crate) junctors: Junctors,
}

/// Limits on a value itself.
#[derive(Debug, Default, Clone)]
pub(crate) struct Limits {
    pub(crate) allowed: Vec<Value>,
    pub(crate) minimum: Option<f64>,
    pub(crate) maximum: Option<f64>,
    pub(crate) exclusive_minimum: bool,
    pub(crate) exclusive_maximum: bool,
    pub(crate) multiple_of: Option<f64>,
    pub(crate) min_length: Option<u64>,
    pub(crate) max_length: Option<u64>,
    pub(crate) min_items: Option<u64>,
    pub(crate) max_items: Option<u64>,
    pub(crate) unique_items: bool,
    pub(crate) min_properties: Option<u64>,
    pub(crate) max_properties: Option<u64>,
    pub(crate) pattern: Option<Regex>,
    pub(crate) format: String,
}

/// Conditions on the value beside its structure.
#[derive(Debug, Default, Clone)]
pub(crate) struct Junctors {
    pub(crate) all_of: Vec<Node>,
    pub(crate) any_of: Vec<Node>,
    pub(crate) one_of: Vec<Node>,
    pub(crate) not: Option<Box<Node>>,
}

impl Node {
    /// Parses a schema; the error says what in it cannot be understood.
    pub(crate) fn parse(raw: &Value) -> Result<Node, String> {
        let Some(map) = raw.as_object() else { return Ok(Node::default()) };
        if let Some(name) = reference(map) {
            return Ok(Node { reference: Some(name), ..Node::default() });
        }
        Ok(Node {
            reference: None,
            kind: kind(map),
            properties: properties(map)?,
            additional: additional(map)?,
            items: boxed(map.get("items"))?,
            required: strings(map.get("required")),
            default: map.get("default").cloned(),
            nullable: flag(map, "nullable") || kinds(map).any(|kind| kind == "null"),
            preserve_unknown: flag(map, "x-kubernetes-preserve-unknown-fields"),
            int_or_string: flag(map, "x-kubernetes-int-or-string"),
            embedded: flag(map, "x-kubernetes-embedded-resource"),
            list_type: list_type(map),
            patch_key: None,
            atomic_map: map.get("x-kubernetes-map-type").is_some_and(|v| v == "atomic"),
            limits: limits(map)?,
            junctors: junctors(map)?,
        })
    }

    /// Adds `apiVersion`, `kind` and `metadata`; of what the schema itself says about metadata,
    /// only limits on the name count, as in the real API.
    pub(super) fn add_object_fields(&mut self) {
        for (field, raw) in super::object_fields() {
            let Ok(mut node) = Node::parse(&raw) else { continue };
            if let Some(name) =
                self.properties.get_mut(&field).and_then(|own| own.properties.remove("name"))
            {
                node.properties.insert("name".to_owned(), name);
            }
            self.properties.insert(field, node);
        }
    }

    /// Whether any JSON is welcome here.
    pub(crate) fn is_anything(&self) -> bool {
        self.reference.is_none()
            && self.kind.is_empty()
            && !self.int_or_string
            && self.properties.is_empty()
    }
}

/// The definition referred to; a reference that has a description is wrapped in an `allOf`.
fn reference(map: &Map<String, Value>) -> Option<String> {
    let direct = map.get("$ref");
    let wrapped = || match map.get("allOf").and_then(Value::as_array).map(Vec::as_slice) {
        Some([only]) if !map.contains_key("type") => only.get("$ref"),
        _ => None,
    };
    let path = direct.or_else(wrapped)?.as_str()?;
    Some(path.rsplit('/').next().unwrap_or(path).to_owned())
}

fn kinds(map: &Map<String, Value>) -> impl Iterator<Item = &str> {
    let list = match map.get("type") {
        Some(Value::Array(list)) => list.as_slice(),
        Some(one) => std::slice::from_ref(one),
        None => &[],
    };
    list.iter().filter_map(Value::as_str)
}

fn kind(map: &Map<String, Value>) -> String {
    kinds(map).find(|kind| *kind != "null").unwrap_or("").to_owned()
}

fn flag(map: &Map<String, Value>, field: &str) -> bool {
    map.get(field).and_then(Value::as_bool).unwrap_or(false)
}

fn strings(value: Option<&Value>) -> Vec<String> {
    let list = value.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    list.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn boxed(value: Option<&Value>) -> Result<Option<Box<Node>>, String> {
    value.map(|raw| Node::parse(raw).map(Box::new)).transpose()
}

fn nodes(value: Option<&Value>) -> Result<Vec<Node>, String> {
    let list = value.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    list.iter().map(Node::parse).collect()
}

fn properties(map: &Map<String, Value>) -> Result<BTreeMap<String, Node>, String> {
    let Some(properties) = map.get("properties").and_then(Value::as_object) else {
        return Ok(BTreeMap::new());
    };
    properties
        .iter()
        .map(|(name, raw)| {
            Ok((name.clone(), Node::parse(raw).map_err(|e| format!("{name}: {e}"))?))
        })
        .collect()
}

fn additional(map: &Map<String, Value>) -> Result<Additional, String> {
    Ok(match map.get("additionalProperties") {
        None | Some(Value::Bool(false)) => Additional::No,
        Some(Value::Bool(true)) => Additional::Any,
        Some(raw) => Additional::Of(Box::new(Node::parse(raw)?)),
    })
}

fn list_type(map: &Map<String, Value>) -> ListType {
    match map.get("x-kubernetes-list-type").and_then(Value::as_str) {
        Some("set") => ListType::Set,
        Some("map") => ListType::Map(strings(map.get("x-kubernetes-list-map-keys"))),
        _ => ListType::Atomic,
    }
}

fn limits(map: &Map<String, Value>) -> Result<Limits, String> {
    let number = |field| map.get(field).and_then(Value::as_f64);
    let count = |field| map.get(field).and_then(Value::as_u64);
    let pattern = map.get("pattern").and_then(Value::as_str).map(Regex::new).transpose();
    Ok(Limits {
        allowed: map.get("enum").and_then(Value::as_array).cloned().unwrap_or_default(),
        minimum: number("minimum"),
        maximum: number("maximum"),
        exclusive_minimum: flag(map, "exclusiveMinimum"),
        exclusive_maximum: flag(map, "exclusiveMaximum"),
        multiple_of: number("multipleOf"),
        min_length: count("minLength"),
        max_length: count("maxLength"),
        min_items: count("minItems"),
        max_items: count("maxItems"),
        unique_items: flag(map, "uniqueItems"),
        min_properties: count("minProperties"),
        max_properties: count("maxProperties"),
        pattern: pattern.map_err(|error| format!("pattern: {error}"))?,
        format: map.get("format").and_then(Value::as_str).unwrap_or("").to_owned(),
    })
}

fn junctors(map: &Map<String, Value>) -> Result<Junctors, String> {
    Ok(Junctors {
        all_of: nodes(map.get("allOf"))?,
        any_of: nodes(map.get("anyOf"))?,
        one_of: nodes(map.get("oneOf"))?,
        not: boxed(map.get("not"))?,
    })
}
