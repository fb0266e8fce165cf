//! The columns of built-in kinds.

use super::cells;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

/// A column and how to fill it.
pub(super) struct Builtin {
    name: &'static str,
    kind: &'static str,
    format: &'static str,
    priority: u8,
    pub(super) cell: fn(&Value, Timestamp) -> Value,
}

impl Builtin {
    pub(super) fn definition(&self) -> Value {
        json!({
            "name": self.name, "type": self.kind, "format": self.format,
            "description": "", "priority": self.priority,
        })
    }
}

type Cell = fn(&Value, Timestamp) -> Value;

const fn text(name: &'static str, cell: Cell) -> Builtin {
    Builtin { name, kind: "string", format: "", priority: 0, cell }
}

const fn wide(name: &'static str, cell: Cell) -> Builtin {
    Builtin { name, kind: "string", format: "", priority: 1, cell }
}

const fn count(name: &'static str, cell: Cell) -> Builtin {
    Builtin { name, kind: "integer", format: "", priority: 0, cell }
}

const NAME: Builtin =
    Builtin { name: "Name", kind: "string", format: "name", priority: 0, cell: cells::name };
const AGE: Builtin = text("Age", cells::age);

const PODS: &[Builtin] = &[
    NAME,
    text("Ready", cells::pod_ready),
    text("Status", cells::pod_status),
    text("Restarts", cells::pod_restarts),
    AGE,
    wide("IP", cells::pod_ip),
    wide("Node", cells::pod_node),
    wide("Nominated Node", cells::pod_nominated),
    wide("Readiness Gates", cells::pod_gates),
];

const NODES: &[Builtin] = &[
    NAME,
    text("Status", cells::node_status),
    text("Roles", cells::node_roles),
    AGE,
    text("Version", cells::node_version),
    wide("Internal-IP", cells::node_internal_ip),
    wide("External-IP", cells::node_external_ip),
    wide("OS-Image", cells::node_os),
    wide("Kernel-Version", cells::node_kernel),
    wide("Container-Runtime", cells::node_runtime),
];

const SERVICES: &[Builtin] = &[
    NAME,
    text("Type", cells::service_type),
    text("Cluster-IP", cells::service_ip),
    text("External-IP", cells::service_external),
    text("Port(s)", cells::service_ports),
    AGE,
    wide("Selector", cells::service_selector),
];

const EVENTS: &[Builtin] = &[
    text("Last Seen", cells::event_last_seen),
    text("Type", cells::event_type),
    text("Reason", cells::event_reason),
    text("Object", cells::event_object),
    wide("Source", cells::event_source),
    text("Message", cells::event_message),
    Builtin { name: "Name", kind: "string", format: "name", priority: 1, cell: cells::name },
];

const DEPLOYMENTS: &[Builtin] = &[
    NAME,
    text("Ready", cells::ready_of_desired),
    text("Up-to-date", cells::updated),
    text("Available", cells::available),
    AGE,
    wide("Containers", cells::containers),
    wide("Images", cells::images),
    wide("Selector", cells::template_selector),
];

const REPLICA_SETS: &[Builtin] = &[
    NAME,
    count("Desired", cells::desired),
    count("Current", cells::current),
    count("Ready", cells::ready),
    AGE,
    wide("Containers", cells::containers),
    wide("Images", cells::images),
    wide("Selector", cells::template_selector),
];

const STATEFUL_SETS: &[Builtin] = &[
    NAME,
    text("Ready", cells::ready_of_desired),
    AGE,
    wide("Containers", cells::containers),
    wide("Images", cells::images),
];

const DAEMON_SETS: &[Builtin] =
    &[NAME, count("Desired", cells::daemon_desired), count("Ready", cells::daemon_ready), AGE];

const SLICES: &[Builtin] = &[
    NAME,
    text("AddressType", cells::slice_family),
    text("Ports", cells::slice_ports),
    text("Endpoints", cells::slice_endpoints),
    AGE,
];

const NAMESPACES: &[Builtin] = &[NAME, text("Status", cells::phase), AGE];
const CONFIG_MAPS: &[Builtin] = &[NAME, count("Data", cells::data_count), AGE];
const SECRETS: &[Builtin] =
    &[NAME, text("Type", cells::kind_of_secret), count("Data", cells::data_count), AGE];
const SERVICE_ACCOUNTS: &[Builtin] = &[NAME, count("Secrets", cells::secrets), AGE];
const ENDPOINTS: &[Builtin] = &[NAME, text("Endpoints", cells::endpoints), AGE];
const LEASES: &[Builtin] = &[NAME, text("Holder", cells::lease_holder), AGE];
const POLICIES: &[Builtin] = &[NAME, text("Pod-Selector", cells::policy_selector), AGE];
const DEFINITIONS: &[Builtin] = &[NAME, text("Created At", cells::created_at)];

/// The columns of a built-in resource, or `None` for a custom one.
pub(super) fn columns(group: &str, plural: &str) -> Option<&'static [Builtin]> {
    Some(match (group, plural) {
        ("", "pods") => PODS,
        ("", "nodes") => NODES,
        ("", "services") => SERVICES,
        ("", "namespaces") => NAMESPACES,
        ("", "configmaps") => CONFIG_MAPS,
        ("", "secrets") => SECRETS,
        ("", "serviceaccounts") => SERVICE_ACCOUNTS,
        ("", "endpoints") => ENDPOINTS,
        ("" | "events.k8s.io", "events") => EVENTS,
        ("discovery.k8s.io", "endpointslices") => SLICES,
        ("coordination.k8s.io", "leases") => LEASES,
        ("networking.k8s.io", "networkpolicies") => POLICIES,
        ("apps", "deployments") => DEPLOYMENTS,
        ("apps", "replicasets") => REPLICA_SETS,
        ("apps", "statefulsets") => STATEFUL_SETS,
        ("apps", "daemonsets") => DAEMON_SETS,
        ("apiextensions.k8s.io", "customresourcedefinitions") => DEFINITIONS,
        _ => return None,
    })
}
