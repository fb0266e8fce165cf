//! What a runtime says to the plugin, word for word, and what it gets: exit code, standard output,
//! and the numbers of errors, of the specification 1.1.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::node::{Node, Pod, TENANTS};

/// Calls the plugin with nothing but this in its environment and on its input.
fn call(environment: &[(&str, &str)], input: &str) -> Output {
    let mut plugin = Command::new(env!("CARGO_BIN_EXE_atoll"));
    let plugin = plugin.arg("cni").env_clear().envs(environment.iter().copied());
    let plugin = plugin.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut plugin = plugin.spawn().unwrap();
    // One that does not read its input may have ended before.
    let _unread = plugin.stdin.take().unwrap().write_all(input.as_bytes());
    plugin.wait_with_output().unwrap()
}

/// The error that was printed, and the exit code is a failure's.
fn refused(done: &Output) -> Value {
    assert!(!done.status.success(), "it succeeded");
    serde_json::from_slice(&done.stdout).unwrap()
}

fn configuration(socket: &str) -> String {
    json!({"cniVersion": "1.1.0", "name": "atoll", "type": "atoll-cni", "agentSocket": socket})
        .to_string()
}

#[test]
fn version_needs_nothing_but_the_command_and_does_not_read_its_input() {
    let mut plugin = Command::new(env!("CARGO_BIN_EXE_atoll"));
    let plugin = plugin.arg("cni").env_clear().env("CNI_COMMAND", "VERSION");
    let mut plugin = plugin.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let never_closed = plugin.stdin.take();
    let done = plugin.wait_with_output().unwrap();
    drop(never_closed);
    assert!(done.status.success());
    let said: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(said["cniVersion"], "1.1.0");
    let all = json!(["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"]);
    assert_eq!(said["supportedVersions"], all);
}

#[test]
fn status_is_silent_with_a_ready_agent_and_without_one_says_so_by_number() {
    let node = Node::start();
    let status = [("CNI_COMMAND", "STATUS"), ("CNI_PATH", "/nowhere")];
    let done = call(&status, &configuration(node.path("agent.sock").to_str().unwrap()));
    assert!(done.status.success());
    assert_eq!(done.stdout, b"");
    let error = refused(&call(&status, &configuration("/nowhere/agent.sock")));
    assert_eq!(error["code"], 50, "{error}");
    assert_eq!(error["cniVersion"], "1.1.0");
    assert!(error["msg"].as_str().unwrap().contains("/nowhere/agent.sock"), "{error}");
}

#[test]
fn each_mistake_of_a_runtime_has_its_number() {
    let add = [
        ("CNI_COMMAND", "ADD"),
        ("CNI_CONTAINERID", "c0ffee"),
        ("CNI_NETNS", "/proc/self/ns/net"),
        ("CNI_IFNAME", "eth0"),
        ("CNI_PATH", "/nowhere"),
        ("CNI_ARGS", "K8S_POD_NAMESPACE=acme;K8S_POD_NAME=web"),
    ];
    let with = |name: &'static str, value: &'static str| {
        let mut changed = add.to_vec();
        changed.retain(|(known, _)| *known != name);
        changed.push((name, value));
        changed
    };
    let right = configuration("/nowhere/agent.sock");
    let old = right.replace("1.1.0", "0.3.1");
    let rows = [
        (1, add.to_vec(), right.replace("1.1.0", "9.9.9")),
        (1, with("CNI_COMMAND", "CHECK"), old.clone()),
        (1, with("CNI_COMMAND", "STATUS"), old.clone()),
        (1, with("CNI_COMMAND", "GC"), old),
        (4, with("CNI_CONTAINERID", ""), right.clone()),
        (4, with("CNI_CONTAINERID", "../../etc"), right.clone()),
        (4, with("CNI_NETNS", ""), right.clone()),
        (4, with("CNI_IFNAME", "a/b"), right.clone()),
        (4, with("CNI_COMMAND", "SING"), right.clone()),
        (6, add.to_vec(), "no JSON".to_owned()),
        (7, add.to_vec(), right.replace("\"name\":\"atoll\"", "\"name\":\"../atoll\"")),
        (7, with("CNI_COMMAND", "GC"), right.clone()),
        (11, add.to_vec(), right),
    ];
    for (code, environment, input) in rows {
        let error = refused(&call(&environment, &input));
        assert_eq!(error["code"], code, "{environment:?} {input}: {error}");
        assert!(!error["msg"].as_str().unwrap().is_empty());
    }
}

#[test]
fn an_interface_of_another_that_has_the_name_is_not_taken_and_nothing_is_left() {
    let node = Node::start();
    let pod = Pod::new(TENANTS, "web");
    node.port(&pod, 1);
    pod.namespace.ip("link add eth0 type bridge");
    let error = refused(&node.call("ADD", &pod));
    assert!(error["code"].as_u64().unwrap() >= 100, "{error}");
    assert_eq!(node.links(), 0);
    assert!(pod.namespace.ip("-d link show eth0").contains("bridge"), "it is still the other's");
}

#[test]
fn what_succeeds_without_a_result_prints_nothing_and_del_succeeds_when_all_is_gone() {
    let node = Node::start();
    let pod = Pod::new(TENANTS, "web");
    node.port(&pod, 1);
    assert!(node.call("ADD", &pod).status.success());
    for command in ["CHECK", "DEL", "DEL", "STATUS"] {
        let done = node.call(command, &pod);
        assert!(done.status.success(), "{command}");
        assert_eq!(done.stdout, b"", "{command}");
    }
    assert_eq!(refused(&node.call("CHECK", &pod))["code"], 101);
}
