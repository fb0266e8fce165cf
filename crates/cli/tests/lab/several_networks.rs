//! Pods with several interfaces, and ports that outlive pods, on two tenants with equal addresses.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::documents::{addresses, nics, pod, tenant, yaml};
use crate::fixture::{Lab, await_condition};

const TENANTS: [&str; 2] = ["acme", "globex"];

pub(crate) fn lab_with_both_tenants() -> Lab {
    let lab = Lab::up(2);
    for name in TENANTS {
        lab.apply(&tenant(name)).good();
    }
    lab
}

/// The server at an address of either family.
pub(crate) fn server(ip: &str) -> String {
    SocketAddr::new(ip.parse().unwrap(), 8080).to_string()
}

/// Who answers there, and whom it saw asking.
pub(crate) fn answer(lab: &Lab, from: &str, to: &str) -> (String, String) {
    let said = lab.reach(from, "tcp", &server(to)).json();
    let text = |field: &str| said[field].as_str().unwrap().to_owned();
    let peer: SocketAddr = text("peer").parse().unwrap();
    (text("pod"), peer.ip().to_string())
}

/// In each tenant: `web` in both networks, `front` in the default one, `back` in `b`.
pub(crate) fn apply_pods_of_both_networks(lab: &Lab) {
    for tenant in TENANTS {
        let extra = json!([{"network": "b", "ips": addresses("b", 5)}]).to_string();
        let mut both = nics("default", 5);
        both["atoll.dev/extra-networks"] = json!(extra);
        let b = json!({"atoll.dev/network": "b"});
        let pods = [
            pod(&format!("{tenant}/web"), "node1", &json!({}), &both),
            pod(&format!("{tenant}/front"), "node2", &json!({}), &nics("default", 6)),
            pod(&format!("{tenant}/back"), "node2", &b, &nics("b", 6)),
            pod(&format!("{tenant}/near"), "node1", &b, &nics("b", 7)),
        ];
        lab.apply(&yaml(&pods)).good();
    }
    lab.wait_for_pods();
}

#[test]
fn a_pod_in_two_networks_reaches_both_and_joins_them_for_nobody() {
    let lab = lab_with_both_tenants();
    apply_pods_of_both_networks(&lab);
    for tenant in TENANTS {
        let [web, front, back, near] =
            ["web", "front", "back", "near"].map(|pod| format!("{tenant}/{pod}"));
        for family in 0..2 {
            let at = |network: &str, last: u8| addresses(network, last)[family].clone();
            let asks = |from: &str, network: &str, last: u8| answer(&lab, from, &at(network, last));
            assert_eq!(asks(&web, "default", 6), (front.clone(), at("default", 5)));
            assert_eq!(asks(&web, "b", 6), (back.clone(), at("b", 5)));
            assert_eq!(asks(&web, "b", 7), (near.clone(), at("b", 5)));
            assert_eq!(asks(&front, "default", 5), (web.clone(), at("default", 6)));
            assert_eq!(asks(&back, "b", 5), (web.clone(), at("b", 6)));
            lab.connect(&front, "tcp", &server(&at("b", 6))).bad();
            lab.connect(&back, "tcp", &server(&at("default", 6))).bad();
        }
        assert_the_first_interface_leads(&lab, &web);
    }
    assert_who_is_told_for_both(&lab);
}

/// The default route and the pod's address are the first interface's, and nothing is forwarded.
fn assert_the_first_interface_leads(lab: &Lab, pod: &str) {
    let default = lab.exec(pod, &["ip", "route", "show", "default"]).good();
    assert!(default.contains("dev eth0") && default.lines().count() == 1, "{default}");
    let other = lab.exec(pod, &["ip", "route", "show", "dev", "net1"]).good();
    assert!(other.contains("10.1.0.0/16"), "{other}");
    for family in ["ipv4", "ipv6"] {
        let forwarding = format!("/proc/sys/net/{family}/conf/net1/forwarding");
        assert_eq!(lab.exec(pod, &["cat", &forwarding]).good().trim(), "0");
    }
    let (namespace, name) = pod.split_once('/').unwrap();
    let get = ["get", "pod", "-n", namespace, name, "-o", "json"];
    let told = |text: &str| text.contains("k8s.v1.cni.cncf.io/network-status");
    let object: Value = serde_json::from_str(&lab.eventually(&get, told)).unwrap();
    assert_eq!(object["status"]["podIPs"], json!([{"ip": "10.0.0.5"}, {"ip": "fd00::5"}]));
    let status = &object["metadata"]["annotations"]["k8s.v1.cni.cncf.io/network-status"];
    let status: Value = serde_json::from_str(status.as_str().unwrap()).unwrap();
    let names: Vec<&Value> = status.as_array().unwrap().iter().map(|it| &it["interface"]).collect();
    assert_eq!(names, ["eth0", "net1"]);
}

fn assert_who_is_told_for_both(lab: &Lab) {
    let who = lab.atoll(&["who", "10.1.0.5", "-o", "json"]).json();
    let holders = who.as_array().unwrap().iter();
    let networks: Vec<&str> = holders.map(|holder| holder["network"].as_str().unwrap()).collect();
    assert_eq!(networks, ["acme.b", "globex.b"]);
    assert_eq!((&who[0]["pod"], &who[0]["phase"]), (&json!("web"), &json!("Attached")));
}

