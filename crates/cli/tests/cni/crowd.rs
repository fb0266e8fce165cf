//! Many pods at once, agents that die in between, and who may open what.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use atoll_testkit::eventually;
use serde_json::Value;

use crate::node::{Node, Pod, TENANTS};

/// Pods with their ports, which the agent may not have seen yet.
fn pods(node: &Node, count: u8) -> Vec<Pod> {
    let pods: Vec<_> =
        (1..=count).map(|number| Pod::new(TENANTS, format!("pod-{number}"))).collect();
    for (number, pod) in (1..).zip(&pods) {
        node.port(pod, number);
    }
    pods
}

/// Does `job` for all pods at the same time.
fn at_once<T: Send>(pods: &[Pod], job: impl Fn(&Pod) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let jobs: Vec<_> = pods.iter().map(|pod| scope.spawn(|| job(pod))).collect();
        jobs.into_iter().map(|job| job.join().unwrap()).collect()
    })
}

#[test]
fn a_hundred_pods_at_once_are_attached_and_taken_away() {
    let node = Node::start();
    let pods = pods(&node, 100);
    for (pod, done) in pods.iter().zip(at_once(&pods, |pod| node.call("ADD", pod))) {
        let said = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success(), "{}: {said}", pod.name);
        let result: Value = serde_json::from_slice(&done.stdout).unwrap();
        let address = pod.namespace.ip("-4 -o address show eth0");
        assert!(address.contains(result["ips"][0]["address"].as_str().unwrap()), "{address}");
    }
    assert_eq!(node.links(), 100);
    assert!(at_once(&pods, |pod| node.call("DEL", pod)).iter().all(|done| done.status.success()));
    assert_eq!(node.links(), 0);
    assert!(!pods.iter().any(Pod::is_attached));
}

/// Kills the agent once some of the pods are attached, and starts the next. Whether any pod missed it:
/// an agent that is quick may have attached all of them by then.
fn is_missed_by_adds(node: &mut Node, pods: &[Pod]) -> bool {
    let asked = std::thread::scope(|scope| {
        let adds = scope.spawn(|| at_once(pods, |pod| node.call("ADD", pod).status.success()));
        eventually("some pods are attached", || (node.links() >= 5).then_some(()));
        kill(node);
        adds.join().unwrap()
    });
    node.kill_agent();
    node.start_agent();
    asked.contains(&false)
}

#[test]
fn an_agent_killed_in_the_middle_of_many_adds_leaves_nothing_half_done() {
    let mut node = Node::start();
    let pods = pods(&node, 30);
    let is_missed = (0..20).any(|_| {
        at_once(&pods, |pod| node.call("DEL", pod));
        is_missed_by_adds(&mut node, &pods)
    });
    assert!(is_missed, "the agent was killed too late to be missed, each time");
    let again = at_once(&pods, |pod| node.call("ADD", pod));
    assert!(again.iter().all(|done| done.status.success()));
    assert_eq!(node.links(), 30);
    assert!(pods.iter().all(Pod::is_attached));
    at_once(&pods, |pod| node.call("DEL", pod));
    assert_eq!(
        (node.links(), fs::read_dir(node.path("state/attachments")).unwrap().count()),
        (0, 0)
    );
}

/// Ends the agent with nothing but its number, as the kernel would for lack of memory.
fn kill(node: &Node) {
    let number = node.agent_number().to_string();
    let killed = std::process::Command::new("kill").args(["-KILL", &number]).status().unwrap();
    assert!(killed.success());
}

#[test]
fn only_root_may_ask_the_agent_or_read_what_it_remembers() {
    let node = Node::start();
    let pod = &pods(&node, 1)[0];
    assert!(node.call("ADD", pod).status.success());
    let mode = |name: &str| fs::metadata(node.path(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("agent.sock"), 0o600);
    assert_eq!(mode("state/attachments"), 0o700);
    for file in fs::read_dir(node.path("state/attachments")).unwrap() {
        let mode = file.unwrap().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "others may read an attachment");
    }
}
