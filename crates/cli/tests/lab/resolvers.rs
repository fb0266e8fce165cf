//! Who answers names while things change: on every node, with DNS pods that go, and with packets
//! that only look like DNS.

use std::net::UdpSocket;
use std::thread;
use std::time::Duration;

use atoll_testkit::Hears;

use serde_json::{Value, json};

use crate::fixture::{Lab, await_condition};
use crate::names::{answer, eventually, lab_with_both_tenants, pod_ip, pod_spec, service, tenant};
use crate::records::inside;

const NODES: [&str; 3] = ["node1", "node2", "node3"];

fn pod(name: &str, node: &str, labels: &Value) -> String {
    let spec = pod_spec(&json!({"kubernetes.io/hostname": node}));
    let metadata = json!({"name": name, "namespace": "acme", "labels": labels});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec});
    format!("---\n{pod}\n")
}

/// What each node's pod of the tenant is answered.
fn on_every_node(lab: &Lab, name: &str, wanted: &[&str]) {
    for node in NODES {
        let dig = ["dig", "+search", "+nocookie", "+short", name];
        let ask = || {
            let said = lab.exec(&format!("acme/on-{node}"), &dig).good();
            let mut lines: Vec<String> = said.lines().map(ToOwned::to_owned).collect();
            lines.sort();
            lines
        };
        await_condition(|| ask() == wanted)
            .unwrap_or_else(|()| panic!("{name} on {node}: {:?} and never {wanted:?}", ask()));
    }
}

#[test]
fn what_changes_is_answered_anew_on_every_node_that_has_the_network() {
    let lab = Lab::up(3);
    lab.apply(&tenant("acme", "198.18.1.1")).good();
    lab.wait_for_pods_of("acme"); // one asks for an address, which others may be given before
    let pods = NODES.map(|node| pod(&format!("on-{node}"), node, &json!({})));
    lab.apply(&pods.concat()).good();
    let ready = "jsonpath={.status.readyReplicas}";
    lab.eventually(&["get", "statefulset", "db", "-n", "acme", "-o", ready], |said| said == "2");
    lab.wait_for_pods();
    let ips = ["db-0", "db-1"].map(|pod| pod_ip(&lab, &format!("acme/{pod}")));
    let mut both = ips.each_ref().map(String::as_str);
    both.sort_unstable();
    on_every_node(&lab, "shop", &["198.18.1.1"]);
    on_every_node(&lab, "db", &both);

    for vip in ["198.18.1.2", "198.18.1.3"] {
        let change = format!("atoll.dev/vip={vip}");
        let change = ["annotate", "service", "shop", "-n", "acme", "--overwrite", &change];
        lab.kubectl(&change).good();
        on_every_node(&lab, "shop", &[vip]);
    }
    lab.kubectl(&["scale", "statefulset", "db", "-n", "acme", "--replicas=1"]).good();
    on_every_node(&lab, "db", &[&ips[0]]);
    lab.apply(&service("acme", "late", &json!({"vip": "198.18.1.9"})).to_string()).good();
    on_every_node(&lab, "late", &["198.18.1.9"]);
    lab.kubectl(&["delete", "service", "late", "-n", "acme"]).good();
    on_every_node(&lab, "late", &[]);
    on_every_node(&lab, "shop", &["198.18.1.3"]);
}

/// The namespace of the network's DNS pods, once both answer.
fn two_dns_pods(lab: &Lab) -> String {
    let mode = json!({"spec": {"dns": {"mode": "dedicated"}}}).to_string();
    let network = ["networks.atoll.dev", "acme.default"];
    lab.kubectl(&[&["patch"], &network[..], &["--type=merge", "-p", &mode]].concat()).good();
    let id = lab.kubectl(&[&["get"], &network[..], &["-o", "jsonpath={.status.id}"]].concat());
    let namespace = format!("atoll-dns-{}", id.good());
    await_both(lab, &namespace);
    namespace
}

fn await_both(lab: &Lab, namespace: &str) {
    let available = "jsonpath={.status.availableReplicas}";
    lab.eventually(&["get", "deployment", "dns", "-n", namespace, "-o", available], |it| it == "2");
}

fn dns_pods(lab: &Lab, namespace: &str) -> Vec<String> {
    let names = "jsonpath={.items[*].metadata.name}";
    let said = lab.kubectl(&["get", "pods", "-n", namespace, "-o", names]).good();
    said.split_whitespace().map(ToOwned::to_owned).collect()
}

