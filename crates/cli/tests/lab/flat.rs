//! Flat networks of two tenants: each is ready with no other field, is reached inside, and only an
//! open one is reached from another.

use serde_json::json;

use crate::documents::{pod, yaml};
use crate::fixture::Lab;
use crate::several_networks::{answer, server};

const TENANTS: [&str; 2] = ["acme", "globex"];

/// A tenant whose default network is flat, with an open one beside it and a pod in each on every
/// node.
fn tenant(name: &str) -> String {
    let open = format!("{name}-open");
    let namespace = |namespace: &str, network: &str| {
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace,
               "labels": {"atoll.dev/tenant": name, "atoll.dev/network": network}}})
    };
    let mut documents = vec![
        json!({"apiVersion": "atoll.dev/v1alpha1", "kind": "Tenant", "metadata": {"name": name},
               "spec": {"defaultNetwork": {"type": "flat"}}}),
        json!({"apiVersion": "atoll.dev/v1alpha1", "kind": "Network",
               "metadata": {"name": format!("{name}.open")},
               "spec": {"tenant": name, "type": "flat", "isolation": "open"}}),
        namespace(name, "default"),
        namespace(&open, "open"),
    ];
    for node in ["node1", "node2"] {
        for home in [name, &open] {
            documents.push(pod(&format!("{home}/{node}"), node, &json!({}), &json!({})));
        }
    }
    yaml(&documents)
}

fn address(lab: &Lab, pod: &str) -> String {
    let (namespace, name) = pod.split_once('/').unwrap();
    lab.kubectl(&["get", "pod", "-n", namespace, name, "-o", "jsonpath={.status.podIP}"]).good()
}

#[test]
fn flat_networks_of_two_tenants_are_reached_inside_and_only_open_ones_from_each_other() {
    let lab = Lab::up(2);
    TENANTS.iter().for_each(|name| drop(lab.apply(&tenant(name)).good()));
    lab.wait_for_pods();
    let homes = ["acme", "globex", "acme-open", "globex-open"];
    let pods = homes.map(|home| ["node1", "node2"].map(|node| format!("{home}/{node}")));
    let addresses = pods.each_ref().map(|home| home.each_ref().map(|pod| address(&lab, pod)));
    let mut distinct: Vec<_> = addresses.iter().flatten().collect();
    distinct.sort();
    distinct.dedup();
    assert_eq!(distinct.len(), 8, "flat networks share one range: {addresses:?}");
    for (from, home) in pods.iter().enumerate() {
        for to in 0..homes.len() {
            let both_open = from >= 2 && to >= 2;
            for (client, place) in home.iter().zip([1, 0]) {
                let ip = &addresses[to][place];
                match from == to || both_open {
                    true => assert_eq!(answer(&lab, client, ip).0, pods[to][place]),
                    false => drop(lab.connect(client, "tcp", &server(ip)).bad()),
                }
            }
        }
    }
}
