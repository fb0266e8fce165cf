//! What looking at an object found: what to change, what was decided, or why it cannot be meant.

use std::fmt;

use serde_json::Value;

use crate::edit::Edit;

/// Which object is spoken of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The document in its file, and the item where the document is a list; both from 1.
    pub document: Option<(usize, Option<usize>)>,
    /// Its kind, empty when it has none.
    pub kind: String,
    /// Its name, empty when it has none.
    pub name: String,
}

impl Place {
    /// An object that stands in no file.
    pub fn of(object: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Place {
            document: None,
            kind: text(&object["kind"]),
            name: text(&object["metadata"]["name"]),
        }
    }

    pub(crate) fn in_document(mut self, document: usize, item: Option<usize>) -> Self {
        self.document = Some((document, item));
        self
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if let Some((document, item)) = self.document {
            parts.push(format!("document {document}"));
            parts.extend(item.map(|item| format!("item {item}")));
        }
        let named = format!("{} {}", self.kind, self.name);
        parts.extend(Some(named.trim()).filter(|named| !named.is_empty()).map(str::to_owned));
        f.write_str(&parts.join(", "))
    }
}

/// Something that was decided for the one who wrote the manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// About which object.
    pub place: Place,
    /// What was decided, and why.
    pub text: String,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.text)
    }
}

/// A manifest that cannot be meant as it is written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {field}: {why}")]
pub struct Refusal {
    /// About which object.
    pub place: Place,
    /// The field, such as `spec.vpcID`.
    pub field: String,
    /// What is wrong with it, and what to do.
    pub why: String,
}

/// What looking at one object found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    /// What makes it ours; empty when it is already.
    pub edits: Vec<Edit>,
    /// What was decided.
    pub notes: Vec<String>,
}

impl Findings {
    pub(crate) fn set(&mut self, path: &[&'static str], value: impl Into<Value>) {
        self.edits.push(Edit::set(path, value));
    }

    pub(crate) fn remove(&mut self, path: &[&'static str]) {
        self.edits.push(Edit::remove(path));
    }

    pub(crate) fn rename(&mut self, path: &[&'static str], name: &'static str) {
        self.edits.push(Edit::rename(path, name));
    }

    pub(crate) fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }
}

/// A field that is wrong, before it is known where the object stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    pub(crate) field: String,
    pub(crate) why: String,
}

impl Wrong {
    pub(crate) fn new(field: impl Into<String>, why: impl Into<String>) -> Self {
        Wrong { field: field.into(), why: why.into() }
    }

    pub(crate) fn at(self, place: Place) -> Refusal {
        Refusal { place, field: self.field, why: self.why }
    }
}