#[test]
fn a_dedicated_network_loses_a_dns_pod_and_no_question_and_gets_another() {
    let lab = lab_with_both_tenants();
    let namespace = two_dns_pods(&lab);
    eventually(&lab, "acme", &["shop"], &["198.18.1.1"]);
    thread::scope(|scope| {
        let losses = scope.spawn(|| {
            for how in [&["--force", "--grace-period=0"][..], &[]] {
                let lost = dns_pods(&lab, &namespace).swap_remove(0);
                let delete = [&["delete", "pod", &lost, "-n", &namespace], how].concat();
                lab.kubectl(&delete).good();
                let is_another = || {
                    let left = dns_pods(&lab, &namespace);
                    left.len() == 2 && !left.contains(&lost)
                };
                await_condition(is_another).expect("another takes its place");
                await_both(&lab, &namespace);
            }
        });
        let mut asked = 0;
        while !losses.is_finished() || asked < 10 {
            let said = answer(&lab, "acme", &["+tries=12", "shop"]);
            // A line with a semicolon says that dig had to ask again.
            let answers: Vec<&String> = said.iter().filter(|line| !line.starts_with(';')).collect();
            assert_eq!(answers, ["198.18.1.1"], "question {asked}: {said:?}");
            asked += 1;
        }
        losses.join().unwrap();
    });
    lab.kubectl(&["delete", "deployment", "dns", "-n", &namespace]).good();
    await_both(&lab, &namespace);
    eventually(&lab, "acme", &["shop"], &["198.18.1.1"]);
}

#[test]
fn a_dns_pod_is_ready_once_it_answers_and_its_readiness_does_not_hang_on_the_agent() {
    let lab = lab_with_both_tenants();
    let namespace = two_dns_pods(&lab);
    let pod = dns_pods(&lab, &namespace).swap_remove(0);
    let check = |port: &str| {
        lab.exec(&format!("{namespace}/{pod}"), &["atoll", "dns", "check", "--port", port])
    };
    check("5353").good();
    assert!(check("5354").bad().contains("no resolver answers at 127.0.0.1:5354"));
    let node = ["get", "pod", &pod, "-n", &namespace, "-o", "jsonpath={.spec.nodeName}"];
    let node = lab.kubectl(&node).good();
    crate::fixture::kill_agent_and_await_the_next(&lab, &node);
    check("5353").good();
    let ready = r#"jsonpath={.status.conditions[?(@.type=="Ready")].status}"#;
    let ready = lab.kubectl(&["get", "pod", &pod, "-n", &namespace, "-o", ready]).good();
    assert_eq!(ready, "True");
}

/// Lets in nobody but friends.
fn closed() -> String {
    let policy = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": "closed", "namespace": "acme"},
        "spec": {"podSelector": {"matchLabels": {"app": "db"}}, "policyTypes": ["Ingress"],
                 "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "friend"}}}]}]}});
    policy.to_string()
}

/// Lets friends speak HTTP, and nothing else.
fn talks_http() -> String {
    let http = json!([{"ports": [{"protocol": "TCP", "port": 8080}]}]);
    let policy = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": "talks-http", "namespace": "acme"},
        "spec": {"podSelector": {"matchLabels": {"app": "friend"}}, "policyTypes": ["Egress"],
                 "egress": http}});
    policy.to_string()
}

/// Sends what looks like DNS, as a question and as an answer, to two ports of an address, from the
/// port of DNS and from another.
fn pretend(lab: &Lab, from: &str, to: &str) {
    inside(lab, from).run(|| {
        for port in [53, 0] {
            let socket = UdpSocket::bind(("0.0.0.0", port)).unwrap();
            for flags in [1, 0x81] {
                let packet =
                    [&[7, 7, flags, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1][..], b"a\0\0\x01\0\x01"].concat();
                for port in [53, 5353] {
                    socket.send_to(&packet, (to, port)).unwrap();
                }
            }
        }
    });
}

/// How many packets come within a while after the last.
fn heard(sockets: &[UdpSocket; 2]) -> [usize; 2] {
    sockets.each_ref().map(|socket| {
        socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        std::iter::from_fn(|| socket.hear(&mut [0; 64]).ok()).count()
    })
}

#[test]
fn packets_that_look_like_dns_pass_no_policy_that_forbids_them() {
    let lab = lab_with_both_tenants();
    lab.apply(&pod("friend", "node2", &json!({"app": "friend"}))).good();
    lab.wait_for_pods();
    let db = pod_ip(&lab, "acme/db-0");
    let sockets =
        inside(&lab, "acme/db-0").run(|| [53, 5353].map(|at| UdpSocket::bind(("0.0.0.0", at))));
    let sockets = sockets.map(Result::unwrap);
    pretend(&lab, "acme/web", &db);
    assert_eq!(heard(&sockets), [4, 4], "without a policy they arrive");
    lab.apply(&closed()).good();
    let served = format!("{db}:8080");
    await_condition(|| !lab.connect("acme/web", "tcp", &served).ok).expect("it is closed");
    pretend(&lab, "acme/web", &db);
    assert_eq!(heard(&sockets), [0, 0], "dressed as DNS they are nobody else");
    pretend(&lab, "acme/friend", &db);
    assert_eq!(heard(&sockets), [4, 4], "a friend's arrive");
    eventually(&lab, "acme", &["shop"], &["198.18.1.1"]);

    lab.apply(&talks_http()).good();
    let ask = ["dig", "+time=1", "+tries=1", "shop.acme.svc.cluster.local"];
    await_condition(|| !lab.exec("acme/friend", &ask).ok).expect("its questions are closed, too");
    pretend(&lab, "acme/friend", &db);
    assert_eq!(heard(&sockets), [0, 0], "what may not leave does not leave as DNS");
    lab.reach("acme/friend", "tcp", &served).good();
}
