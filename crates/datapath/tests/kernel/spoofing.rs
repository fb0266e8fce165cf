//! What an attacker in a pod may forge: zero packets at the victim, and a drop under its name.

use atoll_datapath::DropReason;
use atoll_testkit::{Direction, eventually};

use crate::fabric::{Fabric, Node, Pod, network};
use crate::forge::{self, GATEWAY, IP};
use crate::talk::LIMIT;

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
        let answer = eventually("the question was answered", || {
            let (direction, frame) = socket.receive(LIMIT).unwrap()?;
            (direction == Direction::In && frame[12..14] == [8, 6]).then_some(frame)
        });
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
        (DropReason::Ipv6NotServed, other(0x86dd, &[0x60; 60])),
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
