//! Nodes that meet over IPv6: pods of both families talk through the tunnel, and strangers are not
//! heard.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use atoll_datapath::{DatapathError, DropReason};
use atoll_plan::Step;
use atoll_testkit::eventually;

use crate::fabric::{Fabric, OVERLAY_PORT, Pod, network};
use crate::forge;
use crate::talk::{converse, converse_tcp};

const STRANGER: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 99);
/// One more of the first node's own.
const ANOTHER: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 88);

fn two_pods(fabric: &Fabric) -> [Pod; 2] {
    [(0, "10.0.0.1"), (1, "10.0.0.2")].map(|(place, ip)| fabric.pod(place, network(100), ip))
}

/// Sends a tunnel packet to the first node from an address of the second.
fn tunnel(fabric: &Fabric, from: IpAddr, frame: &[u8]) {
    let node = &fabric.nodes[0];
    tunnel_to(fabric, if from.is_ipv6() { node.tunnel } else { node.underlay.into() }, from, frame);
}

fn tunnel_to(fabric: &Fabric, to: IpAddr, from: IpAddr, frame: &[u8]) {
    let socket = fabric.nodes[1].namespace.run(|| UdpSocket::bind((from, 0)).unwrap());
    socket.send_to(&forge::vxlan(100, frame), SocketAddr::new(to, OVERLAY_PORT)).unwrap();
}

#[test]
fn pods_of_both_families_talk_between_nodes_that_meet_over_ipv6() {
    let fabric = Fabric::over_ipv6(2);
    let [one, other] = two_pods(&fabric);
    converse(&one, &other);
    for (client, server) in [(one.v4(), other.v4()), (other.v6(), one.v6())] {
        assert_eq!(converse_tcp(client, server, 1 << 20), client.ip);
    }
}

#[test]
fn the_longer_header_is_taken_off_the_pods_packets() {
    let fabric = Fabric::over_ipv6(1);
    let mtu = fabric.nodes[0].run(|state| state.datapath.as_ref().unwrap().pod_mtu());
    assert_eq!(mtu, 1430);
}

#[test]
fn over_ipv6_too_only_known_nodes_are_heard() {
    let fabric = Fabric::over_ipv6(2);
    let [victim, sender] = two_pods(&fabric);
    fabric.nodes[1].namespace.ip(&format!("address add {STRANGER}/64 dev uplink nodad"));
    let heard = victim.packets();
    let frame = forge::udp(&sender, victim.ip);
    let dropped = || fabric.nodes[0].dropped(None, DropReason::OverlayStranger);
    let other_family = IpAddr::V4(Ipv4Addr::new(192, 168, 77, 2));
    for from in [STRANGER.into(), other_family] {
        let before = dropped();
        tunnel(&fabric, from, &frame);
        eventually("the stranger was not heard", || (dropped() > before).then_some(()));
    }
    fabric.nodes[0].namespace.ip(&format!("address add {ANOTHER}/128 dev uplink nodad"));
    let before = dropped();
    tunnel_to(&fabric, ANOTHER.into(), fabric.nodes[1].tunnel, &frame);
    eventually("it was not heard at another address", || (dropped() > before).then_some(()));
    assert_eq!(heard.received().unwrap(), Vec::<Vec<u8>>::new());
    tunnel(&fabric, fabric.nodes[1].tunnel, &frame);
    assert_eq!(forge::arrived(&heard)[forge::IP..], frame[forge::IP..]);
}

#[test]
fn over_ipv6_too_a_node_speaks_only_for_its_own_pods() {
    let fabric = Fabric::over_ipv6(2);
    let [victim, sender] = two_pods(&fabric);
    let dropped = || fabric.nodes[0].dropped(Some(network(100)), DropReason::OverlaySpoof);
    let before = dropped();
    let from = Ipv4Addr::new(10, 0, 0, 77);
    let frame = forge::udp_from(sender.mac.octets(), from, victim.ip);
    tunnel(&fabric, fabric.nodes[1].tunnel, &frame);
    eventually("it was dropped", || (dropped() > before).then_some(()));
}

#[test]
fn a_node_of_the_other_family_is_named() {
    let fabric = Fabric::over_ipv6(1);
    let error = fabric.nodes[0]
        .run(|state| state.apply(&Step::AddPeer([192, 0, 2, 9].into())).unwrap_err());
    assert!(matches!(error.source, DatapathError::OtherFamily(_)), "{error:?}");
}
