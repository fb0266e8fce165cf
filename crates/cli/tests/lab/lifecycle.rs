//! Up, down, and everything that can be in the way.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::process::Command;

use atoll_testkit::Namespace;

use crate::fixture::{Lab, atoll, await_condition, state_dir, unique_name};

/// Everything on this machine that names the lab or lies where labs lie.
fn traces(name: &str) -> BTreeSet<String> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let processes = Command::new("ps").args(["-eo", "pid,args"]).output().unwrap();
    let processes = String::from_utf8_lossy(&processes.stdout).into_owned();
    let path = state_dir(name);
    let path = path.to_str().unwrap();
    let mut traces: BTreeSet<String> = mounts
        .lines()
        .chain(processes.lines())
        .filter(|line| line.contains(path))
        .map(str::to_owned)
        .collect();
    traces.extend(state_dir(name).exists().then(|| path.to_owned()));
    traces
}

/// The links of the current thread's network.
fn links() -> BTreeSet<String> {
    let table = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let rows = table.lines().filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned()));
    rows.collect()
}

#[test]
fn a_lab_that_was_taken_down_leaves_no_trace() {
    // In a network of its own, to which nobody else adds links in the meantime.
    Namespace::new().run(|| {
        let links_before = links();
        let lab = Lab::with_two_tenants();
        let name = lab.name.clone();
        assert!(!traces(&name).is_empty(), "a lab that is up can be seen");
        assert_eq!(links(), links_before, "a lab adds nothing to the network it is started in");
        atoll(&["lab", "down", "--name", &name]).good();
        assert_eq!(traces(&name), BTreeSet::new());
        atoll(&["lab", "down", "--name", &name]).good();
    });
}

#[test]
fn a_lab_that_is_up_cannot_be_started_again() {
    let lab = Lab::up(1);
    let complaint = atoll(&["lab", "up", "--name", &lab.name]).bad();
    assert!(complaint.contains("already up"), "{complaint}");
    assert!(complaint.contains("atoll lab down"), "{complaint}");
    lab.kubectl(&["get", "nodes"]).good();
}

#[test]
fn half_a_lab_left_by_a_crash_is_named_and_can_be_taken_down() {
    let lab = Lab::up(1);
    let status = atoll(&["lab", "status", "--name", &lab.name, "-o", "json"]).json();
    let supervisor = status["supervisor"]["pid"].as_u64().unwrap().to_string();
    assert!(Command::new("kill").args(["-9", &supervisor]).status().unwrap().success());
    let alive = || std::path::Path::new("/proc").join(&supervisor).join("exe").read_link().is_ok();
    await_condition(|| !alive()).expect("the supervisor ends");
    let complaint = atoll(&["lab", "up", "--name", &lab.name]).bad();
    assert!(complaint.contains(&format!("atoll lab down --name {}", lab.name)), "{complaint}");
    atoll(&["lab", "down", "--name", &lab.name]).good();
    assert_eq!(traces(&lab.name), BTreeSet::new());
}

#[test]
fn a_port_in_use_is_one_clear_sentence_and_leaves_nothing() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let name = unique_name();
    let complaint = atoll(&["lab", "up", "--name", &name, "--port", &port]).bad();
    assert!(complaint.contains(&port) && complaint.contains("in use"), "{complaint}");
    assert_eq!(traces(&name), BTreeSet::new());
}

#[test]
fn pods_that_exit_crash_or_are_deleted_behave_as_kubernetes_users_expect() {
    let lab = Lab::up(1);
    lab.apply(LIVES).good();
    let phase = |pod: &str| {
        lab.kubectl(&["get", "pod", pod, "-n", "acme", "-o", "jsonpath={.status.phase}"]).good()
    };
    await_condition(|| phase("done") == "Succeeded").expect("a pod that ends well has succeeded");
    await_condition(|| phase("broken") == "Failed").expect("a pod that ends badly has failed");
    let restarts = "jsonpath={.status.containerStatuses[0].restartCount}";
    lab.eventually(&["get", "pod", "crashing", "-n", "acme", "-o", restarts], |said| {
        said.parse::<u32>().is_ok_and(|count| count >= 2)
    });
    lab.kubectl(&["delete", "pod", "steady", "-n", "acme", "--timeout=180s"]).good();
    let ports = ["get", "ports", "-n", "acme", "-o", "jsonpath={.items[*].spec.pod}"];
    lab.eventually(&ports, |said| !said.contains("steady"));
}

const LIVES: &str = "
apiVersion: atoll.dev/v1alpha1
kind: Tenant
metadata: {name: acme}
spec: {defaultNetwork: {type: vpc, cidrs: [10.0.0.0/16]}}
---
apiVersion: v1
kind: Namespace
metadata: {name: acme, labels: {atoll.dev/tenant: acme}}
---
apiVersion: v1
kind: Pod
metadata: {name: done, namespace: acme}
spec: {restartPolicy: Never, containers: [{name: main, image: none, command: [sh, -c, exit 0]}]}
---
apiVersion: v1
kind: Pod
metadata: {name: broken, namespace: acme}
spec: {restartPolicy: Never, containers: [{name: main, image: none, command: [sh, -c, exit 3]}]}
---
apiVersion: v1
kind: Pod
metadata: {name: crashing, namespace: acme}
spec: {containers: [{name: main, image: none, command: [sh, -c, exit 3]}]}
---
apiVersion: v1
kind: Pod
metadata: {name: steady, namespace: acme}
spec: {containers: [{name: main, image: none, command: [sleep, infinity]}]}
";
