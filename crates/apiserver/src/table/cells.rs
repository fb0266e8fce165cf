//! What the cells of built-in kinds say. Wording follows kubectl's own tables.

use crate::clock;
use crate::object::{at, metadata, text};
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

fn list<'a>(object: &'a Value, path: &str) -> &'a [Value] {
    at(object, path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn or_none(text: String) -> Value {
    if text.is_empty() { "<none>".into() } else { text.into() }
}

fn joined(values: impl Iterator<Item = String>) -> Value {
    or_none(values.collect::<Vec<_>>().join(","))
}

fn pairs(map: Option<&Value>) -> Value {
    let map = map.and_then(Value::as_object);
    joined(map.into_iter().flatten().map(|(key, value)| format!("{key}={}", bare(value))))
}

fn bare(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

pub(super) fn name(object: &Value, _: Timestamp) -> Value {
    text(object, "metadata.name").into()
}

pub(super) fn age(object: &Value, now: Timestamp) -> Value {
    since(text(object, "metadata.creationTimestamp"), now)
}

fn since(at: &str, now: Timestamp) -> Value {
    clock::parse(at).map_or("<unknown>".into(), |at| clock::age(at, now).into())
}

pub(super) fn phase(object: &Value, _: Timestamp) -> Value {
    text(object, "status.phase").into()
}

pub(super) fn data_count(object: &Value, _: Timestamp) -> Value {
    let size =
        |field: &str| object.get(field).and_then(Value::as_object).map_or(0, serde_json::Map::len);
    (size("data") + size("binaryData")).into()
}

pub(super) fn kind_of_secret(object: &Value, _: Timestamp) -> Value {
    text(object, "type").into()
}

pub(super) fn secrets(object: &Value, _: Timestamp) -> Value {
    list(object, "secrets").len().into()
}

// Pods.

pub(super) fn pod_ready(pod: &Value, _: Timestamp) -> Value {
    let ready = list(pod, "status.containerStatuses").iter().filter(|c| c["ready"] == true).count();
    format!("{ready}/{}", list(pod, "spec.containers").len()).into()
}

pub(super) fn pod_restarts(pod: &Value, _: Timestamp) -> Value {
    let restarts: i64 = list(pod, "status.containerStatuses")
        .iter()
        .filter_map(|c| c["restartCount"].as_i64())
        .sum();
    restarts.to_string().into()
}

/// The phase, unless a container or the deletion has more to say.
pub(super) fn pod_status(pod: &Value, _: Timestamp) -> Value {
    if metadata(pod).contains_key("deletionTimestamp") {
        return "Terminating".into();
    }
    let from_container =
        list(pod, "status.containerStatuses").iter().rev().find_map(container_reason);
    let reason = text(pod, "status.reason");
    match from_container {
        Some(found) => found.into(),
        None if !reason.is_empty() => reason.into(),
        None => text(pod, "status.phase").into(),
    }
}

fn container_reason(status: &Value) -> Option<String> {
    let waiting = text(status, "state.waiting.reason");
    if !waiting.is_empty() {
        return Some(waiting.to_owned());
    }
    let ended = at(status, "state.terminated")?;
    match (text(ended, "reason"), ended["signal"].as_i64().unwrap_or(0)) {
        ("", 0) => Some(format!("ExitCode:{}", ended["exitCode"])),
        ("", signal) => Some(format!("Signal:{signal}")),
        (reason, _) => Some(reason.to_owned()),
    }
}

pub(super) fn pod_ip(pod: &Value, _: Timestamp) -> Value {
    or_none(text(pod, "status.podIP").to_owned())
}

pub(super) fn pod_node(pod: &Value, _: Timestamp) -> Value {
    or_none(text(pod, "spec.nodeName").to_owned())
}

pub(super) fn pod_nominated(pod: &Value, _: Timestamp) -> Value {
    or_none(text(pod, "status.nominatedNodeName").to_owned())
}

pub(super) fn pod_gates(pod: &Value, _: Timestamp) -> Value {
    let gates = list(pod, "spec.readinessGates");
    if gates.is_empty() {
        return "<none>".into();
    }
    let holds = |gate: &&Value| {
        list(pod, "status.conditions")
            .iter()
            .any(|c| c["type"] == gate["conditionType"] && c["status"] == "True")
    };
    format!("{}/{}", gates.iter().filter(holds).count(), gates.len()).into()
}

// Nodes.

pub(super) fn node_status(node: &Value, _: Timestamp) -> Value {
    let ready = list(node, "status.conditions").iter().find(|c| c["type"] == "Ready");
    let mut status = match ready.map(|c| text(c, "status")) {
        Some("True") => "Ready".to_owned(),
        Some("False") => "NotReady".to_owned(),
        Some(_) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if at(node, "spec.unschedulable") == Some(&Value::Bool(true)) {
        status.push_str(",SchedulingDisabled");
    }
    status.into()
}

pub(super) fn node_roles(node: &Value, _: Timestamp) -> Value {
    let labels = metadata(node).get("labels").and_then(Value::as_object);
    joined(
        labels
            .into_iter()
            .flatten()
            .filter_map(|(key, _)| key.strip_prefix("node-role.kubernetes.io/").map(str::to_owned)),
    )
}

pub(super) fn node_version(node: &Value, _: Timestamp) -> Value {
    text(node, "status.nodeInfo.kubeletVersion").into()
}

fn node_address(node: &Value, kind: &str) -> Value {
    let found = list(node, "status.addresses").iter().find(|a| a["type"] == kind);
    or_none(found.map(|a| text(a, "address").to_owned()).unwrap_or_default())
}

pub(super) fn node_internal_ip(node: &Value, _: Timestamp) -> Value {
    node_address(node, "InternalIP")
}

pub(super) fn node_external_ip(node: &Value, _: Timestamp) -> Value {
    node_address(node, "ExternalIP")
}

pub(super) fn node_os(node: &Value, _: Timestamp) -> Value {
    or_unknown(text(node, "status.nodeInfo.osImage"))
}

pub(super) fn node_kernel(node: &Value, _: Timestamp) -> Value {
    or_unknown(text(node, "status.nodeInfo.kernelVersion"))
}

pub(super) fn node_runtime(node: &Value, _: Timestamp) -> Value {
    or_unknown(text(node, "status.nodeInfo.containerRuntimeVersion"))
}

fn or_unknown(text: &str) -> Value {
    if text.is_empty() { "<unknown>".into() } else { text.into() }
}

// Services and endpoints.

pub(super) fn service_type(service: &Value, _: Timestamp) -> Value {
    text(service, "spec.type").into()
}

pub(super) fn service_ip(service: &Value, _: Timestamp) -> Value {
    or_none(text(service, "spec.clusterIP").to_owned())
}

pub(super) fn service_external(service: &Value, _: Timestamp) -> Value {
    let given = list(service, "spec.externalIPs").iter().map(bare);
    let balanced = list(service, "status.loadBalancer.ingress")
        .iter()
        .map(|i| bare(if i["ip"].is_null() { &i["hostname"] } else { &i["ip"] }));
    let all: Vec<String> = balanced.chain(given).collect();
    match (text(service, "spec.type"), all.is_empty()) {
        ("ExternalName", _) => text(service, "spec.externalName").into(),
        ("LoadBalancer", true) => "<pending>".into(),
        _ => or_none(all.join(",")),
    }
}

pub(super) fn service_ports(service: &Value, _: Timestamp) -> Value {
    joined(list(service, "spec.ports").iter().map(|port| {
        let protocol = port["protocol"].as_str().unwrap_or("TCP");
        match port["nodePort"].as_i64() {
            Some(node) => format!("{}:{node}/{protocol}", port["port"]),
            None => format!("{}/{protocol}", port["port"]),
        }
    }))
}

pub(super) fn service_selector(service: &Value, _: Timestamp) -> Value {
    pairs(at(service, "spec.selector"))
}

pub(super) fn endpoints(object: &Value, _: Timestamp) -> Value {
    let subsets = list(object, "subsets").iter();
    joined(subsets.flat_map(|subset| {
        list(subset, "addresses").iter().flat_map(move |address| {
            list(subset, "ports")
                .iter()
                .map(move |port| format!("{}:{}", text(address, "ip"), port["port"]))
        })
    }))
}

pub(super) fn slice_family(slice: &Value, _: Timestamp) -> Value {
    text(slice, "addressType").into()
}

pub(super) fn slice_ports(slice: &Value, _: Timestamp) -> Value {
    match list(slice, "ports") {
        [] => "<unset>".into(),
        ports => joined(ports.iter().map(|port| bare(&port["port"]))),
    }
}

pub(super) fn slice_endpoints(slice: &Value, _: Timestamp) -> Value {
    match list(slice, "endpoints") {
        [] => "<unset>".into(),
        all => joined(all.iter().flat_map(|e| list(e, "addresses").iter().map(bare))),
    }
}

pub(super) fn lease_holder(lease: &Value, _: Timestamp) -> Value {
    text(lease, "spec.holderIdentity").into()
}

pub(super) fn policy_selector(policy: &Value, _: Timestamp) -> Value {
    pairs(at(policy, "spec.podSelector.matchLabels"))
}

pub(super) fn created_at(object: &Value, _: Timestamp) -> Value {
    text(object, "metadata.creationTimestamp").into()
}

// Events.

pub(super) fn event_last_seen(event: &Value, now: Timestamp) -> Value {
    let times = ["series.lastObservedTime", "lastTimestamp", "eventTime", "firstTimestamp"];
    let last = times.iter().map(|path| text(event, path)).find(|time| !time.is_empty());
    since(last.unwrap_or_else(|| text(event, "metadata.creationTimestamp")), now)
}

pub(super) fn event_type(event: &Value, _: Timestamp) -> Value {
    text(event, "type").into()
}

pub(super) fn event_reason(event: &Value, _: Timestamp) -> Value {
    text(event, "reason").into()
}

pub(super) fn event_object(event: &Value, _: Timestamp) -> Value {
    let about = event.get("involvedObject").or_else(|| event.get("regarding"));
    let about = about.unwrap_or(&Value::Null);
    format!("{}/{}", text(about, "kind").to_lowercase(), text(about, "name")).into()
}

pub(super) fn event_message(event: &Value, _: Timestamp) -> Value {
    let message = event.get("message").or_else(|| event.get("note"));
    message.and_then(Value::as_str).unwrap_or("").trim().into()
}

pub(super) fn event_source(event: &Value, _: Timestamp) -> Value {
    let legacy = text(event, "source.component");
    if legacy.is_empty() { text(event, "reportingComponent").into() } else { legacy.into() }
}

// Workloads.

fn number(object: &Value, path: &str) -> i64 {
    at(object, path).and_then(Value::as_i64).unwrap_or(0)
}

pub(super) fn ready_of_desired(object: &Value, _: Timestamp) -> Value {
    let ready = number(object, "status.readyReplicas");
    format!("{ready}/{}", number(object, "spec.replicas")).into()
}

pub(super) fn desired(object: &Value, _: Timestamp) -> Value {
    number(object, "spec.replicas").into()
}

pub(super) fn current(object: &Value, _: Timestamp) -> Value {
    number(object, "status.replicas").into()
}

pub(super) fn ready(object: &Value, _: Timestamp) -> Value {
    number(object, "status.readyReplicas").into()
}

pub(super) fn updated(object: &Value, _: Timestamp) -> Value {
    number(object, "status.updatedReplicas").into()
}

pub(super) fn available(object: &Value, _: Timestamp) -> Value {
    number(object, "status.availableReplicas").into()
}

pub(super) fn containers(object: &Value, _: Timestamp) -> Value {
    joined(list(object, "spec.template.spec.containers").iter().map(|c| bare(&c["name"])))
}

pub(super) fn images(object: &Value, _: Timestamp) -> Value {
    joined(list(object, "spec.template.spec.containers").iter().map(|c| bare(&c["image"])))
}

pub(super) fn template_selector(object: &Value, _: Timestamp) -> Value {
    pairs(at(object, "spec.selector.matchLabels"))
}

pub(super) fn daemon_desired(object: &Value, _: Timestamp) -> Value {
    number(object, "status.desiredNumberScheduled").into()
}

pub(super) fn daemon_ready(object: &Value, _: Timestamp) -> Value {
    number(object, "status.numberReady").into()
}
