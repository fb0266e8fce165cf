//! A crowd: many applications of one tenant, each with a policy of its own.

use atoll_policy::{Event, PolicyKey};
use serde_json::json;

use super::{label, namespace_event, pod, pod_event};

/// How many applications share a namespace.
const TEAM: usize = 50;

fn team(app: usize) -> String {
    format!("team-{}", app / TEAM)
}

/// The key of an application's policy.
pub(crate) fn policy_key(app: usize) -> PolicyKey {
    PolicyKey::namespaced(label("acme"), &team(app), &format!("app-{app}"))
}

/// The namespaces of so many applications.
pub(crate) fn namespaces(apps: usize) -> Vec<Event> {
    let teams = (0..apps).step_by(TEAM).map(team);
    teams.map(|name| namespace_event(&name, &[("team", &name)])).collect()
}

/// A pod of an application. `copy` tells the pods of one application apart.
pub(crate) fn app_pod(app: usize, copy: usize) -> Event {
    let (name, at) = (format!("app-{app}"), app + copy * 5000);
    let ip = format!("10.{}.{}.{}", at / 62_500, at / 250 % 250, at % 250 + 1);
    pod_event(&team(app), &format!("{name}-{copy}"), pod(&[("app", &name)], &ip))
}

/// An application's policy: from its neighbour on one port, from a team on a range of ports, to its
/// other neighbour, to DNS, and to a block of addresses outside.
pub(crate) fn app_policy(app: usize, port: u16) -> Event {
    let named = |app: usize| json!({ "matchLabels": { "app": format!("app-{app}") } });
    let spec = json!({
        "podSelector": named(app),
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [
            { "from": [{ "podSelector": named(app + 1) }], "ports": [{ "port": port }] },
            { "from": [{ "namespaceSelector": { "matchLabels": { "team": "team-0" } } }],
              "ports": [{ "port": 9000, "endPort": 9100 }] }
        ],
        "egress": [
            { "to": [{ "podSelector": named(app.saturating_sub(1)) }] },
            { "ports": [{ "port": 53, "protocol": "UDP" }] },
            { "to": [{ "ipBlock": { "cidr": "203.0.113.0/24", "except": ["203.0.113.128/25"] } }] }
        ]
    });
    let metadata = json!({ "name": format!("app-{app}"), "namespace": team(app) });
    let object = json!({ "metadata": metadata, "spec": spec });
    Event::network_policy(&label("acme"), &serde_json::from_value(object).unwrap())
}

/// All events of so many applications with so many pods each.
pub(crate) fn crowd(apps: usize, copies: usize) -> Vec<Event> {
    let pods = (0..apps).flat_map(|app| (0..copies).map(move |copy| app_pod(app, copy)));
    let policies = (0..apps).map(|app| app_policy(app, 8080));
    namespaces(apps).into_iter().chain(pods).chain(policies).collect()
}
