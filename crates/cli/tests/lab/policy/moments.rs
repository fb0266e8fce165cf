//! The moments at which policy is easily forgotten: a pod's start, an agent's end, a namespace's
//! end. And what people are told of policies.

use std::process::Stdio;

use serde_json::{Value, json};

use crate::fixture::{Lab, kill_agent_and_await_the_next};

const SERVER: &str = "10.0.0.6:8080";

/// A policy of acme's namespace about pods with this label.
fn policy(name: &str, pods: &Value, direction: &str, rules: &Value) -> String {
    let mut spec = json!({ "policyTypes": [direction] });
    spec["podSelector"] = json!({ "matchLabels": pods });
    spec[direction.to_lowercase()] = rules.clone();
    json!({ "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": { "name": name, "namespace": "acme" }, "spec": spec })
    .to_string()
}

fn connects(lab: &Lab, pod: &str, protocol: &str, to: &str) -> bool {
    let ask = ["atoll", "toolbox", "connect", protocol, to, "--timeout", "300ms"];
    lab.exec(pod, &ask).ok
}

/// Waits until a pod's questions are answered, or are not.
fn await_answer(lab: &Lab, pod: &str, to: &str, answered: bool) {
    crate::fixture::await_condition(|| connects(lab, pod, "udp", to) == answered)
        .unwrap_or_else(|()| panic!("{pod} > {to} never became {answered}"));
}

/// A flow of datagrams from a pod, of which none need be answered.
pub(super) fn flow(lab: &Lab, pod: &str, to: &str) -> std::process::Child {
    let flow = ["atoll", "toolbox", "flow", "--udp", to, "--rate", "500", "--seconds", "10"];
    lab.exec_command(pod, &flow).stdout(Stdio::piped()).spawn().unwrap()
}

/// One of which all are to be answered. No more are under way than a queue of the kernel holds while a
/// server waits for its turn on a busy machine.
pub(crate) fn steady_flow(lab: &Lab, pod: &str, to: &str, rate: u32) -> std::process::Child {
    let rate = rate.to_string();
    let flow = ["atoll", "toolbox", "flow", "--udp", to, "--rate", &rate, "--seconds", "10"];
    let flow = [&flow[..], &["--under-way", "64", "--linger", "20s"]].concat();
    lab.exec_command(pod, &flow).stdout(Stdio::piped()).spawn().unwrap()
}

/// What became of a flow.
pub(crate) fn tally(flow: std::process::Child) -> Value {
    let output = flow.wait_with_output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn agents_killed_under_load_let_nothing_through_that_is_forbidden_and_lose_nothing_that_is_not() {
    let lab = Lab::with_two_tenants();
    lab.kubectl(&["label", "pod", "-n", "acme", "db", "app=db"]).good();
    lab.kubectl(&["label", "pod", "-n", "acme", "web", "app=web"]).good();
    let from_web = json!([{ "from": [{ "podSelector": { "matchLabels": { "app": "web" } } }] }]);
    lab.apply(&policy("db", &json!({ "app": "db" }), "Ingress", &from_web)).good();
    await_answer(&lab, "acme/cache", SERVER, false);
    await_answer(&lab, "acme/web", SERVER, true);
    let allowed = steady_flow(&lab, "acme/web", SERVER, 500);
    let denied = flow(&lab, "acme/cache", SERVER);
    for node in ["node1", "node2", "node3"] {
        kill_agent_and_await_the_next(&lab, node);
    }
    let (allowed, denied) = (tally(allowed), tally(denied));
    assert!(denied["sent"].as_u64().unwrap() > 2000, "{denied}");
    assert_eq!(denied["received"], 0, "{denied}");
    assert_eq!(allowed["lost"], 0, "{allowed}");
    await_answer(&lab, "globex/web", SERVER, true);
}

#[test]
fn a_pod_never_speaks_before_its_policy_also_right_after_the_agent_came_back() {
    let lab = Lab::with_two_tenants();
    lab.apply(&policy("quiet", &json!({ "app": "quiet" }), "Egress", &json!([]))).good();
    kill_agent_and_await_the_next(&lab, "node1");
    let speak = format!(
        "for n in $(seq 20); do atoll toolbox connect udp {SERVER} --timeout 50ms && echo LEAK; \
         done; echo finished; exec sleep infinity"
    );
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "quiet", "namespace": "acme", "labels": { "app": "quiet" } },
        "spec": { "nodeName": "node1", "terminationGracePeriodSeconds": 1,
                  "containers": [{ "name": "main", "image": "none",
                                   "command": ["sh", "-c", speak] }] },
    });
    lab.apply(&pod.to_string()).good();
    let mut said = String::new();
    crate::fixture::await_condition(|| {
        said = lab.logs("acme/quiet").out;
        said.contains("finished")
    })
    .expect("the pod says what it tried");
    assert!(!said.contains("LEAK"), "{said}");
    assert!(lab.drops(Some("acme.default"), "policy-denied-egress") > 0);
}

