//! Who owns which fields: the `managedFields` of an object, what a write does to them, and
//! server-side apply with its conflicts.

use super::apply;
use super::fields::{self, FieldSet, Path};
use crate::failure::{Cause, Failure};
use crate::object;
use crate::schema::Schema;
use serde_json::{Value, json};

/// Who writes, how, and when.
#[derive(Debug, Clone)]
pub(crate) struct Writer<'a> {
    pub(crate) manager: &'a str,
    /// `status` or another subresource, empty for the object itself.
    pub(crate) subresource: &'a str,
    pub(crate) api_version: &'a str,
    pub(crate) now: &'a str,
    /// Custom resources count objects with named fields as fields of their own.
    pub(crate) custom: bool,
}

/// One entry of `managedFields`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    manager: String,
    operation: Operation,
    subresource: String,
    api_version: String,
    time: String,
    fields: FieldSet,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Apply,
    Update,
}

impl Entry {
    fn new(writer: &Writer<'_>, operation: Operation) -> Entry {
        Entry {
            manager: writer.manager.to_owned(),
            operation,
            subresource: writer.subresource.to_owned(),
            api_version: writer.api_version.to_owned(),
            time: writer.now.to_owned(),
            fields: FieldSet::new(),
        }
    }

    fn parse(json: &Value) -> Option<Entry> {
        let text = |field: &str| object::text(json, field).to_owned();
        let operation = match object::text(json, "operation") {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return None,
        };
        Some(Entry {
            manager: text("manager"),
            operation,
            subresource: text("subresource"),
            api_version: text("apiVersion"),
            time: text("time"),
            fields: fields::from_json(json.get("fieldsV1")?),
        })
    }

    fn to_json(&self) -> Value {
        let operation = match self.operation {
            Operation::Apply => "Apply",
            Operation::Update => "Update",
        };
        let mut json = json!({
            "manager": self.manager, "operation": operation, "apiVersion": self.api_version,
            "time": self.time, "fieldsType": "FieldsV1", "fieldsV1": fields::to_json(&self.fields),
        });
        if !self.subresource.is_empty() {
            json["subresource"] = self.subresource.clone().into();
        }
        json
    }

    fn is_of(&self, writer: &Writer<'_>, operation: Operation) -> bool {
        self.manager == writer.manager
            && self.operation == operation
            && self.subresource == writer.subresource
    }

    /// How a conflict names the owner.
    fn shown(&self) -> String {
        let mut shown = format!("{:?}", self.manager);
        if !self.subresource.is_empty() {
            shown = format!("{shown} with subresource {:?}", self.subresource);
        }
        match self.operation {
            Operation::Apply => shown,
            Operation::Update => format!("{shown} using {}", self.api_version),
        }
    }
}

fn entries(object: &Value) -> Vec<Entry> {
    let list = object::metadata(object).get("managedFields").and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Entry::parse).collect()
}

fn set_entries(object: &mut Value, mut entries: Vec<Entry>) {
    entries.retain(|entry| !entry.fields.is_empty());
    if entries.is_empty() {
        object::metadata_mut(object).remove("managedFields");
    } else {
        let list: Vec<Value> = entries.iter().map(Entry::to_json).collect();
        object::set_meta(object, "managedFields", list);
    }
}

/// Notes on `after` what the writer changed from `before` by other means than apply.
/// A writer may set the managed fields itself; without any in `after`, those of `before` count.
pub(crate) fn note_update(schema: &Schema, before: &Value, after: &mut Value, writer: &Writer<'_>) {
    let given = object::metadata(after).contains_key("managedFields");
    let mut owners = entries(if given { after } else { before });
    let difference = fields::difference(schema, before, after, writer.custom);
    for owner in &mut owners {
        if !owner.is_of(writer, Operation::Update) {
            owner.fields.retain(|path| {
                !difference.written.contains(path) && !difference.removed.contains(path)
            });
        }
    }
    if !difference.written.is_empty() || !difference.removed.is_empty() {
        let mine = take(&mut owners, writer, Operation::Update);
        let mut fields: FieldSet = mine.map(|entry| entry.fields).unwrap_or_default();
        fields.extend(difference.written);
        fields.retain(|path| !difference.removed.contains(path));
        owners.push(Entry { fields, ..Entry::new(writer, Operation::Update) });
    }
    set_entries(after, owners);
}

fn take(owners: &mut Vec<Entry>, writer: &Writer<'_>, operation: Operation) -> Option<Entry> {
    let place = owners.iter().position(|owner| owner.is_of(writer, operation))?;
    Some(owners.remove(place))
}

