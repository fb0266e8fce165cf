//! What every cluster has from the start: its namespaces and the `kubernetes` service.

use crate::failure::Failure;
use crate::verbs::{Api, Target, WriteOptions, prepare};
use serde_json::{Value, json};

const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

/// Makes what is missing.
pub(crate) fn bootstrap(api: &Api) -> Result<(), Failure> {
    for name in NAMESPACES {
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name},
        });
        ensure(api, "namespaces", None, name, namespace)?;
    }
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "kubernetes", "namespace": "default", "labels": {
            "component": "apiserver", "provider": "kubernetes"}},
        "spec": {"type": "ClusterIP", "clusterIP": "10.96.0.1", "ports": [
            {"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}]},
    });
    ensure(api, "services", Some("default"), "kubernetes", service)
}

fn ensure(
    api: &Api,
    plural: &str,
    namespace: Option<&str>,
    name: &str,
    object: Value,
) -> Result<(), Failure> {
    let target = Target::find(&api.registry.snapshot(), "", "v1", plural, namespace)?;
    if api.get(&target.clone().named(name)).is_ok() {
        return Ok(());
    }
    let object = prepare(&target, object)?;
    api.store.transact_blocking(move |tx| {
        Api::create_in(tx, &target, object, &WriteOptions::default()).map(|_| ())
    })
}
