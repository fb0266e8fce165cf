//! Files: their documents, converted and printed. What needs no change is printed as it stands;
//! what is changed keeps the order of its fields and loses its comments.

use serde_json::Value;
use serde_yaml_ng as yaml;

use crate::finding::{Note, Place, Refusal};
use crate::object::examine;
use crate::owner::Settings;
use crate::seed_view::SeedVersion;
use crate::{edit, namespace};

/// Why a file cannot be converted.
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    /// Neither YAML nor JSON.
    #[error("document {document}: {why}")]
    Malformed {
        /// Which document, from 1.
        document: usize,
        /// What the parser says.
        why: String,
    },
    /// Nothing that Kubernetes could take.
    #[error("document {document}: an object with apiVersion and kind was expected")]
    NoObject {
        /// Which document, from 1.
        document: usize,
    },
    /// Not to be meant as it is written.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// One document of a file.
#[derive(Clone, Debug)]
pub struct Document {
    /// The text, where it was written in YAML and needs no change.
    text: Option<String>,
    tree: yaml::Value,
}

/// A converted file.
#[derive(Clone, Debug)]
pub struct Converted {
    /// The documents in their order.
    pub documents: Vec<Document>,
    /// What was decided.
    pub notes: Vec<Note>,
}

/// Converts every document of a file in YAML or JSON.
///
/// # Errors
/// When a document cannot be read, or cannot be meant as it is written.
pub fn convert(file: &str, settings: &Settings) -> Result<Converted, ConvertError> {
    let mut documents = read(file)?;
    let known = knowing_namespaces(&documents, settings);
    let mut work = Work { settings, known: &known, notes: Vec::new() };
    for (index, document) in documents.iter_mut().enumerate() {
        document.convert(index + 1, &mut work)?;
    }
    Ok(Converted { notes: work.notes, documents })
}

/// What goes from document to document.
struct Work<'a> {
    settings: &'a Settings,
    /// The settings with what the file itself tells of namespaces.
    known: &'a Settings,
    notes: Vec<Note>,
}

impl Work<'_> {
    /// Changes the tree of an object as looking at it says; tells whether anything changed.
    fn change(
        &mut self,
        object: &Value,
        tree: &mut yaml::Value,
        place: &Place,
    ) -> Result<bool, Refusal> {
        let is_namespace = object["kind"] == "Namespace";
        let settings = if is_namespace { self.settings } else { self.known };
        let findings = examine(object, place, settings)?;
        let note = |text| Note { place: place.clone(), text };
        self.notes.extend(findings.notes.into_iter().map(note));
        if !findings.edits.is_empty() && tree.get("kind").is_none() {
            tree["kind"] = edit::ordered(&object["kind"]);
        }
        findings.edits.iter().for_each(|edit| edit.apply_ordered(tree));
        Ok(!findings.edits.is_empty())
    }
}

impl Converted {
    /// As one file in YAML.
    pub fn yaml(&self) -> String {
        self.documents.iter().map(Document::yaml).collect::<Vec<_>>().join("---\n")
    }

    /// As one JSON value; several documents become a `List`.
    pub fn json(&self) -> String {
        let items: Vec<&yaml::Value> =
            self.documents.iter().map(|document| &document.tree).collect();
        let printed = match items.as_slice() {
            [one] => serde_json::to_string_pretty(one),
            items => {
                let list = Listed { api_version: "v1", kind: "List", items };
                serde_json::to_string_pretty(&list)
            }
        };
        printed.map(|text| text + "\n").unwrap_or_default()
    }

    /// Every object, those of lists one by one.
    pub fn objects(&self) -> Vec<Value> {
        self.documents.iter().map(Document::json_tree).flat_map(objects).collect()
    }
}

/// Several documents in one JSON value.
#[derive(serde::Serialize)]
struct Listed<'a> {
    #[serde(rename = "apiVersion")]
    api_version: &'a str,
    kind: &'a str,
    items: &'a [&'a yaml::Value],
}

impl Document {
    fn yaml(&self) -> String {
        let printed = || serde_saphyr::to_string(&self.tree).unwrap_or_default();
        let mut text = self.text.clone().unwrap_or_else(printed);
        if !text.ends_with('\n') {
            text.push('\n');
        }
        text
    }

    /// The document in JSON; reading made sure that there is such.
    fn json_tree(&self) -> Value {
        serde_json::to_value(&self.tree).unwrap_or(Value::Null)
    }

    fn convert(&mut self, number: usize, work: &mut Work<'_>) -> Result<(), ConvertError> {
        let object = self.json_tree();
        let is_list = is_list(&object);
        for (index, object) in objects(object.clone()).into_iter().enumerate() {
            if !object["kind"].is_string() {
                return Err(ConvertError::NoObject { document: number });
            }
            let place = Place::of(&object).in_document(number, is_list.then_some(index + 1));
            let tree = if is_list { &mut self.tree["items"][index] } else { &mut self.tree };
            if work.change(&object, tree, &place)? {
                self.text = None;
            }
        }
        self.plain_list(&object);
        Ok(())
    }

