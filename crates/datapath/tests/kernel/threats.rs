//! What an attacker in a pod tries, row by row, with raw frames: nothing of it reaches anybody, and
//! each is counted under its name. Beside each stands what an honest pod does, which arrives.

use std::net::IpAddr;

use atoll_datapath::DropReason::{
    self, Malformed, Multicast, NoConnection, NoEndpoint, OverlappingFragment, Protocol,
    SourceRouted, SpoofedAddress, SpoofedArp, SpoofedMac, SpoofedNd, TinyFragment, UnrelatedIcmp,
    UnwantedArp, UnwantedNd,
};
use atoll_testkit::eventually;
use atoll_types::GATEWAY_V6;

use crate::fabric::{Fabric, OVERLAY_PORT, Pod, network};
use crate::forge::{self, IP, datagram, packet, tcp};
use crate::fragments::fragment;
use crate::isolation::switch_offloads_off;
use crate::talk::Voice;

/// A row of the list of threats: its number, what must be dropped and why, and what must arrive.
struct Row {
    number: u8,
    forged: Vec<(DropReason, Vec<u8>)>,
    honest: Vec<Vec<u8>>,
}

struct Scene {
    fabric: Fabric,
    attacker: Pod,
    near: Pod,
    far: Pod,
    foreign: Pod,
}

fn scene() -> Scene {
    let fabric = Fabric::of(2);
    let pod = |at, number, ip| fabric.pod(at, network(number), ip);
    let (attacker, near) = (pod(0, 100, "10.0.0.1"), pod(0, 100, "10.0.0.2"));
    let (far, foreign) = (pod(1, 100, "10.0.0.3"), pod(0, 200, "10.0.0.4"));
    Scene { fabric, attacker, near, far, foreign }
}

/// The address of a pod in the family of a voice.
fn address_like(pod: &Pod, voice: Voice) -> IpAddr {
    if voice.ip.is_ipv4() { pod.ip.into() } else { pod.ipv6.into() }
}

/// The same packet with another source address.
fn from(source: &str, mut frame: Vec<u8>) -> Vec<u8> {
    match source.parse().unwrap() {
        IpAddr::V4(ip) => frame[IP + 12..IP + 16].copy_from_slice(&ip.octets()),
        IpAddr::V6(ip) => frame[IP + 8..IP + 24].copy_from_slice(&ip.octets()),
    }
    frame
}

fn mac_of(mac: [u8; 6], mut frame: Vec<u8>) -> Vec<u8> {
    frame[6..12].copy_from_slice(&mac);
    frame
}

impl Scene {
    fn rows(&self, own: Voice, victim: Voice) -> Vec<Row> {
        let all = [
            self.sources(own, victim),
            self.links(own, victim),
            self.routers(victim),
            self.tunnels(own, victim),
            self.parts(own, victim),
            self.routes(own, victim),
            self.strays(own, victim),
            self.floods(own),
            self.messages(own, victim),
        ];
        all.into()
    }

    fn udp(own: Voice, to: IpAddr) -> Vec<u8> {
        packet(own, to, 17, &datagram((1, 2), b"honest"))
    }

    fn sources(&self, own: Voice, victim: Voice) -> Row {
        let v4 = ["10.0.0.2", "10.0.0.4", "169.254.1.1", "192.168.77.1", "10.96.0.1"];
        let v6 = ["fd00::2", "fd00::4", "fe80::1", "::1", "::"];
        let honest = Self::udp(own, victim.ip);
        let sources = if own.ip.is_ipv4() { v4 } else { v6 };
        let mut forged: Vec<_> =
            sources.iter().map(|it| (SpoofedAddress, from(it, honest.clone()))).collect();
        let inner = from(sources[1], honest.clone());
        for (protocol, header) in [(4, &[][..]), (41, &[]), (47, &[0, 0, 8, 0])] {
            let content = [header, &inner[IP..]].concat();
            forged.push((Protocol, packet(own, victim.ip, protocol, &content)));
        }
        Row { number: 1, forged, honest: vec![honest] }
    }

