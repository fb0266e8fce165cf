//! Workloads and policies: the few defaults their users rely on.

use crate::object::{at, set_default};
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
    let template = workload.get_mut("spec").and_then(|spec| spec.get_mut("template"));
    if let Some(spec) = template.and_then(|template| template.get_mut("spec")) {
        super::pod::fill_spec(spec);
    }
}

/// A policy is about ingress, and about egress too when it says something of it.
pub(super) fn fill_policy_types(policy: &mut Value) {
    let egress = at(policy, "spec.egress").is_some();
    let types = if egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
    set_default(policy, "spec.policyTypes", types);
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
    fn a_policy_that_mentions_egress_is_about_both_directions() {
        let mut policy = json!({"spec": {"egress": []}});
        fill_policy_types(&mut policy);
        assert_eq!(policy["spec"]["policyTypes"], json!(["Ingress", "Egress"]));
    }
}
