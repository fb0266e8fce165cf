//! Pods: their defaults, how they are bound to a node, and how long they may take to end.

use crate::failure::Cause;
use crate::object::{at, set, set_default, text};
use serde_json::{Value, json};

/// Fills what the real API fills in a pod; also used for pod templates of workloads.
pub(super) fn fill_defaults(pod: &mut Value) {
    if let Some(spec) = pod.get_mut("spec") {
        fill_spec(spec);
        set_default(spec, "serviceAccountName", "default");
        set_default(spec, "serviceAccount", text(spec, "serviceAccountName").to_owned());
        set_default(spec, "enableServiceLinks", true);
        set_default(spec, "preemptionPolicy", "PreemptLowerPriority");
        set_default(spec, "priority", 0);
        set_default(spec, "tolerations", default_tolerations());
    }
}

/// The defaults that a pod template has as well.
pub(super) fn fill_spec(spec: &mut Value) {
    set_default(spec, "restartPolicy", "Always");
    set_default(spec, "dnsPolicy", "ClusterFirst");
    set_default(spec, "schedulerName", "default-scheduler");
    set_default(spec, "terminationGracePeriodSeconds", 30);
    set_default(spec, "securityContext", json!({}));
    for list in ["containers", "initContainers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        containers.into_iter().flatten().for_each(fill_container);
    }
}

fn fill_container(container: &mut Value) {
    let latest = {
        let image = text(container, "image");
        let tag = image.rsplit('/').next().and_then(|name| name.split_once(':'));
        tag.is_none_or(|(_, tag)| tag == "latest")
    };
    let policy = if latest { "Always" } else { "IfNotPresent" };
    set_default(container, "imagePullPolicy", policy);
    set_default(container, "terminationMessagePath", "/dev/termination-log");
    set_default(container, "terminationMessagePolicy", "File");
    set_default(container, "resources", json!({}));
    let ports = container.get_mut("ports").and_then(Value::as_array_mut);
    for port in ports.into_iter().flatten() {
        set_default(port, "protocol", "TCP");
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get_mut(probe).filter(|probe| probe.is_object()) {
            fill_probe(probe);
        }
    }
}

fn fill_probe(probe: &mut Value) {
    set_default(probe, "timeoutSeconds", 1);
    set_default(probe, "periodSeconds", 10);
    set_default(probe, "successThreshold", 1);
    set_default(probe, "failureThreshold", 3);
    if let Some(http) = probe.get_mut("httpGet").filter(|http| http.is_object()) {
        set_default(http, "path", "/");
        set_default(http, "scheme", "HTTP");
    }
}

fn default_tolerations() -> Value {
    ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]
        .iter()
        .map(|key| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}))
        .collect()
}

/// A new pod is Pending, whatever its writer said.
pub(super) fn prepare_new(pod: &mut Value) {
    set(pod, "status", json!({"phase": "Pending", "qosClass": qos_class(pod)}));
}

fn qos_class(pod: &Value) -> &'static str {
    let containers = at(pod, "spec.containers").and_then(Value::as_array);
    let mut all_limited = true;
    let mut any_asked = false;
    for container in containers.into_iter().flatten() {
        let limits = |name: &str| container["resources"]["limits"].get(name);
        let requests = |name: &str| container["resources"]["requests"].get(name);
        for name in ["cpu", "memory"] {
            any_asked |= limits(name).is_some() || requests(name).is_some();
            let equal = requests(name).is_none() || requests(name) == limits(name);
            all_limited &= limits(name).is_some() && equal;
        }
    }
    match (any_asked, all_limited) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

/// Rules on top of the schema: containers exist, and a running pod keeps its spec.
pub(super) fn validate(pod: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = containers_causes(pod, "spec.containers");
    causes.extend(old.and_then(|old| changed_spec(pod, old)));
    causes
}

/// Complaints about the containers at a path, of a pod or of a template.
pub(super) fn containers_causes(object: &Value, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    let containers = at(object, path).and_then(Value::as_array);
    if containers.is_none_or(Vec::is_empty) {
        causes.push(Cause::required(path, ""));
    }
    for (index, container) in containers.into_iter().flatten().enumerate() {
        causes.extend(container_causes(container, &format!("{path}[{index}]")));
    }
    causes
}

fn container_causes(container: &Value, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    let name = text(container, "name");
    if name.is_empty() {
        causes.push(Cause::required(&format!("{path}.name"), ""));
    } else {
        causes.extend(super::names::label(&format!("{path}.name"), name));
    }
    if text(container, "image").is_empty() {
        causes.push(Cause::required(&format!("{path}.image"), ""));
    }
    causes
}