#[test]
fn a_second_interface_in_the_same_network_answers_for_itself() {
    let lab = lab_with_both_tenants();
    for tenant in TENANTS {
        let both = json!([{"ips": addresses("default", 5)}, {"ips": addresses("default", 55)}]);
        let two = json!({"atoll.dev/nics": both.to_string()});
        lab.apply(&yaml(&[
            pod(&format!("{tenant}/web"), "node1", &json!({}), &two),
            pod(&format!("{tenant}/near"), "node1", &json!({}), &nics("default", 6)),
            pod(&format!("{tenant}/far"), "node2", &json!({}), &nics("default", 7)),
        ]))
        .good();
    }
    lab.wait_for_pods();
    for tenant in TENANTS {
        for (client, last) in [("near", 6), ("far", 7)] {
            for (family, own) in addresses("default", last).into_iter().enumerate() {
                for asked in [5, 55] {
                    let ip = &addresses("default", asked)[family];
                    let said = answer(&lab, &format!("{tenant}/{client}"), ip);
                    assert_eq!(said, (format!("{tenant}/web"), own.clone()), "{ip}");
                }
            }
        }
    }
}

#[test]
fn a_running_pod_reaches_the_range_that_its_extra_network_grew_by() {
    let lab = lab_with_both_tenants();
    apply_pods_of_both_networks(&lab);
    let grown = json!({"spec": {"cidrs": ["10.1.0.0/16", "fd00:1::/64", "10.2.0.0/16"]}});
    lab.kubectl(&["patch", "network", "acme.b", "--type=merge", "-p", &grown.to_string()]).good();
    let place = json!({"atoll.dev/nics": r#"[{"ips": ["10.2.0.9"]}]"#});
    let late = pod("acme/late", "node2", &json!({"atoll.dev/network": "b"}), &place);
    lab.apply(&yaml(&[late])).good();
    lab.wait_for_pods();
    let get = ["get", "port", "-n", "acme", "web.net1", "-o", "jsonpath={.spec.routes}"];
    lab.eventually(&get, |routes| routes.contains("10.2.0.0/16"));
    let routes = ["ip", "route", "show", "dev", "net1"];
    let led = || lab.exec("acme/web", &routes).good().contains("10.2.0.0/16");
    await_condition(led).expect("the running pod has the route");
    assert_eq!(answer(&lab, "acme/web", "10.2.0.9"), ("acme/late".into(), "10.1.0.5".into()));
    lab.connect("globex/web", "tcp", &server("10.2.0.9")).bad();
}

#[test]
fn a_port_made_beforehand_and_a_stateful_sets_port_bring_their_address_to_the_next_pod() {
    let lab = lab_with_both_tenants();
    let port = json!({"apiVersion": "atoll.dev/v1alpha1", "kind": "Port",
        "metadata": {"name": "door", "namespace": "acme"},
        "spec": {"network": "acme.default", "ips": ["10.0.0.80"]}});
    let asks = pod("acme/client", "node2", &json!({}), &nics("default", 6));
    lab.apply(&yaml(&[port, asks])).good();
    let taken = json!({"atoll.dev/nics": r#"[{"port": "door"}]"#});
    for node in ["node1", "node2"] {
        let name = format!("acme/vm-{node}");
        come_and_go(&lab, &pod(&name, node, &json!({}), &taken), "10.0.0.80");
    }

    let address = roll_out(&lab, "node1");
    assert_eq!(roll_out(&lab, "node2"), address, "the set's next pod, on another node");
    assert_eq!(answer(&lab, "acme/client", &address).0, "acme/db-0");
    lab.kubectl(&["delete", "statefulset", "-n", "acme", "db"]).good();
    lab.kubectl(&["wait", "--for=delete", "port/db-0.eth0", "-n", "acme", "--timeout=180s"]).good();
}

/// Has a StatefulSet run its one pod on a node; gives the pod's address.
fn roll_out(lab: &Lab, node: &str) -> String {
    let mut template = pod("acme/db", node, &json!({"app": "db"}), &json!({}));
    template["metadata"] = json!({"labels": {"app": "db"}});
    let set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": "db", "namespace": "acme"}, "spec": {"serviceName": "db",
        "replicas": 1, "selector": {"matchLabels": {"app": "db"}},
        "template": {"metadata": template["metadata"], "spec": template["spec"]}}});
    lab.apply(&yaml(&[set])).good();
    lab.kubectl(&["rollout", "status", "statefulset/db", "-n", "acme", "--timeout=180s"]).good();
    let path = "jsonpath={.spec.nodeName} {.status.podIP}";
    let found = lab.kubectl(&["get", "pod", "-n", "acme", "db-0", "-o", path]).good();
    let (on, address) = found.split_once(' ').unwrap();
    assert_eq!(on, node);
    address.to_owned()
}

/// Starts a pod that must have this address and be reached there, and ends it.
fn come_and_go(lab: &Lab, pod: &Value, address: &str) {
    let name = pod["metadata"]["name"].as_str().unwrap().to_owned();
    assert_eq!(come_up(lab, pod), address, "{name}");
    assert_eq!(answer(lab, "acme/client", address).0, format!("acme/{name}"));
    go(lab, &name);
}

fn come_up(lab: &Lab, pod: &Value) -> String {
    lab.apply(&yaml(std::slice::from_ref(pod))).good();
    lab.wait_for_pods();
    let name = pod["metadata"]["name"].as_str().unwrap();
    let get = ["get", "pod", "-n", "acme", name, "-o", "jsonpath={.status.podIP}"];
    lab.kubectl(&get).good()
}

fn go(lab: &Lab, name: &str) {
    lab.kubectl(&["delete", "pod", "-n", "acme", name, "--wait=true", "--timeout=180s"]).good();
}
