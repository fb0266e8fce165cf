//! Two tenants, the same addresses, three nodes: each reaches its own and nobody else's.

use serde_json::{Value, json};

use crate::documents::{nics, pod, tenant, yaml};
use crate::fixture::{Lab, atoll, await_condition};

#[test]
fn two_tenants_with_the_same_addresses_on_three_nodes_never_meet() {
    let lab = Lab::with_two_tenants();
    everybody_reaches_its_own_alone(&lab);
    assert_equal_addresses_on_one_node(&lab);
    assert!(lab.drops(None, "no-endpoint") > 0, "what went to nobody was counted");
    for node in ["node1", "node2", "node3"] {
        assert_eq!(lab.rules(node), "", "{node}");
    }
}

/// Each pod against each other, over TCP, UDP and ICMP.
pub(crate) fn everybody_reaches_its_own_alone(lab: &Lab) {
    let matrix = ["lab", "matrix", "--name", &lab.name, "--expect", "isolated", "-o", "json"];
    let mut said = String::new();
    await_condition(|| {
        let tried = atoll(&matrix);
        said = format!("{}{}", tried.out, tried.err);
        assert!(!said.contains("\"foreign\"") && !said.contains("\"masked\""), "{said}");
        tried.ok
    })
    .unwrap_or_else(|()| panic!("not everybody reaches its own: {said}"));
}

/// The example is only worth something if two pods of one node really have one address.
fn assert_equal_addresses_on_one_node(lab: &Lab) {
    let pods = lab.kubectl(&["get", "pods", "-A", "-o", "json"]).json();
    let place = |pod: &Value| (pod["spec"]["nodeName"].clone(), pod["status"]["podIP"].clone());
    let places: Vec<_> = pods["items"].as_array().unwrap().iter().map(place).collect();
    let shared = places.iter().enumerate().any(|(at, place)| places[..at].contains(place));
    assert!(shared, "no two pods share node and address: {places:?}");
}

#[test]
fn equal_five_tuples_of_both_tenants_at_once_each_reach_their_own() {
    let lab = Lab::with_two_tenants();
    for protocol in ["tcp", "udp"] {
        for tenant in ["acme", "globex"] {
            lab.reach(&format!("{tenant}/web"), protocol, "10.0.0.6:8080").good();
        }
        let ask = ["atoll", "toolbox", "connect", protocol, "10.0.0.6:8080"];
        let ask = [&ask[..], &["--source-port", "40001", "--timeout", "60s"]].concat();
        let askers = ["acme", "globex"].map(|tenant| {
            let mut command = lab.exec_command(&format!("{tenant}/web"), &ask);
            command.stdout(std::process::Stdio::piped());
            (tenant, command.spawn().unwrap())
        });
        for (tenant, asker) in askers {
            let output = asker.wait_with_output().unwrap();
            let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(answer["pod"], format!("{tenant}/db"), "{protocol}");
            assert_eq!(answer["peer"], "10.0.0.5:40001", "{protocol}");
        }
    }
}

/// The answer to an SCTP packet does not say whose it is, so whom a client must not reach has an address
/// that only the other tenant has.
#[test]
fn sctp_too_reaches_ones_own_on_the_node_and_across_and_nobody_else() {
    let lab = Lab::up(2);
    for (name, solo) in [("acme", 21), ("globex", 22)] {
        let on =
            |pod: &str, node: &str, last: u8| server_of_sctp(&format!("{name}/{pod}"), node, last);
        let pods = [on("web", "node1", 5), on("near", "node1", 6), on("far", "node2", 7)];
        let alone = [on("solo-near", "node1", solo), on("solo-far", "node2", solo + 10)];
        lab.apply(&(tenant(name) + &yaml(&pods) + &yaml(&alone))).good();
    }
    lab.wait_for_pods();
    for (tenant, own, foreign) in [("acme", [21, 31], [22, 32]), ("globex", [22, 32], [21, 31])] {
        let web = format!("{tenant}/web");
        for last in [6, 7].into_iter().chain(own) {
            lab.reach(&web, "sctp", &format!("10.0.0.{last}:8080")).good();
        }
        for last in foreign {
            lab.connect(&web, "sctp", &format!("10.0.0.{last}:8080")).bad();
        }
    }
    assert!(lab.drops(Some("acme.default"), "no-endpoint") > 0, "what went to nobody was counted");
}

fn server_of_sctp(name: &str, node: &str, last: u8) -> Value {
    let mut server = pod(name, node, &json!({}), &nics("default", last));
    server["spec"]["containers"][0]["command"] = json!(["atoll", "toolbox", "serve", "--sctp"]);
    server
}

#[test]
fn a_pod_that_takes_another_address_or_mac_reaches_nobody_and_is_counted() {
    let lab = Lab::with_two_tenants();
    lab.reach("acme/web", "tcp", "10.0.0.6:8080").good();

    let before = lab.drops(Some("acme.default"), "spoofed-address");
    lab.exec("acme/web", &["ip", "addr", "add", "10.0.0.99/32", "dev", "eth0"]).good();
    let route = ["ip", "route", "replace", "default", "via", "169.254.1.1", "src", "10.0.0.99"];
    lab.exec("acme/web", &route).good();
    lab.connect("acme/web", "udp", "10.0.0.6:8080").bad();
    assert!(lab.drops(Some("acme.default"), "spoofed-address") > before);

    let back = ["ip", "route", "replace", "default", "via", "169.254.1.1", "src", "10.0.0.5"];
    lab.exec("acme/web", &back).good();
    lab.reach("acme/web", "udp", "10.0.0.6:8080").good();

    let before = lab.drops(Some("acme.default"), "spoofed-mac");
    lab.exec("acme/web", &["ip", "link", "set", "eth0", "address", "0a:04:0a:00:00:63"]).good();
    lab.connect("acme/web", "udp", "10.0.0.6:8080").bad();
    assert!(lab.drops(Some("acme.default"), "spoofed-mac") > before);
}