    fn links(&self, own: Voice, victim: Voice) -> Row {
        let (pod, mac) = (&self.attacker, self.attacker.mac.octets());
        let honest = Self::udp(own, victim.ip);
        let all = "ff02::1".parse().unwrap();
        let solicitation = forge::nd(135, GATEWAY_V6, mac);
        let claim = forge::nd(136, self.near.ipv6, mac);
        let everybody = "255.255.255.255".parse().unwrap();
        let offer = packet(pod.v4(), everybody, 17, &datagram((67, 68), b""));
        let forged = vec![
            (SpoofedMac, mac_of(self.near.mac.octets(), honest.clone())),
            (SpoofedArp, forge::arp(pod, 1, (mac, self.near.ip), self.near.ip)),
            (SpoofedArp, forge::arp(pod, 2, (mac, self.near.ip), pod.ip)),
            (UnwantedArp, forge::arp(pod, 2, (mac, pod.ip), self.near.ip)),
            (SpoofedNd, forge::icmp6(pod, (self.near.ipv6, all), &solicitation)),
            (UnwantedNd, forge::icmp6(pod, (pod.ipv6, all), &claim)),
            (Multicast, offer),
        ];
        Row { number: 2, forged, honest: vec![honest] }
    }

    fn routers(&self, victim: Voice) -> Row {
        let pod = &self.attacker;
        let advertisement = [&[134, 0, 0, 0, 64, 0, 0xff, 0xff][..], &[0; 8]].concat();
        let to = |ip: &str| (pod.ipv6, ip.parse().unwrap());
        let forged = vec![
            (UnwantedNd, forge::icmp6(pod, to("ff02::1"), &advertisement)),
            (UnwantedNd, forge::icmp6(pod, to("fd00::2"), &advertisement)),
            (UnwantedNd, forge::icmp6(pod, (GATEWAY_V6, self.near.ipv6), &advertisement)),
        ];
        let honest = packet(pod.v6(), victim.pod.ipv6.into(), 58, &[128, 0, 0, 0, 0, 1, 0, 1]);
        Row { number: 3, forged, honest: vec![honest] }
    }

    fn tunnels(&self, own: Voice, victim: Voice) -> Row {
        let inner = Self::udp(own, address_like(&self.foreign, own));
        let tunnelled = datagram((OVERLAY_PORT, OVERLAY_PORT), &forge::vxlan(200, &inner));
        let to_node = |ip: &str| packet(self.attacker.v4(), ip.parse().unwrap(), 17, &tunnelled);
        let forged = vec![
            (NoEndpoint, to_node("192.168.77.1")),
            (NoEndpoint, to_node("192.168.77.2")),
            (NoEndpoint, to_node("127.0.0.1")),
        ];
        Row { number: 4, forged, honest: vec![packet(own, victim.ip, 17, &tunnelled)] }
    }

    fn parts(&self, own: Voice, victim: Voice) -> Row {
        let ends = (own, victim);
        let whole = datagram((1, 2), &[1; 56]);
        let forged = vec![
            (TinyFragment, fragment(ends, 6, 1, (0, true), &tcp((1, 2), 2)[..8])),
            (TinyFragment, fragment(ends, 6, 1, (8, false), &[0; 16])),
            (OverlappingFragment, fragment(ends, 17, 2, (8, true), &[2; 64])),
            (Malformed, fragment(ends, 17, 3, (0xfff8, false), &[2; 64])),
        ];
        let honest = vec![
            fragment(ends, 17, 2, (0, true), &whole),
            fragment(ends, 17, 2, (64, false), &[1; 16]),
            fragment(ends, 17, 4, (64, false), &[1; 16]),
        ];
        Row { number: 6, forged, honest }
    }

