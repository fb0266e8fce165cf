//! Random worlds and policies: the compiler says what the oracle says, whatever it was told and in
//! whatever order, and forgets what is gone.

// What a strategy builds wrongly ends the test.
#![allow(clippy::unwrap_used)]

mod bridge;

use std::collections::BTreeSet;

use atoll_oracle::{PORTS, PROTOCOLS, Scene, World, says};
use atoll_policy::{Compiler, TruthTable, what_if};
use atoll_types::NetAddr;
use proptest::prelude::*;
use proptest::sample::{Index, select, subsequence};
use serde_json::{Value, json};

use bridge::{addresses, compiled, ended, facts, in_words, protocol, steps};

const TENANTS: [&str; 2] = ["blue", "green"];

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

/// Two namespaces and up to six pods, some in a second network, with random labels and ports.
fn cast() -> impl Strategy<Value = Scene> {
    let label = || select(vec!["a", "b", "c"]);
    let pod =
        (label(), prop::option::of(label()), any::<bool>(), select(vec![80_u16, 81]), 0..8_u8);
    (prop::collection::vec(pod, 2..=6), any::<bool>()).prop_map(|(pods, marked)| {
        let y: &[(&str, &str)] =
            if marked { &[("ns", "y"), ("tier", "a")] } else { &[("ns", "y")] };
        let mut scene = Scene::default().namespace("x", &[("ns", "x")]).namespace("y", y);
        scene = scene.node("n1", &[("disk", "fast")], "192.0.2.1").node("n2", &[], "192.0.2.2");
        for (at, (pod, tier, second, web, host)) in pods.into_iter().enumerate() {
            let (namespace, name) = (["x", "y"][at % 2], format!("pod{at}"));
            let mut labels = vec![("pod", pod)];
            labels.extend(tier.map(|tier| ("tier", tier)));
            let ip = format!("10.0.{}.{}", at / 4, at + 1);
            scene = scene.pod(namespace, &name, &labels, &ip);
            if second {
                scene =
                    scene.address(namespace, &name, "storage", 2, &format!("10.0.0.{}", at + 1));
                scene = scene.address(namespace, &name, "default", 1, &format!("fd00::{}", at + 1));
            }
            let pod = scene.pods.get_mut(&(namespace.to_owned(), name)).unwrap();
            pod.host_network = host == 0;
            pod.ports = vec![
                ("web".to_owned(), "TCP".to_owned(), web),
                ("dns".to_owned(), "UDP".to_owned(), 81),
            ];
        }
        scene
    })
}

