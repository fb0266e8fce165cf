//! The decisions of `from_pod`: what a pod sends, to whom, and what the gateway answers.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Mutex;

use atoll_abi::Connection as Entry;
use atoll_datapath::ConnectionState;
use atoll_datapath::DropReason::{
    self, IcmpRedirect, Malformed, Multicast, NoConnection, NoEndpoint, NotIp, OverlappingFragment,
    Protocol, SourceRouted, SpoofedAddress, SpoofedArp, SpoofedMac, SpoofedNd, TinyFragment,
    TooBig, UnknownInterface, UnrelatedIcmp, UnwantedArp, UnwantedNd, VlanTagged,
};

use super::{ANOTHER_NODE, Packet, Row, Shared, Table, Verdict, ifindex, of, with};
use crate::decisions::change_entries;
use crate::fabric::{Fabric, Node, Pod, network};
use crate::forge::{self, IP, datagram, fragment, packet, tcp};
use crate::talk::Voice;

struct Scene {
    fabric: Fabric,
    sender: Pod,
    near: Pod,
    far: Pod,
    table: Table,
}

static SCENE: Shared<Scene> = Shared::new(|| Mutex::new(scene()));

fn scene() -> Scene {
    let fabric = Fabric::of(1);
    let pod = |ip| fabric.pod(0, network(100), ip);
    let (sender, near) = (pod("10.0.0.1"), pod("10.0.0.2"));
    let far = fabric.pod_there(ANOTHER_NODE, network(100), "10.0.0.3");
    [&sender, &near].iter().for_each(|pod| pod.silence());
    let table = Table::on(&fabric.nodes[0], "from_pod", &sender.host_side.to_string());
    Scene { fabric, sender, near, far, table }
}

