//! What a connection remembers: it holds at one generation of its network, and no longer.

use std::net::{SocketAddr, UdpSocket};

use atoll_abi::{
    Connection as Entry, ConnectionKey, LAYOUT_VERSION, Network, TURNS_PER_PAGE, Turns, TurnsKey,
};
use atoll_datapath::{ConnectionState, DropReason};
use atoll_plan::{Endpoint, Place, Step};
use atoll_testkit::{Hears, eventually, pinned};
use atoll_types::{MacAddr, NetAddr};
use aya::maps::{Array, HashMap, Map, MapData};

use crate::fabric::{Fabric, Node, Pod, State, network};
use crate::forge;
use crate::talk::udp;

const OWN: u32 = 100;
const UDP: u8 = 17;

pub(crate) fn map(state: &State, name: &str) -> Map {
    let pin = state.config.bpf_root.join(format!("v{LAYOUT_VERSION}/maps")).join(name);
    Map::from_map_data(MapData::from_pin(pin).unwrap()).unwrap()
}

/// Everything in a node's map of connections.
pub(crate) fn entries(node: &Node) -> Vec<(ConnectionKey, Entry)> {
    node.run(|state| pinned::connections(&state.config.bpf_root))
}

type Pages = HashMap<MapData, [u8; size_of::<TurnsKey>()], [u8; size_of::<Turns>()]>;

/// How many pages of all rings there are.
fn pages(node: &Node) -> usize {
    node.run(|state| {
        let pages: Pages = map(state, "turns").try_into().unwrap();
        pages.keys().count()
    })
}

/// Whether every connection of a node stands in its place in the ring of its network.
pub(crate) fn are_lined_up(node: &Node) -> bool {
    let all = entries(node);
    node.run(move |state| {
        let pages: Pages = map(state, "turns").try_into().unwrap();
        all.iter().all(|(key, entry)| {
            let (page, place) = TurnsKey::of(entry.table.into(), entry.turn);
            let page = pages.get(&bytemuck::cast(page), 0);
            let page: Option<Turns> = page.ok().map(|page| bytemuck::pod_read_unaligned(&page));
            page.is_some_and(|page| page.at[place] == *key)
        })
    })
}

/// The generation of the network that has the first place on a node.
fn generation(node: &Node) -> u32 {
    node.run(|state| {
        let networks: Array<_, [u8; 16]> = map(state, "networks").try_into().unwrap();
        let first: Network = bytemuck::pod_read_unaligned(&networks.get(&0, 0).unwrap());
        assert_eq!(first.network, OWN);
        first.generation
    })
}

/// Makes of every entry in a node's map of connections what `becomes` says, or nothing.
pub(crate) fn change_entries(node: &Node, becomes: fn(Entry) -> Option<Entry>) {
    node.run(move |state| {
        pinned::change_connections(&state.config.bpf_root, |_, entry| becomes(entry));
    });
}

/// Makes every connection of a node look as if its latest packet had come earlier.
pub(crate) fn let_time_pass<const SECONDS: u64>(node: &Node) {
    change_entries(node, |entry| {
        Some(Entry { last_seen: entry.last_seen - SECONDS * 1_000_000_000, ..entry })
    });
}

/// A pod on the first node that speaks with one on the last.
struct Talk {
    fabric: Fabric,
    pods: [Pod; 2],
    sockets: [UdpSocket; 2],
}

impl Talk {
    fn on(nodes: u8) -> Self {
        let fabric = Fabric::of(nodes);
        let pod = |(at, ip)| fabric.pod(at, network(OWN), ip);
        let pods = [(0, "10.0.0.1"), (usize::from(nodes) - 1, "10.0.0.2")].map(pod);
        let sockets = [udp(pods[0].v4(), 7), udp(pods[1].v4(), 9)];
        let talk = Talk { fabric, pods, sockets };
        talk.say(0);
        talk.say(1);
        talk
    }

    /// A word from one of both to the other.
    fn say(&self, from: usize) {
        let (one, other) = (&self.sockets[from], &self.sockets[1 - from]);
        one.send_to(b"word", other.local_addr().unwrap()).unwrap();
        other.hear(&mut [0; 8]).expect("a word was lost");
    }

    fn node(&self) -> &Node {
        &self.fabric.nodes[0]
    }

    fn entry(&self) -> Entry {
        let all = entries(self.node());
        let own = all.iter().filter(|(key, _)| key.protocol == UDP);
        let own: Vec<_> = own.map(|(_, entry)| *entry).collect();
        assert_eq!(own.len(), 1, "one connection: {own:?}");
        own[0]
    }
}

/// Has everything of the network decided anew: somebody else's endpoint changes.
fn change(node: &Node) {
    let before = generation(node);
    let addr = NetAddr::new(network(OWN), "10.0.0.99".parse().unwrap());
    let mac = MacAddr::for_ip(addr.ip);
    let place = Place::There("192.168.77.9".parse().unwrap());
    node.run(move |state| {
        state.apply(&Step::PutEndpoint(addr, Endpoint { mac, place })).unwrap();
        state.apply(&Step::RemoveEndpoint(addr)).unwrap();
    });
    assert_eq!(generation(node), before + 2);
}

#[test]
fn a_decision_holds_at_its_generation_and_the_next_packet_of_either_end_renews_it() {
    for nodes in [1, 2] {
        let talk = Talk::on(nodes);
        let first = talk.entry();
        assert_eq!(first.generation, generation(talk.node()));
        for end in [0, 1] {
            change(talk.node());
            assert_ne!(talk.entry().generation, generation(talk.node()));
            talk.say(end);
            let renewed = talk.entry();
            let expected = Entry { generation: generation(talk.node()), ..first };
            assert_eq!(Entry { last_seen: first.last_seen, ..renewed }, expected);
        }
    }
}

