//! What people type.

use crate::Subject;

const PODS: &str = "
apiVersion: v1
kind: Pod
metadata:
  name: web
  labels: {app: web}
spec:
  containers:
  - name: main
    image: registry.invalid/none:1
    env:
    - {name: A, value: '1'}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: settings
data: {colour: red}
";

#[tokio::test]
async fn apply_creates_then_configures_then_leaves_alone() {
    let subject = Subject::new().await;
    let out = subject.kubectl_with(&["apply", "-f", "-"], PODS);
    assert_eq!(out, "pod/web created\nconfigmap/settings created\n");
    let out = subject.kubectl_with(&["apply", "-f", "-"], PODS);
    assert_eq!(out, "pod/web unchanged\nconfigmap/settings unchanged\n");
    let out = subject.kubectl_with(&["apply", "-f", "-"], &PODS.replace("red", "blue"));
    assert_eq!(out, "pod/web unchanged\nconfigmap/settings configured\n");
    let colour = subject.kubectl(&["get", "cm", "settings", "-o", "jsonpath={.data.colour}"]);
    assert_eq!(colour, "blue");
}

#[tokio::test]
async fn create_makes_the_kinds_it_knows_by_itself() {
    let subject = Subject::new().await;
    let create = |arguments: &[&str]| {
        subject.kubectl(&[&["create"][..], arguments].concat());
    };
    create(&["configmap", "settings", "--from-literal=colour=red"]);
    create(&["secret", "generic", "key", "--from-literal=word=sesame"]);
    create(&["serviceaccount", "robot"]);
    create(&["service", "clusterip", "web", "--tcp=80:8080"]);
    create(&["deployment", "web", "--image=registry.invalid/none:1", "--replicas=0"]);
    let shown =
        |what: &str, path: &str| subject.kubectl(&["get", what, "-o", &format!("jsonpath={path}")]);
    assert_eq!(shown("cm/settings", "{.data.colour}"), "red");
    assert_eq!(shown("secret/key", "{.data.word}"), "c2VzYW1l");
    assert_eq!(shown("sa/robot", "{.metadata.name}"), "robot");
    assert_eq!(shown("svc/web", "{.spec.ports[0].targetPort}"), "8080");
    assert_eq!(shown("deploy/web", "{.spec.replicas}"), "0");
    assert_eq!(shown("deploy/web", "{.spec.template.spec.containers[0].name}"), "none");
    let other = subject.unique("other");
    create(&["namespace", &other]);
    subject.kubectl(&["delete", "namespace", &other, "--wait=false"]);
}

#[tokio::test]
async fn apply_removes_what_was_taken_out() {
    let subject = Subject::new().await;
    subject.kubectl_with(&["apply", "-f", "-"], PODS);
    let without = PODS.replace("  labels: {app: web}\n", "");
    subject.kubectl_with(&["apply", "-f", "-"], &without);
    let labels = subject.kubectl(&["get", "pod", "web", "-o", "jsonpath={.metadata.labels}"]);
    assert_eq!(labels, "");
}

#[tokio::test]
async fn get_shows_a_table_and_more_when_wide() {
    let subject = Subject::new().await;
    subject.kubectl_with(&["apply", "-f", "-"], PODS);
    let table = subject.kubectl(&["get", "pods"]);
    let header: Vec<&str> = table.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(header, ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]);
    let row: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[..4], ["web", "0/1", "Pending", "0"]);
    let wide = subject.kubectl(&["get", "pods", "-o", "wide"]);
    assert!(wide.lines().next().unwrap().contains("NODE"), "{wide}");
    assert_eq!(subject.kubectl(&["get", "pods", "-o", "name"]), "pod/web\n");
    let yaml = subject.kubectl(&["get", "pod", "web", "-o", "yaml"]);
    assert!(yaml.starts_with("apiVersion: v1\nkind: Pod\n"), "{yaml}");
}

#[tokio::test]
async fn describe_tells_of_an_object_and_its_events() {
    let subject = Subject::new().await;
    subject.kubectl_with(&["apply", "-f", "-"], PODS);
    let uid = subject.kubectl(&["get", "pod", "web", "-o", "jsonpath={.metadata.uid}"]);
    let event = serde_json::json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "web.1"},
        "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "atoll.dev/test",
        "reportingInstance": "t", "action": "Binding", "reason": "Tested", "type": "Normal",
        "note": "all is well", "regarding": {"apiVersion": "v1", "kind": "Pod", "name": "web",
            "namespace": subject.namespace, "uid": uid}})
    .to_string();
    subject.kubectl_with(&["create", "-f", "-"], &event);
    let told = subject.kubectl(&["describe", "pod", "web"]);
    assert!(told.contains("Name:             web"), "{told}");
    assert!(told.contains("Tested") && told.contains("all is well"), "{told}");
    let events = subject.kubectl(&["get", "events"]);
    assert!(events.contains("pod/web") && events.contains("all is well"), "{events}");
}

