//! From one version of the maps' layout to the next, under traffic, and never back by accident.

use std::mem::offset_of;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use atoll_abi::{Connection, ConnectionKey, DropCounter, DropKey, Endpoint, EndpointKey};
use atoll_datapath::{Datapath, DatapathError, DropReason};
use atoll_testkit::eventually;
use aya::maps::{ArrayOfMaps, HashMap, Map, MapData, PerCpuHashMap};
use aya::{Ebpf, include_bytes_aligned};

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

/// Writes the entries of a map as layout 2 had them: `cut` gives the older bytes.
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

const ENDPOINT: usize = size_of::<Endpoint>();
const CONNECTION: usize = size_of::<Connection>();

/// Layout 2 had no identity.
fn former_endpoint(value: &[u8; ENDPOINT]) -> [u8; 40] {
    let identity = offset_of!(Endpoint, identity);
    [&value[..identity], &value[identity + 4..ENDPOINT - 4]].concat().try_into().unwrap()
}

/// Layout 2 knew of a connection when it was opened and seen, its state and its flags.
fn former_connection(value: &[u8; CONNECTION]) -> [u8; 48] {
    let entry: Connection = bytemuck::pod_read_unaligned(value);
    let mut former = [0; 48];
    former[..8].copy_from_slice(&entry.opened.to_ne_bytes());
    former[8..16].copy_from_slice(&entry.last_seen.to_ne_bytes());
    former[20..22].copy_from_slice(&[entry.state, entry.flags]);
    former
}

/// Layout 2 had a table for each network, and an array of those.
fn write_tables((from, to): (&Path, &Path)) {
    const KEY: usize = size_of::<ConnectionKey>();
    type Former = HashMap<MapData, [u8; KEY], [u8; 48]>;
    let new_table = || -> Former {
        let map = aya_obj::Map::new_from_params(9, KEY as u32, 48, 16_384, 0);
        let map = MapData::create(map, "former", None).unwrap();
        Map::from_map_data(map).unwrap().try_into().unwrap()
    };
    let mut table = new_table();
    for entry in open::<KEY, CONNECTION>(from, "connections").iter() {
        let (key, value) = entry.unwrap();
        table.insert(key, former_connection(&value), 0).unwrap();
    }
    let mut tables: ArrayOfMaps<_, Former> = array_of_tables().try_into().unwrap();
    tables.set(0, &table, 0).unwrap();
    tables.pin(to.join("connections")).unwrap();
}

/// Only an object file can say what the maps in an array are like.
fn array_of_tables() -> Map {
    static LAYOUT_2: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/layout_2.o"));
    Ebpf::load(LAYOUT_2).unwrap().take_map("connections").unwrap()
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

/// Makes a node look as layout 2 left it: its maps, and the links of its programs. Its only network
/// has the first place.
pub(crate) fn turn_back(state: &mut State) {
    state.datapath = None;
    let (new, old) = (state.config.bpf_root.join("v3"), state.config.bpf_root.join("v2"));
    std::fs::create_dir_all(old.join("maps")).unwrap();
    let maps = (new.join("maps"), old.join("maps"));
    let maps = (maps.0.as_path(), maps.1.as_path());
    for name in ["interfaces", "peers", "doors", "traffic"] {
        MapData::from_pin(maps.0.join(name)).unwrap().pin(maps.1.join(name)).unwrap();
    }
    write_as_former::<{ size_of::<EndpointKey>() }, ENDPOINT, 40>(
        maps,
        "endpoints",
        former_endpoint,
    );
    write_tables(maps);
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
        node.run(|state| assert!(!state.config.bpf_root.join("v2").exists()));
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
        std::fs::create_dir_all(root.join("v3/links")).unwrap();
        let mut links = std::fs::read_dir(root.join("v2/links")).unwrap();
        let one = links.next().unwrap().unwrap();
        std::fs::rename(one.path(), root.join("v3/links").join(one.file_name())).unwrap();
        std::fs::remove_file(root.join("v2/maps/peers")).unwrap();
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
        std::fs::rename(root.join("v3"), root.join("v4")).unwrap();
        let before = state.bpf.files();
        let error = state.runtime.block_on(Datapath::open(&state.config)).unwrap_err();
        assert!(matches!(&error, DatapathError::OtherLayout(found) if *found == root.join("v4")));
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
        let peers = state.config.bpf_root.join("v2/maps/peers");
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
        sockets[to].recv(&mut [0; 8]).unwrap();
    }
    let before = node.connections(network(100));
    assert_eq!(before.len(), 1);
    node.run(|state| {
        turn_back(state);
        state.open();
    });
    assert_eq!(node.connections(network(100)), before);
    sockets[1].send_to(b"!", sockets[0].local_addr().unwrap()).unwrap();
    sockets[0].recv(&mut [0; 8]).unwrap();
    assert_eq!(node.connections(network(100)), before);
}
