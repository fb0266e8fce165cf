//! Pods of no tenant go on to the node's other plugins, with what they came with.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::{Map, Value, json};
use tempfile::TempDir;

use crate::{Answer, CniError, Door, ErrorCode};

/// A node with a plugin that repeats what it reads, and one that always fails.
struct Node(TempDir);

impl Node {
    fn new() -> Self {
        let node = Node(tempfile::tempdir().unwrap());
        node.plugin("echoes", "cat");
        node.plugin("fails", "echo '{\"code\":11,\"msg\":\"not now\"}'; exit 7");
        node
    }

    fn plugin(&self, name: &str, script: &str) {
        let path = self.0.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn call(&self, command: &str, delegate: Value, call: Value) -> Result<Answer, CniError> {
        let door: Door = serde_json::from_value(delegate).unwrap();
        let (folder, search) = (self.0.path(), self.0.path().display().to_string());
        door.open(&object(call), folder, &format!("/nowhere:{search}"))?.call(command)
    }
}

fn object(value: Value) -> Map<String, Value> {
    serde_json::from_value(value).unwrap()
}

fn said(answer: &Answer) -> Value {
    serde_json::from_slice(&answer.output).unwrap()
}

#[test]
fn a_plugin_gets_its_own_name_and_what_the_runtime_said_for_this_call() {
    let delegate = json!({"name": "cbr0", "type": "echoes", "mtu": 9000, "capabilities": {"portMappings": true}});
    let call = json!({
        "cniVersion": "1.0.0", "name": "atoll", "agentSocket": "/run/a", "prevResult": {"ips": []},
        "runtimeConfig": {"portMappings": [1], "bandwidth": {}},
    });
    let answer = Node::new().call("CHECK", delegate, call).unwrap();
    assert!(answer.succeeded);
    let expected = json!({
        "name": "cbr0", "type": "echoes", "mtu": 9000, "cniVersion": "1.0.0",
        "capabilities": {"portMappings": true}, "prevResult": {"ips": []},
        "runtimeConfig": {"portMappings": [1]},
    });
    assert_eq!(said(&answer), expected);
}

#[test]
fn an_error_is_passed_on_as_it_is() {
    let list = json!({"name": "cbr0", "plugins": [{"type": "fails"}, {"type": "echoes"}]});
    let answer = Node::new().call("ADD", list, json!({"cniVersion": "1.0.0"})).unwrap();
    assert_eq!(answer.output, b"{\"code\":11,\"msg\":\"not now\"}\n");
    assert!(!answer.succeeded);
}

#[test]
fn the_plugins_of_a_list_build_on_each_other_and_are_taken_down_backwards() {
    let node = Node::new();
    let order = node.0.path().join("order");
    node.plugin("one", &format!("echo one >> {}; echo '{{\"ips\":[1]}}'", order.display()));
    node.plugin("two", &format!("echo two >> {}; cat", order.display()));
    let list = json!({"name": "cbr0", "plugins": [{"type": "one"}, {"type": "two"}]});
    let answer = node.call("ADD", list.clone(), json!({})).unwrap();
    assert_eq!(said(&answer)["prevResult"], json!({"ips": [1]}));
    node.call("DEL", list, json!({})).unwrap();
    assert_eq!(fs::read_to_string(order).unwrap(), "one\ntwo\ntwo\none\n");
}

#[test]
fn a_network_of_the_node_is_found_by_its_name() {
    let node = Node::new();
    let write = |file: &str, content: Value| {
        fs::write(node.0.path().join(file), content.to_string()).unwrap();
    };
    write("10-other.conflist", json!({"name": "other", "plugins": [{"type": "fails"}]}));
    write(
        "20-cbr0.conflist",
        json!({"name": "cbr0", "cniVersion": "0.4.0", "plugins": [{"type": "echoes"}]}),
    );
    fs::write(node.0.path().join("30-broken.conf"), "{").unwrap();
    let answer = node.call("ADD", json!("cbr0"), json!({"cniVersion": "1.1.0"})).unwrap();
    assert_eq!(said(&answer), json!({"name": "cbr0", "cniVersion": "0.4.0", "type": "echoes"}));
    let missing = node.call("ADD", json!("nobody"), json!({})).unwrap_err();
    assert!(missing.msg.contains("is called \"nobody\""), "{}", missing.msg);
}

#[test]
fn a_type_that_is_a_path_or_no_plugin_is_refused() {
    let node = Node::new();
    for kind in ["../echoes", "/bin/true", "..", "", "absent"] {
        let delegate = json!({"name": "cbr0", "type": kind});
        let refused = node.call("ADD", delegate, json!({})).unwrap_err();
        assert_eq!(refused.code, ErrorCode::InvalidConfig, "{kind}");
    }
    assert!(!Path::new("/nowhere").exists());
}
