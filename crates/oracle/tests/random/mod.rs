//! Random scenes: casts of pods, and policies of every kind and with every part about them.
//!
//! The rule kept here: what can be drawn is small, so that policies meet pods, and what is shrunk
//! can be read ([`in_words`]).
// Each test file uses a part; what a strategy builds wrongly ends the test.
#![allow(dead_code, clippy::unwrap_used)]

use std::fmt::Write as _;

use atoll_oracle::Scene;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Value, json};

/// How many pods a cast has at most.
const CAST: usize = 6;

fn selector() -> impl Strategy<Value = Value> {
    let key = || select(vec!["pod", "tier"]);
    let values = || subsequence(vec!["a", "b", "c"], 1..=2);
    prop_oneof![
        2 => Just(json!({})),
        4 => (key(), select(vec!["a", "b", "c"])).prop_map(|(k, v)| json!({ "matchLabels": { k: v } })),
        2 => (key(), select(vec!["In", "NotIn"]), values()).prop_map(|(key, operator, values)| {
            json!({ "matchExpressions": [{ "key": key, "operator": operator, "values": values }] })
        }),
        1 => (key(), select(vec!["Exists", "DoesNotExist"])).prop_map(|(key, operator)| {
            json!({ "matchExpressions": [{ "key": key, "operator": operator }] })
        }),
    ]
}

fn namespaces() -> impl Strategy<Value = Value> {
    prop_oneof![
        2 => Just(json!({})),
        3 => select(vec!["x", "y"]).prop_map(|name| json!({ "matchLabels": { "ns": name } })),
        1 => select(vec!["x", "y"]).prop_map(|name| {
            json!({ "matchExpressions": [{ "key": "ns", "operator": "NotIn", "values": [name] }] })
        }),
    ]
}

const RANGES: [&str; 7] = [
    "0.0.0.0/0",
    "10.0.0.0/24",
    "10.0.0.0/28",
    "10.0.0.2/31",
    "10.0.0.3/32",
    "192.0.2.0/30",
    "fd00::/16",
];

fn block() -> impl Strategy<Value = Value> {
    let inside = vec!["10.0.0.0/28", "10.0.0.2/31", "10.0.0.3/32"];
    prop_oneof![
        select(RANGES.to_vec()).prop_map(|cidr| json!({ "cidr": cidr })),
        subsequence(inside, 0..=2)
            .prop_map(|except| json!({ "cidr": "10.0.0.0/24", "except": except })),
    ]
}

fn peer() -> impl Strategy<Value = Value> {
    prop_oneof![
        selector().prop_map(|pods| json!({ "podSelector": pods })),
        namespaces().prop_map(|namespaces| json!({ "namespaceSelector": namespaces })),
        (namespaces(), selector()).prop_map(|(namespaces, pods)| {
            json!({ "namespaceSelector": namespaces, "podSelector": pods })
        }),
        block().prop_map(|block| json!({ "ipBlock": block })),
    ]
}

fn port() -> impl Strategy<Value = Value> {
    let protocol = || select(vec![json!(null), json!("TCP"), json!("UDP"), json!("SCTP")]);
    let which = select(vec![json!(null), json!(80), json!(81), json!("web"), json!("dns")]);
    prop_oneof![
        4 => (protocol(), which).prop_map(|(protocol, port)| json!({ "protocol": protocol, "port": port })),
        1 => (protocol(), 70..=81_u16, 0..=20_u16).prop_map(|(protocol, port, more)| {
            json!({ "protocol": protocol, "port": port, "endPort": port + more })
        }),
    ]
}

fn rules(key: &'static str) -> impl Strategy<Value = Value> {
    let rule = (prop::collection::vec(peer(), 0..=2), prop::collection::vec(port(), 0..=2))
        .prop_map(move |(peers, ports)| json!({ key: peers, "ports": ports }));
    prop::collection::vec(rule, 0..=2).prop_map(Value::from)
}

