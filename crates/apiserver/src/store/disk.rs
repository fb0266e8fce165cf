//! The file: one redb table of objects and one of facts about the store itself.
//! A file from a newer format, or one that does not read back whole, is refused with a sentence.

use super::{Change, Key, Stored};
use crate::object;
use bytes::Bytes;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction};
use serde_json::Value;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const OBJECTS: TableDefinition<(&str, &str, &str), (u64, &[u8])> = TableDefinition::new("objects");
const FACTS: TableDefinition<&str, u64> = TableDefinition::new("facts");
const FORMAT: &str = "format";
const REVISION: &str = "revision";

/// Raised when the layout of the tables changes.
const FORMAT_VERSION: u64 = 1;

/// Pages redb may keep in memory; every object is in memory already.
const CACHE_BYTES: usize = 4 << 20;

/// Why a store cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages are the documentation")]
pub enum StoreError {
    #[error(
        "cannot open the object store {path}: {source}; if another lab uses it stop that one, \
         else move the file away to start empty"
    )]
    Open { path: PathBuf, source: Box<redb::Error> },
    #[error(
        "the object store {path} has format {found}, this program reads up to {FORMAT_VERSION}; \
         use a newer program or move the file away to start empty"
    )]
    Newer { path: PathBuf, found: u64 },
    #[error("the object store {path} is damaged at {at}: {why}; move the file away to start empty")]
    Damaged { path: PathBuf, at: String, why: String },
}

/// An object as it is on disk: place, revision, JSON.
type Row = (Key, u64, Bytes);

/// The open file.
pub(super) struct Disk {
    path: PathBuf,
    database: Database,
}

/// What a store file holds.
pub(super) struct Content {
    pub(super) revision: u64,
    pub(super) objects: Vec<Stored>,
}

impl Disk {
    /// Opens or makes the file. What was not written whole, or changed since, is refused: every
    /// page is checked before any is believed.
    pub(super) fn open(path: &Path) -> Result<Disk, StoreError> {
        let refused =
            |source: redb::Error| StoreError::Open { path: path.into(), source: source.into() };
        let mut database = guarded(path, || {
            let builder = Database::builder().set_cache_size(CACHE_BYTES).create(path);
            builder.map_err(|error| refused(error.into()))
        })?;
        if !guarded(path, || database.check_integrity().map_err(|error| refused(error.into())))? {
            return Err(damaged(path, "its pages", "they do not match their checksums"));
        }
        let format = prepare(&database).map_err(refused)?;
        if format > FORMAT_VERSION {
            return Err(StoreError::Newer { path: path.into(), found: format });
        }
        Ok(Disk { path: path.into(), database })
    }

    /// Reads everything back.
    pub(super) fn load(&self) -> Result<Content, StoreError> {
        let refused = |source: redb::Error| StoreError::Open {
            path: self.path.clone(),
            source: source.into(),
        };
        let (revision, rows) = guarded(&self.path, || self.rows().map_err(refused))?;
        let parsed = rows.into_iter().map(|row| self.parse(row, revision));
        Ok(Content { revision, objects: parsed.collect::<Result<Vec<_>, _>>()? })
    }

    fn rows(&self) -> Result<(u64, Vec<Row>), redb::Error> {
        let transaction = self.database.begin_read()?;
        let facts = transaction.open_table(FACTS)?;
        let revision = facts.get(REVISION)?.map_or(0, |fact| fact.value());
        let mut rows = Vec::new();
        for row in transaction.open_table(OBJECTS)?.iter()? {
            let (key, value) = row?;
            let (collection, namespace, name) = key.value();
            let (revision, json) = value.value();
            let json = Bytes::copy_from_slice(json);
            rows.push((Key::new(collection, namespace, name), revision, json));
        }
        Ok((revision, rows))
    }

    /// An object is where its key says, and not newer than the store.
    fn parse(&self, (key, revision, json): Row, newest: u64) -> Result<Stored, StoreError> {
        let at = format!("{}/{}/{}", key.collection, key.namespace, key.name);
        let value: Value = serde_json::from_slice(&json)
            .map_err(|error| damaged(&self.path, &at, &error.to_string()))?;
        let (namespace, name) = (object::namespace(&value), object::name(&value));
        if (namespace, name) != (&*key.namespace, &*key.name) {
            let why = format!("the object there is {namespace}/{name}");
            return Err(damaged(&self.path, &at, &why));
        }
        if revision > newest {
            let why = format!("its version {revision} is newer than the store's {newest}");
            return Err(damaged(&self.path, &at, &why));
        }
        Ok(Stored { key, revision, value, json })
    }

    /// Writes all changes and the revision they lead to, in one durable step.
    pub(super) fn commit(&self, changes: &[Arc<Change>], revision: u64) -> Result<(), redb::Error> {
        let transaction = self.database.begin_write()?;
        write(&transaction, changes, revision)?;
        transaction.commit()?;
        Ok(())
    }
}

fn damaged(path: &Path, at: &str, why: &str) -> StoreError {
    StoreError::Damaged { path: path.into(), at: at.to_owned(), why: why.to_owned() }
}

/// redb may panic on pages that make no sense; that too is a damaged file.
fn guarded<T>(path: &Path, job: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
    catch_unwind(AssertUnwindSafe(job))
        .unwrap_or_else(|_| Err(damaged(path, "its pages", "they make no sense")))
}

fn write(
    transaction: &WriteTransaction,
    changes: &[Arc<Change>],
    revision: u64,
) -> Result<(), redb::Error> {
    let mut objects = transaction.open_table(OBJECTS)?;
    for change in changes {
        let key = &change.object.key;
        let row = (&*key.collection, key.namespace.as_str(), key.name.as_str());
        if change.is_deletion() {
            objects.remove(row)?;
        } else {
            objects.insert(row, (change.object.revision, &*change.object.json))?;
        }
    }
    transaction.open_table(FACTS)?.insert(REVISION, revision)?;
    Ok(())
}

/// Makes the tables of a new file and returns the format of the file.
fn prepare(database: &Database) -> Result<u64, redb::Error> {
    let transaction = database.begin_write()?;
    let format = {
        transaction.open_table(OBJECTS)?;
        let mut facts = transaction.open_table(FACTS)?;
        let found = facts.get(FORMAT)?.map(|fact| fact.value());
        match found {
            Some(format) => format,
            None => {
                facts.insert(FORMAT, FORMAT_VERSION)?;
                FORMAT_VERSION
            }
        }
    };
    transaction.commit()?;
    Ok(format)
}

/// Marks a file as written by another version of this program.
#[cfg(test)]
pub(super) fn pretend_format(path: &Path, format: u64) {
    let database = Database::create(path).unwrap();
    let transaction = database.begin_write().unwrap();
    transaction.open_table(FACTS).unwrap().insert(FORMAT, format).unwrap();
    transaction.commit().unwrap();
}

/// Puts a config map under another name than its own.
#[cfg(test)]
pub(super) fn pretend_object(path: &Path, name: &str, json: &str) {
    let database = Database::create(path).unwrap();
    let transaction = database.begin_write().unwrap();
    let key = ("configmaps", "default", name);
    transaction.open_table(OBJECTS).unwrap().insert(key, (1, json.as_bytes())).unwrap();
    transaction.commit().unwrap();
}
