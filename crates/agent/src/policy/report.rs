//! What cannot be enforced as written, said where its owner looks: as an event of the policy.
//!
//! The rule of this file: every node finds the same faults, and the name of an event follows from
//! what it says. So a fault is one event, however many nodes tell it.

use std::hash::{DefaultHasher, Hash, Hasher};

use atoll_policy::{Read, Report};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::report::CONTROLLER;

/// Where events of objects without a namespace are.
const CLUSTER_EVENTS: &str = "default";
const REASON: &str = "NotEnforcedAsWritten";
const ACTION: &str = "Enforce";
/// The API takes no longer notes.
const LONGEST_NOTE: usize = 1024;

/// Tells faults of policies.
#[derive(Clone, Debug)]
pub(crate) struct Reporter {
    node: String,
    events: UnboundedSender<Event>,
}

impl Reporter {
    /// Starts to tell. It ends when nobody can report any more.
    pub(crate) fn start(client: Client, node: &str) -> Self {
        let (events, receiver) = unbounded_channel();
        tokio::spawn(write_all(client, receiver));
        Reporter { node: node.to_owned(), events }
    }

    /// Says everything of a policy that is not enforced as written, and passes the policy on.
    pub(super) fn tell(&self, object: &ObjectReference, read: Read) -> Box<Read> {
        for report in &read.reports {
            tracing::warn!(%report, "policy is not enforced as written");
            let _ended = self.events.send(event(&self.node, object, report));
        }
        Box::new(read)
    }
}

async fn write_all(client: Client, mut events: UnboundedReceiver<Event>) {
    while let Some(event) = events.recv().await {
        let namespace = event.metadata.namespace.clone().unwrap_or_default();
        let api = Api::<Event>::namespaced(client.clone(), &namespace);
        match api.create(&PostParams::default(), &event).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {}
            Err(error) => tracing::warn!(%error, "cannot write an event"),
        }
    }
}

fn event(node: &str, object: &ObjectReference, report: &Report) -> Event {
    let note = format!("{}: {}; {}", report.field, report.message, report.instead);
    let namespace = object.namespace.clone().unwrap_or_else(|| CLUSTER_EVENTS.to_owned());
    Event {
        metadata: ObjectMeta {
            name: Some(name(object, &note)),
            namespace: Some(namespace),
            ..ObjectMeta::default()
        },
        event_time: Some(MicroTime(Timestamp::now())),
        reporting_controller: Some(CONTROLLER.to_owned()),
        reporting_instance: Some(node.to_owned()),
        action: Some(ACTION.to_owned()),
        reason: Some(REASON.to_owned()),
        regarding: Some(object.clone()),
        note: Some(shortened(note)),
        type_: Some("Warning".to_owned()),
        ..Event::default()
    }
}

/// What fits, and a sign that there was more.
fn shortened(mut note: String) -> String {
    const MORE: &str = " …";
    if note.len() > LONGEST_NOTE {
        note.truncate(note.floor_char_boundary(LONGEST_NOTE - MORE.len()));
        note.push_str(MORE);
    }
    note
}

/// The same for the same fault of the same object, on every node.
fn name(object: &ObjectReference, message: &str) -> String {
    let mut hasher = DefaultHasher::new();
    (&object.uid, message).hash(&mut hasher);
    format!("{}.{:016x}", object.name.as_deref().unwrap_or_default(), hasher.finish())
}

#[cfg(test)]
mod tests {
    use atoll_policy::read_network_policy;
    use serde_json::json;

    use super::*;

    fn events(port: i32) -> Vec<Event> {
        let spec = json!({ "podSelector": {}, "ingress": [{ "ports": [{ "port": port }] }] });
        let metadata = json!({ "namespace": "shop", "name": "closed", "uid": "u" });
        let policy = json!({ "metadata": metadata, "spec": spec });
        let read =
            read_network_policy(&"acme".parse().unwrap(), &serde_json::from_value(policy).unwrap());
        let object = ObjectReference {
            kind: Some("NetworkPolicy".into()),
            namespace: Some("shop".into()),
            name: Some("closed".into()),
            uid: Some("u".into()),
            ..ObjectReference::default()
        };
        let node = "node1";
        read.reports.iter().map(|report| event(node, &object, report)).collect()
    }

    #[test]
    fn a_fault_is_an_event_of_its_policy_that_names_the_field() {
        let [event] = &events(0)[..] else { panic!("one fault, one event") };
        let note = event.note.as_deref().unwrap();
        assert!(note.starts_with("spec.ingress[0].ports[0].port"), "{note}");
        assert_eq!(event.metadata.namespace.as_deref(), Some("shop"));
        let regarding = event.regarding.as_ref().unwrap();
        assert_eq!(regarding.name.as_deref(), Some("closed"));
        assert_eq!(event.reporting_instance.as_deref(), Some("node1"));
        assert_eq!(events(80), []);
    }

    #[test]
    fn a_note_is_as_long_as_the_api_takes_it_and_says_where_it_was_cut() {
        assert_eq!(shortened("short".into()), "short");
        let fits = "x".repeat(LONGEST_NOTE);
        assert_eq!(shortened(fits.clone()), fits);
        for long in ["x".repeat(LONGEST_NOTE + 1), "é".repeat(LONGEST_NOTE)] {
            let cut = shortened(long);
            assert!(cut.len() <= LONGEST_NOTE && cut.ends_with(" …"), "{}", cut.len());
        }
    }

    #[test]
    fn the_same_fault_has_the_same_name_on_every_node_and_another_has_another() {
        let name = |port| events(port)[0].metadata.name.clone();
        assert_eq!(name(0), name(0));
        assert_ne!(name(0), name(70_000));
    }
}
