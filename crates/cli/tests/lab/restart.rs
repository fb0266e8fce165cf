//! The agent may die; the pods' packets do not notice.

use std::process::Stdio;

use serde_json::Value;

use crate::fixture::{Lab, kill_agent_and_await_the_next};

#[test]
fn an_agent_killed_and_restarted_under_traffic_loses_no_packet() {
    let lab = Lab::with_two_tenants();
    let flow =
        ["atoll", "toolbox", "flow", "--udp", "10.0.0.6:8080", "--rate", "1000", "--seconds", "10"];
    let mut flow = lab.exec_command("acme/web", &flow);
    let flow = flow.stdout(Stdio::piped()).spawn().unwrap();
    for node in ["node1", "node2", "node3"] {
        kill_agent_and_await_the_next(&lab, node);
    }
    let output = flow.wait_with_output().unwrap();
    let tally: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(tally["sent"].as_u64().unwrap() >= 5000, "{tally}");
    assert_eq!(tally["lost"], 0, "{tally}");
    lab.connect("acme/web", "tcp", "10.0.0.6:8080").good();
    lab.connect("acme/web", "tcp", "10.0.0.22:8080").bad();
}

#[test]
fn pods_made_after_an_agent_restart_are_attached() {
    let lab = Lab::with_two_tenants();
    kill_agent_and_await_the_next(&lab, "node1");
    let pod = "
apiVersion: v1
kind: Pod
metadata: {name: late, namespace: acme}
spec:
  nodeName: node1
  containers: [{name: main, image: none, command: [atoll, toolbox, serve]}]
";
    lab.apply(pod).good();
    lab.wait_for_pods();
    lab.connect("acme/late", "tcp", "10.0.0.6:8080").good();
}
