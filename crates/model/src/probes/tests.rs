//! Probes and hooks, as a pod has them before it is admitted and after.

use super::*;

fn pod(containers: &Value) -> Pod {
    let metadata = json!({"generateName": "web-", "annotations": {"a": "b"}});
    serde_json::from_value(json!({"metadata": metadata, "spec": {"containers": containers}}))
        .unwrap()
}

/// The pod as it is after the patch.
fn admitted(pod: &Pod) -> Pod {
    let patch = admit(pod, "acme", "x1").unwrap();
    let mut value = serde_json::to_value(pod).unwrap();
    for operation in patch {
        apply(&mut value, &operation);
    }
    serde_json::from_value(value).unwrap()
}

fn apply(value: &mut Value, operation: &Value) {
    let path = operation["path"].as_str().unwrap();
    let (parent, key) = path.rsplit_once('/').unwrap();
    let parent = value.pointer_mut(parent).unwrap_or_else(|| panic!("no {parent}"));
    let parent = parent.as_object_mut().unwrap();
    let key = key.replace("~1", "/");
    match operation["op"].as_str().unwrap() {
        "remove" => drop(parent.remove(&key).unwrap_or_else(|| panic!("no {path}"))),
        _ => drop(parent.insert(key, operation["value"].clone())),
    }
}

fn sheet(pod: &Pod) -> ProbeSheet {
    let text = &pod.metadata.annotations.as_ref().unwrap()[marks::PROBES];
    serde_json::from_str(text).unwrap()
}

#[test]
fn every_kind_of_probe_leads_to_the_agent_and_keeps_what_it_asks() {
    let before = pod(&json!([{
        "name": "web",
        "ports": [{"name": "http", "containerPort": 8080}],
        "startupProbe": {"tcpSocket": {"port": "http"}, "failureThreshold": 30},
        "readinessProbe": {"timeoutSeconds": 5, "httpGet": {
            "port": "http", "path": "healthz?x=1", "scheme": "HTTPS",
            "httpHeaders": [{"name": "Host", "value": "shop"}]}},
        "livenessProbe": {"grpc": {"port": 9000, "service": "cart"}},
        "lifecycle": {"preStop": {"httpGet": {"port": 8080, "path": "/bye"}}},
    }]));
    let after = admitted(&before);
    let container = &after.spec.as_ref().unwrap().containers[0];
    let startup = container.startup_probe.as_ref().unwrap();
    assert_eq!(startup.failure_threshold, Some(30));
    assert!(startup.tcp_socket.is_none());
    let to_agent = startup.http_get.as_ref().unwrap();
    assert_eq!(to_agent.host.as_deref(), Some("127.0.0.1"));
    assert_eq!(to_agent.path.as_deref(), Some("/probe/acme/x1/web/startup"));
    let readiness = container.readiness_probe.as_ref().unwrap();
    assert_eq!(readiness.timeout_seconds, Some(5));
    let headers = &readiness.http_get.as_ref().unwrap().http_headers;
    assert!(headers.is_none(), "what the pod is asked is in the sheet");
    assert!(container.liveness_probe.as_ref().unwrap().grpc.is_none());
    let checks = sheet(&after).checks;
    let http = HttpCheck {
        port: 8080,
        path: "/healthz?x=1".into(),
        tls: true,
        headers: vec![("Host".into(), "shop".into())],
    };
    let expected = [
        ("web/liveness", How::Grpc { port: 9000, service: "cart".into() }, 1, false),
        ("web/preStop", How::Http(plain(8080, "/bye")), 30, true),
        ("web/readiness", How::Http(http), 5, false),
        ("web/startup", How::Tcp { port: 8080 }, 1, false),
    ];
    let expected =
        expected.map(|(key, how, timeout, hook)| (key.to_owned(), Check { how, timeout, hook }));
    assert_eq!(checks, expected.into());
    assert_eq!(after.metadata.annotations.unwrap()["a"], "b");
}

fn plain(port: u16, path: &str) -> HttpCheck {
    HttpCheck { port, path: path.into(), tls: false, headers: vec![] }
}

#[test]
fn commands_and_pods_without_probes_and_on_their_nodes_network_stay_as_they_are() {
    let exec = json!({"exec": {"command": ["true"]}});
    let hook = json!({"postStart": exec});
    let commands =
        json!([{"name": "web", "livenessProbe": exec, "lifecycle": hook}, {"name": "b"}]);
    assert_eq!(admit(&pod(&commands), "acme", "x1").unwrap(), Vec::<Value>::new());
    let mut on_host = pod(&json!([{"name": "a", "livenessProbe": {"tcpSocket": {"port": 1}}}]));
    on_host.spec.as_mut().unwrap().host_network = Some(true);
    assert_eq!(admit(&on_host, "acme", "x1").unwrap(), Vec::<Value>::new());
}

#[test]
fn a_sheet_that_came_with_the_pod_is_not_believed() {
    let mut forged = pod(&json!([{"name": "web"}]));
    let annotations = forged.metadata.annotations.as_mut().unwrap();
    annotations.insert(marks::PROBES.into(), "{}".into());
    assert!(!admitted(&forged).metadata.annotations.unwrap().contains_key(marks::PROBES));
    let probe = json!({"tcpSocket": {"port": 80}});
    forged.spec.as_mut().unwrap().containers[0].liveness_probe =
        Some(serde_json::from_value(probe).unwrap());
    assert_eq!(sheet(&admitted(&forged)).id, "x1");
}

#[test]
fn a_probe_that_leads_elsewhere_or_nowhere_is_refused_with_its_field() {
    let cases = [
        (
            json!({"name": "a", "livenessProbe": {"httpGet": {"host": "10.0.0.9", "port": 80}}}),
            "spec.containers[0].livenessProbe.httpGet.host is \"10.0.0.9\"",
        ),
        (
            json!({"name": "a", "startupProbe": {"tcpSocket": {"host": "127.0.0.1", "port": 1}}}),
            "spec.containers[0].startupProbe.tcpSocket.host is \"127.0.0.1\"",
        ),
        (
            json!({"name": "a", "lifecycle": {"postStart":
                {"httpGet": {"host": "metadata", "port": 80}}}}),
            "spec.containers[0].lifecycle.postStart.httpGet.host is \"metadata\"",
        ),
        (
            json!({"name": "a", "readinessProbe": {"httpGet": {"port": "web"}}}),
            "spec.containers[0].readinessProbe.httpGet.port is \"web\"",
        ),
        (json!({"name": "a", "readinessProbe": {"grpc": {"port": 0}}}), "grpc.port is \"0\""),
    ];
    for (container, expected) in cases {
        let said = admit(&pod(&json!([container])), "acme", "x1").unwrap_err().to_string();
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn probes_of_sidecars_are_led_to_the_agent_too() {
    let sidecar = json!({"name": "mesh", "restartPolicy": "Always",
                         "readinessProbe": {"tcpSocket": {"port": 15021}}});
    let mut pod = pod(&json!([{"name": "web"}]));
    pod.metadata.annotations = None;
    let spec = pod.spec.as_mut().unwrap();
    spec.init_containers = Some(vec![serde_json::from_value(sidecar).unwrap()]);
    assert_eq!(sheet(&admitted(&pod)).checks["mesh/readiness"].how, How::Tcp { port: 15021 });
}
