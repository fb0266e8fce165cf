//! Smaller kinds: the few defaults their users rely on.

use crate::object::{as_map, at, child_mut, set_default};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

pub(super) fn fill_defaults(workload: &mut Value) {
    if workload["kind"] != "DaemonSet" {
        set_default(workload, "spec.replicas", 1);
    }
    if workload["kind"] == "Deployment" {
        let rolling = json!({"maxSurge": "25%", "maxUnavailable": "25%"});
        set_default(
            workload,
            "spec.strategy",
            json!({"type": "RollingUpdate", "rollingUpdate": rolling}),
        );
        set_default(workload, "spec.revisionHistoryLimit", 10);
        set_default(workload, "spec.progressDeadlineSeconds", 600);
    }
    if workload["kind"] == "StatefulSet" {
        let rolling = json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0}});
        set_default(workload, "spec.updateStrategy", rolling);
        set_default(workload, "spec.podManagementPolicy", "OrderedReady");
        set_default(workload, "spec.revisionHistoryLimit", 10);
        let kept = json!({"whenDeleted": "Retain", "whenScaled": "Retain"});
        set_default(workload, "spec.persistentVolumeClaimRetentionPolicy", kept);
    }
    let template = workload.get_mut("spec").and_then(|spec| spec.get_mut("template"));
    if let Some(spec) = template.and_then(|template| template.get_mut("spec")) {
        super::pod::fill_spec(spec);
    }
}

/// A policy is about ingress, and about egress too when it says something of it.
pub(super) fn fill_policy(policy: &mut Value) {
    let egress = at(policy, "spec.egress").is_some();
    let types = if egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
    set_default(policy, "spec.policyTypes", types);
    for direction in ["ingress", "egress"] {
        let rules = policy["spec"].get_mut(direction).and_then(Value::as_array_mut);
        for rule in rules.into_iter().flatten() {
            fill_protocols(rule);
        }
    }
}

fn fill_protocols(owner: &mut Value) {
    let ports = owner.get_mut("ports").and_then(Value::as_array_mut);
    for port in ports.into_iter().flatten() {
        set_default(port, "protocol", "TCP");
    }
}

pub(super) fn fill_slice(slice: &mut Value) {
    fill_protocols(slice);
    let ports = slice.get_mut("ports").and_then(Value::as_array_mut);
    for port in ports.into_iter().flatten() {
        set_default(port, "name", "");
    }
}

/// What is written as text is kept encoded, as all data of a secret is.
pub(super) fn fill_secret(secret: &mut Value) {
    set_default(secret, "type", "Opaque");
    let given = secret.as_object_mut().and_then(|secret| secret.remove("stringData"));
    for (key, value) in given.as_ref().and_then(Value::as_object).into_iter().flatten() {
        let encoded = STANDARD.encode(value.as_str().unwrap_or(""));
        child_mut(as_map(secret), "data").insert(key.clone(), encoded.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deployment_has_one_replica_unless_it_says_otherwise() {
        let mut deployment = json!({"kind": "Deployment", "spec": {"template": {"spec": {}}}});
        fill_defaults(&mut deployment);
        assert_eq!(deployment["spec"]["replicas"], 1);
        assert_eq!(deployment["spec"]["template"]["spec"]["restartPolicy"], "Always");
    }

    #[test]
    fn text_of_a_secret_is_kept_encoded() {
        let mut secret = json!({"data": {"a": "eA=="}, "stringData": {"b": "y"}});
        fill_secret(&mut secret);
        assert_eq!(secret, json!({"type": "Opaque", "data": {"a": "eA==", "b": "eQ=="}}));
    }

    #[test]
    fn a_policy_that_mentions_egress_is_about_both_directions() {
        let mut policy = json!({"spec": {"egress": []}});
        fill_policy(&mut policy);
        assert_eq!(policy["spec"]["policyTypes"], json!(["Ingress", "Egress"]));
    }
}
