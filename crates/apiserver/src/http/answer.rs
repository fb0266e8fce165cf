//! From what verbs return to HTTP responses.

use super::accept::Form;
use crate::clock;
use crate::failure::Failure;
use crate::store::Stored;
use crate::table::{self, Include};
use crate::verbs::{Listing, Target, present};
use crate::watch::Event;
use axum::body::Body;
use bytes::{BufMut, Bytes, BytesMut};
use futures::{Stream, StreamExt};
use hyper::{Response, StatusCode, header};
use serde_json::{Value, json};
use std::convert::Infallible;

/// Events written in one piece at most.
const EVENTS_AT_ONCE: usize = 64;

/// How objects are to be shown to this client.
#[derive(Debug, Clone, Copy)]
pub(super) struct Style {
    pub(super) form: Form,
    pub(super) include: Include,
}

pub(super) fn json_bytes(code: u16, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::OK);
    let json = header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    let uncached = header::HeaderValue::from_static("no-cache, private");
    response.headers_mut().insert(header::CACHE_CONTROL, uncached);
    response
}

pub(super) fn json_value(code: u16, value: &Value) -> Response<Body> {
    json_bytes(code, value.to_string())
}

pub(super) fn text(body: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    let plain = header::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
}

pub(super) fn failure(failure: &Failure) -> Response<Body> {
    json_value(failure.code, &failure.status())
}

/// Adds `Warning` headers, which kubectl prints.
pub(super) fn with_warnings(mut response: Response<Body>, warnings: &[String]) -> Response<Body> {
    for warning in warnings {
        let quoted = format!("299 - \"{}\"", warning.replace('\\', "\\\\").replace('"', "\\\""));
        if let Ok(value) = header::HeaderValue::from_str(&quoted) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
    response
}

/// One object.
pub(super) fn object(code: u16, target: &Target, stored: &Stored, style: Style) -> Response<Body> {
    json_bytes(code, shown(target, stored, style))
}

fn shown(target: &Target, stored: &Stored, style: Style) -> Bytes {
    let shown = present(target, stored);
    match style.form {
        Form::Object | Form::Aggregated => shown.json(),
        Form::Partial => Bytes::from(table::partial(&shown.value()).to_string()),
        Form::Table => {
            let metadata = json!({"resourceVersion": stored.revision.to_string()});
            Bytes::from(one_row(target, &shown.value(), style.include, &metadata).to_string())
        }
    }
}

fn one_row(target: &Target, object: &Value, include: Include, metadata: &Value) -> Value {
    let version = &target.version().name;
    let row = table::row(&target.resource, version, object, include, clock::now());
    table::table(&table::columns(&target.resource, version), &[row], metadata)
}

/// A list of objects.
pub(super) fn list(target: &Target, listing: &Listing, style: Style) -> Response<Body> {
    let metadata = list_metadata(listing);
    match style.form {
        Form::Table => json_value(200, &list_table(target, listing, style.include, &metadata)),
        Form::Partial => json_bytes(200, partial_list(target, listing, &metadata)),
        Form::Object | Form::Aggregated => json_bytes(200, object_list(target, listing, &metadata)),
    }
}

fn list_metadata(listing: &Listing) -> Value {
    let mut metadata = json!({"resourceVersion": listing.revision.to_string()});
    if !listing.continue_token.is_empty() {
        metadata["continue"] = listing.continue_token.clone().into();
        if let Some(remaining) = listing.remaining {
            metadata["remainingItemCount"] = remaining.into();
        }
    }
    metadata
}

/// Objects are kept as JSON, so a list is put together without writing any of them anew.
fn object_list(target: &Target, listing: &Listing, metadata: &Value) -> Bytes {
    let items = listing.items.iter().map(|stored| present(target, stored).json());
    enclose(&target.resource.list_kind, &target.api_version(), metadata, items)
}

fn partial_list(target: &Target, listing: &Listing, metadata: &Value) -> Bytes {
    let items = listing
        .items
        .iter()
        .map(|stored| Bytes::from(table::partial(&present(target, stored).value()).to_string()));
    enclose("PartialObjectMetadataList", "meta.k8s.io/v1", metadata, items)
}

fn enclose(
    kind: &str,
    api_version: &str,
    metadata: &Value,
    items: impl Iterator<Item = Bytes>,
) -> Bytes {
    let head = format!(
        "{{\"kind\":{},\"apiVersion\":{},\"metadata\":{metadata},\"items\":[",
        Value::from(kind),
        Value::from(api_version)
    );
    let items: Vec<Bytes> = items.collect();
    let size = head.len() + items.iter().map(|item| item.len() + 1).sum::<usize>() + 3;
    let mut body = BytesMut::with_capacity(size);
    body.put_slice(head.as_bytes());
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            body.put_u8(b',');
        }
        body.put(item);
    }
    body.put_slice(b"]}\n");
    body.freeze()
}

