//! From one version of the maps' layout to the next, under traffic, and never back by accident.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use atoll_abi::LAYOUT_VERSION;
use atoll_datapath::{Datapath, DatapathError, DropReason};
use atoll_testkit::pinned::{self, FORMER_LAYOUT};
use atoll_testkit::{Hears, Stops, eventually};
use aya::maps::HashMap;

use crate::decisions::are_lined_up;
use crate::fabric::{Fabric, State, attachments, network};
use crate::lifecycle::{is_as_planned, lockstep, three_pods};
use crate::talk::{converse, udp};

pub(crate) fn layout(state: &State, version: u32) -> PathBuf {
    pinned::layout(&state.config.bpf_root, version)
}

/// Makes a node look as layout 4 left it.
pub(crate) fn turn_back(state: &mut State) {
    state.datapath = None;
    pinned::turn_back(&state.config.bpf_root);
}

#[test]
fn an_older_layout_is_taken_over_under_traffic_without_losing_a_packet_or_a_counter() {
    for attachment in attachments() {
        let fabric = Fabric::attached_by(2, attachment);
        let pods = three_pods(&fabric);
        let node = &fabric.nodes[0];
        udp(pods[0].v4(), 0).send_to(b"?", ("10.0.0.9", 9)).unwrap();
        let dropped = || node.dropped(Some(network(100)), DropReason::NoEndpoint);
        eventually("the packet was counted", || (dropped() == 1).then_some(()));
        let sockets = pods.each_ref().map(|pod| [udp(pod.v4(), 0), udp(pod.v6(), 0)]);
        let (stop, counts) = (AtomicBool::new(false), [AtomicU64::new(0), AtomicU64::new(0)]);
        thread::scope(|scope| {
            let _stopped = Stops(&stop);
            scope.spawn(|| lockstep(&sockets[0][0], &sockets[1][0], &stop, &counts[0]));
            scope.spawn(|| lockstep(&sockets[0][1], &sockets[2][1], &stop, &counts[1]));
            for _ in 0..3 {
                node.run(|state| {
                    turn_back(state);
                    state.open();
                });
                let before = counts.each_ref().map(|count| count.load(Ordering::Relaxed));
                eventually("both flows went on", || {
                    let now = counts.each_ref().map(|count| count.load(Ordering::Relaxed));
                    (now[0] > before[0] + 50 && now[1] > before[1] + 50).then_some(())
                });
            }
        });
        assert_eq!(dropped(), 1);
        is_as_planned(node);
        converse(&pods[0], &pods[2]);
        node.run(|state| assert!(!layout(state, FORMER_LAYOUT).exists()));
    }
}

#[test]
fn a_take_over_that_was_cut_short_is_finished_by_the_next() {
    let fabric = Fabric::of(2);
    let pods = three_pods(&fabric);
    let node = &fabric.nodes[0];
    node.run(|state| {
        turn_back(state);
        let (new, old) = (layout(state, LAYOUT_VERSION), layout(state, FORMER_LAYOUT));
        std::fs::create_dir_all(new.join("links")).unwrap();
        let mut links = std::fs::read_dir(old.join("links")).unwrap();
        let one = links.next().unwrap().unwrap();
        std::fs::rename(one.path(), new.join("links").join(one.file_name())).unwrap();
        std::fs::remove_file(old.join("maps/peers")).unwrap();
        state.open();
    });
    node.converge();
    is_as_planned(node);
    converse(&pods[0], &pods[2]);
}

#[test]
fn a_newer_layout_is_refused_with_a_sentence_and_left_as_it_is() {
    let fabric = Fabric::of(2);
    let pods = three_pods(&fabric);
    fabric.nodes[0].run(|state| {
        state.datapath = None;
        let newer = layout(state, LAYOUT_VERSION + 1);
        std::fs::rename(layout(state, LAYOUT_VERSION), &newer).unwrap();
        let before = state.bpf.files();
        let error = state.runtime.block_on(Datapath::open(&state.config)).unwrap_err();
        assert!(matches!(&error, DatapathError::OtherLayout(found) if *found == newer));
        assert!(error.to_string().contains("drain the node"), "{error}");
        assert_eq!(state.bpf.files(), before);
    });
    converse(&pods[0], &pods[2]);
}

#[test]
fn maps_that_are_not_what_the_older_layout_had_are_refused() {
    let fabric = Fabric::of(1);
    fabric.nodes[0].run(|state| {
        turn_back(state);
        let peers = layout(state, FORMER_LAYOUT).join("maps/peers");
        std::fs::remove_file(&peers).unwrap();
        HashMap::<_, [u8; 4], [u8; 4]>::create(1, 1).unwrap().pin(&peers).unwrap();
        let error = state.runtime.block_on(Datapath::open(&state.config)).unwrap_err();
        assert!(
            matches!(&error, DatapathError::WrongMap { path, .. } if *path == peers),
            "{error}"
        );
    });
}

#[test]
fn the_connections_of_an_older_layout_are_taken_over_with_who_opened_them() {
    let fabric = Fabric::of(2);
    let pods = three_pods(&fabric);
    let node = &fabric.nodes[0];
    let sockets = [udp(pods[0].v4(), 7), udp(pods[1].v4(), 9)];
    for (from, to) in [(0, 1), (1, 0)] {
        sockets[from].send_to(b"?", sockets[to].local_addr().unwrap()).unwrap();
        sockets[to].hear(&mut [0; 8]).unwrap();
    }
    let before = node.connections(network(100));
    assert_eq!(before.len(), 1);
    node.run(|state| {
        turn_back(state);
        state.open();
    });
    assert_eq!(node.connections(network(100)), before);
    assert!(are_lined_up(node), "they stand in the ring, so that they make room in their turn");
    sockets[1].send_to(b"!", sockets[0].local_addr().unwrap()).unwrap();
    sockets[0].hear(&mut [0; 8]).unwrap();
    assert_eq!(node.connections(network(100)), before);
}