    /// A list of a seed's networks becomes a list of anything.
    fn plain_list(&mut self, object: &Value) {
        let seed = SeedVersion::of(object["apiVersion"].as_str().unwrap_or_default());
        if seed.is_some() && object["kind"] == "NetworkList" {
            self.tree["apiVersion"] = "v1".into();
            self.tree["kind"] = "List".into();
        }
    }
}

fn is_list(object: &Value) -> bool {
    object["kind"].as_str().is_some_and(|kind| kind.ends_with("List")) && object["items"].is_array()
}

/// The object, or those of a list. In a list of one kind the items need not repeat it.
fn objects(object: Value) -> Vec<Value> {
    if !is_list(&object) {
        return vec![object];
    }
    let kind = object["kind"].as_str().and_then(|kind| kind.strip_suffix("List"));
    let kind = kind.filter(|kind| !kind.is_empty());
    let inherited =
        kind.map(|kind| [("apiVersion", object["apiVersion"].clone()), ("kind", kind.into())]);
    let complete = |mut item: Value| {
        for (field, value) in inherited.iter().flatten() {
            if item.is_object() && item[*field].is_null() {
                item[*field] = value.clone();
            }
        }
        item
    };
    object["items"].as_array().into_iter().flatten().cloned().map(complete).collect()
}

/// What the file itself tells of namespaces is known as well.
fn knowing_namespaces(documents: &[Document], settings: &Settings) -> Settings {
    let mut known = settings.clone();
    let objects = documents.iter().map(Document::json_tree).flat_map(objects);
    for object in objects.filter(|object| object["kind"] == "Namespace") {
        let Some(name) = object["metadata"]["name"].as_str() else { continue };
        match namespace::tenant(&object, settings) {
            Some(tenant) => drop(known.namespaces.insert(name.to_owned(), Some(tenant))),
            None => drop(known.namespaces.entry(name.to_owned()).or_insert(None)),
        }
    }
    known
}

fn read(file: &str) -> Result<Vec<Document>, ConvertError> {
    let file = file.strip_prefix('\u{feff}').unwrap_or(file);
    if file.trim_start().starts_with('{')
        && let Some(documents) = read_json(file)
    {
        return Ok(documents);
    }
    let mut documents = Vec::new();
    for (line, text) in pieces(file) {
        let tree = read_yaml(line, text)
            .map_err(|why| ConvertError::Malformed { document: documents.len() + 1, why })?;
        if !tree.is_null() {
            let text = text.strip_prefix("---").unwrap_or(text).trim_start_matches(['\r', '\n']);
            documents.push(Document { text: Some(text.to_owned()), tree });
        }
    }
    Ok(documents)
}

/// JSON values, one after the other; none when it is YAML that begins with a brace.
fn read_json(file: &str) -> Option<Vec<Document>> {
    let values = serde_json::Deserializer::from_str(file).into_iter::<yaml::Value>();
    let document = |tree: serde_json::Result<_>| Some(Document { text: None, tree: tree.ok()? });
    values.map(document).collect()
}

/// The documents of a file, each with the number of lines before it. A line that begins with three
/// dashes is a marker wherever it stands.
fn pieces(file: &str) -> Vec<(usize, &str)> {
    let is_marker = |line: &str| {
        line.strip_prefix("---")
            .is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']))
    };
    let mut pieces = Vec::new();
    let (mut start, mut start_line, mut position) = (0, 0, 0);
    for (number, line) in file.split_inclusive('\n').enumerate() {
        if is_marker(line) {
            pieces.push((start_line, &file[start..position]));
            (start, start_line) = (position, number);
        }
        position += line.len();
    }
    pieces.push((start_line, &file[start..]));
    pieces.retain(|(_, piece)| piece.lines().any(says_something));
    pieces
}

/// Whether a line is more than a marker, a comment, a directive or nothing.
fn says_something(line: &str) -> bool {
    let line = line.strip_prefix("---").unwrap_or(line).trim();
    !line.is_empty() && !line.starts_with(['#', '%'])
}

/// Kubernetes reads YAML 1.1: `yes` is a boolean and `0644` is octal.
fn read_yaml(lines_before: usize, text: &str) -> Result<yaml::Value, String> {
    let options = serde_saphyr::options! { legacy_octal_numbers: true, with_snippet: false };
    let padded = "\n".repeat(lines_before) + text;
    let tree: yaml::Value = serde_saphyr::from_str_with_options(&padded, options)
        .map_err(|error| format!("cannot be read as YAML: {error}"))?;
    serde_json::to_value(&tree).map_err(|error| format!("holds what JSON cannot hold: {error}"))?;
    Ok(tree)
}