fn list_table(target: &Target, listing: &Listing, include: Include, metadata: &Value) -> Value {
    let (version, now) = (&target.version().name, clock::now());
    let rows = listing
        .items
        .iter()
        .map(|stored| {
            let object = present(target, stored).value();
            table::row(&target.resource, version, &object, include, now)
        })
        .collect::<Vec<_>>();
    table::table(&table::columns(&target.resource, version), &rows, metadata)
}

/// A watch: one line of JSON per event.
pub(super) fn watch(
    target: Target,
    events: impl Stream<Item = Event> + Send + 'static,
    style: Style,
) -> Response<Body> {
    let lines = events
        .map(move |event| event_line(&target, &event, style))
        .ready_chunks(EVENTS_AT_ONCE)
        .map(|lines| Ok::<Bytes, Infallible>(Bytes::from(lines.concat())));
    json_bytes(200, Body::from_stream(lines))
}

fn event_line(target: &Target, event: &Event, style: Style) -> Bytes {
    let (kind, object) = match event {
        Event::Added(stored) => ("ADDED", shown(target, stored, style)),
        Event::Modified(stored) => ("MODIFIED", shown(target, stored, style)),
        Event::Deleted(stored) => ("DELETED", shown(target, stored, style)),
        Event::Bookmark(revision, initial) => {
            ("BOOKMARK", Bytes::from(bookmark(target, *revision, *initial, style).to_string()))
        }
        Event::Failed(failure) => ("ERROR", Bytes::from(failure.status().to_string())),
    };
    let mut line = BytesMut::with_capacity(object.len() + 32);
    line.put_slice(format!("{{\"type\":\"{kind}\",\"object\":").as_bytes());
    line.put(object);
    line.put_slice(b"}\n");
    line.freeze()
}

fn bookmark(target: &Target, revision: u64, initial: bool, style: Style) -> Value {
    let mut metadata = json!({"resourceVersion": revision.to_string(), "creationTimestamp": null});
    if initial {
        metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
    }
    match style.form {
        Form::Table => {
            let row = json!({"cells": [], "object": {
                "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}});
            let version = &target.version().name;
            let metadata = json!({"resourceVersion": revision.to_string()});
            table::table(&table::columns(&target.resource, version), &[row], &metadata)
        }
        Form::Partial => json!({
            "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
        }),
        Form::Object | Form::Aggregated => json!({
            "kind": target.resource.kind, "apiVersion": target.api_version(), "metadata": metadata,
        }),
    }
}

/// The answer to a deletion that is done.
pub(super) fn deleted(target: &Target, stored: &Stored) -> Value {
    let mut details = json!({
        "name": target.name, "kind": target.resource.plural,
        "uid": crate::object::uid(&stored.value),
    });
    if !target.resource.group.is_empty() {
        details["group"] = target.resource.group.clone().into();
    }
    success(&details)
}

pub(super) fn success(details: &Value) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        "details": details,
    })
}
