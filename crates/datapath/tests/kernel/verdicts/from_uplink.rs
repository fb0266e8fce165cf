//! The decisions of `from_uplink`: what of the outside is for a pod, what is refused, and what is the
//! node's, which passes as it came.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Mutex;

use atoll_abi::CONNECTION_OUTSIDE;
use atoll_datapath::DropReason::{self, NoBackend, NotServed, SourceRefused};
use atoll_plan::{Backend, Closed, Egress, NodePlan, Service, ServiceKey, Side};
use atoll_types::{MacAddr, Protocol};

use super::{Packet, Row, Shared, Table, Verdict, of, with};
use crate::decisions::entries;
use crate::fabric::{Fabric, Node, OVERLAY_PORT, Pod, network};
use crate::forge::{
    self, Face, Origin, fragment, icmp_error, icmp_of, packet, summed_datagram, tcp,
};
use crate::outside::{FAR, World};
use crate::talk::Voice;

const OWN: u32 = 100;
const TARGET: u16 = 8080;
const NODE_PORT: u16 = 30_100;
/// Of somebody outside.
const ASKED: u16 = 5353;
/// Of the address that the node answers for: served, without a backend, and not for everybody.
const SERVED: u16 = 80;
const EMPTY: u16 = 81;
const CLOSED: u16 = 82;

struct Scene {
    _world: World,
    fabric: Fabric,
    pod: Pod,
    table: Table,
    uplink: [u8; 6],
}

fn held(like: IpAddr) -> IpAddr {
    if like.is_ipv4() { [192, 168, 77, 50].into() } else { [0xfd77, 0, 0, 0, 0, 0, 0, 0x50].into() }
}

fn node_address(like: IpAddr) -> IpAddr {
    if like.is_ipv4() { [192, 168, 77, 1].into() } else { [0xfd77, 0, 0, 0, 0, 0, 0, 1].into() }
}

/// Puts a service of the outside into a plan.
fn serve(plan: &mut NodePlan, ip: IpAddr, port: u16, pod: Option<&Pod>, sources: &[&str]) {
    let addrs = pod.into_iter().flat_map(Pod::addrs);
    let addrs = addrs.filter(|addr| addr.ip.is_ipv4() == ip.is_ipv4());
    let backends: BTreeSet<_> =
        addrs.map(|addr| Backend { addr, port: TARGET.try_into().unwrap() }).collect();
    let sources: BTreeSet<_> = sources.iter().map(|range| range.parse().unwrap()).collect();
    for protocol in Protocol::ALL {
        let port = port.try_into().unwrap();
        let key = ServiceKey { network: network(OWN), side: Side::Outside, ip, protocol, port };
        let service =
            Service { backends: backends.clone(), affinity: None, sources: sources.clone() };
        plan.services.insert(key, service);
    }
}

fn wanted(plan: &mut NodePlan, pod: &Pod) {
    for far in FAR {
        let (any, others): (IpAddr, _) = match far {
            IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED.into(), ["0.0.0.0/0", "198.51.100.0/24"]),
            IpAddr::V6(_) => (Ipv6Addr::UNSPECIFIED.into(), ["::/0", "2001:db8:1::/64"]),
        };
        serve(plan, any, NODE_PORT, Some(pod), &[]);
        serve(plan, any, NODE_PORT + 1, None, &[]);
        serve(plan, held(far), SERVED, Some(pod), &others[..1]);
        serve(plan, held(far), EMPTY, None, &others[..1]);
        serve(plan, held(far), CLOSED, Some(pod), &others[1..]);
        plan.held.insert(held(far), network(OWN));
    }
    let own = ["10.0.0.0/8", "fd00::/64"].map(|range| range.parse().unwrap());
    plan.closed.extend(own.map(|range| Closed { to: Some(network(OWN)), range }));
    plan.egress.insert(network(OWN), Egress::Node);
}

static SCENE: Shared<Scene> = Shared::new(|| Mutex::new(scene()));

fn scene() -> Scene {
    let (world, fabric) = World::with_nodes(1);
    let pod = fabric.planned_pod(0, network(OWN), "10.0.0.5");
    wanted(&mut fabric.nodes[0].plan.lock().unwrap(), &pod);
    fabric.converge();
    pod.silence();
    let shown = fabric.nodes[0].namespace.ip("-o link show uplink");
    let mac = shown.split("link/ether ").nth(1).unwrap().split(' ').next().unwrap();
    let uplink = mac.parse::<MacAddr>().unwrap().octets();
    let table = Table::on(&fabric.nodes[0], "from_uplink", "uplink");
    Scene { _world: world, fabric, pod, table, uplink }
}

/// Somebody outside, with this address.
fn client(ip: IpAddr) -> Origin {
    let face =
        Face { mac: MacAddr::for_ip(ip), ip: [203, 0, 113, 5].into(), ipv6: Ipv6Addr::UNSPECIFIED };
    Origin { face, ip }
}

