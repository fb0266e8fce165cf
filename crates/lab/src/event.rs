//! Events on objects, for the readers of `kubectl describe`.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType, Recorder};

/// The API refuses longer notes.
const LONGEST_NOTE: usize = 1000;

/// An event with its note cut to what the API takes.
pub(crate) fn new(type_: EventType, reason: &str, action: &str, note: &str) -> Event {
    let note = note.chars().take(LONGEST_NOTE).collect();
    Event {
        type_,
        reason: reason.to_owned(),
        note: Some(note),
        action: action.to_owned(),
        secondary: None,
    }
}

/// Publishes without waiting: an event that is lost delays nothing.
pub(crate) fn publish(recorder: &Recorder, event: Event, about: ObjectReference) {
    let recorder = recorder.clone();
    tokio::spawn(async move {
        if let Err(error) = recorder.publish(&event, &about).await {
            tracing::warn!(reason = event.reason, object = about.name, %error, "an event is lost");
        }
    });
}
