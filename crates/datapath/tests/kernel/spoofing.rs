//! What an attacker in a pod may forge: zero packets at the victim, and a drop under its name.

use std::net::{IpAddr, Ipv6Addr};

use atoll_datapath::DropReason;
use atoll_testkit::eventually;
use atoll_types::GATEWAY_V6;

use crate::fabric::{Fabric, Node, Pod, network};
use crate::forge::{self, GATEWAY, IP};

struct Scene {
    fabric: Fabric,
    attacker: Pod,
    victims: [Pod; 3],
}

/// An attacker with victims beside it, on another node, and in another network.
fn scene() -> Scene {
    let fabric = Fabric::of(2);
    let (own, foreign) = (network(100), network(200));
    let attacker = fabric.pod(0, own, "10.0.0.1");
    let victims = [
        fabric.pod(0, own, "10.0.0.2"),
        fabric.pod(1, own, "10.0.0.3"),
        fabric.pod(0, foreign, "10.0.0.4"),
    ];
    Scene { fabric, attacker, victims }
}

impl Scene {
    fn node(&self) -> &Node {
        &self.fabric.nodes[0]
    }

    fn dropped(&self, reason: DropReason) -> u64 {
        self.node().dropped(Some(self.attacker.network), reason)
    }

    /// Sends each frame, sees it counted, and sees nothing of it at any victim.
    fn all_are_dropped(&self, frames: &[(DropReason, Vec<u8>)]) {
        let socket = self.attacker.packets();
        let heard = self.victims.each_ref().map(Pod::packets);
        for (place, (reason, frame)) in frames.iter().enumerate() {
            let before = self.dropped(*reason);
            socket.send(frame).unwrap();
            eventually(&format!("frame {place} was dropped as {reason}"), || {
                (self.dropped(*reason) > before).then_some(())
            });
        }
        for (victim, heard) in self.victims.iter().zip(&heard) {
            assert_eq!(heard.received().unwrap(), Vec::<Vec<u8>>::new(), "at {}", victim.ip);
        }
    }
}

#[test]
fn a_frame_that_is_right_in_everything_arrives() {
    let scene = scene();
    for victim in &scene.victims[..2] {
        let heard = victim.packets();
        let frame = forge::udp(&scene.attacker, victim.ip);
        scene.attacker.packets().send(&frame).unwrap();
        let arrived = forge::arrived(&heard);
        assert_eq!(arrived[IP..], frame[IP..], "the packet is as it was sent");
        assert_eq!(arrived[..6], victim.mac.octets());
        assert_eq!(arrived[6..12], GATEWAY);
    }
}

#[test]
fn a_foreign_source_mac_is_dropped() {
    let scene = scene();
    let own = scene.attacker.ip;
    let macs = [scene.victims[0].mac.octets(), GATEWAY, [2, 9, 9, 9, 9, 9], [0xff; 6]];
    let forged = macs.iter().flat_map(|mac| {
        let to = scene.victims.iter().map(|victim| victim.ip);
        to.map(|to| (DropReason::SpoofedMac, forge::udp_from(*mac, own, to)))
    });
    scene.all_are_dropped(&forged.collect::<Vec<_>>());
}

#[test]
fn a_foreign_source_address_is_dropped() {
    let scene = scene();
    let mac = scene.attacker.mac.octets();
    let sources = ["10.0.0.2", "10.0.0.4", "169.254.1.1", "192.168.77.1", "127.0.0.1", "0.0.0.0"];
    let forged = sources.iter().flat_map(|source| {
        let to = scene.victims.iter().map(|victim| victim.ip);
        to.map(|to| (DropReason::SpoofedAddress, forge::udp_from(mac, source.parse().unwrap(), to)))
    });
    scene.all_are_dropped(&forged.collect::<Vec<_>>());
}