/// Applies a configuration to an object: sets what it says, removes what the same manager applied
/// before and left out now, unless others own it. Fields of others with other values are conflicts
/// unless `force`.
pub(crate) fn apply_configuration(
    schema: &Schema,
    live: &Value,
    configuration: &Value,
    writer: &Writer<'_>,
    force: bool,
) -> Result<Value, Failure> {
    let owned = fields::applied(schema, configuration);
    let mut merged = live.clone();
    apply::merge(schema, &mut merged, configuration);
    let mut owners = entries(live);
    let mine = take(&mut owners, writer, Operation::Apply);
    let conflicts = conflicts(schema, &owners, &owned, live, &merged);
    let last = (writer.manager == "kubectl").then(|| last_applied(live)).flatten();
    let refused: Vec<(Entry, Path)> = conflicts
        .iter()
        .filter(|(_, path)| last.as_ref().is_none_or(|last| differ(schema, live, last, path)))
        .cloned()
        .collect();
    if !refused.is_empty() && !force {
        return Err(conflict_failure(&refused));
    }
    for (owner, path) in &conflicts {
        for entry in owners.iter_mut().filter(|entry| *entry == owner) {
            entry.fields.remove(path);
        }
    }
    if let Some(mine) = &mine {
        prune(schema, &mut merged, &mine.fields, &owned, &owners);
    }
    let entry = match mine {
        Some(mine) if mine.fields == owned && mine.api_version == writer.api_version => mine,
        _ => Entry { fields: owned, ..Entry::new(writer, Operation::Apply) },
    };
    owners.push(entry);
    set_entries(&mut merged, owners);
    Ok(merged)
}

/// What kubectl applied from the client before. Where that is what the object still has, kubectl
/// takes the field over from itself.
fn last_applied(live: &Value) -> Option<Value> {
    let annotations = object::metadata(live).get("annotations")?;
    let text = annotations.get("kubectl.kubernetes.io/last-applied-configuration")?.as_str()?;
    serde_json::from_str(text).ok()
}

fn differ(schema: &Schema, one: &Value, other: &Value, path: &Path) -> bool {
    fields::value_at(schema, one, path) != fields::value_at(schema, other, path)
}

/// Fields that others own and that would get another value.
fn conflicts(
    schema: &Schema,
    owners: &[Entry],
    owned: &FieldSet,
    live: &Value,
    merged: &Value,
) -> Vec<(Entry, Path)> {
    let changes = |path: &Path| differ(schema, live, merged, path);
    let is_item = |path: &Path| path.last().is_some_and(|step| step.starts_with("k:"));
    owners
        .iter()
        .flat_map(|owner| {
            owned
                .iter()
                .filter(|path| owner.fields.contains(*path) && !is_item(path) && changes(path))
                .map(|path| (owner.clone(), path.clone()))
        })
        .collect()
}

fn conflict_failure(conflicts: &[(Entry, Path)]) -> Failure {
    let causes: Vec<Cause> = conflicts
        .iter()
        .map(|(owner, path)| {
            let text = format!("conflict with {}", owner.shown());
            Cause::new("FieldManagerConflict", &fields::shown(path), text)
        })
        .collect();
    let text = match conflicts {
        [(owner, path)] => format!("conflict with {}: {}", owner.shown(), fields::shown(path)),
        many => conflict_list(many),
    };
    let plural = if conflicts.len() == 1 { "" } else { "s" };
    let message = format!("Apply failed with {} conflict{plural}: {text}", conflicts.len());
    Failure::apply_conflict(message, &causes)
}

fn conflict_list(conflicts: &[(Entry, Path)]) -> String {
    let mut by_owner: std::collections::BTreeMap<String, Vec<String>> = Default::default();
    for (owner, path) in conflicts {
        by_owner.entry(owner.shown()).or_default().push(format!("- {}", fields::shown(path)));
    }
    let parts: Vec<String> = by_owner
        .into_iter()
        .map(|(owner, paths)| format!("conflicts with {owner}:\n{}", paths.join("\n")))
        .collect();
    parts.join("\n")
}

/// Removes what was applied before, is not applied now, and nobody else owns.
fn prune(schema: &Schema, merged: &mut Value, before: &FieldSet, now: &FieldSet, others: &[Entry]) {
    let held = |path: &Path| {
        let inside = |fields: &FieldSet| {
            fields.range(path.clone()..).next().is_some_and(|next| next.starts_with(path))
        };
        inside(now) || others.iter().any(|other| inside(&other.fields))
    };
    for path in before.difference(now).filter(|path| !held(path)) {
        fields::remove(schema, merged, path);
    }
}