/// Whom a client speaks from, to each address of the node another: of two that lead to one pod, the second
/// is nobody's there.
fn own_port(to: IpAddr) -> u16 {
    if to == held(to) { 4000 } else { 5000 }
}

impl Scene {
    fn node(&self) -> &Node {
        &self.fabric.nodes[0]
    }

    /// To the node's own card.
    fn framed(&self, frame: Vec<u8>) -> Vec<u8> {
        with(frame, 0, &self.uplink)
    }

    fn udp(&self, from: IpAddr, to: IpAddr, port: u16) -> Vec<u8> {
        self.udp_from(SocketAddr::new(from, own_port(to)), to, port)
    }

    fn udp_from(&self, from: SocketAddr, to: IpAddr, port: u16) -> Vec<u8> {
        let datagram = summed_datagram((from.ip(), to), (from.port(), port), b"x");
        self.framed(packet(client(from.ip()), to, 17, &datagram))
    }

    fn tcp(&self, from: IpAddr, to: IpAddr, port: u16, flags: u8) -> Vec<u8> {
        self.framed(packet(client(from), to, 6, &tcp((own_port(to), port), flags)))
    }

    fn icmp(&self, from: IpAddr, to: IpAddr, message: &[u8]) -> Vec<u8> {
        self.framed(packet(client(from), to, icmp_of(from), message))
    }

    fn ping(&self, from: IpAddr, to: IpAddr) -> Vec<u8> {
        let kind = if from.is_ipv4() { 8 } else { 128 };
        self.icmp(from, to, &[kind, 0, 0, 0, 0, 7, 0, 1])
    }

    fn hold(&self, rows: Vec<Row<Vec<u8>>>) {
        self.table.hold(self.node(), rows);
    }

    fn voice(&self, like: IpAddr) -> Voice<'_> {
        if like.is_ipv4() { self.pod.v4() } else { self.pod.v6() }
    }

    /// To the pod at a port, from who is seen there.
    fn led(&self, from: IpAddr, port: u16) -> Verdict {
        let at = SocketAddr::new(self.voice(from).ip, port);
        Verdict::Led(self.pod.mac.octets(), from, at)
    }
}

#[test]
fn what_comes_to_the_nodes_own_address() {
    let scene = of(&SCENE);
    for far in FAR {
        let (node, pass) = (node_address(far), Verdict::Pass);
        let udp = |port| scene.udp(far, node, port);
        let part = |at, content: &[u8]| {
            scene.framed(fragment((client(far), client(node)), 17, 7, at, content))
        };
        let machine =
            packet(client(far), node, 17, &summed_datagram((far, node), (1, NODE_PORT), b"x"));
        let inside: IpAddr =
            if far.is_ipv4() { [10, 0, 0, 9].into() } else { [0xfd00, 0, 0, 0, 0, 0, 0, 9].into() };
        let gateway: IpAddr = if far.is_ipv4() {
            [169, 254, 1, 1].into()
        } else {
            [0xfe80, 0, 0, 0, 0, 0, 0, 1].into()
        };
        scene.hold(vec![
            ("to a node port", udp(NODE_PORT), scene.led(far, TARGET)),
            ("to it by TCP", scene.tcp(far, node, NODE_PORT, 2), scene.led(far, TARGET)),
            (
                "of a client with an address of the network",
                scene.udp(inside, node, NODE_PORT),
                scene.led(gateway, TARGET),
            ),
            ("to a node port that nobody stands behind", udp(NODE_PORT + 1), pass),
            ("to another port", udp(9), pass),
            ("to another port by TCP", scene.tcp(far, node, 22, 2), pass),
            ("a ping", scene.ping(far, node), pass),
            ("of another node, by the tunnel", udp(OVERLAY_PORT), pass),
            ("to another machine's card", machine, pass),
            ("a later part of nothing", part((32, false), &[7; 8]), pass),
            (
                "longer than it is",
                with(udp(NODE_PORT), 14 + if far.is_ipv4() { 2 } else { 4 }, &[0xff; 2]),
                pass,
            ),
            ("GRE", scene.framed(packet(client(far), node, 47, &[0; 40])), pass),
            ("an error about nothing", scene.icmp(far, node, &icmp_error(3, 3, &udp(9))), pass),
        ]);
        let tagged = Packet::from(udp(NODE_PORT)).tagged(7);
        scene.table.hold(scene.node(), vec![("with a tag", tagged, pass)]);
    }
    let face = client(FAR[0]).face;
    let asked = Ipv4Addr::new(192, 168, 77, 50);
    scene.hold(vec![
        (
            "who has",
            scene.framed(forge::arp(face, 1, (face.mac.octets(), face.ip), asked)),
            Verdict::Pass,
        ),
        ("LLDP", scene.framed(forge::other(face, 0x88cc, &[0; 50])), Verdict::Pass),
    ]);
    scene.table.reasons_are(&[]);
}

pub(super) const HELD: &[DropReason] = &[NoBackend, NotServed, SourceRefused];