#[test]
fn arp_that_lies_or_is_no_question_is_dropped() {
    let scene = scene();
    let (attacker, victim) = (&scene.attacker, &scene.victims[0]);
    let own = attacker.mac.octets();
    let honest = (own, attacker.ip);
    let arp = |operation, sender, target| forge::arp(attacker, operation, sender, target);
    let mut other_hardware = arp(1, honest, victim.ip);
    other_hardware[15] = 6;
    scene.all_are_dropped(&[
        (DropReason::SpoofedArp, arp(1, (own, victim.ip), "169.254.1.1".parse().unwrap())),
        (DropReason::SpoofedArp, arp(1, (victim.mac.octets(), attacker.ip), victim.ip)),
        (DropReason::SpoofedArp, arp(2, (own, victim.ip), victim.ip)),
        (DropReason::SpoofedArp, arp(1, (own, victim.ip), victim.ip)),
        (DropReason::SpoofedArp, arp(1, (own, "0.0.0.0".parse().unwrap()), victim.ip)),
        (DropReason::UnwantedArp, arp(2, honest, victim.ip)),
        (DropReason::UnwantedArp, arp(1, honest, attacker.ip)),
        (DropReason::UnwantedArp, other_hardware),
        (DropReason::Malformed, arp(1, honest, victim.ip)[..30].to_vec()),
    ]);
}

#[test]
fn every_honest_question_is_answered_with_the_gateway() {
    let scene = scene();
    let attacker = &scene.attacker;
    let socket = attacker.packets();
    for asked in ["169.254.1.1", "10.0.0.2", "10.0.0.77", "192.168.77.1"] {
        let asked = asked.parse().unwrap();
        socket.send(&forge::arp(attacker, 1, (attacker.mac.octets(), attacker.ip), asked)).unwrap();
        let answer = forge::arrived_of(&socket, [0x08, 0x06]);
        let expected = [
            &attacker.mac.octets()[..],
            &GATEWAY,
            &[8, 6, 0, 1, 8, 0, 6, 4, 0, 2],
            &GATEWAY,
            &asked.octets(),
            &attacker.mac.octets(),
            &attacker.ip.octets(),
        ];
        assert_eq!(answer, expected.concat());
    }
}

#[test]
fn what_is_no_ordinary_packet_is_dropped_under_its_own_name() {
    let scene = scene();
    let (attacker, victim) = (&scene.attacker, &scene.victims[0]);
    let frame = || forge::udp(attacker, victim.ip);
    let changed = |at: usize, byte: u8| {
        let mut frame = frame();
        frame[at] = byte;
        frame
    };
    let with = |options: &[u8]| forge::udp_with_options(attacker, victim.ip, options);
    let to = |text: &str| forge::udp(attacker, text.parse().unwrap());
    let to_group_mac = changed(0, 0x01);
    let other = |kind, content: &[u8]| forge::other(attacker, kind, content);
    scene.all_are_dropped(&[
        (DropReason::Multicast, to("224.0.0.251")),
        (DropReason::Multicast, to("255.255.255.255")),
        (DropReason::Multicast, to_group_mac),
        (DropReason::NoEndpoint, to("10.0.0.77")),
        (DropReason::NoEndpoint, to("10.0.0.4")),
        (DropReason::NoEndpoint, to("192.168.77.1")),
        (DropReason::NoEndpoint, to("127.0.0.1")),
        (DropReason::NotIp, other(0x88cc, &[0; 50])),
        (DropReason::NotIp, other(0x0026, &[0; 50])),
        (DropReason::VlanTagged, forge::tagged(&frame(), 5)),
        (DropReason::SourceRouted, with(&[131, 7, 4, 10, 0, 0, 4, 0])),
        (DropReason::SourceRouted, with(&[1, 137, 7, 4, 10, 0, 0, 4])),
        (DropReason::SourceRouted, with(&[7, 3, 4, 131, 7, 4, 10, 0, 0, 4, 0, 0])),
        (DropReason::Malformed, with(&[7, 0, 0, 0])),
        (DropReason::Malformed, with(&[7, 40, 4, 0])),
        (DropReason::Malformed, changed(IP, 0x44)),
        (DropReason::Malformed, changed(IP, 0x55)),
        (DropReason::Malformed, changed(IP, 0x4f)),
        (DropReason::Malformed, changed(IP + 2, 0x7f)),
        (DropReason::Malformed, changed(IP + 3, 0x01)),
        (DropReason::Malformed, frame()[..20].to_vec()),
    ]);
}

#[test]
fn harmless_options_pass() {
    let scene = scene();
    let victim = &scene.victims[0];
    let heard = victim.packets();
    let frame = forge::udp_with_options(&scene.attacker, victim.ip, &[148, 4, 0, 0]);
    scene.attacker.packets().send(&frame).unwrap();
    assert_eq!(forge::arrived(&heard)[IP..], frame[IP..]);
}

