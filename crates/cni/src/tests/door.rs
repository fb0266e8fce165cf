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
fn all_collect_whatever_became_of_the_others_and_every_failure_is_told() {
    let node = Node::new();
    let order = node.0.path().join("order");
    node.plugin("notes", &format!("echo $0 >> {}", order.display()));
    let kinds = ["fails", "notes", "absent", "fails", "notes"];
    let plugins: Vec<Value> = kinds.iter().map(|kind| json!({"type": kind})).collect();
    let list = json!({"name": "cbr0", "cniVersion": "1.1.0", "plugins": plugins});
    let told = node.call("GC", list, json!({"cniVersion": "1.1.0"})).unwrap_err();
    assert_eq!(told.code, ErrorCode::TryAgainLater, "the first one's");
    assert_eq!(told.msg.matches("plugin fails: not now").count(), 2, "{}", told.msg);
    assert!(told.msg.contains("plugin absent is in no folder"), "{}", told.msg);
    assert_eq!(fs::read_to_string(order).unwrap().lines().count(), 2);
}

#[test]
fn what_concerns_a_node_is_asked_of_those_who_know_it() {
    let node = Node::new();
    let asked = |network: Value, command: &str| {
        let call = json!({"cniVersion": "1.1.0"});
        node.call(command, network, call).is_ok_and(|answer| answer.succeeded)
    };
    for command in ["GC", "STATUS"] {
        for older in ["0.3.1", "0.4.0", "1.0.0"] {
            let network = json!({"name": "cbr0", "cniVersion": older, "type": "fails"});
            assert!(asked(network, command), "{older} has no {command}");
        }
        let newest = json!({"name": "cbr0", "cniVersion": "1.1.0", "type": "fails"});
        let both = json!({"name": "cbr0", "cniVersion": "1.0.0", "cniVersions": ["0.4.0", "1.1.0", "2.0.0"], "type": "fails"});
        let either = json!({"name": "cbr0", "type": "fails"});
        for network in [newest, both, either] {
            assert!(!asked(network, command), "{command}");
        }
    }
}

#[test]
fn a_result_is_handed_on_in_the_version_of_who_reads_it() {
    let result = json!({"cniVersion": "1.1.0", "ips": [{"address": "10.9.0.2/24"}, {"address": "fd00::2/64"}]});
    let handed = |version: &str| {
        let network = json!({"name": "cbr0", "cniVersion": version, "type": "echoes"});
        let call = json!({"cniVersion": "1.1.0", "prevResult": result});
        said(&Node::new().call("CHECK", network, call).unwrap())["prevResult"].clone()
    };
    assert_eq!(handed("1.1.0"), result);
    let newer = handed("1.0.0");
    assert_eq!((&newer["cniVersion"], &newer["ips"]), (&json!("1.0.0"), &result["ips"]));
    let older = handed("0.3.1");
    assert_eq!(older["cniVersion"], "0.3.1");
    let families: Vec<&Value> =
        older["ips"].as_array().unwrap().iter().map(|ip| &ip["version"]).collect();
    assert_eq!(families, ["4", "6"]);
    assert_eq!(handed("0.1.0"), result, "a shape that nobody here knows is not touched");
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
