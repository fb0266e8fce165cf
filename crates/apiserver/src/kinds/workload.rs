//! Smaller kinds: the few defaults and rules their users rely on.

use crate::failure::Cause;
use crate::object::{as_map, at, child_mut, set_default, text};
use crate::selector::Selector;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::net::IpAddr;

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

/// A workload wants no negative number of pods, knows its own pods by their labels, and keeps to
/// that.
pub(super) fn validate(workload: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    if let Some(negative) = at(workload, "spec.replicas").and_then(Value::as_i64).filter(|n| *n < 0)
    {
        let why = "must be greater than or equal to 0";
        causes.push(Cause::invalid("spec.replicas", &negative.into(), why));
    }
    causes.extend(selector_causes(workload, old));
    causes.extend(super::pod::containers_causes(workload, "spec.template.spec.containers"));
    causes
}

fn selector_causes(workload: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let (given, labels) =
        (&workload["spec"]["selector"], &workload["spec"]["template"]["metadata"]["labels"]);
    let selector = Selector::of_workload(given);
    if selector.is_empty() {
        causes.push(Cause::required("spec.selector", ""));
    }
    if selector.is_empty() || !selector.matches(&json!({"metadata": {"labels": labels}})) {
        let why = "`selector` does not match template `labels`";
        causes.push(Cause::invalid("spec.template.metadata.labels", labels, why));
    }
    if old.is_some_and(|old| old["spec"]["selector"] != *given) {
        causes.push(Cause::invalid("spec.selector", given, "field is immutable"));
    }
    causes
}

/// A slice says which addresses it holds, and holds such.
pub(super) fn validate_slice(slice: &Value) -> Vec<Cause> {
    let family = text(slice, "addressType");
    if family.is_empty() {
        return vec![Cause::required("addressType", "")];
    }
    let mut causes = Vec::new();
    let endpoints = slice["endpoints"].as_array().into_iter().flatten();
    for (index, endpoint) in endpoints.enumerate() {
        let addresses = endpoint["addresses"].as_array().into_iter().flatten();
        for (place, address) in addresses.enumerate() {
            if family != "FQDN" && !is_address(address) {
                let field = format!("endpoints[{index}].addresses[{place}]");
                let why = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
                causes.push(Cause::invalid(&field, address, why));
            }
        }
    }
    causes
}

fn is_address(address: &Value) -> bool {
    address.as_str().is_some_and(|text| text.parse::<IpAddr>().is_ok())
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

    fn fields(causes: &[Cause]) -> Vec<&str> {
        causes.iter().map(|cause| cause.field.as_str()).collect()
    }

    #[test]
    fn a_workload_selects_its_own_pods_and_goes_on_doing_so() {
        let workload = |wanted: i64, selected: &str| {
            json!({"spec": {"replicas": wanted, "selector": {"matchLabels": {"a": selected}},
                "template": {"metadata": {"labels": {"a": "x"}},
                    "spec": {"containers": [{"name": "c", "image": "i"}]}}}})
        };
        let good = workload(1, "x");
        assert_eq!(fields(&validate(&good, Some(&good))), Vec::<&str>::new());
        let labels = "spec.template.metadata.labels";
        assert_eq!(fields(&validate(&workload(-1, "y"), None)), ["spec.replicas", labels]);
        let changed = workload(1, "y");
        assert_eq!(fields(&validate(&good, Some(&changed))), ["spec.selector"]);
        let bare = json!({"spec": {}});
        let missing = ["spec.selector", labels, "spec.template.spec.containers"];
        assert_eq!(fields(&validate(&bare, None)), missing);
    }

    #[test]
    fn a_slice_holds_addresses() {
        let slice = |address: &str| json!({"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1", address]}]});
        assert_eq!(fields(&validate_slice(&slice("10.0.0.2"))), Vec::<&str>::new());
        assert_eq!(fields(&validate_slice(&slice("nope"))), ["endpoints[0].addresses[1]"]);
        assert_eq!(fields(&validate_slice(&json!({}))), ["addressType"]);
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
