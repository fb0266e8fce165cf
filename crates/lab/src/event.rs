//! Events on objects, for the readers of `kubectl describe`.

use std::hash::{DefaultHasher, Hash, Hasher};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType, Recorder};

/// The API refuses longer notes, counted in bytes.
const LONGEST_NOTE: usize = 1000;

/// An event with its note cut to what the API takes. Events that differ only in their note would be
/// counted as one and show the oldest note, so the note is part of the action.
pub(crate) fn new(type_: EventType, reason: &str, action: &str, note: &str) -> Event {
    let note = note[..note.floor_char_boundary(LONGEST_NOTE)].to_owned();
    Event {
        type_,
        reason: reason.to_owned(),
        action: format!("{action}-{:08x}", digest(&note)),
        note: Some(note),
        secondary: None,
    }
}

fn digest(note: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    note.hash(&mut hasher);
    hasher.finish()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_note_is_another_event_and_the_same_note_the_same() {
        let event = |note| new(EventType::Warning, "Failed", "Start", note);
        assert_eq!(event("a").action, event("a").action);
        assert_ne!(event("a").action, event("b").action);
    }

    #[test]
    fn a_note_is_cut_to_what_the_api_takes() {
        let long = new(EventType::Normal, "Started", "Start", &"é".repeat(3000));
        assert_eq!(long.note.unwrap().len(), LONGEST_NOTE);
    }
}
