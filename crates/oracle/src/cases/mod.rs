//! The cases by which policy is tried, each a sentence and a few values.

mod cluster;
mod generated;
mod netpol;
mod own;

pub use cluster::cluster_policy_cases;
pub use generated::generated_cases;
pub use netpol::netpol_cases;
pub use own::own_cases;

use serde_json::{Value, json};

/// Pods by their label `pod`.
fn pod(name: &str) -> Value {
    json!({ "matchLabels": { "pod": name } })
}

/// Namespaces by their label `ns`.
fn ns(name: &str) -> Value {
    json!({ "matchLabels": { "ns": name } })
}

fn any_of(key: &str, operator: &str, values: &[&str]) -> Value {
    json!({ "matchExpressions": [{ "key": key, "operator": operator, "values": values }] })
}

fn ingress(pods: Value, rules: Value) -> Value {
    let mut spec = json!({ "policyTypes": ["Ingress"] });
    spec["podSelector"] = pods;
    spec["ingress"] = rules;
    spec
}

fn egress(pods: Value, rules: Value) -> Value {
    let mut spec = json!({ "policyTypes": ["Egress"] });
    spec["podSelector"] = pods;
    spec["egress"] = rules;
    spec
}
