//! What comes through the tunnel: only from known nodes, and each node only for its own pods.

use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};

use atoll_datapath::DropReason;
use atoll_testkit::eventually;
use atoll_types::NetworkId;

use crate::fabric::{Fabric, OVERLAY_PORT, Pod, network};
use crate::forge;

const OWN: u32 = 100;
const FOREIGN: u32 = 200;
const STRANGER: Ipv4Addr = Ipv4Addr::new(192, 168, 77, 99);

struct Scene {
    fabric: Fabric,
    victim: Pod,
    foreign_victim: Pod,
    sender: Pod,
}

/// The victims are on the first node; the sender, and whoever forges, are on the second.
fn scene() -> Scene {
    let fabric = Fabric::of(2);
    let victim = fabric.pod(0, network(OWN), "10.0.0.1");
    let foreign_victim = fabric.pod(0, network(FOREIGN), "10.0.0.1");
    let sender = fabric.pod(1, network(OWN), "10.0.0.2");
    fabric.nodes[1].namespace.ip(&format!("address add {STRANGER}/24 dev uplink"));
    Scene { fabric, victim, foreign_victim, sender }
}

impl Scene {
    /// Sends a tunnel packet to the first node from the underlay address `from`.
    fn tunnel(&self, from: Ipv4Addr, vni: u32, frame: &[u8]) {
        self.tunnel_to(self.fabric.nodes[0].underlay, from, vni, frame);
    }

    fn tunnel_to(&self, to: Ipv4Addr, from: Ipv4Addr, vni: u32, frame: &[u8]) {
        let bind = || UdpSocket::bind((from, 0)).unwrap();
        let socket = self.fabric.nodes[1].namespace.run(bind);
        socket.send_to(&forge::vxlan(vni, frame), (to, OVERLAY_PORT)).unwrap();
    }

    fn is_dropped(&self, network: Option<NetworkId>, reason: DropReason, send: impl FnOnce()) {
        let heard = [&self.victim, &self.foreign_victim].map(Pod::packets);
        let dropped = || self.fabric.nodes[0].dropped(network, reason);
        let before = dropped();
        send();
        eventually(&format!("it was dropped as {reason}"), || (dropped() > before).then_some(()));
        for heard in heard {
            assert_eq!(heard.received().unwrap(), Vec::<Vec<u8>>::new());
        }
    }

    fn node(&self) -> Ipv4Addr {
        self.fabric.nodes[1].underlay
    }
}

#[test]
fn a_tunnel_packet_of_a_known_node_for_its_own_pod_arrives() {
    let scene = scene();
    let heard = scene.victim.packets();
    let frame = forge::udp(&scene.sender, scene.victim.ip);
    scene.tunnel(scene.node(), OWN, &frame);
    let arrived = forge::arrived(&heard);
    assert_eq!(arrived[forge::IP..], frame[forge::IP..]);
    let frame = forge::udp6_from(scene.sender.mac.octets(), scene.sender.ipv6, scene.victim.ipv6);
    scene.tunnel(scene.node(), OWN, &frame);
    let arrived = forge::arrived_of(&heard, [0x86, 0xdd]);
    assert_eq!(arrived[forge::IP..], frame[forge::IP..]);
}

#[test]
fn a_tunnel_packet_of_a_stranger_is_dropped() {
    let scene = scene();
    let frame = forge::udp(&scene.sender, scene.victim.ip);
    scene.is_dropped(None, DropReason::OverlayStranger, || scene.tunnel(STRANGER, OWN, &frame));
}

/// Others may send with a node's address to where nodes are not looked for: a pod, by its node's face, to
/// the gateway of plain pods.
#[test]
fn a_tunnel_packet_to_another_address_of_the_node_is_dropped() {
    let scene = scene();
    let another = Ipv4Addr::new(192, 168, 77, 88);
    scene.fabric.nodes[0].namespace.ip(&format!("address add {another}/32 dev uplink"));
    let frame = forge::udp(&scene.sender, scene.victim.ip);
    let (from, stranger) = (scene.node(), DropReason::OverlayStranger);
    scene.is_dropped(None, stranger, || scene.tunnel_to(another, from, OWN, &frame));
}

