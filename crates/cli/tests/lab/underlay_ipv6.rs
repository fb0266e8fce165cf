//! Three nodes that meet over IPv6: tunnel packets go by it alone, pods of both families talk, have what its
//! longer header leaves, and stay apart as they do over IPv4.

use std::net::UdpSocket;

use atoll_testkit::forge::IP;
use atoll_testkit::{Namespace, PacketSocket, eventually};

use crate::datapath::{arrives, udp};
use crate::fixture::Lab;
use crate::isolation::everybody_reaches_its_own_alone;
use crate::repair::{fill_with_both_tenants, pods_follow_and_what_is_too_big_is_answered};
use crate::threats::{
    NODES, NODES_IPV4, NODES_IPV6, Player, STRANGERS, Stage, a_stranger_is_dropped, assert_silence,
    stranger, tunnelled,
};
use crate::threats_to_flows::FAMILIES;

const OVER_IPV6: [&str; 2] = ["--underlay", "ipv6"];
/// The length of the outer headers: Ethernet's own is not of the packet.
const HEADER: u32 = 70;
const TUNNEL_PORT: u16 = 4789;

/// What node1's uplink has heard since, of tunnel packets: whether each was of IPv6.
fn tunnels_of_ipv6(heard: &PacketSocket) -> Vec<bool> {
    let port = TUNNEL_PORT.to_be_bytes();
    let is_tunnel = |frame: &[u8]| match frame.get(12..14) {
        Some([0x86, 0xdd]) => {
            (frame[IP + 6] == 17 && frame[IP + 42..IP + 44] == port).then_some(true)
        }
        Some([8, 0]) => (frame[IP + 9] == 17 && frame[IP + 22..IP + 24] == port).then_some(false),
        _ => None,
    };
    heard.received().unwrap().iter().filter_map(|frame| is_tunnel(frame)).collect()
}

#[test]
fn two_tenants_with_equal_addresses_never_meet_on_three_nodes_that_meet_over_ipv6() {
    let lab = Lab::up_with(3, &OVER_IPV6).filled_with_two_tenants();
    for (node, address) in NODES.into_iter().zip(NODES_IPV6) {
        let first = "jsonpath={.status.addresses[0].address}";
        assert_eq!(lab.kubectl(&["get", "node", node, "-o", first]).good(), address);
    }
    let wire = Namespace::at(&lab.place("node1"));
    let heard = wire.run(|| PacketSocket::open("eth0").unwrap());
    everybody_reaches_its_own_alone(&lab);
    let tunnels = tunnels_of_ipv6(&heard);
    assert!(!tunnels.is_empty() && tunnels.iter().all(|is_ipv6| *is_ipv6), "{tunnels:?}");
    assert!(lab.drops(None, "no-endpoint") > 0, "what went to nobody was counted");
}

#[test]
fn pods_have_what_the_header_of_ipv6_leaves_and_what_is_too_big_is_answered() {
    let lab = Lab::up_with(3, &OVER_IPV6);
    fill_with_both_tenants(&lab);
    let [web, far] = ["web", "far"].map(|name| Player::find(&lab, "acme", name));
    for family in FAMILIES {
        let [one, other] = [&web, &far].map(|player| udp(player, family(&player.face)));
        for size in [1, 1402, 1431, 65_000] {
            arrives(&one, &other, &vec![7; size]);
            arrives(&other, &one, &vec![7; size]);
        }
    }
    pods_follow_and_what_is_too_big_is_answered(&lab, HEADER);
}

#[test]
fn every_row_of_the_threats_holds_and_no_stranger_is_heard_on_nodes_that_meet_over_ipv6() {
    let stage = Stage::set_in(Lab::up_with(3, &OVER_IPV6));
    stage.every_row_holds();
    let machine = stranger(&stage.lab);
    let heard = stage.victims().map(Player::packets);
    a_stranger_is_dropped(&stage, &machine, STRANGERS[1], NODES_IPV6);
    a_stranger_is_dropped(&stage, &machine, STRANGERS[0], NODES_IPV4);
    heard.iter().for_each(|heard| assert_silence(heard, "row 5"));
    let node = Namespace::at(&stage.lab.place("node2"));
    let socket = node.run(|| UdpSocket::bind((NODES_IPV6[1], 0)).unwrap());
    let word = tunnelled(&stage.far, &stage.near);
    eventually("what a node says for its own pod is heard", || {
        socket.send_to(&word, (NODES_IPV6[0], TUNNEL_PORT)).unwrap();
        (!heard[0].received().unwrap().is_empty()).then_some(())
    });
}
