//! From one version of the maps' layout to the next, under traffic, and never back by accident.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use atoll_abi::{
    DropCounter, DropKey, Endpoint, EndpointKey, Interface, InterfaceKey, Peer, PeerKey,
};
use atoll_datapath::{Datapath, DatapathError, DropReason};
use atoll_testkit::eventually;
use aya::maps::{HashMap, Map, MapData, PerCpuHashMap};

use crate::fabric::{Fabric, State, attachments, network};
use crate::lifecycle::{Stops, is_as_planned, lockstep, three_pods};
use crate::talk::{converse, udp};

/// A map pinned in `dir` as a hash map of plain bytes.
fn open<const K: usize, const V: usize>(
    dir: &Path,
    name: &str,
) -> HashMap<MapData, [u8; K], [u8; V]> {
    let map = MapData::from_pin(dir.join(name)).unwrap();
    Map::from_map_data(map).unwrap().try_into().unwrap()
}

/// Writes the entries of a map as layout 1 had them: `cut` gives the older bytes.
fn write_as_former<const K: usize, const V: usize, const W: usize>(
    (from, to): (&Path, &Path),
    name: &str,
    cut: impl Fn(&[u8; V]) -> [u8; W],
) {
    const NO_PREALLOC: u32 = 1;
    let mut former = HashMap::<_, [u8; K], [u8; W]>::create(262_144, NO_PREALLOC).unwrap();
    for entry in open::<K, V>(from, name).iter() {
        let (key, value) = entry.unwrap();
        former.insert(key, cut(&value), 0).unwrap();
    }
    former.pin(to.join(name)).unwrap();
}

/// Layout 1 had no age and no seats.
fn former_interface<const V: usize>(value: &[u8; V]) -> [u8; 156] {
    [&value[8..12], &value[16..16 + 152]].concat().try_into().unwrap()
}

fn former_endpoint<const V: usize>(value: &[u8; V]) -> [u8; 28] {
    [&value[8..34], &[0, 0]].concat().try_into().unwrap()
}

fn copy_drops((from, to): (&Path, &Path)) {
    const K: usize = size_of::<DropKey>();
    const V: usize = size_of::<DropCounter>();
    let map = Map::from_map_data(MapData::from_pin(from.join("drops")).unwrap()).unwrap();
    let drops: PerCpuHashMap<_, [u8; K], [u8; V]> = map.try_into().unwrap();
    let mut former = PerCpuHashMap::<_, [u8; K], [u8; V]>::create(16_384, 1).unwrap();
    for entry in drops.iter() {
        let (key, values) = entry.unwrap();
        former.insert(key, values, 0).unwrap();
    }
    former.pin(to.join("drops")).unwrap();
}

/// Makes a node look as layout 1 left it: its maps, and the links of its programs.
pub(crate) fn turn_back(state: &mut State) {
    state.datapath = None;
    let (new, old) = (state.config.bpf_root.join("v2"), state.config.bpf_root.join("v1"));
    std::fs::create_dir_all(old.join("maps")).unwrap();
    let maps = (new.join("maps"), old.join("maps"));
    let maps = (maps.0.as_path(), maps.1.as_path());
    const INTERFACE: usize = size_of::<Interface>();
    const ENDPOINT: usize = size_of::<Endpoint>();
    write_as_former::<{ size_of::<InterfaceKey>() }, INTERFACE, 156>(
        maps,
        "interfaces",
        former_interface,
    );
    write_as_former::<{ size_of::<EndpointKey>() }, ENDPOINT, 28>(
        maps,
        "endpoints",
        former_endpoint,
    );
    write_as_former::<{ size_of::<PeerKey>() }, { size_of::<Peer>() }, 4>(maps, "peers", |v| *v);
    copy_drops(maps);
    std::fs::rename(new.join("links"), old.join("links")).unwrap();
    for map in std::fs::read_dir(new.join("maps")).unwrap() {
        std::fs::remove_file(map.unwrap().path()).unwrap();
    }
    std::fs::remove_dir(new.join("maps")).unwrap();
    std::fs::remove_dir(new).unwrap();
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
        node.run(|state| assert!(!state.config.bpf_root.join("v1").exists()));
    }
}

#[test]
fn a_take_over_that_was_cut_short_is_finished_by_the_next() {
    let fabric = Fabric::of(2);
    let pods = three_pods(&fabric);
    let node = &fabric.nodes[0];
    node.run(|state| {
        turn_back(state);
        let root = &state.config.bpf_root;
        std::fs::create_dir_all(root.join("v2/links")).unwrap();
        let mut links = std::fs::read_dir(root.join("v1/links")).unwrap();
        let one = links.next().unwrap().unwrap();
        std::fs::rename(one.path(), root.join("v2/links").join(one.file_name())).unwrap();
        std::fs::remove_file(root.join("v1/maps/peers")).unwrap();
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
        let root = state.config.bpf_root.clone();
        std::fs::rename(root.join("v2"), root.join("v3")).unwrap();
        let before = state.bpf.files();
        let error = state.runtime.block_on(Datapath::open(&state.config)).unwrap_err();
        assert!(matches!(&error, DatapathError::OtherLayout(found) if *found == root.join("v3")));
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
        let peers = state.config.bpf_root.join("v1/maps/peers");
        std::fs::remove_file(&peers).unwrap();
        HashMap::<_, [u8; 4], [u8; 4]>::create(1, 1).unwrap().pin(&peers).unwrap();
        let error = state.runtime.block_on(Datapath::open(&state.config)).unwrap_err();
        assert!(
            matches!(&error, DatapathError::WrongMap { path, .. } if *path == peers),
            "{error}"
        );
    });
}