#[tokio::test]
async fn label_annotate_and_patch_change_an_object() {
    let subject = Subject::new().await;
    subject.kubectl_with(&["apply", "-f", "-"], PODS);
    assert_eq!(subject.kubectl(&["label", "pod", "web", "tier=front"]), "pod/web labeled\n");
    assert_eq!(subject.kubectl(&["annotate", "pod", "web", "note=x"]), "pod/web annotated\n");
    let selected = subject.kubectl(&["get", "pods", "-l", "tier=front", "-o", "name"]);
    assert_eq!(selected, "pod/web\n");
    let patch = r#"{"spec":{"containers":[{"name":"main","image":"other:2"}]}}"#;
    assert_eq!(subject.kubectl(&["patch", "pod", "web", "-p", patch]), "pod/web patched\n");
    let patch = r#"[{"op":"remove","path":"/metadata/labels/tier"}]"#;
    subject.kubectl(&["patch", "pod", "web", "--type", "json", "-p", patch]);
    let image =
        subject.kubectl(&["get", "pod", "web", "-o", "jsonpath={.spec.containers[0].image}"]);
    assert_eq!(image, "other:2");
}

#[tokio::test]
async fn wait_sees_a_condition_come_and_an_object_go() {
    let subject = Subject::new().await;
    subject.kubectl_with(&["apply", "-f", "-"], PODS);
    let patch = r#"{"status":{"conditions":[{"type":"Ready","status":"True"}]}}"#;
    subject.kubectl(&["patch", "pod", "web", "--subresource", "status", "-p", patch]);
    subject.kubectl(&["wait", "--for=condition=Ready", "pod/web", "--timeout=20s"]);
    subject.kubectl(&["delete", "pod", "web", "--wait=true", "--timeout=20s"]);
    let (ok, _, err) = subject.try_kubectl(&["get", "pod", "web"], None);
    assert!(!ok);
    assert_eq!(err, "Error from server (NotFound): pods \"web\" not found\n");
}

#[tokio::test]
async fn an_unknown_field_is_refused_by_default() {
    let subject = Subject::new().await;
    let wrong = PODS.replace("  labels: {app: web}", "  colour: red");
    let (ok, _, err) = subject.try_kubectl(&["apply", "-f", "-"], Some(&wrong));
    assert!(!ok, "a pod with an unknown field was taken");
    assert!(err.contains("unknown field \"metadata.colour\""), "{err}");
}

#[tokio::test]
async fn a_wrong_type_is_a_bad_request() {
    let subject = Subject::new().await;
    let wrong =
        PODS.replace("spec:\n  containers:", "spec:\n  hostNetwork: perhaps\n  containers:");
    let (ok, _, err) = subject.try_kubectl(&["apply", "-f", "-"], Some(&wrong));
    assert!(!ok, "a pod with a wrong type was taken");
    assert!(err.contains("Pod in version \"v1\" cannot be handled as a Pod"), "{err}");
}

#[tokio::test]
async fn diff_shows_what_apply_would_change() {
    let subject = Subject::new().await;
    subject.kubectl_with(&["apply", "-f", "-"], PODS);
    let (_, out, err) =
        subject.try_kubectl(&["diff", "-f", "-"], Some(&PODS.replace("red", "blue")));
    assert!(out.contains("-  colour: red") && out.contains("+  colour: blue"), "{out}{err}");
}

#[tokio::test]
async fn explain_knows_the_fields() {
    let subject = Subject::new().await;
    let told = subject.kubectl(&["explain", "pod.spec.nodeName"]);
    assert!(told.contains("KIND:       Pod") && told.contains("nodeName <string>"), "{told}");
}

#[tokio::test]
async fn api_resources_lists_kinds_with_short_names() {
    let subject = Subject::new().await;
    let told = subject.kubectl(&["api-resources"]);
    let pods = told.lines().find(|line| line.starts_with("pods ")).unwrap();
    let words: Vec<&str> = pods.split_whitespace().collect();
    assert_eq!(words, ["pods", "po", "v1", "true", "Pod"]);
}