const IMMUTABLE: &str = "pod updates may not change fields other than \
    `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
    `spec.tolerations` (only additions to existing tolerations),\
    `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

fn changed_spec(pod: &Value, old: &Value) -> Option<Cause> {
    let frozen = |pod: &Value| {
        let mut spec = pod.get("spec").cloned().unwrap_or_default();
        for field in ["activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds"] {
            spec.as_object_mut().map(|spec| spec.remove(field));
        }
        for list in ["containers", "initContainers"] {
            let containers = spec.get_mut(list).and_then(Value::as_array_mut);
            for container in containers.into_iter().flatten() {
                container.as_object_mut().map(|container| container.remove("image"));
            }
        }
        spec
    };
    let unbound = text(old, "spec.nodeName").is_empty() && !text(pod, "spec.nodeName").is_empty();
    (frozen(pod) != frozen(old) || unbound).then(|| Cause::forbidden("spec", IMMUTABLE))
}

/// Puts the pod on a node.
pub(crate) fn bind(pod: &mut Value, node: &str, now: &str) {
    set(pod, "spec.nodeName", node);
    let conditions = at(pod, "status.conditions").and_then(Value::as_array);
    let mut conditions: Vec<Value> = conditions
        .into_iter()
        .flatten()
        .filter(|condition| condition["type"] != "PodScheduled")
        .cloned()
        .collect();
    conditions.push(json!({
        "type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now,
    }));
    set(pod, "status.conditions", conditions);
}

/// Seconds a pod gets to end: none when no kubelet has it or nothing runs in it any more.
pub(crate) fn grace_period(pod: &Value, asked: Option<i64>) -> i64 {
    let ended = matches!(text(pod, "status.phase"), "Succeeded" | "Failed");
    if ended || text(pod, "spec.nodeName").is_empty() {
        return 0;
    }
    let own = at(pod, "spec.terminationGracePeriodSeconds").and_then(Value::as_i64);
    asked.or(own).unwrap_or(30).max(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running() -> Value {
        json!({"spec": {"nodeName": "n1", "containers": [{"name": "a", "image": "x"}],
                        "terminationGracePeriodSeconds": 5},
               "status": {"phase": "Running"}})
    }

    #[test]
    fn a_running_pod_gets_its_own_grace_period_unless_asked_otherwise() {
        assert_eq!(grace_period(&running(), None), 5);
        assert_eq!(grace_period(&running(), Some(0)), 0);
        assert_eq!(grace_period(&json!({"spec": {}}), Some(30)), 0);
        let mut ended = running();
        ended["status"]["phase"] = "Failed".into();
        assert_eq!(grace_period(&ended, None), 0);
    }

    #[test]
    fn an_image_may_change_and_a_command_may_not() {
        let mut pod = running();
        pod["spec"]["containers"][0]["image"] = "y".into();
        assert!(validate(&pod, Some(&running())).is_empty());
        pod["spec"]["containers"][0]["command"] = json!(["sh"]);
        assert_eq!(validate(&pod, Some(&running()))[0].field, "spec");
    }

    #[test]
    fn binding_sets_the_node_and_the_scheduled_condition_once() {
        let mut pod = json!({"spec": {}, "status": {"conditions": [
            {"type": "PodScheduled", "status": "False"}]}});
        bind(&mut pod, "n2", "now");
        assert_eq!(pod["spec"]["nodeName"], "n2");
        assert_eq!(pod["status"]["conditions"].as_array().unwrap().len(), 1);
        assert_eq!(pod["status"]["conditions"][0]["status"], "True");
    }

    #[test]
    fn images_without_a_tag_are_always_pulled() {
        let mut pod = json!({"spec": {"containers": [
            {"name": "a", "image": "reg:5000/x"}, {"name": "b", "image": "x:1"}]}});
        fill_defaults(&mut pod);
        assert_eq!(pod["spec"]["containers"][0]["imagePullPolicy"], "Always");
        assert_eq!(pod["spec"]["containers"][1]["imagePullPolicy"], "IfNotPresent");
        assert_eq!(pod["spec"]["restartPolicy"], "Always");
    }

    #[test]
    fn what_a_pod_asks_for_decides_its_class() {
        let pod = |resources: Value| json!({"spec": {"containers": [{"resources": resources}]}});
        assert_eq!(qos_class(&pod(json!({}))), "BestEffort");
        assert_eq!(qos_class(&pod(json!({"requests": {"cpu": "1"}}))), "Burstable");
        let limits = json!({"limits": {"cpu": "1", "memory": "1Gi"}});
        assert_eq!(qos_class(&pod(limits)), "Guaranteed");
    }
}