impl Scene {
    fn voices(&self) -> [[Voice<'_>; 3]; 2] {
        let pods = [&self.sender, &self.near, &self.far];
        [pods.map(Pod::v4), pods.map(Pod::v6)]
    }

    fn node(&self) -> &Node {
        &self.fabric.nodes[0]
    }

    fn hold<P: Into<Packet>>(&self, rows: Vec<Row<P>>) {
        self.table.hold(self.node(), rows);
    }
}

pub(super) const WHO: &[DropReason] =
    &[Malformed, Multicast, NoEndpoint, SpoofedAddress, SpoofedMac, UnknownInterface, VlanTagged];

#[test]
fn who_sends_and_who_receives() {
    let scene = of(&SCENE);
    for [sender, near, far] in scene.voices() {
        let v4 = sender.ip.is_ipv4();
        let udp = |to: IpAddr| packet(sender, to, 17, &datagram((1, 2), b"x"));
        let ip = |v4: &str, v6: &str| if sender.ip.is_ipv4() { v4 } else { v6 }.parse().unwrap();
        let source = IP + if v4 { 12 } else { 8 };
        let drop = Verdict::Drop;
        scene.hold(vec![
            ("to a pod of this node", udp(near.ip), Verdict::To(near.pod.mac.octets())),
            ("to a pod of another node", udp(far.ip), Verdict::To(far.pod.mac.octets())),
            ("to nobody", udp(ip("10.0.0.77", "fd00::77")), drop(NoEndpoint)),
            ("to the gateway", udp(ip("169.254.1.1", "fe80::1")), drop(NoEndpoint)),
            ("to a group", udp(ip("224.0.0.1", "ff02::1")), drop(Multicast)),
            ("to a group's MAC", with(udp(near.ip), 0, &[1]), drop(Multicast)),
            ("from another MAC", with(udp(near.ip), 11, &[0xee]), drop(SpoofedMac)),
            ("from another address", with(udp(near.ip), source + 3, &[9]), drop(SpoofedAddress)),
            ("of another version", with(udp(near.ip), IP, &[0x55]), drop(Malformed)),
        ]);
        let uplink = ifindex(scene.node(), "uplink");
        let plain = || Packet::from(udp(near.ip));
        scene.hold(vec![
            ("by a link of nobody", plain().by_link(uplink), drop(UnknownInterface)),
            ("with a tag", plain().tagged(7), drop(VlanTagged)),
            ("without either", plain(), Verdict::To(near.pod.mac.octets())),
        ]);
    }
    scene.table.reasons_are(WHO);
}

pub(super) const MIDDLE: &[DropReason] = &[Malformed, Multicast, SpoofedAddress, SpoofedMac];

#[test]
fn a_packet_in_the_middle_of_a_connection_is_looked_at_like_its_first() {
    let scene = of(&SCENE);
    for [sender, near, far] in scene.voices() {
        let (source, length) = if sender.ip.is_ipv4() { (12, 2) } else { (8, 4) };
        let udp = |to: Voice| packet(sender, to.ip, 17, &datagram((1, 2), &[7; 40]));
        let arrives = |to: Voice| Verdict::To(to.pod.mac.octets());
        let drop = Verdict::Drop;
        scene.hold([near, far].map(|to| ("a first one", udp(to), arrives(to))).into());
        change_entries(&scene.fabric.nodes[0], |entry| {
            Some(Entry { state: ConnectionState::Established as u8, ..entry })
        });
        let rows = |to: Voice| {
            [
                ("one like it", udp(to), arrives(to)),
                ("to a group's MAC", with(udp(to), 0, &[1]), drop(Multicast)),
                ("from another MAC", with(udp(to), 11, &[0xee]), drop(SpoofedMac)),
                (
                    "from another address",
                    with(udp(to), IP + source + 3, &[9]),
                    drop(SpoofedAddress),
                ),
                ("of another version", with(udp(to), IP, &[0x55]), drop(Malformed)),
                ("shorter than it says", with(udp(to), IP + length, &[0xff; 2]), drop(Malformed)),
                ("without its ports", with(udp(to), IP + length, &[0, 4]), drop(Malformed)),
                ("another like it", udp(to), arrives(to)),
            ]
        };
        scene.hold([near, far].into_iter().flat_map(rows).collect());
    }
    scene.table.reasons_are(MIDDLE);
}

pub(super) const CARRIED: &[DropReason] =
    &[IcmpRedirect, Malformed, NoConnection, Protocol, SourceRouted, UnrelatedIcmp, UnwantedNd];

#[test]
fn what_it_carries() {
    let scene = of(&SCENE);
    for [sender, near, _] in scene.voices() {
        let carry = |protocol, content: &[u8]| packet(sender, near.ip, protocol, content);
        let arrives = Verdict::To(near.pod.mac.octets());
        let drop = Verdict::Drop;
        let (icmp, ping) = if sender.ip.is_ipv4() { (1, 8) } else { (58, 128) };
        let echo = |kind| carry(icmp, &[kind, 0, 0, 0, 0, 7, 0, 1]);
        let mut rows = vec![
            ("a first word of TCP", carry(6, &tcp((1, 2), 0x02)), arrives),
            ("a later word of TCP", carry(6, &tcp((3, 4), 0x10)), arrives),
            ("TCP that breaks off nothing", carry(6, &tcp((5, 6), 0x04)), arrives),
            ("TCP without a flag", carry(6, &tcp((7, 8), 0)), drop(NoConnection)),
            ("TCP that opens and ends", carry(6, &tcp((9, 10), 0x03)), drop(NoConnection)),
            ("TCP cut off", carry(6, &tcp((1, 2), 2)[..12]), drop(Malformed)),
            ("UDP", carry(17, &datagram((1, 2), b"")), arrives),
            ("UDP cut off", carry(17, &[0, 1, 0, 2]), drop(Malformed)),
            ("SCTP", carry(132, &[0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 4]), arrives),
            ("a ping", echo(ping), arrives),
            ("an error about nothing", echo(3), drop(UnrelatedIcmp)),
            ("IPv4 inside", carry(4, &[0x45; 40]), drop(Protocol)),
            ("IPv6 inside", carry(41, &[0x60; 60]), drop(Protocol)),
            ("GRE", carry(47, &[0; 40]), drop(Protocol)),
            ("ESP", carry(50, &[0; 40]), drop(Protocol)),
        ];
        if sender.ip.is_ipv6() {
            rows.push(("a router's message", echo(134), drop(UnwantedNd)));
            rows.push(("a redirect", echo(137), drop(UnwantedNd)));
            let route = forge::udp6_with(sender.pod, near.pod.ipv6, 43, &[17, 0, 0, 0, 0, 0, 0, 0]);
            rows.push(("a routing header", route, drop(SourceRouted)));
        } else {
            rows.push(("a redirect", echo(5), drop(IcmpRedirect)));
            let options = [131, 7, 4, 10, 0, 0, 4, 0];
            let route = forge::udp_with_options(sender.pod, near.pod.ip, &options);
            rows.push(("a source route", route, drop(SourceRouted)));
        }
        scene.hold(rows);
    }
    scene.table.reasons_are(CARRIED);
}

pub(super) const PARTS: &[DropReason] = &[OverlappingFragment, TinyFragment];

#[test]
fn what_comes_in_parts() {
    let scene = of(&SCENE);
    for [sender, near, _] in scene.voices() {
        let part = |id, at, content: &[u8]| fragment((sender, near), 17, id, at, content);
        let first = datagram((1, 2), &[7; 24]);
        let arrives = Verdict::To(near.pod.mac.octets());
        scene.hold(vec![
            ("a first part", part(1, (0, true), &first), arrives),
            ("the part behind it", part(1, (32, false), &[7; 8]), arrives),
            (
                "one that reaches into it",
                part(1, (24, false), &[7; 8]),
                Verdict::Drop(OverlappingFragment),
            ),
            ("one whose first nobody saw", part(2, (32, false), &[7; 8]), arrives),
            (
                "a first part without its ports",
                part(3, (0, true), &[0, 1]),
                Verdict::Drop(TinyFragment),
            ),
        ]);
    }
    scene.table.reasons_are(PARTS);
}

pub(super) const GATEWAYS: &[DropReason] =
    &[NotIp, SpoofedArp, SpoofedNd, TooBig, UnwantedArp, UnwantedNd];

#[test]
fn what_the_gateway_answers() {
    let scene = of(&SCENE);
    let sender = &scene.sender;
    let own = (sender.mac.octets(), sender.ip);
    let asked = Ipv4Addr::new(10, 0, 0, 2);
    let lie = forge::arp(sender, 1, (own.0, asked), asked);
    let ping = |voice: Voice, to: &str, kind| {
        let icmp = forge::icmp_of(voice.ip);
        packet(voice, to.parse().unwrap(), icmp, &[kind, 0, 0, 0, 0, 7, 0, 1])
    };
    let question = forge::nd(135, scene.near.ipv6, own.0);
    let solicitation = forge::icmp6(sender, (sender.ipv6, scene.near.ipv6), &question);
    let lie_of_nd = forge::icmp6(sender, (scene.near.ipv6, scene.near.ipv6), &question);
    let claim = forge::nd(136, scene.near.ipv6, own.0);
    let advertisement = forge::icmp6(sender, (sender.ipv6, scene.near.ipv6), &claim);
    let big = packet(sender.v4(), scene.far.ip.into(), 17, &datagram((1, 2), &[0; 1500]));
    let answer = Verdict::Answer(None);
    scene.hold(vec![
        ("who has", forge::arp(sender, 1, own, asked), answer),
        ("who has, in another's name", lie, Verdict::Drop(SpoofedArp)),
        ("is at", forge::arp(sender, 2, own, asked), Verdict::Drop(UnwantedArp)),
        ("a solicitation", solicitation, answer),
        ("a solicitation in another's name", lie_of_nd, Verdict::Drop(SpoofedNd)),
        ("an advertisement", advertisement, Verdict::Drop(UnwantedNd)),
        ("a ping", ping(sender.v4(), "169.254.1.1", 8), answer),
        ("a ping of IPv6", ping(sender.v6(), "fe80::1", 128), answer),
        ("more than the tunnel carries", big, Verdict::Answer(Some(TooBig))),
        ("LLDP", forge::other(sender, 0x88cc, &[0; 50]), Verdict::Drop(NotIp)),
    ]);
    scene.table.reasons_are(GATEWAYS);
}