    fn routes(&self, own: Voice, victim: Voice) -> Row {
        let honest = Self::udp(own, victim.ip);
        let forged = if own.ip.is_ipv4() {
            let with = |it: &[u8]| forge::udp_with_options(own.pod, victim.pod.ip, it);
            vec![
                (SourceRouted, with(&[131, 7, 4, 10, 0, 0, 4, 0])),
                (SourceRouted, with(&[137, 7, 4, 10, 0, 0, 4, 0])),
            ]
        } else {
            let routing = [17, 2, 0, 1, 0, 0, 0, 0];
            let endless = [60, 0, 1, 4, 0, 0, 0, 0].repeat(9);
            vec![
                (SourceRouted, forge::udp6_with(own.pod, victim.pod.ipv6, 43, &routing)),
                (Malformed, forge::udp6_with(own.pod, victim.pod.ipv6, 60, &endless)),
            ]
        };
        Row { number: 7, forged, honest: vec![honest] }
    }

    fn strays(&self, own: Voice, victim: Voice) -> Row {
        let send = |ports, flags| packet(own, victim.ip, 6, &tcp(ports, flags));
        let forged = [0, 0x03, 0x06, 0x07].map(|flags| (NoConnection, send((11, 12), flags)));
        Row { number: 9, forged: forged.into(), honest: vec![send((13, 14), 0x02)] }
    }

    fn floods(&self, own: Voice) -> Row {
        let groups = if own.ip.is_ipv4() {
            ["224.0.0.251", "239.1.2.3", "255.255.255.255"]
        } else {
            ["ff02::1", "ff02::fb", "ff05::2"]
        };
        let to = |ip: &str| (Multicast, Self::udp(own, ip.parse().unwrap()));
        let forged = groups.iter().cycle().take(30).map(|ip| to(ip)).collect();
        Row { number: 19, forged, honest: vec![] }
    }

    fn messages(&self, own: Voice, victim: Voice) -> Row {
        let quote = packet(victim, own.ip, 17, &datagram((2, 99), b"never sent"));
        let send = |kind, code| {
            let content = forge::icmp_error(kind, code, &quote);
            packet(own, victim.ip, forge::icmp_of(own.ip), &content)
        };
        let forged = if own.ip.is_ipv4() {
            vec![(UnrelatedIcmp, send(3, 4)), (DropReason::IcmpRedirect, send(5, 1))]
        } else {
            vec![(UnrelatedIcmp, send(2, 0)), (UnwantedNd, send(137, 0))]
        };
        Row { number: 21, forged, honest: vec![] }
    }

    /// The honest ones arrive first, so that what follows meets all the state there can be.
    fn holds(&self, row: &Row, victim: Voice) {
        let socket = self.attacker.packets();
        for frame in &row.honest {
            let heard = victim.pod.packets();
            socket.send(frame).unwrap();
            let arrived = forge::arrived_of(&heard, [frame[12], frame[13]]);
            assert_eq!(arrived[IP..], frame[IP..], "row {}", row.number);
        }
        let victims = [&self.near, &self.far, &self.foreign];
        let heard = victims.map(Pod::packets);
        let own = Some(self.attacker.network);
        for (place, (reason, frame)) in row.forged.iter().enumerate() {
            let dropped = || self.fabric.nodes[0].dropped(own, *reason);
            let before = dropped();
            socket.send(frame).unwrap();
            eventually(&format!("row {}, frame {place} was {reason}", row.number), || {
                (dropped() > before).then_some(())
            });
        }
        for heard in heard {
            assert_eq!(heard.received().unwrap(), Vec::<Vec<u8>>::new(), "row {}", row.number);
        }
    }

    fn all_hold(&self) {
        for other in [&self.near, &self.far] {
            for (own, victim) in
                [(self.attacker.v4(), other.v4()), (self.attacker.v6(), other.v6())]
            {
                self.rows(own, victim).iter().for_each(|row| self.holds(row, victim));
            }
        }
    }
}

#[test]
fn every_row_of_the_threats_holds() {
    scene().all_hold();
}

#[test]
fn every_row_of_the_threats_holds_with_offloads_off() {
    let scene = scene();
    for pod in [&scene.attacker, &scene.near, &scene.far, &scene.foreign] {
        switch_offloads_off(&pod.namespace, "eth0");
    }
    for node in &scene.fabric.nodes {
        ["uplink", "atoll-vx"].iter().for_each(|link| switch_offloads_off(&node.namespace, link));
    }
    scene.all_hold();
}
