//! Listing: selectors, and pages that all show one moment.

use super::{Api, Target, view};
use crate::failure::Failure;
use crate::selector::Selector;
use crate::store::Stored;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What to list.
#[derive(Debug, Clone, Default)]
pub(crate) struct ListOptions {
    pub(crate) selector: Selector,
    /// Most objects in one answer; 0 for all.
    pub(crate) limit: usize,
    pub(crate) continue_token: String,
    /// The version asked for, with how it must match.
    pub(crate) resource_version: String,
    pub(crate) version_match: String,
}

/// A list, or a page of one.
#[derive(Debug)]
pub(crate) struct Listing {
    pub(crate) items: Vec<Arc<Stored>>,
    pub(crate) revision: u64,
    pub(crate) continue_token: String,
    pub(crate) remaining: Option<usize>,
}

/// Where a page ended: the moment the list shows and the last object seen.
#[derive(Debug, Serialize, Deserialize)]
struct Bookmark {
    revision: u64,
    namespace: String,
    name: String,
}

impl Bookmark {
    fn parse(token: &str) -> Result<Bookmark, Failure> {
        URL_SAFE_NO_PAD
            .decode(token)
            .ok()
            .and_then(|json| serde_json::from_slice(&json).ok())
            .ok_or_else(|| {
                Failure::bad_request(
                    "invalid continue token: continue key is not valid: it was not made here",
                )
            })
    }

    fn token(&self) -> String {
        // Numbers and strings always serialize.
        URL_SAFE_NO_PAD.encode(serde_json::json!(self).to_string())
    }
}

impl Api {
    pub(crate) fn list(&self, target: &Target, options: &ListOptions) -> Result<Listing, Failure> {
        let (candidates, revision) = if options.continue_token.is_empty() {
            self.first_page(target, options)?
        } else {
            self.next_page(target, options)?
        };
        let matching: Vec<Arc<Stored>> = candidates
            .into_iter()
            .filter(|stored| matches(target, &options.selector, stored))
            .collect();
        Ok(page(matching, revision, options))
    }

    fn first_page(
        &self,
        target: &Target,
        options: &ListOptions,
    ) -> Result<(Vec<Arc<Stored>>, u64), Failure> {
        let state = self.store.read();
        let collection = &target.resource.collection;
        let asked = parse_version(&options.resource_version)?;
        if asked > state.revision() {
            return Err(too_new(asked, state.revision()));
        }
        if options.version_match == "Exact" && asked > 0 {
            let objects = state.list_at(collection, &target.namespace, None, asked)?;
            return Ok((objects, asked));
        }
        let objects = state.list(collection, &target.namespace).cloned().collect();
        Ok((objects, state.revision()))
    }

    fn next_page(
        &self,
        target: &Target,
        options: &ListOptions,
    ) -> Result<(Vec<Arc<Stored>>, u64), Failure> {
        let bookmark = Bookmark::parse(&options.continue_token)?;
        let last = (bookmark.namespace, bookmark.name);
        let rest = self
            .store
            .read()
            .list_at(&target.resource.collection, &target.namespace, Some(&last), bookmark.revision)
            .map_err(|_| {
                Failure::expired(
                    "The provided continue parameter is too old to display a consistent list \
                     result. You can start a new list without the continue parameter.",
                )
            })?;
        Ok((rest, bookmark.revision))
    }
}

/// Whether the object, as the target's version shows it, is selected.
pub(crate) fn matches(target: &Target, selector: &Selector, stored: &Stored) -> bool {
    selector.is_empty()
        || if target.resource.group == "events.k8s.io" || target.resource.seed.is_some() {
            selector.matches(&view::from_storage(target, &stored.value))
        } else {
            selector.matches(&stored.value)
        }
}

/// Reads a resource version; empty is 0, "any".
pub(crate) fn parse_version(text: &str) -> Result<u64, Failure> {
    if text.is_empty() {
        return Ok(0);
    }
    text.parse().map_err(|_| {
        Failure::bad_request(format!(
            "invalid resource version: resourceVersion: Invalid value: {text:?}: \
             strconv.ParseUint: parsing {text:?}: invalid syntax"
        ))
    })
}

/// A version of the future: the client speaks of another life of this server.
fn too_new(asked: u64, current: u64) -> Failure {
    let mut failure = Failure::expired(format!(
        "Timeout: Too large resource version: {asked}, current: {current}"
    ));
    failure.code = 504;
    failure.reason = "Timeout";
    failure.add_causes(&[crate::failure::Cause::new(
        "ResourceVersionTooLarge",
        "",
        "Too large resource version",
    )]);
    if let Some(details) = &mut failure.details {
        details["retryAfterSeconds"] = 1.into();
    }
    failure
}

fn page(mut items: Vec<Arc<Stored>>, revision: u64, options: &ListOptions) -> Listing {
    let total = items.len();
    if options.limit == 0 || total <= options.limit {
        return Listing { items, revision, continue_token: String::new(), remaining: None };
    }
    items.truncate(options.limit);
    let continue_token = items.last().map_or_else(String::new, |last| {
        let (namespace, name) = (last.key.namespace.clone(), last.key.name.clone());
        Bookmark { revision, namespace, name }.token()
    });
    // The real API tells how many remain only where no selector hides objects from the count.
    let remaining = options.selector.is_empty().then_some(total - options.limit);
    Listing { items, revision, continue_token, remaining }
}
