//! What a runtime may say, and what it is told when it says something else.

use std::collections::BTreeMap;

use crate::{Action, CniError, ErrorCode, Invocation};

const CONFIG: &str =
    r#"{"cniVersion":"1.1.0","name":"atoll","type":"atoll-cni","agentSocket":"/run/a.sock"}"#;

fn environment() -> BTreeMap<&'static str, &'static str> {
    [
        ("CNI_CONTAINERID", "c0ffee"),
        ("CNI_IFNAME", "eth0"),
        ("CNI_NETNS", "/run/netns/pod"),
        ("CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAMESPACE=acme;K8S_POD_NAME=web;K8S_POD_UID=u1"),
    ]
    .into()
}

fn parse(
    command: &str,
    env: &BTreeMap<&'static str, &'static str>,
    config: &str,
) -> Result<Invocation, CniError> {
    Invocation::parse(command, &|name| env.get(name).map(ToString::to_string), config)
}

fn code_of(command: &str, change: (&'static str, &'static str), config: &str) -> ErrorCode {
    let mut env = environment();
    env.insert(change.0, change.1);
    parse(command, &env, config).unwrap_err().code
}

#[test]
fn add_names_the_pod_and_its_sandbox() {
    let invocation = parse("ADD", &environment(), CONFIG).unwrap();
    let Action::Add(request) = invocation.action else { panic!("ADD is an add") };
    assert_eq!(request.pod.to_string(), "acme/web");
    assert_eq!(request.pod_uid.as_deref(), Some("u1"));
    assert_eq!(request.id.container_id, "c0ffee");
    assert_eq!(invocation.agent_socket.to_str(), Some("/run/a.sock"));
}

#[test]
fn the_agent_is_told_of_others_links_where_the_configuration_says_so() {
    assert!(!parse("ADD", &environment(), CONFIG).unwrap().tells_links);
    let told = CONFIG.replace('}', r#","plainServices":true}"#);
    assert!(parse("ADD", &environment(), &told).unwrap().tells_links);
}

#[test]
fn del_needs_no_namespace_and_no_pod() {
    let mut env = environment();
    env.remove("CNI_NETNS");
    env.remove("CNI_ARGS");
    let invocation = parse("DEL", &env, CONFIG).unwrap();
    assert!(matches!(invocation.action, Action::Del(_)));
}

#[test]
fn add_and_check_need_a_namespace_with_an_absolute_path() {
    for command in ["ADD", "CHECK"] {
        for path in ["", "run/netns/pod"] {
            let code = code_of(command, ("CNI_NETNS", path), CONFIG);
            assert_eq!(code, ErrorCode::InvalidEnvironment, "{command} {path:?}");
        }
    }
}

#[test]
fn names_that_could_walk_through_paths_are_refused() {
    for id in ["../etc", "a/b", ".hidden", ""] {
        assert_eq!(code_of("ADD", ("CNI_CONTAINERID", id), CONFIG), ErrorCode::InvalidEnvironment);
    }
    for name in ["a/b", "..", "eth0:1", "an-interface-too-long", "e 0", ""] {
        assert_eq!(code_of("ADD", ("CNI_IFNAME", name), CONFIG), ErrorCode::InvalidEnvironment);
    }
    let config = CONFIG.replace(r#""name":"atoll""#, r#""name":"../atoll""#);
    assert_eq!(code_of("ADD", ("X", ""), &config), ErrorCode::InvalidConfig);
}

#[test]
fn a_relative_sandbox_and_a_missing_pod_are_refused() {
    let netns = ("CNI_NETNS", "run/netns/pod");
    assert_eq!(code_of("ADD", netns, CONFIG), ErrorCode::InvalidEnvironment);
    let args = ("CNI_ARGS", "K8S_POD_NAME=web");
    assert_eq!(code_of("ADD", args, CONFIG), ErrorCode::InvalidEnvironment);
}

#[test]
fn versions_that_lack_a_command_say_so() {
    let old = CONFIG.replace("1.1.0", "0.3.1");
    assert_eq!(code_of("CHECK", ("X", ""), &old), ErrorCode::IncompatibleVersion);
    assert_eq!(
        code_of("GC", ("X", ""), &CONFIG.replace("1.1.0", "1.0.0")),
        ErrorCode::IncompatibleVersion
    );
    assert_eq!(
        code_of("ADD", ("X", ""), &CONFIG.replace("1.1.0", "9.9.9")),
        ErrorCode::IncompatibleVersion
    );
    assert!(parse("ADD", &environment(), &old).is_ok());
}

#[test]
fn garbage_collection_without_a_list_removes_nothing() {
    assert_eq!(code_of("GC", ("X", ""), CONFIG), ErrorCode::InvalidConfig);
    let config = CONFIG.replace(
        r#""type""#,
        r#""cni.dev/valid-attachments":[{"containerID":"c0ffee","ifname":"eth0"}],"type""#,
    );
    let Action::Gc(valid) = parse("GC", &environment(), &config).unwrap().action else {
        panic!("GC is a garbage collection")
    };
    assert_eq!(valid[0].container_id, "c0ffee");
    let config = CONFIG.replace(r#""type""#, r#""cni.dev/valid-attachments":null,"type""#);
    let none = parse("GC", &environment(), &config).unwrap().action;
    assert_eq!(none, Action::Gc(vec![]), "libcni says null for an empty list");
}

#[test]
fn no_json_and_no_command_are_two_different_errors() {
    assert_eq!(code_of("ADD", ("X", ""), "not json"), ErrorCode::Decode);
    assert_eq!(code_of("DANCE", ("X", ""), CONFIG), ErrorCode::InvalidEnvironment);
}
