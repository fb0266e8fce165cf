//! Every case is played by two tenants with equal names, labels and addresses at once. For every
//! ordered pair of addresses, port and protocol, compiler and oracle say the same, by the same rule;
//! and between the tenants nothing passes but in a network that is open to both.
// What a case writes wrongly ends the test.
#![allow(clippy::unwrap_used)]

mod bridge;

use std::collections::BTreeSet;
use std::net::IpAddr;

use atoll_oracle::cases::{cluster_policy_cases, generated_cases, netpol_cases, own_cases};
use atoll_oracle::{Case, OPEN, PORTS, PROTOCOLS, World, says};
use atoll_policy::Compiler;
use atoll_types::{NetAddr, NetworkId};

use bridge::{addresses, compiled, in_words, protocol, steps};

const TENANTS: [&str; 2] = ["blue", "green"];

/// Whether the ends are in networks of their own of two tenants.
fn are_of_two_tenants(from: NetAddr, to: NetAddr) -> bool {
    let [from, to] = [from, to].map(|end| end.network.get());
    from != OPEN && to != OPEN && from / 100 != to / 100
}

/// Compares both for every cell of a truth table, and counts what passes inside the tenants.
fn same_in_every_cell(name: &str, world: &World, compiler: &Compiler) -> usize {
    let ends = addresses(world);
    let mut passing = 0;
    for from in &ends {
        for to in &ends {
            for by in PROTOCOLS {
                for port in PORTS.into_iter().filter(|port| by != "ICMP" || *port == PORTS[0]) {
                    let oracle = says(world, *from, *to, by, port);
                    let explained = compiler.explain(*from, *to, protocol(by), port);
                    let found = in_words(&explained);
                    let expected = (oracle.egress.clone(), oracle.ingress.clone());
                    assert_eq!(found, expected, "{name}: {from} > {to} {by} {port}");
                    assert_eq!(explained.accepts(), oracle.passes());
                    let foreign = are_of_two_tenants(*from, *to);
                    assert!(!(foreign && oracle.passes()), "{name}: {from} > {to} between tenants");
                    passing += usize::from(oracle.passes());
                }
            }
        }
    }
    passing
}

/// The address that an expectation names: a pod, `ip@network`, or an address beyond all networks.
fn end(world: &World, tenant: usize, written: &str) -> NetAddr {
    let offset = tenant as u32 * 100;
    let in_network =
        |id: u32| NetworkId::try_from(if id == OPEN { id } else { id + offset }).unwrap();
    if let Some((namespace, name)) = written.split_once('/') {
        let mut pods = world.pods.iter().filter(|pod| pod.tenant == TENANTS[tenant]);
        let pod = pods.find(|pod| pod.namespace == namespace && pod.name == name);
        return pod.unwrap_or_else(|| panic!("no pod {written}")).addresses[0].1;
    }
    let (ip, network) = written.split_once('@').unwrap_or((written, "1"));
    let ip: IpAddr = ip.parse().unwrap();
    NetAddr::new(in_network(network.parse().unwrap()), ip)
}

fn as_expected(case: &Case, scene: usize, world: &World, compiler: &Compiler) {
    for expected in case.expectations.iter().filter(|expected| expected.scene == scene) {
        for tenant in 0..TENANTS.len() {
            let (from, to) = (end(world, tenant, &expected.from), end(world, tenant, &expected.to));
            let oracle = says(world, from, to, &expected.protocol, expected.port);
            let by = protocol(&expected.protocol);
            let explained = compiler.explain(from, to, by, expected.port);
            assert_eq!(
                oracle.passes(),
                expected.passes,
                "{}, scene {scene}: {expected:?}",
                case.name
            );
            let found = in_words(&explained);
            assert_eq!(found, (oracle.egress, oracle.ingress), "{}: {expected:?}", case.name);
        }
    }
}

/// Plays a case step by step in one compiler, and compares after every step.
fn play(case: &Case) {
    let mut compiler = Compiler::new();
    let mut before = World::default();
    for (position, scene) in case.scenes.iter().enumerate() {
        let world = scene.played_by(&TENANTS);
        for event in steps(&before, &world) {
            compiler.apply(event);
        }
        assert_eq!(compiler.reports().count(), 0, "{}: {:?}", case.name, compiler.reports().next());
        let name = format!("{}, scene {position}", case.name);
        let passing = same_in_every_cell(&name, &world, &compiler);
        assert!(passing > 0, "{name}: nothing passes, so nothing is proved");
        as_expected(case, position, &world, &compiler);
        before = world;
    }
    assert_eq!(compiler.counts().endpoints, compiled(&before).counts().endpoints);
}

/// Plays all, and holds the list to its promised length with no case twice.
fn play_all(cases: &[Case], at_least: usize) {
    let names: BTreeSet<&String> = cases.iter().map(|case| &case.name).collect();
    assert_eq!(names.len(), cases.len(), "two cases have one name");
    assert!(cases.len() >= at_least, "{} cases", cases.len());
    cases.iter().for_each(play);
}

fn has_both_sides(case: &Case) -> bool {
    let sides: BTreeSet<bool> = case.expectations.iter().map(|e| e.passes).collect();
    sides.len() == 2 || sides.contains(&true)
}

#[test]
fn the_cases_of_kubernetes_hold_in_two_tenants_at_once() {
    let cases = netpol_cases();
    assert!(cases.iter().all(has_both_sides));
    play_all(&cases, 49);
}

#[test]
fn the_generated_cases_hold_in_two_tenants_at_once() {
    play_all(&generated_cases(), 230);
}

#[test]
fn the_cases_of_cluster_network_policy_hold_in_two_tenants_at_once() {
    let cases = cluster_policy_cases();
    assert!(cases.iter().all(has_both_sides));
    play_all(&cases, 24);
}

#[test]
fn a_tenants_own_administrators_have_the_same_tiers_inside_the_tenant() {
    let mut cases = cluster_policy_cases();
    for scene in cases.iter_mut().flat_map(|case| &mut case.scenes) {
        *scene = scene.clone().by_the_tenant();
    }
    play_all(&cases, 24);
}

#[test]
fn the_cases_of_atoll_hold_in_two_tenants_at_once() {
    let cases = own_cases();
    assert!(cases.iter().all(has_both_sides));
    play_all(&cases, 10);
}
