//! What is particular to single built-in kinds: defaults, fields that only the server sets,
//! and rules that no schema can say. Everything here is pure.

mod cluster_addresses;
mod crd;
mod event;
mod health_port;
mod names;
mod namespace;
mod node_ports;
mod pod;
mod service;
mod workload;

pub(crate) use crd::CLEANUP_FINALIZER as CRD_CLEANUP_FINALIZER;
pub(crate) use event::{from_core as event_from_core, to_core as event_to_core};
pub(crate) use pod::{bind, grace_period};
pub(crate) use service::{Claim, provision as provision_service};

use crate::failure::Cause;
use crate::registry::{Nature, Resource};
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

/// What no other object may have at the same time.
pub(crate) fn claims(collection: &str, object: &Value) -> Vec<Claim> {
    if collection == "services" { service::claims(object) } else { Vec::new() }
}

/// Fills the defaults of built-in kinds.
pub(crate) fn fill_defaults(resource: &Resource, object: &mut Value) {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "pods") => pod::fill_defaults(object),
        ("", "services") => service::fill_defaults(object),
        ("", "namespaces") => namespace::fill_defaults(object),
        ("", "secrets") => workload::fill_secret(object),
        ("apiextensions.k8s.io", _) => crd::fill_defaults(object),
        ("apps", _) => workload::fill_defaults(object),
        ("networking.k8s.io", "networkpolicies") => workload::fill_policy(object),
        ("discovery.k8s.io", "endpointslices") => workload::fill_slice(object),
        _ => {}
    }
}

/// Sets what the server decides when an object is made.
pub(crate) fn prepare_new(resource: &Resource, object: &mut Value, now: Timestamp) {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "pods") => pod::prepare_new(object),
        ("", "namespaces") => namespace::prepare_new(object),
        ("apiextensions.k8s.io", _) => crd::establish(object, now),
        _ => {}
    }
}

/// Sets what the server decides when an object changes.
pub(crate) fn prepare_change(resource: &Resource, object: &mut Value, old: &Value, now: Timestamp) {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("apiextensions.k8s.io", _) => crd::establish(object, now),
        ("", "services") => {
            service::drop_of_former_type(object, old);
            service::keep_addresses(object, old);
        }
        ("", "namespaces") => namespace::keep_finalizers(object, old),
        _ => {}
    }
}

/// Complaints about an object, beyond its schema. `old` is what it replaces.
pub(crate) fn validate(resource: &Resource, object: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = names::validate(resource, object);
    if resource.nature == Nature::Custom {
        return causes;
    }
    causes.extend(match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "pods") => pod::validate(object, old),
        ("", "services") => service::validate(object, old),
        ("apiextensions.k8s.io", _) => crd::validate(object, old),
        ("apps", _) => workload::validate(object, old),
        ("discovery.k8s.io", "endpointslices") => workload::validate_slice(object),
        _ => Vec::new(),
    });
    causes
}
