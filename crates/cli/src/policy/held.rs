//! What agents say of policies that have no room on their nodes: the last word of each.

use std::collections::BTreeMap;

use anyhow::Result;
use atoll_api::marks;
use atoll_policy::PolicyKey;
use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};

/// Complaints of nodes about policies, and about themselves.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// By what is held (kind, namespace, name) and the node that says so.
    said: BTreeMap<(Object, String), String>,
}

/// Kind, namespace and name; a policy of administrators and a node have no namespace.
type Object = (String, String, String);

impl Held {
    /// Reads the events that are there.
    pub(super) async fn read(client: &Client) -> Result<Held> {
        let mut events: Vec<Event> = Vec::new();
        for reason in [marks::POLICY_HELD, marks::POLICY_ENFORCED] {
            let selected = ListParams::default().fields(&format!("reason={reason}"));
            events.extend(super::world::list(Api::all(client.clone()), &selected, "events").await?);
        }
        Ok(Held::of(events))
    }

    /// The last word counts, whatever the order.
    fn of(mut events: Vec<Event>) -> Held {
        events.sort_by_key(|event| {
            let told = event.event_time.as_ref().map(|time| time.0);
            (told.or(event.creation_timestamp().map(|time| time.0)), event.name_any())
        });
        let mut held = Held::default();
        for event in events {
            let about = event.involved_object;
            let object = (
                about.kind.unwrap_or_default(),
                about.namespace.unwrap_or_default(),
                about.name.unwrap_or_default(),
            );
            let key = (object, event.reporting_instance.unwrap_or_default());
            match event.reason.as_deref() {
                Some(marks::POLICY_HELD) => {
                    held.said.insert(key, event.message.unwrap_or_default())
                }
                _ => held.said.remove(&key),
            };
        }
        held
    }

    /// What is said of a policy.
    pub(super) fn of_policy(&self, policy: &PolicyKey) -> Vec<&str> {
        let kind =
            if policy.namespace.is_some() { "NetworkPolicy" } else { "ClusterNetworkPolicy" };
        let namespace = policy.namespace.as_deref().unwrap_or_default();
        self.about(|(of, at, name)| of == kind && at == namespace && *name == policy.name)
    }

    /// What nodes say of all their tables.
    pub(super) fn of_nodes(&self) -> Vec<&str> {
        self.about(|(kind, ..)| kind == "Node")
    }

    fn about(&self, is_it: impl Fn(&Object) -> bool) -> Vec<&str> {
        let said = self.said.iter().filter(|((object, _), _)| is_it(object));
        said.map(|(_, complaint)| complaint.as_str()).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(node: &str, reason: &str, second: u32) -> Event {
        let about = json!({"kind": "NetworkPolicy", "namespace": "shop", "name": "closed"});
        serde_json::from_value(json!({
            "metadata": {"name": format!("{node}.{second}")}, "involvedObject": about,
            "reason": reason, "message": format!("on node {node}: no room"),
            "reportingInstance": node, "eventTime": format!("2026-01-01T00:00:{second:02}.000000Z"),
        }))
        .unwrap()
    }

    #[test]
    fn the_last_word_of_each_node_counts() {
        let held = |events: &[(&str, &str, u32)]| {
            let events = events.iter().map(|(node, reason, at)| event(node, reason, *at));
            Held::of(events.collect())
        };
        let key = PolicyKey::namespaced("acme".parse().unwrap(), "shop", "closed");
        let (no, yes) = (marks::POLICY_HELD, marks::POLICY_ENFORCED);
        let both = held(&[("node2", no, 3), ("node1", yes, 4), ("node1", no, 2)]);
        assert_eq!(both.of_policy(&key), ["on node node2: no room"]);
        assert_eq!(held(&[("node1", no, 5), ("node1", yes, 4)]).of_policy(&key).len(), 1);
        let other = PolicyKey { name: "open".into(), ..key };
        assert!(both.of_policy(&other).is_empty() && both.of_nodes().is_empty());
    }
}