fn networks() -> impl Strategy<Value = Option<&'static str>> {
    select(vec![None, None, None, Some(r#"["default"]"#), Some(r#"["storage"]"#)])
}

type Written = (&'static str, &'static str, Option<&'static str>, Value);

fn policy() -> impl Strategy<Value = Written> {
    let types = select(vec![
        json!(null),
        json!(["Ingress"]),
        json!(["Egress"]),
        json!(["Ingress", "Egress"]),
    ]);
    let place = (select(vec!["x", "y"]), select(vec!["p", "q", "r"]), networks());
    (place, selector(), types, rules("from"), rules("to")).prop_map(
        |((namespace, name, networks), pods, types, ingress, egress)| {
            let spec = json!({ "podSelector": pods, "policyTypes": types,
                               "ingress": ingress, "egress": egress });
            (namespace, name, networks, spec)
        },
    )
}

fn cluster_peer(egress: bool) -> impl Strategy<Value = Value> {
    let inside = prop_oneof![
        namespaces().prop_map(|namespaces| json!({ "namespaces": namespaces })),
        (namespaces(), selector()).prop_map(|(namespaces, pods)| {
            json!({ "pods": { "namespaceSelector": namespaces, "podSelector": pods } })
        }),
    ];
    let nodes = select(vec![json!({}), json!({ "matchLabels": { "disk": "fast" } })]);
    let outside = prop_oneof![
        subsequence(RANGES.to_vec(), 1..=2).prop_map(|ranges| json!({ "networks": ranges })),
        nodes.prop_map(|nodes| json!({ "nodes": nodes })),
    ];
    prop_oneof![2 => inside.boxed(), u32::from(egress) => outside.boxed()]
}

fn cluster_ports() -> impl Strategy<Value = Value> {
    let number = (select(vec!["tcp", "udp", "sctp"]), select(vec![80, 81]))
        .prop_map(|(by, port)| json!({ by: { "destinationPort": { "number": port } } }));
    let range = (select(vec!["tcp", "udp"]), 70..=80_u16)
        .prop_map(|(by, start)| json!({ by: { "destinationPort": { "range": { "start": start, "end": 80 + start / 2 } } } }));
    let list = prop::collection::vec(prop_oneof![number, range], 1..=2);
    prop_oneof![1 => Just(Value::Null), 2 => list.prop_map(Value::from)]
}

fn cluster_rules(key: &'static str) -> impl Strategy<Value = Value> {
    let peers = prop::collection::vec(cluster_peer(key == "to"), 1..=2);
    let action = select(vec!["Accept", "Deny", "Pass"]);
    let rule = (action, peers, cluster_ports()).prop_map(
        move |(action, peers, ports)| json!({ "action": action, key: peers, "protocols": ports }),
    );
    prop::collection::vec(rule, 0..=3).prop_map(Value::from)
}

fn cluster_policy() -> impl Strategy<Value = (bool, &'static str, Value)> {
    let subject = cluster_peer(false);
    let order = (select(vec!["Admin", "Baseline"]), 0..=2_u32);
    let name = (any::<bool>(), select(vec!["k", "l", "m"]));
    (name, order, subject, cluster_rules("from"), cluster_rules("to")).prop_map(
        |((own, name), (tier, priority), subject, ingress, egress)| {
            let spec = json!({ "tier": tier, "priority": priority, "subject": subject,
                               "ingress": ingress, "egress": egress });
            (own, name, spec)
        },
    )
}

/// What is drawn of a pod: two labels, whether it is in a second network, the number of its port
/// `web`, and whether (by 0) it is on its node's network.
type Drawn = (&'static str, Option<&'static str>, bool, u16, u8);

/// Two namespaces and up to six pods, some in a second network, with random labels and ports.
fn cast() -> impl Strategy<Value = Scene> {
    let label = || select(vec!["a", "b", "c"]);
    let pod =
        (label(), prop::option::of(label()), any::<bool>(), select(vec![80_u16, 81]), 0..8_u8);
    (prop::collection::vec(pod, 2..=CAST), any::<bool>())
        .prop_map(|(pods, marked)| gathered(pods, marked))
}

fn gathered(pods: Vec<Drawn>, marked: bool) -> Scene {
    let y: &[(&str, &str)] = if marked { &[("ns", "y"), ("tier", "a")] } else { &[("ns", "y")] };
    let scene = Scene::default().namespace("x", &[("ns", "x")]).namespace("y", y);
    let scene = scene.node("n1", &[("disk", "fast")], "192.0.2.1").node("n2", &[], "192.0.2.2");
    pods.into_iter().enumerate().fold(scene, |scene, (at, drawn)| with_pod(scene, at, drawn))
}

fn with_pod(scene: Scene, at: usize, (pod, tier, second, web, host): Drawn) -> Scene {
    let (namespace, name) = (["x", "y"][at % 2], format!("pod{at}"));
    let mut labels = vec![("pod", pod)];
    labels.extend(tier.map(|tier| ("tier", tier)));
    let ip = format!("10.0.{}.{}", at / 4, at + 1);
    let mut scene = scene.pod(namespace, &name, &labels, &ip);
    if second {
        scene = scene.address(namespace, &name, "storage", 2, &format!("10.0.0.{}", at + 1));
        scene = scene.address(namespace, &name, "default", 1, &format!("fd00::{}", at + 1));
    }
    let pod = scene.pods.get_mut(&(namespace.to_owned(), name)).unwrap();
    pod.host_network = host == 0;
    pod.ports =
        vec![("web".to_owned(), "TCP".to_owned(), web), ("dns".to_owned(), "UDP".to_owned(), 81)];
    scene
}

/// One tenant at one moment: a cast, and policies of all kinds about it.
pub(crate) fn scene() -> impl Strategy<Value = Scene> {
    let policies = prop::collection::vec(policy(), 0..=4);
    let cluster = prop::collection::vec(cluster_policy(), 0..=3);
    (cast(), policies, cluster).prop_map(|(scene, policies, cluster)| {
        let scene = policies.into_iter().fold(scene, |scene, (namespace, name, networks, spec)| {
            scene.aimed_policy(namespace, name, networks, spec)
        });
        cluster.into_iter().fold(scene, |scene, (own, name, spec)| {
            if own { scene.tenant_policy(name, spec) } else { scene.cluster_policy(name, spec) }
        })
    })
}

/// Everybody who can be in a cast, with every address. Nothing that is drawn has another one.
pub(crate) fn everybody() -> Scene {
    let pods = vec![("a", None, true, 80, 1); CAST];
    gathered(pods, false)
}

/// A scene as a reader needs it: who is there, and what is written.
pub(crate) fn in_words(scene: &Scene) -> String {
    let mut text = String::new();
    for ((namespace, name), pod) in &scene.pods {
        let addresses: Vec<String> =
            pod.addresses.iter().map(|(network, at)| format!("{network} {}", at.ip)).collect();
        let _ = writeln!(
            text,
            "  {namespace}/{name} {} at {}",
            json!(pod.labels),
            addresses.join(", ")
        );
    }
    for ((namespace, name), policy) in &scene.policies {
        let _ = writeln!(text, "  NetworkPolicy {namespace}/{name} {}", json!(policy));
    }
    for (name, policy) in &scene.cluster_policies {
        let _ = writeln!(text, "  ClusterNetworkPolicy {name} {policy}");
    }
    text
}
