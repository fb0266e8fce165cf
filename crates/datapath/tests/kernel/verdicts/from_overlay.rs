//! The decisions of `from_overlay`: which node is believed, for whom, and what it may bring.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Mutex;

use atoll_datapath::DropReason::{
    self, IcmpRedirect, Malformed, NoConnection, NoEndpoint, NotIp, OverlappingFragment,
    OverlaySpoof, OverlayStranger, Protocol, SourceRouted, TinyFragment, UnrelatedIcmp, UnwantedNd,
    VlanTagged,
};

use super::{ANOTHER_NODE, Packet, Row, Shared, Table, Tunnel, Verdict, of, with};
use crate::fabric::{Fabric, Node, Pod, network};
use crate::forge::{self, IP, datagram, fragment, icmp_error, icmp_of, packet, tcp};
use crate::talk::Voice;

const OWN: u32 = 100;
const FOREIGN: u32 = 200;
const STRANGER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 168, 77, 99));
const NODES_V6: [Ipv6Addr; 2] =
    [Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1), Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 2)];

/// A pod of each of two networks on a node, which hears another, where a friend of one of them is.
struct Scene {
    fabric: Fabric,
    other: IpAddr,
    victim: Pod,
    _foreign: Pod,
    sender: Pod,
    table: Table,
}

static SCENE: Shared<Scene> = Shared::new(|| Mutex::new(Scene::on(Fabric::of(1), ANOTHER_NODE)));

impl Scene {
    fn on(fabric: Fabric, other: IpAddr) -> Self {
        let victim = fabric.pod(0, network(OWN), "10.0.0.1");
        let foreign = fabric.pod(0, network(FOREIGN), "10.0.0.1");
        let sender = fabric.pod_there(other, network(OWN), "10.0.0.2");
        [&victim, &foreign].iter().for_each(|pod| pod.silence());
        let table = Table::on(&fabric.nodes[0], "from_overlay", "atoll-vx");
        Scene { fabric, other, victim, _foreign: foreign, sender, table }
    }

    fn node(&self) -> &Node {
        &self.fabric.nodes[0]
    }

    /// As the other node sends it.
    fn tunnel(&self) -> Tunnel {
        Tunnel { from: self.other, to: self.node().tunnel, network: OWN }
    }

    fn sent(&self, frame: Vec<u8>) -> Packet {
        Packet::from(frame).by(self.tunnel())
    }

