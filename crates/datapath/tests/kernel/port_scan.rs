//! A pod that tries every port of everything that could be its node: only doors answer.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::ops::RangeInclusive;

use atoll_abi::{DOOR_PORT, Door, PROBER_PORTS};
use atoll_plan::{Closed, Doors, Egress, ServiceDoor};
use atoll_testkit::{PacketSocket, eventually};
use atoll_types::{GATEWAY_V4, NetAddr};
use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TransportSlice};

use crate::doors::{alias, ip, speaking};
use crate::fabric::{Node, Pod, network};
use crate::forge::GATEWAY;
use crate::outside::{FAR, World, only};
use crate::talk::{BRIEF, LIMIT, Voice, connect};

const LISTENER: u16 = 61100;
/// Links, what our own programs use, and the cluster's own addresses.
const NEVER_OUTSIDE: [&str; 5] =
    ["169.254.0.0/16", "fe80::/10", "fd61:746f:6c6c::/48", "10.96.0.0/16", "fd96::/64"];
/// The node's own address of IPv6.
const UNDERLAY_V6: &str = "fd77::1";

/// What is said to a port.
#[derive(Clone, Copy)]
enum Word {
    /// That a connection be opened.
    Open,
    /// That one end which never was.
    End,
    Datagram,
}

/// Frames that say the word to each of these ports, right in everything.
fn frames(
    from: Voice,
    to: IpAddr,
    word: Word,
    ports: RangeInclusive<u16>,
) -> impl Iterator<Item = Vec<u8>> {
    let builder = PacketBuilder::ethernet2(from.pod.mac.octets(), GATEWAY);
    let (builder, transport) = match (from.ip, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => (builder.ipv4(from.octets(), to.octets(), 64), 34),
        (IpAddr::V6(from), IpAddr::V6(to)) => (builder.ipv6(from.octets(), to.octets(), 64), 54),
        _ => panic!("addresses of two families"),
    };
    let mut to_port_zero = vec![];
    let written = match word {
        Word::Open => builder.tcp(40_000, 0, 1, 1024).syn().write(&mut to_port_zero, &[]),
        Word::End => builder.tcp(40_000, 0, 1, 1024).fin().write(&mut to_port_zero, &[]),
        Word::Datagram => builder.udp(40_000, 0).write(&mut to_port_zero, b"anybody?"),
    };
    written.unwrap();
    let checksum_at = transport + if matches!(word, Word::Datagram) { 6 } else { 16 };
    let checksum = u16::from_be_bytes([to_port_zero[checksum_at], to_port_zero[checksum_at + 1]]);
    ports.map(move |port| {
        let sum = u32::from(!checksum) + u32::from(port);
        let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
        let mut frame = to_port_zero.clone();
        frame[transport + 2..transport + 4].copy_from_slice(&port.to_be_bytes());
        frame[checksum_at..checksum_at + 2].copy_from_slice(&sum.to_be_bytes());
        frame
    })
}

/// Who sent this, and from which port; what has no ports has port 0. That the gateway says where it
/// is answers nothing.
fn sender(frame: &[u8]) -> Option<SocketAddr> {
    let packet = SlicedPacket::from_ethernet(frame).ok()?;
    let ip: IpAddr = match packet.net? {
        NetSlice::Ipv4(v4) => v4.header().source_addr().into(),
        NetSlice::Ipv6(v6) => v6.header().source_addr().into(),
        NetSlice::Arp(_) => return None,
    };
    let port = match packet.transport? {
        TransportSlice::Tcp(tcp) => tcp.source_port(),
        TransportSlice::Udp(udp) => udp.source_port(),
        TransportSlice::Icmpv6(icmp) if icmp.type_u8() == 136 => return None,
        _ => 0,
    };
    Some(SocketAddr::new(ip, port))
}

struct Scan {
    socket: PacketSocket,
    answers: BTreeSet<SocketAddr>,
}

impl Scan {
    fn gather(&mut self) {
        self.answers.extend(self.socket.received().unwrap().iter().filter_map(|it| sender(it)));
    }

    /// Every port of TCP and of UDP.
    fn try_everything(&mut self, from: Voice, to: IpAddr) {
        for word in [Word::Open, Word::Datagram] {
            self.say(frames(from, to, word, 1..=u16::MAX));
        }
    }

    fn say(&mut self, frames: impl Iterator<Item = Vec<u8>>) {
        frames.for_each(|frame| self.socket.send(&frame).unwrap());
        self.gather();
    }
}

