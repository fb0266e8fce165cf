//! What can be done with objects: each verb turns a target, a body and options into an answer.
//! Verbs know nothing of HTTP; everything that must be atomic happens inside one transaction.

mod create;
mod delete;
mod intake;
mod list;
mod subresource;
mod target;
mod update;
mod view;

pub(crate) use create::{create_own, prepare};
pub(crate) use delete::{DeleteOptions, Deleted, FOREGROUND, ORPHAN, delete_in};
pub(crate) use list::{ListOptions, Listing, matches, parse_version};
pub(crate) use target::Target;
pub(crate) use update::{change_in, may_go};
pub(crate) use view::present;

use crate::failure::Failure;
use crate::kinds;
use crate::patch::Writer;
use crate::registry::Nature;
use crate::registry::Registry;
use crate::store::{Key, Store, Stored, Transaction};
use serde_json::Value;
use std::sync::Arc;

/// The API behind every transport.
#[derive(Clone)]
pub(crate) struct Api {
    pub(crate) store: Store,
    pub(crate) registry: Registry,
}

/// How strictly unknown fields are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum FieldValidation {
    Ignore,
    #[default]
    Warn,
    Strict,
}

/// Options of writing requests.
#[derive(Debug, Clone, Default)]
pub(crate) struct WriteOptions {
    pub(crate) dry_run: bool,
    /// Who writes; empty when the request does not say and has no agent to guess from.
    pub(crate) field_manager: String,
    /// Whether the request itself names the manager.
    pub(crate) names_manager: bool,
    pub(crate) field_validation: FieldValidation,
    pub(crate) force: bool,
    /// Complaints about fields that the body says more than once.
    pub(crate) doubled: Vec<String>,
}

/// What a write led to.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) object: Arc<Stored>,
    pub(crate) created: bool,
    pub(crate) warnings: Vec<String>,
}

impl WriteOptions {
    /// How the writer appears in the managed fields of the target.
    fn writer<'a>(&'a self, target: &'a Target, api_version: &'a str, now: &'a str) -> Writer<'a> {
        Writer {
            manager: if self.field_manager.is_empty() { "unknown" } else { &self.field_manager },
            subresource: target.subresource.as_deref().unwrap_or(""),
            api_version,
            now,
            custom: target.resource.nature == Nature::Custom,
        }
    }
}

/// Gives an object what it needs and no other may have.
fn provision(
    tx: &Transaction<'_>,
    target: &Target,
    key: &Key,
    object: &mut Value,
) -> Result<(), Failure> {
    if !target.is_core("services") {
        return Ok(());
    }
    let from = uuid::Uuid::new_v4().as_fields().0;
    let is_new = tx.get(key).is_none();
    kinds::provision_service(object, is_new, |claim| tx.is_claimed(claim, key), from)
        .map_err(|cause| Failure::invalid(target.about_kind(&key.name), &[cause]))
}

impl Api {
    pub(crate) fn new(store: Store, registry: Registry) -> Api {
        Api { store, registry }
    }

    /// One object.
    pub(crate) fn get(&self, target: &Target) -> Result<Arc<Stored>, Failure> {
        let found = self.store.read().get(&target.key()).cloned();
        found.ok_or_else(|| Failure::not_found(target.about()))
    }
}