    /// Sender and receiver in both families.
    fn voices(&self) -> [[Voice<'_>; 2]; 2] {
        [[self.sender.v4(), self.victim.v4()], [self.sender.v6(), self.victim.v6()]]
    }

    /// Frames of the other node.
    fn hold(&self, rows: Vec<Row<Vec<u8>>>) {
        let rows = rows.into_iter().map(|(name, frame, to)| (name, self.sent(frame), to));
        self.table.hold(self.node(), rows.collect());
    }
}

fn udp(from: Voice, to: IpAddr) -> Vec<u8> {
    packet(from, to, 17, &datagram((1, 2), b"x"))
}

fn arrives(at: &Pod) -> Verdict {
    Verdict::To(at.mac.octets())
}

pub(super) const BELIEVED: &[DropReason] = &[Malformed, OverlaySpoof, OverlayStranger];

#[test]
fn which_node_is_believed_and_for_whom() {
    let scene = of(&SCENE);
    let known = scene.tunnel();
    for [sender, victim] in scene.voices() {
        let (frame, drop) = (|| udp(sender, victim.ip), Verdict::Drop);
        let by = |tunnel| Packet::from(frame()).by(tunnel);
        let from = |ip: IpAddr| scene.sent(udp(Voice { pod: sender.pod, ip }, victim.ip));
        let nobody = if victim.ip.is_ipv4() { "10.0.0.77" } else { "fd00::77" }.parse().unwrap();
        let broken = Packet::from(with(frame(), IP, &[0x55]));
        let other_family = Tunnel { from: NODES_V6[1].into(), to: NODES_V6[0].into(), ..known };
        scene.table.hold(
            scene.node(),
            vec![
                ("of a known node for its own pod", by(known), arrives(&scene.victim)),
                ("of a stranger", by(Tunnel { from: STRANGER, ..known }), drop(OverlayStranger)),
                ("to another address", by(Tunnel { to: STRANGER, ..known }), drop(OverlayStranger)),
                ("by the other family", by(other_family), drop(OverlayStranger)),
                ("by no tunnel", frame().into(), drop(OverlayStranger)),
                (
                    "of this very node",
                    by(Tunnel { from: known.to, ..known }),
                    drop(OverlayStranger),
                ),
                ("as a pod of this node", from(victim.ip), drop(OverlaySpoof)),
                ("as nobody", from(nobody), drop(OverlaySpoof)),
                (
                    "in another network",
                    by(Tunnel { network: FOREIGN, ..known }),
                    drop(OverlaySpoof),
                ),
                (
                    "in an unknown network",
                    by(Tunnel { network: 4711, ..known }),
                    drop(OverlaySpoof),
                ),
                ("in no network", by(Tunnel { network: 0, ..known }), drop(OverlaySpoof)),
                ("broken, of a known node", broken.clone().by(known), drop(Malformed)),
                (
                    "broken, of a stranger, who has nothing counted in a network",
                    broken.by(Tunnel { from: STRANGER, ..known }),
                    drop(OverlayStranger),
                ),
            ],
        );
    }
    scene.table.reasons_are(BELIEVED);
}

pub(super) const RECEIVERS: &[DropReason] = &[NoEndpoint];

#[test]
fn who_receives() {
    let scene = of(&SCENE);
    let gone = scene.fabric.pod(0, network(OWN), "10.0.0.9");
    gone.silence();
    let own = [gone.v4(), gone.v6()];
    for ([sender, victim], gone) in scene.voices().into_iter().zip(own) {
        let nobody = if victim.ip.is_ipv4() { "10.0.0.77" } else { "fd00::77" }.parse().unwrap();
        let group = if victim.ip.is_ipv4() { "224.0.0.1" } else { "ff02::1" }.parse().unwrap();
        scene.hold(vec![
            ("a pod of this node", udp(sender, victim.ip), arrives(&scene.victim)),
            ("another, as yet", udp(sender, gone.ip), arrives(gone.pod)),
            ("nobody", udp(sender, nobody), Verdict::Drop(NoEndpoint)),
            ("a pod of the sender's node", udp(sender, sender.ip), Verdict::Drop(NoEndpoint)),
            ("a group", udp(sender, group), Verdict::Drop(NoEndpoint)),
        ]);
    }
    scene.fabric.remove(&gone);
    for ([sender, victim], gone) in scene.voices().into_iter().zip(own) {
        scene.hold(vec![
            ("one that is gone", udp(sender, gone.ip), Verdict::Drop(NoEndpoint)),
            ("one that is still there", udp(sender, victim.ip), arrives(&scene.victim)),
        ]);
    }
    scene.table.reasons_are(RECEIVERS);
}

pub(super) const CARRIED: &[DropReason] = &[
    IcmpRedirect,
    Malformed,
    NoConnection,
    NotIp,
    Protocol,
    SourceRouted,
    UnrelatedIcmp,
    UnwantedNd,
    VlanTagged,
];

#[test]
fn what_a_tunnel_carries() {
    let scene = of(&SCENE);
    for [sender, victim] in scene.voices() {
        let carry = |protocol, content: &[u8]| packet(sender, victim.ip, protocol, content);
        let (icmp, drop) = (icmp_of(sender.ip), Verdict::Drop);
        let ping = if icmp == 1 { 8 } else { 128 };
        let echo = |kind| carry(icmp, &[kind, 0, 0, 0, 0, 7, 0, 1]);
        let length = if icmp == 1 { 2 } else { 4 };
        let (good, at) = (|| udp(sender, victim.ip), arrives(&scene.victim));
        let large = carry(17, &datagram((1, 2), &[7; 1600]));
        scene.hold(vec![
            ("UDP", good(), at),
            ("a first word of TCP", carry(6, &tcp((1, 2), 0x02)), at),
            ("a later word of TCP", carry(6, &tcp((3, 4), 0x10)), at),
            ("SCTP", carry(132, &[0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 4]), at),
            ("a ping", echo(ping), at),
            ("more than a tunnel carries, which its sender's node asks", large, at),
            ("TCP without a flag", carry(6, &tcp((7, 8), 0)), drop(NoConnection)),
            ("an error about nothing", echo(3), drop(UnrelatedIcmp)),
            ("longer than it is", with(good(), IP + length, &[0xff; 2]), drop(Malformed)),
            ("shorter than its header", with(good(), IP + length, &[0, 4]), drop(Malformed)),
            ("of another version", with(good(), IP, &[0x55]), drop(Malformed)),
            ("UDP cut off", carry(17, &[0, 1, 0, 2]), drop(Malformed)),
            ("another packet", carry(4, &[0x45; 40]), drop(Protocol)),
            ("GRE", carry(47, &[0; 40]), drop(Protocol)),
            ("LLDP", forge::other(sender.pod, 0x88cc, &[0; 50]), drop(NotIp)),
            ("a tag that the card left", forge::tagged(&good(), 7), drop(NotIp)),
        ]);
        let tagged = scene.sent(good()).tagged(7);
        scene.table.hold(scene.node(), vec![("a tag that it took off", tagged, drop(VlanTagged))]);
    }
    scene.hold(neighbours(&scene));
    scene.table.reasons_are(CARRIED);
}

/// ARP and neighbour discovery, which have no place in a tunnel, and ways that a packet chooses.
fn neighbours(scene: &Scene) -> Vec<Row<Vec<u8>>> {
    let (sender, victim, drop) = (&scene.sender, &scene.victim, Verdict::Drop);
    let mac = sender.mac.octets();
    let message = |message: &[u8]| forge::icmp6(sender, (sender.ipv6, victim.ipv6), message);
    let arp = |operation| forge::arp(sender, operation, (mac, sender.ip), victim.ip);
    let options = [131, 7, 4, 10, 0, 0, 4, 0];
    let routing = [17, 0, 0, 0, 0, 0, 0, 0];
    let mapped = [&[0; 10][..], &[0xff, 0xff], &sender.ip.octets()].concat();
    let posing = with(forge::udp6_from(mac, sender.ipv6, victim.ipv6), IP + 8, &mapped);
    let ping = packet(sender.v4(), victim.ip.into(), 1, &[5, 0, 0, 0, 0, 7, 0, 1]);
    vec![
        ("who has", arp(1), drop(NotIp)),
        ("is at", arp(2), drop(NotIp)),
        ("a solicitation", message(&forge::nd(135, victim.ipv6, mac)), drop(UnwantedNd)),
        ("an advertisement", message(&forge::nd(136, victim.ipv6, mac)), drop(UnwantedNd)),
        ("a router's advertisement", message(&[134, 0, 0, 0, 64, 0, 7, 8]), drop(UnwantedNd)),
        ("a redirect of IPv6", message(&forge::nd(137, victim.ipv6, mac)), drop(UnwantedNd)),
        ("a redirect", ping, drop(IcmpRedirect)),
        (
            "a source route",
            forge::udp_with_options(sender, victim.ip, &options),
            drop(SourceRouted),
        ),
        (
            "a routing header",
            forge::udp6_with(sender, victim.ipv6, 43, &routing),
            drop(SourceRouted),
        ),
        ("IPv6 that poses as IPv4", posing, drop(Malformed)),
    ]
}

pub(super) const PARTS: &[DropReason] = &[OverlappingFragment, TinyFragment, UnrelatedIcmp];

#[test]
fn what_comes_in_parts_and_what_speaks_of_others() {
    let scene = of(&SCENE);
    for [sender, victim] in scene.voices() {
        let part = |id, at, content: &[u8]| fragment((sender, victim), 17, id, at, content);
        let (at, drop) = (arrives(&scene.victim), Verdict::Drop);
        let told = packet(victim, sender.ip, 17, &datagram((5, 6), b"x"));
        let (kind, code) = if sender.ip.is_ipv4() { (3, 3) } else { (1, 4) };
        let error = |about: &[u8]| {
            packet(sender, victim.ip, icmp_of(sender.ip), &icmp_error(kind, code, about))
        };
        let other = packet(victim, sender.ip, 17, &datagram((7, 8), b"x"));
        scene.hold(vec![
            ("a first part", part(1, (0, true), &datagram((1, 2), &[7; 24])), at),
            ("the part behind it", part(1, (32, false), &[7; 8]), at),
            ("one that reaches into it", part(1, (24, false), &[7; 8]), drop(OverlappingFragment)),
            ("one whose first nobody saw", part(2, (32, false), &[7; 8]), at),
            ("a first part without its ports", part(3, (0, true), &[0, 1]), drop(TinyFragment)),
            ("a packet to be told of", packet(sender, victim.ip, 17, &datagram((6, 5), b"x")), at),
            ("an error about its answer", error(&told), at),
            ("an error about another's", error(&other), drop(UnrelatedIcmp)),
        ]);
    }
    scene.table.reasons_are(PARTS);
}

pub(super) const BY_IPV6: &[DropReason] = &[OverlayStranger];

#[test]
fn nodes_that_meet_over_ipv6_are_told_from_strangers_in_the_same_way() {
    let scene = Scene::on(Fabric::over_ipv6(1), NODES_V6[1].into());
    let known = scene.tunnel();
    let stranger = IpAddr::from([0xfd77, 0, 0, 0, 0, 0, 0, 0x99]);
    let [v4, to] = [2, 1].map(|last| IpAddr::from([192, 168, 77, last]));
    for [sender, victim] in scene.voices() {
        let by = |tunnel| Packet::from(udp(sender, victim.ip)).by(tunnel);
        let drop = Verdict::Drop(OverlayStranger);
        scene.table.hold(
            scene.node(),
            vec![
                ("of a known node", by(known), arrives(&scene.victim)),
                ("of a stranger", by(Tunnel { from: stranger, ..known }), drop),
                ("to another address", by(Tunnel { to: stranger, ..known }), drop),
                ("by the other family", by(Tunnel { from: v4, to, ..known }), drop),
            ],
        );
    }
    scene.table.reasons_are(BY_IPV6);
}