#[test]
fn a_node_that_is_no_longer_a_peer_is_a_stranger() {
    let scene = scene();
    let receiver = &scene.fabric.nodes[0];
    receiver.plan.lock().unwrap().peers.clear();
    receiver.converge();
    let frame = forge::udp(&scene.sender, scene.victim.ip);
    let from = scene.node();
    scene.is_dropped(None, DropReason::OverlayStranger, || scene.tunnel(from, OWN, &frame));
}

#[test]
fn a_node_speaks_only_for_pods_that_live_on_it() {
    let scene = scene();
    let mac = scene.sender.mac.octets();
    let from = scene.node();
    let own = Some(network(OWN));
    let is_dropped = |frame: &[u8]| {
        scene.is_dropped(own, DropReason::OverlaySpoof, || scene.tunnel(from, OWN, frame));
    };
    for source in [scene.victim.ip, Ipv4Addr::new(10, 0, 0, 77), Ipv4Addr::new(169, 254, 1, 1)] {
        is_dropped(&forge::udp_from(mac, source, scene.victim.ip));
    }
    for source in [scene.victim.ipv6, Ipv6Addr::LOCALHOST] {
        is_dropped(&forge::udp6_from(mac, source, scene.victim.ipv6));
    }
}

#[test]
fn a_pod_of_one_network_is_nobody_in_another() {
    let scene = scene();
    let frame = forge::udp(&scene.sender, scene.foreign_victim.ip);
    let from = scene.node();
    for vni in [FOREIGN, 4711] {
        let claimed = Some(network(vni));
        scene.is_dropped(claimed, DropReason::OverlaySpoof, || scene.tunnel(from, vni, &frame));
    }
}

#[test]
fn what_is_not_for_a_pod_of_this_node_is_dropped() {
    let scene = scene();
    let own = Some(network(OWN));
    let from = scene.node();
    let elsewhere = forge::udp(&scene.sender, scene.sender.ip);
    scene.is_dropped(own, DropReason::NoEndpoint, || scene.tunnel(from, OWN, &elsewhere));
    let arp =
        forge::arp(&scene.sender, 1, (scene.sender.mac.octets(), scene.sender.ip), scene.victim.ip);
    scene.is_dropped(own, DropReason::NotIp, || scene.tunnel(from, OWN, &arp));
    let source_routed =
        forge::udp_with_options(&scene.sender, scene.victim.ip, &[131, 7, 4, 10, 0, 0, 4, 0]);
    scene.is_dropped(own, DropReason::SourceRouted, || scene.tunnel(from, OWN, &source_routed));
}

#[test]
fn a_pod_cannot_reach_the_tunnel_port_of_a_node() {
    let scene = scene();
    let own = Some(network(OWN));
    let frame = forge::udp(&scene.sender, scene.foreign_victim.ip);
    let heard = scene.foreign_victim.packets();
    let socket = crate::talk::udp(scene.victim.v4(), 0);
    for node in &scene.fabric.nodes {
        let dropped = || scene.fabric.nodes[0].dropped(own, DropReason::NoEndpoint);
        let before = dropped();
        socket.send_to(&forge::vxlan(FOREIGN, &frame), (node.underlay, OVERLAY_PORT)).unwrap();
        eventually("the node is nobody in the pod's network", || {
            (dropped() > before).then_some(())
        });
    }
    assert_eq!(heard.received().unwrap(), Vec::<Vec<u8>>::new());
    let neighbour = forge::udp(&scene.sender, scene.victim.ip);
    let heard = scene.victim.packets();
    scene.tunnel(scene.node(), OWN, &neighbour);
    assert_eq!(forge::arrived(&heard)[forge::IP..], neighbour[forge::IP..]);
}
