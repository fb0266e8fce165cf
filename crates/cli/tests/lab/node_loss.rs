//! A node that is lost: what its pods held comes back though nobody on the node lets go of it, and
//! what is left of them there goes when the node comes back.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::documents::{pod, yaml};
use crate::fixture::{Lab, await_condition};
use crate::several_networks::{answer, server};
use crate::tenants::{address, field, namespace};

const HOME: &str = "acme";
const LOST: [&str; 4] = ["lost-0", "lost-1", "lost-2", "lost-3"];
const SUBNET: &str = "acme.default.10-0-0-0-16";

fn pods_on(node: &str) -> Vec<Value> {
    let made = |name: &&str| pod(&format!("{HOME}/{name}"), node, &json!({}), &json!({}));
    LOST.iter().map(made).collect()
}

/// A lab with pods on each of three nodes, those on the second to be lost.
fn lab_with_pods() -> Lab {
    let lab = Lab::up(3);
    let tenant = json!({"apiVersion": "atoll.dev/v1alpha1", "kind": "Tenant",
        "metadata": {"name": HOME},
        "spec": {"defaultNetwork": {"type": "vpc", "cidrs": ["10.0.0.0/16"]}}});
    let others = ["near", "far"].into_iter().zip(["node1", "node3"]);
    let others =
        others.map(|(name, node)| pod(&format!("{HOME}/{name}"), node, &json!({}), &json!({})));
    let objects = [tenant, namespace(HOME, HOME)].into_iter().chain(others).chain(pods_on("node2"));
    lab.apply(&yaml(&objects.collect::<Vec<_>>())).good();
    lab.wait_for_pods();
    lab
}

/// The links of pods on a node.
fn links(lab: &Lab, node: &str) -> usize {
    let listed = lab.node(node, &["ip", "-o", "link"]).good();
    listed.lines().filter(|line| line.contains(": atl")).count()
}

/// The addresses of the pods that are lost, each another.
fn addresses(lab: &Lab) -> BTreeSet<String> {
    let addresses: BTreeSet<String> = LOST.map(|pod| address(lab, HOME, pod)).into();
    assert_eq!(addresses.len(), LOST.len(), "each has an address of its own: {addresses:?}");
    addresses
}

/// Waits until a pod answers `near` at its address, and sees who asks.
fn await_answer(lab: &Lab, pod: &str, near: &str) {
    let ip = address(lab, HOME, pod);
    await_condition(|| lab.connect("acme/near", "tcp", &server(&ip)).ok).expect("it is reached");
    assert_eq!(answer(lab, "acme/near", &ip), (format!("{HOME}/{pod}"), near.to_owned()));
}

/// Waits until so many pods hold a port and an address, by every count that there is.
fn await_holders(lab: &Lab, count: usize) {
    let wanted = count.to_string();
    let named = "{.items[*].metadata.name}";
    let are_so_many = |names: &str| names.split_whitespace().count() == count;
    field(lab, &["ports", "-n", HOME], named, are_so_many);
    let held = format!("{{.items[?(@.spec.holder.namespace=='{HOME}')].metadata.name}}");
    field(lab, &["claims"], &held, are_so_many);
    field(lab, &["subnet", SUBNET], "{.status.used}", |used| used == wanted);
    field(lab, &["tenant", HOME], "{.status.ports}", |ports| ports == wanted);
}

/// The node is cut off and nothing on it does anything any more; then Kubernetes gives it up, and
/// deletes its pods by force, since nobody there can say that they ended.
fn lose_node2(lab: &Lab) {
    lab.signal_agent("node2", "-STOP");
    lab.outside(&["ip", "link", "set", "node2", "down"]).good();
    lab.kubectl(&["delete", "node", "node2"]).good();
    let force = ["delete", "pods", "-n", HOME, "--force", "--grace-period=0"];
    lab.kubectl(&[&force[..], &LOST[..]].concat()).good();
}

/// The node is there again, and says so.
fn bring_node2_back(lab: &Lab, node: &Value) {
    lab.outside(&["ip", "link", "set", "node2", "up"]).good();
    let mut made = node.clone();
    let metadata = &node["metadata"];
    made["metadata"] = json!({"name": metadata["name"], "labels": metadata["labels"]});
    lab.apply(&made.to_string()).good();
    let status = json!({"status": node["status"]}).to_string();
    let patch = ["patch", "node", "node2", "--subresource=status", "--type=merge", "-p", &status];
    lab.kubectl(&patch).good();
    lab.signal_agent("node2", "-CONT");
}

#[test]
fn what_pods_of_a_lost_node_held_comes_back_and_nothing_of_them_is_left_when_it_returns() {
    let lab = lab_with_pods();
    let lost = addresses(&lab);
    await_holders(&lab, 2 + LOST.len());
    let near = address(&lab, HOME, "near");
    for pod in LOST.iter().chain(&["far"]) {
        await_answer(&lab, pod, &near);
    }
    assert_eq!(links(&lab, "node2"), LOST.len());
    let node = lab.kubectl(&["get", "node", "node2", "-o", "json"]).json();

    lose_node2(&lab);
    await_holders(&lab, 2);
    for ip in &lost {
        lab.connect("acme/near", "tcp", &server(ip)).bad();
    }
    await_answer(&lab, "far", &near);
    assert_eq!(links(&lab, "node2"), LOST.len(), "nobody there did anything");

    lab.apply(&yaml(&pods_on("node3"))).good();
    lab.wait_for_pods();
    await_holders(&lab, 2 + LOST.len());
    assert!(addresses(&lab).is_disjoint(&lost), "what was freed a moment ago rests");
    LOST.iter().for_each(|pod| await_answer(&lab, pod, &near));

    bring_node2_back(&lab, &node);
    await_condition(|| links(&lab, "node2") == 0).expect("no link of a lost pod is left");
    lab.apply(&yaml(&[pod("acme/back", "node2", &json!({}), &json!({}))])).good();
    lab.wait_for_pods();
    await_answer(&lab, "back", &near);
    await_holders(&lab, 3 + LOST.len());
}