#[test]
fn what_comes_to_an_address_that_the_node_answers_for() {
    let scene = of(&SCENE);
    for far in FAR {
        let (held, drop) = (held(far), Verdict::Drop);
        let udp = |port| scene.udp(far, held, port);
        let part = |id, at, content: &[u8]| {
            scene.framed(fragment((client(far), client(held)), 17, id, at, content))
        };
        let let_in = if far.is_ipv4() { "198.51.100.7" } else { "2001:db8:1::7" }.parse().unwrap();
        let length = 14 + if far.is_ipv4() { 2 } else { 4 };
        let refused = Verdict::Answer(Some(NoBackend));
        let same = SocketAddr::new(far, own_port(held));
        let twice = scene.udp_from(same, node_address(far), NODE_PORT);
        scene.hold(vec![
            ("to its service", udp(SERVED), scene.led(far, TARGET)),
            ("to it by TCP", scene.tcp(far, held, SERVED, 2), scene.led(far, TARGET)),
            ("from the same port to the same pod by a node port", twice, Verdict::Pass),
            ("to a service that nobody stands behind", udp(EMPTY), refused),
            ("to it by TCP, too", scene.tcp(far, held, EMPTY, 2), refused),
            ("of a client who is not let in", udp(CLOSED), drop(SourceRefused)),
            ("of one who is", scene.udp(let_in, held, CLOSED), scene.led(let_in, TARGET)),
            ("to another port", udp(22), drop(NotServed)),
            ("to a node port", udp(NODE_PORT), drop(NotServed)),
            ("to the tunnel", udp(OVERLAY_PORT), drop(NotServed)),
            ("a ping, which the node answers", scene.ping(far, held), Verdict::Pass),
            ("a later part of nothing", part(8, (32, false), &[7; 8]), drop(NotServed)),
            ("a first part without its ports", part(9, (0, true), &[0, 1]), drop(NotServed)),
            ("longer than it is", with(udp(SERVED), length, &[0xff; 2]), drop(NotServed)),
            ("GRE", scene.framed(packet(client(far), held, 47, &[0; 40])), drop(NotServed)),
            (
                "an error about nothing",
                scene.icmp(far, held, &icmp_error(3, 3, &udp(9))),
                drop(NotServed),
            ),
        ]);
        let tagged = Packet::from(udp(SERVED)).tagged(7);
        scene.table.hold(scene.node(), vec![("with a tag", tagged, drop(NotServed))]);
    }
    scene.table.reasons_are(HELD);
}

/// The port that the outside sees of the only pod that has asked there.
fn face_of(node: &Node, v4: bool) -> u16 {
    let all = entries(node).into_iter().filter(|(key, entry)| {
        let asks = [key.low_port, key.high_port].contains(&ASKED.to_be_bytes());
        let is_outside = entry.flags & CONNECTION_OUTSIDE != 0;
        key.network == OWN && is_outside && asks && IpAddr::from(key.low).is_ipv4() == v4
    });
    let ports: Vec<_> = all.map(|(_, entry)| u16::from_be_bytes(entry.nat_port)).collect();
    assert_eq!(ports.len(), 1, "one has left: {ports:?}");
    ports[0]
}

#[test]
fn what_answers_a_pod_that_left_as_its_node() {
    let scene = of(&SCENE);
    let leaving = Table::on(scene.node(), "from_pod", &scene.pod.host_side.to_string());
    for far in FAR {
        let (node, asked) = (node_address(far), SocketAddr::new(far, ASKED));
        let voice = scene.voice(far);
        let question = summed_datagram((voice.ip, far), (4000, ASKED), b"?");
        let question = packet(voice, far, 17, &question);
        let rows = vec![("a question", question, Verdict::Leaves(node, asked))];
        leaving.hold(scene.node(), rows);
        let face = face_of(scene.node(), far.is_ipv4());
        let answer = |from: IpAddr, port| {
            let datagram = summed_datagram((from, node), (port, face), b"!");
            scene.framed(packet(client(from), node, 17, &datagram))
        };
        let other: IpAddr = if far.is_ipv4() {
            [203, 0, 113, 6].into()
        } else {
            [0x2001, 0xdb8, 0, 0, 0, 0, 0, 6].into()
        };
        let (kind, code) = if far.is_ipv4() { (3, 3) } else { (1, 4) };
        let about = |port| {
            packet(client(node), far, 17, &summed_datagram((node, far), (port, ASKED), b"?"))
        };
        let error = |port| scene.icmp(far, node, &icmp_error(kind, code, &about(port)));
        scene.hold(vec![
            ("its answer", answer(far, ASKED), scene.led(far, 4000)),
            ("the same from another port", answer(far, ASKED + 1), Verdict::Pass),
            ("the same from another machine", answer(other, ASKED), Verdict::Pass),
            ("an error about the question", error(face), scene.led(far, 0)),
            ("an error about another's", error(face.wrapping_add(1)), Verdict::Pass),
        ]);
    }
    scene.table.reasons_are(&[]);
}
