//! Random worlds and policies: the compiler says what the oracle says, whatever it was told and in
//! whatever order, and forgets what is gone.

// What a strategy builds wrongly ends the test.
#![allow(clippy::unwrap_used)]

mod bridge;
mod random;

use std::collections::BTreeSet;

use atoll_oracle::{PORTS, PROTOCOLS, World, says};
use atoll_policy::{Compiler, Room, TruthTable, what_if};
use atoll_types::NetAddr;
use proptest::prelude::*;
use proptest::sample::Index;

use bridge::{addresses, compiled, ended, facts, in_words, protocol, steps};
use random::scene;

const TENANTS: [&str; 2] = ["blue", "green"];

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

/// Room that is too little for most worlds.
fn room() -> impl Strategy<Value = Room> {
    let sizes = (4..40_usize, 0..8_usize, 4..30_usize, 1..40_usize, 4..80_usize);
    sizes.prop_map(|(endpoints, outside, identities, peers, ports)| Room {
        endpoints,
        outside,
        identities,
        peers,
        ports,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn for_any_world_the_compiler_says_what_the_oracle_says(scene in scene()) {
        let world = scene.played_by(&TENANTS);
        agree(&world, &compiled(&world))?;
    }

    #[test]
    fn in_whatever_room_nothing_is_open_that_is_closed_where_there_is_enough(scene in scene(), room in room()) {
        let world = scene.played_by(&TENANTS);
        let (enough, mut few) = (compiled(&world), Compiler::within(room));
        for event in facts(&world).into_values() {
            few.apply(event);
        }
        let known = |address: &NetAddr| few.tables().endpoints.get(address).is_some();
        let ends: Vec<NetAddr> = addresses(&world).into_iter().filter(known).collect();
        for (from, to) in ends.iter().flat_map(|from| ends.iter().map(move |to| (*from, *to))) {
            for (by, port) in PROTOCOLS.into_iter().zip([80, 81, 75, 80]) {
                let passes = few.explain(from, to, protocol(by), port).accepts();
                let may = enough.explain(from, to, protocol(by), port).accepts();
                prop_assert!(may || !passes, "{} > {} {} {}", from, to, by, port);
            }
        }
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
