//! Server-side tables for `kubectl get`: which columns a resource has and what a row says.
//! Pure: takes objects and the time, returns the `Table` object.

mod builtin;
mod cells;
mod json_path;

use crate::clock;
use crate::object;
use crate::registry::Resource;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

/// A printer column of a CustomResourceDefinition.
#[derive(Debug, Clone)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) format: String,
    pub(crate) description: String,
    /// 0 is always shown, more only with `-o wide`.
    pub(crate) priority: i64,
    pub(crate) path: String,
}

/// What of each object goes along with its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Include {
    Nothing,
    Metadata,
    Whole,
}

/// The column definitions of a version.
pub(crate) fn columns(resource: &Resource, version: &str) -> Value {
    if let Some(columns) = builtin::columns(&resource.group, &resource.plural) {
        return columns.iter().map(builtin::Builtin::definition).collect();
    }
    let mut columns = vec![definition("Name", "string", "name", 0)];
    columns.extend(printer_columns(resource, version).iter().map(|column| {
        let mut shown = definition(&column.name, &column.kind, &column.format, column.priority);
        shown["description"] = column.description.clone().into();
        shown
    }));
    Value::Array(columns)
}

fn definition(name: &str, kind: &str, format: &str, priority: i64) -> Value {
    json!({"name": name, "type": kind, "format": format, "description": "", "priority": priority})
}

/// Resources without columns of their own show their age.
fn printer_columns(resource: &Resource, version: &str) -> Vec<Column> {
    let own = resource.version(version).map_or(&[][..], |version| version.columns.as_slice());
    if !own.is_empty() {
        return own.to_vec();
    }
    vec![Column {
        name: "Age".to_owned(),
        kind: "date".to_owned(),
        format: String::new(),
        description: String::new(),
        priority: 0,
        path: ".metadata.creationTimestamp".to_owned(),
    }]
}

/// One row.
pub(crate) fn row(
    resource: &Resource,
    version: &str,
    object: &Value,
    include: Include,
    now: Timestamp,
) -> Value {
    let mut row = json!({"cells": cells(resource, version, object, now)});
    match include {
        Include::Nothing => {}
        Include::Metadata => row["object"] = partial(object),
        Include::Whole => row["object"] = object.clone(),
    }
    row
}

fn cells(resource: &Resource, version: &str, object: &Value, now: Timestamp) -> Value {
    if let Some(columns) = builtin::columns(&resource.group, &resource.plural) {
        return columns.iter().map(|column| (column.cell)(object, now)).collect();
    }
    let mut cells = vec![Value::from(object::name(object))];
    let columns = printer_columns(resource, version);
    cells.extend(columns.iter().map(|column| custom_cell(column, object, now)));
    Value::Array(cells)
}

/// A cell of a custom resource, by its JSON path; empty paths give null, which kubectl shows empty.
fn custom_cell(column: &Column, object: &Value, now: Timestamp) -> Value {
    let found = json_path::find(object, &column.path);
    match (column.kind.as_str(), found.as_slice()) {
        (_, []) => Value::Null,
        ("date", [one, ..]) => age_cell(one, now),
        ("integer", [one, ..]) => one.as_i64().map_or(Value::Null, Value::from),
        ("number", [one, ..]) => one.as_f64().map_or(Value::Null, Value::from),
        ("boolean", [one, ..]) => one.as_bool().map_or(Value::Null, Value::from),
        (_, many) => many.iter().map(|value| plain(value)).collect::<Vec<_>>().join(",").into(),
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

fn age_cell(value: &Value, now: Timestamp) -> Value {
    match value.as_str().and_then(clock::parse) {
        Some(at) => clock::age(at, now).into(),
        None => "<unknown>".into(),
    }
}

/// The object reduced to its metadata.
pub(crate) fn partial(object: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
        "metadata": object.get("metadata").cloned().unwrap_or_else(|| json!({})),
    })
}

/// A whole table around rows.
pub(crate) fn table(columns: &Value, rows: &[Value], metadata: &Value) -> Value {
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
        "columnDefinitions": columns, "rows": rows,
    })
}

#[cfg(test)]
mod tests;
