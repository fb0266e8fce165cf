use super::*;
use crate::registry::{Registry, from_definition};

fn now() -> Timestamp {
    clock::parse("2026-01-01T00:10:00Z").unwrap()
}

fn builtin_cells(group: &str, plural: &str, object: &Value) -> Vec<Value> {
    let snapshot = Registry::with_builtins().snapshot();
    let resource = snapshot.find(group, plural).unwrap();
    match cells(resource, "v1", object, now()) {
        Value::Array(cells) => cells,
        other => panic!("cells are {other}"),
    }
}

fn pod() -> Value {
    json!({
        "metadata": {"name": "web", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"nodeName": "n1", "containers": [{"name": "a"}, {"name": "b"}]},
        "status": {"phase": "Running", "podIP": "10.0.0.5", "containerStatuses": [
            {"ready": true, "restartCount": 2, "state": {"running": {}}},
            {"ready": false, "restartCount": 1, "state": {"running": {}}}]},
    })
}

#[test]
fn a_pod_row_says_ready_status_restarts_age_ip_and_node() {
    let expected = ["web", "1/2", "Running", "3", "10m", "10.0.0.5", "n1", "<none>", "<none>"];
    assert_eq!(builtin_cells("", "pods", &pod()), expected);
}

#[test]
fn a_pod_shows_why_it_waits_how_it_ended_and_that_it_goes() {
    let mut pod = pod();
    pod["status"]["containerStatuses"][0]["state"] =
        json!({"waiting": {"reason": "CrashLoopBackOff"}});
    assert_eq!(builtin_cells("", "pods", &pod)[2], "CrashLoopBackOff");
    pod["status"]["containerStatuses"][0]["state"] = json!({"terminated": {"exitCode": 3}});
    assert_eq!(builtin_cells("", "pods", &pod)[2], "ExitCode:3");
    pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(builtin_cells("", "pods", &pod)[2], "Terminating");
}

#[test]
fn a_service_row_says_type_addresses_and_ports() {
    let service = json!({
        "metadata": {"name": "web", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"type": "NodePort", "clusterIP": "10.96.0.7", "selector": {"app": "web"},
                 "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30080}, {"port": 53, "protocol": "UDP"}]},
    });
    assert_eq!(
        builtin_cells("", "services", &service),
        ["web", "NodePort", "10.96.0.7", "<none>", "80:30080/TCP,53/UDP", "10m", "app=web"]
    );
}

#[test]
fn custom_columns_follow_their_paths_and_types() {
    let crd = json!({"spec": {
        "group": "atoll.dev", "names": {"plural": "networks", "kind": "Network"},
        "versions": [{"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object"}},
            "additionalPrinterColumns": [
                {"name": "Id", "type": "integer", "jsonPath": ".status.id"},
                {"name": "CIDRs", "type": "string", "jsonPath": ".spec.cidrs[*]", "priority": 1},
                {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
                {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}]}]}});
    let resource = from_definition(&crd).unwrap();
    let object = json!({
        "metadata": {"name": "acme.default", "creationTimestamp": "2026-01-01T00:09:00Z"},
        "spec": {"cidrs": ["10.0.0.0/8", "10.1.0.0/16"]}, "status": {"id": 7},
    });
    let row = row(&resource, "v1", &object, Include::Metadata, now());
    assert_eq!(row["cells"], json!(["acme.default", 7, "10.0.0.0/8,10.1.0.0/16", null, "60s"]));
    assert_eq!(row["object"]["kind"], "PartialObjectMetadata");
    assert_eq!(columns(&resource, "v1")[2]["priority"], 1);
}

#[test]
fn a_custom_resource_without_columns_shows_its_age() {
    let crd = json!({"spec": {"group": "x", "names": {"plural": "ys", "kind": "Y"},
        "versions": [{"name": "v1", "served": true, "storage": true}]}});
    let resource = from_definition(&crd).unwrap();
    assert_eq!(columns(&resource, "v1")[1]["name"], "Age");
}