fn scene() -> impl Strategy<Value = Scene> {
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

/// Both say the same about every pair of addresses.
fn agree(world: &World, compiler: &Compiler) -> Result<(), TestCaseError> {
    let ends: Vec<NetAddr> = addresses(world).into_iter().collect();
    for from in &ends {
        for to in &ends {
            for by in PROTOCOLS {
                for port in PORTS.into_iter().chain([75]) {
                    let oracle = says(world, *from, *to, by, port);
                    let found = in_words(&compiler.explain(*from, *to, protocol(by), port));
                    prop_assert_eq!(
                        found,
                        (oracle.egress, oracle.ingress),
                        "{} > {} {} {}",
                        from,
                        to,
                        by,
                        port
                    );
                }
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn for_any_world_the_compiler_says_what_the_oracle_says(scene in scene()) {
        let world = scene.played_by(&TENANTS);
        agree(&world, &compiled(&world))?;
    }

    #[test]
    fn what_was_learned_step_by_step_is_what_is_learned_from_nothing(scenes in prop::collection::vec(scene(), 2..=4)) {
        let mut compiler = Compiler::new();
        let mut before = World::default();
        for scene in scenes {
            let world = scene.played_by(&TENANTS);
            for event in steps(&before, &world) {
                compiler.apply(event);
            }
            prop_assert_eq!(compiler.listing(), compiled(&world).listing());
            before = world;
        }
    }

    #[test]
    fn the_order_of_events_does_not_matter(scene in scene(), order in prop::collection::vec(any::<Index>(), 40)) {
        let world = scene.played_by(&TENANTS);
        let mut events: Vec<_> = facts(&world).into_values().collect();
        for (at, other) in order.iter().enumerate() {
            let (at, other) = (at % events.len(), other.index(events.len()));
            events.swap(at, other);
        }
        let mut compiler = Compiler::new();
        for event in &events {
            compiler.apply(event.clone());
            let again = compiler.apply(event.clone());
            prop_assert!(again.is_empty(), "the same news twice changed {:?}", again);
        }
        prop_assert_eq!(compiler.listing(), compiled(&world).listing());
    }

    #[test]
    fn when_everything_is_gone_nothing_is_left(scene in scene(), order in prop::collection::vec(any::<Index>(), 40)) {
        let world = scene.played_by(&TENANTS);
        let mut compiler = compiled(&world);
        let mut left: Vec<_> = facts(&world).into_keys().collect();
        prop_assert!(!compiler.tables().is_empty() || world.pods.iter().all(|pod| pod.host_network));
        for at in order.iter().chain(&[order[0]; 40]) {
            if !left.is_empty() {
                let fact = left.swap_remove(at.index(left.len()));
                compiler.apply(ended(&fact));
            }
        }
        prop_assert_eq!(compiler.listing(), Vec::<String>::new());
        let counts = compiler.counts();
        let none = atoll_policy::Counts { tests_done: counts.tests_done, columns_made: counts.columns_made, ..Default::default() };
        prop_assert_eq!(counts, none);
    }

    #[test]
    fn changes_applied_to_a_copy_of_the_tables_give_the_tables(scenes in prop::collection::vec(scene(), 2..=3)) {
        let mut compiler = Compiler::new();
        let mut kernel = std::collections::BTreeMap::new();
        let mut before = World::default();
        for scene in scenes {
            let world = scene.played_by(&TENANTS);
            for event in steps(&before, &world) {
                let changes = compiler.apply(event);
                kernel.extend(changes.peers.put);
                for key in changes.peers.removed {
                    prop_assert!(kernel.remove(&key).is_some());
                }
            }
            let tables: std::collections::BTreeMap<_, _> =
                compiler.tables().peers.iter().map(|(key, column)| (*key, *column)).collect();
            prop_assert_eq!(&kernel, &tables);
            before = world;
        }
    }

    #[test]
    fn renaming_pods_changes_nothing_but_names(scene in scene()) {
        let mut renamed = scene.clone();
        renamed.pods = scene.pods.iter().map(|((namespace, name), pod)| {
            let name = format!("{name}-2");
            ((namespace.clone(), name.clone()), atoll_oracle::Pod { name, ..pod.clone() })
        }).collect();
        let (one, two) = (compiled(&scene.played_by(&TENANTS)), compiled(&renamed.played_by(&TENANTS)));
        prop_assert_eq!(one.listing(), two.listing());
    }

    #[test]
    fn a_change_that_is_said_to_change_nothing_changes_no_port(scene in scene(), next in scene(), port: u16) {
        let mut after = scene.clone();
        after.policies = next.policies;
        after.cluster_policies = next.cluster_policies;
        let (before, after) = (scene.played_by(&TENANTS), after.played_by(&TENANTS));
        let (now, then) = (compiled(&before), compiled(&after));
        let difference = what_if(&now, &"blue".parse().unwrap(), &steps(&before, &after));
        let changed: BTreeSet<(NetAddr, NetAddr)> =
            difference.changed.iter().map(|changed| (changed.cell.from, changed.cell.to)).collect();
        let probes = PROTOCOLS.map(|by| atoll_policy::Probe { protocol: protocol(by), port }).into();
        let table = TruthTable::of(&then, &"blue".parse().unwrap(), &probes);
        for (cell, explained) in table.iter().filter(|(cell, _)| !changed.contains(&(cell.from, cell.to))) {
            let earlier = now.explain(cell.from, cell.to, cell.probe.protocol, port);
            prop_assert_eq!(earlier.accepts(), explained.accepts());
        }
    }
}