const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

fn ipv6(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

#[test]
fn a_foreign_ipv6_source_address_is_dropped() {
    let scene = scene();
    let mac = scene.attacker.mac.octets();
    let sources = ["fd00::2", "fd00::4", "fe80::1", "fe80::dead", "::1", "::"];
    let forged = sources.iter().flat_map(|source| {
        let to = scene.victims.iter().map(|victim| victim.ipv6);
        to.map(|to| (DropReason::SpoofedAddress, forge::udp6_from(mac, ipv6(source), to)))
    });
    scene.all_are_dropped(&forged.collect::<Vec<_>>());
}

#[test]
fn ipv4_addresses_in_ipv6_clothes_are_dropped() {
    let scene = scene();
    let (attacker, victim) = (&scene.attacker, &scene.victims[0]);
    let mac = attacker.mac.octets();
    let mapped = |pod: &Pod| pod.ip.to_ipv6_mapped();
    scene.all_are_dropped(&[
        (DropReason::Malformed, forge::udp6_from(mac, mapped(attacker), mapped(victim))),
        (DropReason::Malformed, forge::udp6_from(mac, mapped(attacker), victim.ipv6)),
        (DropReason::Malformed, forge::udp6_from(mac, attacker.ipv6, mapped(victim))),
    ]);
}

#[test]
fn neighbour_discovery_that_lies_or_is_no_question_is_dropped() {
    let scene = scene();
    let (attacker, victim) = (&scene.attacker, &scene.victims[0]);
    let (own, foreign) = (attacker.mac.octets(), victim.mac.octets());
    let send = |from, to, message: &[u8]| forge::icmp6(attacker, (from, to), message);
    let question = |target, mac| forge::nd(135, target, mac);
    let claim = |target| forge::nd(136, target, own);
    let router = [&[134, 0, 0, 0, 64, 0, 0xff, 0xff][..], &[0; 8]].concat();
    let redirect = [&[137, 0, 0, 0, 0, 0, 0, 0][..], &[0; 32]].concat();
    scene.all_are_dropped(&[
        (DropReason::SpoofedNd, send(victim.ipv6, ALL_NODES, &question(GATEWAY_V6, own))),
        (DropReason::SpoofedNd, send(attacker.ipv6, ALL_NODES, &question(GATEWAY_V6, foreign))),
        (DropReason::UnwantedNd, send(attacker.ipv6, ALL_NODES, &question(attacker.ipv6, own))),
        (DropReason::UnwantedNd, send(ipv6("::"), ALL_NODES, &question(victim.ipv6, own))),
        (DropReason::UnwantedNd, send(attacker.ipv6, victim.ipv6, &claim(GATEWAY_V6))),
        (DropReason::UnwantedNd, send(attacker.ipv6, ALL_NODES, &claim(victim.ipv6))),
        (DropReason::UnwantedNd, send(attacker.ipv6, victim.ipv6, &router)),
        (DropReason::UnwantedNd, send(ipv6("fe80::1"), ALL_NODES, &router)),
        (DropReason::UnwantedNd, send(ipv6("fe80::1"), victim.ipv6, &redirect)),
    ]);
}

#[test]
fn neighbour_discovery_hidden_behind_other_headers_is_dropped() {
    let scene = scene();
    let attacker = &scene.attacker;
    let claim = forge::nd(136, GATEWAY_V6, attacker.mac.octets());
    let hidden = scene.victims[..2].iter().map(|victim| {
        let mut frame = forge::icmp6(attacker, (attacker.ipv6, victim.ipv6), &claim);
        let destination_options = [58, 0, 1, 4, 0, 0, 0, 0];
        frame.splice(IP + 40..IP + 40, destination_options);
        frame[IP + 6] = 60;
        frame[IP + 5] += 8;
        (DropReason::UnwantedNd, frame)
    });
    scene.all_are_dropped(&hidden.collect::<Vec<_>>());
}

#[test]
fn every_honest_solicitation_is_answered_with_the_gateway() {
    let scene = scene();
    let attacker = &scene.attacker;
    let socket = attacker.packets();
    for target in ["fe80::1", "fd00::2", "fd00::77"].map(ipv6) {
        let question = forge::nd(135, target, attacker.mac.octets());
        for question in [&question[..], &question[..24]] {
            let frame = forge::icmp6(attacker, (attacker.ipv6, ALL_NODES), question);
            socket.send(&frame).unwrap();
            let mut answer = forge::nd(136, target, GATEWAY);
            answer[4] = 0xe0;
            let mut expected = forge::icmp6(attacker, (target, attacker.ipv6), &answer);
            expected[..6].copy_from_slice(&attacker.mac.octets());
            expected[6..12].copy_from_slice(&GATEWAY);
            assert_eq!(forge::arrived_of(&socket, [0x86, 0xdd]), expected);
        }
    }
}

#[test]
fn what_is_no_ordinary_ipv6_packet_is_dropped_under_its_own_name() {
    let scene = scene();
    let (attacker, victim) = (&scene.attacker, &scene.victims[0]);
    let to = |to: &str| forge::udp6_from(attacker.mac.octets(), attacker.ipv6, ipv6(to));
    let with = |first, headers: &[u8]| forge::udp6_with(attacker, victim.ipv6, first, headers);
    let changed = |at: usize, byte: u8| {
        let mut frame = with(17, &[]);
        frame[at] = byte;
        frame
    };
    let routing = [17, 2, 0, 1, 0, 0, 0, 0];
    let options_then_routing = [&[43, 0, 1, 4, 0, 0, 0, 0], &routing[..]].concat();
    let endless = [60, 0, 1, 4, 0, 0, 0, 0].repeat(9);
    let mut beyond_its_end = with(60, &[17, 0, 1, 4, 0, 0, 0, 0]);
    beyond_its_end[IP + 5] = 4;
    scene.all_are_dropped(&[
        (DropReason::Multicast, to("ff02::fb")),
        (DropReason::Multicast, to("ff05::2")),
        (DropReason::Multicast, changed(0, 0x33)),
        (DropReason::NoEndpoint, to("fd00::77")),
        (DropReason::NoEndpoint, to("fd00::4")),
        (DropReason::NoEndpoint, to("fe80::1")),
        (DropReason::NoEndpoint, to("::1")),
        (DropReason::SourceRouted, with(43, &routing)),
        (DropReason::SourceRouted, with(60, &options_then_routing)),
        (DropReason::SourceRouted, with(0, &options_then_routing)),
        (DropReason::Malformed, with(60, &endless)),
        (DropReason::Malformed, beyond_its_end),
        (DropReason::Malformed, with(60, &[17, 200, 1, 4, 0, 0, 0, 0])[..IP + 42].to_vec()),
        (DropReason::Malformed, changed(IP, 0x50)),
        (DropReason::Malformed, changed(IP + 4, 0x7f)),
        (DropReason::Malformed, with(17, &[])[..IP + 30].to_vec()),
    ]);
}

#[test]
fn ordinary_extension_headers_pass() {
    let scene = scene();
    let victim = &scene.victims[0];
    let heard = victim.packets();
    let options = [17, 0, 1, 4, 0, 0, 0, 0];
    let frame = forge::udp6_with(&scene.attacker, victim.ipv6, 60, &options);
    scene.attacker.packets().send(&frame).unwrap();
    assert_eq!(forge::arrived_of(&heard, [0x86, 0xdd])[IP..], frame[IP..]);
}

#[test]
fn a_pod_without_ipv6_sends_none() {
    let fabric = Fabric::of(1);
    let pod = fabric.planned_pod(0, network(100), "10.0.0.1");
    let node = &fabric.nodes[0];
    let only_ipv4 = |plan: &mut atoll_plan::NodePlan| {
        let interface = plan.interfaces.get_mut(&pod.host_side).unwrap();
        interface.guard.ips.retain(IpAddr::is_ipv4);
    };
    only_ipv4(&mut node.plan.lock().unwrap());
    node.converge();
    let dropped = || node.dropped(Some(pod.network), DropReason::Ipv6NotServed);
    let before = dropped();
    let frame = forge::udp6_from(pod.mac.octets(), pod.ipv6, ipv6("fd00::2"));
    pod.packets().send(&frame).unwrap();
    eventually("it was dropped", || (dropped() > before).then_some(()));
}