#[test]
fn a_change_of_one_network_leaves_the_decisions_of_others_alone() {
    let talk = Talk::on(1);
    let before = generation(talk.node());
    let other = talk.fabric.pod(0, network(200), "10.0.0.1");
    talk.fabric.remove(&other);
    assert_eq!(generation(talk.node()), before);
    assert_eq!(talk.entry().generation, before);
}

#[test]
fn a_connection_remembers_where_both_its_ends_are() {
    let talk = Talk::on(2);
    let entry = talk.entry();
    let [here, there] =
        if entry.low.ifindex != 0 { [entry.low, entry.high] } else { [entry.high, entry.low] };
    assert_eq!((here.mac, there.mac), (talk.pods[0].mac.octets(), talk.pods[1].mac.octets()));
    assert_eq!(there.ifindex, 0);
    assert_eq!(std::net::IpAddr::from(entry.node), talk.fabric.nodes[1].tunnel);
    assert_eq!(entry.state, ConnectionState::Established as u8);
}

#[test]
fn an_endpoint_that_moved_to_this_node_is_followed_by_a_connection_that_goes_on() {
    let talk = Talk::on(2);
    talk.fabric.remove(&talk.pods[1]);
    let moved = talk.fabric.pod(0, network(OWN), "10.0.0.2");
    let heard = udp(moved.v4(), 9);
    talk.sockets[0].send_to(b"again", (moved.ip, 9)).unwrap();
    heard.hear(&mut [0; 8]).expect("a word for who has moved");
    let entry = talk.entry();
    assert!(entry.low.ifindex != 0 && entry.high.ifindex != 0, "{entry:?}");
}

#[test]
fn an_endpoint_that_is_gone_hears_nothing_of_its_connections() {
    for nodes in [1, 2] {
        let talk = Talk::on(nodes);
        let node = talk.node();
        let heard = talk.pods[1].packets();
        let addr = NetAddr::new(network(OWN), talk.pods[1].ip.into());
        node.run(move |state| state.apply(&Step::RemoveEndpoint(addr)).unwrap());
        let dropped = || node.dropped(Some(network(OWN)), DropReason::NoEndpoint);
        let before = dropped();
        talk.sockets[0].send_to(b"?", (talk.pods[1].ip, 9)).unwrap();
        eventually("it was dropped", || (dropped() == before + 1).then_some(()));
        assert_eq!(heard.received().unwrap(), Vec::<Vec<u8>>::new());
    }
}

#[test]
fn a_node_that_is_no_peer_any_more_is_not_heard_on_connections_that_it_had() {
    let talk = Talk::on(2);
    let (node, other) = (talk.node(), talk.fabric.nodes[1].tunnel);
    let heard = talk.pods[0].packets();
    node.run(move |state| state.apply(&Step::RemovePeer(other)).unwrap());
    talk.sockets[1].send_to(b"?", (talk.pods[0].ip, 7)).unwrap();
    eventually("it was dropped", || {
        (node.dropped(None, DropReason::OverlayStranger) >= 1).then_some(())
    });
    assert_eq!(heard.received().unwrap(), Vec::<Vec<u8>>::new());
}

fn collect(node: &Node) {
    node.run(|state| state.datapath.as_mut().unwrap().collect().unwrap());
}

#[test]
fn what_is_over_is_collected_and_its_place_in_the_ring_is_free() {
    let talk = Talk::on(1);
    let node = talk.node();
    assert_eq!(entries(node).len(), 1);
    assert!(are_lined_up(node));
    let_time_pass::<300>(node);
    collect(node);
    eventually("what is over is gone", || entries(node).is_empty().then_some(()));
    talk.say(0);
    collect(node);
    talk.say(1);
    assert_eq!(entries(node).len(), 1);
    assert!(are_lined_up(node));
}

#[test]
fn a_ring_has_a_page_for_many_connections_and_goes_with_its_network() {
    let talk = Talk::on(1);
    let node = talk.node();
    let ends = ["10.0.0.1", "10.0.0.2"].map(|ip| talk.fabric.pod(0, network(200), ip));
    let open = |port: u16| {
        let content = forge::datagram((port, 4), b"");
        let packet = forge::packet(ends[0].v4(), ends[1].ip.into(), UDP, &content);
        ends[0].packets().send(&packet).unwrap();
    };
    let known = || node.connections(network(200)).len();
    for (many, expected) in [(TURNS_PER_PAGE, 2), (TURNS_PER_PAGE + 1, 3)] {
        (known()..many).for_each(|number| open(1024 + u16::try_from(number).unwrap()));
        eventually("all are known", || (known() == many).then_some(()));
        assert_eq!(pages(node), expected, "one of them is the other network's");
        assert!(are_lined_up(node));
    }
    ends.iter().for_each(|pod| talk.fabric.remove(pod));
    eventually("the ring is gone", || {
        collect(node);
        (pages(node) == 1).then_some(())
    });
    talk.say(0);
    assert!(are_lined_up(node), "the other network's ring stays");
}

#[test]
fn a_flood_of_new_connections_pushes_out_none_that_was_answered() {
    let talk = Talk::on(1);
    let (node, pods) = (talk.node(), &talk.pods);
    let frames = (0..20_000_u16).map(|number| {
        let content = forge::datagram((1024 + number, 4), b"");
        forge::packet(pods[0].v4(), pods[1].ip.into(), UDP, &content)
    });
    node.flood(&pods[0], frames);
    let ends = (SocketAddr::new(pods[0].ip.into(), 7), SocketAddr::new(pods[1].ip.into(), 9));
    let all = node.connections(network(OWN));
    assert_eq!(all.len(), 16_384);
    assert!(all.iter().any(|it| (it.client, it.server) == ends));
}