#[test]
fn a_namespace_that_is_deleted_opens_none_of_its_pods() {
    let lab = Lab::with_two_tenants();
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace",
        "metadata": { "name": "vault", "labels": { "atoll.dev/tenant": "acme" } } });
    let closed = json!({ "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": { "name": "closed", "namespace": "vault" },
        "spec": { "podSelector": {}, "policyTypes": ["Ingress"] } });
    let pod = json!({ "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "safe", "namespace": "vault",
                      "annotations": { "atoll.dev/nics": "[{\"ip\":\"10.0.0.40\"}]" } },
        "spec": { "nodeName": "node2", "terminationGracePeriodSeconds": 4, "containers": [{
            "name": "main", "image": "none",
            "command": ["sh", "-c", "trap '' TERM; atoll toolbox serve & sleep 60"] }] } });
    for object in [namespace, closed, pod] {
        lab.apply(&object.to_string()).good();
    }
    lab.wait_for_pods();
    await_answer(&lab, "acme/web", "10.0.0.40:8080", false);
    let flow = flow(&lab, "acme/web", "10.0.0.40:8080");
    lab.kubectl(&["delete", "namespace", "vault", "--wait=false"]).good();
    lab.eventually(&["get", "networkpolicies", "-n", "vault"], |said| {
        said.contains("No resources")
    });
    let tally = tally(flow);
    assert!(tally["sent"].as_u64().unwrap() > 2000, "{tally}");
    assert_eq!(tally["received"], 0, "{tally}");
}

#[test]
fn people_see_what_a_policy_would_change_and_what_is_not_enforced_as_written() {
    let lab = Lab::with_two_tenants();
    let new = policy("closed", &json!({}), "Ingress", &json!([]));
    let file = lab.file("new-policy.yaml", &new);
    let test = ["policy", "test", "-f", file.to_str().unwrap()];
    let text = lab.atoll(&test).good();
    assert!(text.contains("acme/web > acme/db") && text.contains("acme/closed"), "{text}");
    let told = lab.atoll(&[&test[..], &["-o", "json"]].concat()).json();
    assert_eq!(told[0]["tenant"], "acme");
    assert!(told[0]["changes"].as_array().unwrap().iter().all(|it| it["passes"] == false));
    await_answer(&lab, "acme/web", SERVER, true);

    let nonsense = json!([{ "from": [{ "ipBlock": { "cidr": "10.0.0.0/8" } }],
                            "ports": [{ "port": 80, "endPort": 70 }] }]);
    lab.apply(&policy("odd", &json!({ "app": "odd" }), "Ingress", &nonsense)).good();
    let list = lab.atoll(&["policy", "list"]).good();
    assert!(list.contains("acme/odd") && list.contains("endPort"), "{list}");
    lab.eventually(&["get", "events", "-n", "acme"], |said| {
        said.contains("NotEnforcedAsWritten") && said.contains("networkpolicy/odd")
    });
}