/// Everything that a pod could take for its node, in the family of `own`.
fn node_addresses(node: &Node, pod: &Pod, own: IpAddr) -> Vec<IpAddr> {
    let listeners = Door::ALL.map(|door| door.listeners()[usize::from(own.is_ipv6())]);
    let mut all = vec![alias(node, pod, own)];
    match own {
        IpAddr::V4(_) => {
            all.extend(listeners);
            all.extend([node.underlay, GATEWAY_V4].map(IpAddr::from));
            all.extend(["10.96.0.10", "10.96.0.1"].map(ip));
        }
        IpAddr::V6(_) => {
            all.extend([Door::Service, Door::Prober].map(|door| door.listeners()[1]));
            all.extend(["fd96::1", UNDERLAY_V6].map(ip));
        }
    }
    all
}

/// The agent behind its doors, and others who listen at every address of the node.
fn listen(node: &Node) -> (Vec<TcpListener>, Vec<UdpSocket>) {
    let services = Door::Service.listeners();
    let mut tcp: Vec<SocketAddr> = vec![
        (services[0], LISTENER).into(),
        (services[1], LISTENER + 1).into(),
        (Door::Cluster.listeners()[0], DOOR_PORT).into(),
    ];
    tcp.extend([2379, 6443, 10250, 10256, 30080].map(|port| SocketAddr::new(ip("::"), port)));
    let udp = [10250, 2379].map(|port| SocketAddr::new(ip("::"), port));
    node.namespace.run(|| {
        let tcp = tcp.iter().map(|at| TcpListener::bind(at).unwrap()).collect();
        (tcp, udp.iter().map(|at| UdpSocket::bind(at).unwrap()).collect())
    })
}

/// Tries every port of everything that is the node, from a pod of a network that leaves by it or not.
fn only_doors_answer(egress: Option<Egress>) {
    let (world, fabric) = World::with_nodes(1);
    let pod = fabric.planned_pod(0, network(7), "10.0.0.5");
    let node = &fabric.nodes[0];
    {
        let mut plan = node.plan.lock().unwrap();
        let cluster = [ip("10.96.0.10")].into_iter().collect();
        plan.doors.insert(pod.network, Doors { cluster, ..Doors::default() });
        for (api, listener) in [("10.96.0.1", LISTENER), ("fd96::1", LISTENER + 1)] {
            let addr = NetAddr::new(pod.network, ip(api));
            let door = ServiceDoor { addr, port: 443, datagrams: false };
            plan.service_doors.insert(door, listener);
        }
        plan.egress.extend(egress.map(|egress| (pod.network, egress)));
        let own = [node.underlay.into(), ip(UNDERLAY_V6)];
        let closed = own.map(only).into_iter().chain(NEVER_OUTSIDE.map(|it| it.parse().unwrap()));
        plan.closed.extend(closed.map(|range| Closed { to: None, range }));
    }
    fabric.converge();
    let _listening = listen(node);
    let at = SocketAddr::new(FAR[0], 8080);
    let _outside = world.listen(at);
    let leaves = connect(pod.v4(), 0, at, if egress.is_some() { LIMIT } else { BRIEF }).is_ok();
    assert_eq!(leaves, egress.is_some());
    let mut scan = Scan { socket: pod.packets(), answers: BTreeSet::new() };
    for own in pod.ips() {
        for to in node_addresses(node, &pod, own) {
            scan.try_everything(speaking(&pod, own), to);
        }
    }
    let prober = Door::Prober.listeners()[0];
    scan.say(frames(pod.v4(), prober, Word::End, 1..=PROBER_PORTS - 1));
    let doors = ["10.96.0.1:443", "10.96.0.10:53", "[fd96::1]:443"];
    let doors: BTreeSet<SocketAddr> = doors.iter().map(|it| it.parse().unwrap()).collect();
    eventually("every door answers", || {
        scan.gather();
        doors.is_subset(&scan.answers).then_some(())
    });
    // Its last words of the connection before may come late; it is not the node.
    scan.answers.remove(&at);
    assert_eq!(scan.answers, doors);
}

#[test]
fn of_every_port_of_everything_that_is_the_node_only_doors_answer() {
    only_doors_answer(None);
}

#[test]
fn a_network_that_leaves_by_its_node_finds_no_port_of_it_but_doors() {
    only_doors_answer(Some(Egress::Node));
}
