//! A pod that tries every port of everything that could be its node: only doors answer.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::ops::RangeInclusive;

use atoll_abi::{DOOR_PORT, Door, PROBER_PORTS};
use atoll_plan::{Doors, ServiceDoor};
use atoll_testkit::{PacketSocket, eventually};
use atoll_types::{GATEWAY_V4, NetAddr};
use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TransportSlice};

use crate::doors::{alias, ip, speaking};
use crate::fabric::{Fabric, Node, Pod, network};
use crate::forge::{GATEWAY, datagram, packet};
use crate::talk::Voice;

const LISTENER: u16 = 61100;
/// What a node listens at for others: kubelet, etcd, the API, node ports, the tunnel, our own.
const UDP_PORTS: [u16; 12] = [53, 67, 68, 123, 161, 443, 514, 2379, 4789, 8472, 10250, DOOR_PORT];

/// Frames of TCP to each port from the first on, right in everything: such that open a connection,
/// or such that end one that never was.
fn frames(
    from: Voice,
    to: IpAddr,
    opens: bool,
    ports: RangeInclusive<u16>,
) -> impl Iterator<Item = Vec<u8>> {
    let builder = PacketBuilder::ethernet2(from.pod.mac.octets(), GATEWAY);
    let (builder, tcp) = match (from.ip, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => (builder.ipv4(from.octets(), to.octets(), 64), 34),
        (IpAddr::V6(from), IpAddr::V6(to)) => (builder.ipv6(from.octets(), to.octets(), 64), 54),
        _ => panic!("addresses of two families"),
    };
    let mut to_port_zero = vec![];
    let tcp_header = builder.tcp(40_000, 0, 1, 1024);
    let tcp_header = if opens { tcp_header.syn() } else { tcp_header.fin() };
    tcp_header.write(&mut to_port_zero, &[]).unwrap();
    let checksum = u16::from_be_bytes([to_port_zero[tcp + 16], to_port_zero[tcp + 17]]);
    ports.map(move |port| {
        let sum = u32::from(!checksum) + u32::from(port);
        let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
        let mut frame = to_port_zero.clone();
        frame[tcp + 2..tcp + 4].copy_from_slice(&port.to_be_bytes());
        frame[tcp + 16..tcp + 18].copy_from_slice(&sum.to_be_bytes());
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

    /// Every TCP port, and the UDP ports that something listens at.
    fn try_everything(&mut self, from: Voice, to: IpAddr) {
        frames(from, to, true, 1..=u16::MAX).for_each(|frame| self.socket.send(&frame).unwrap());
        self.gather();
        for port in UDP_PORTS {
            let frame = packet(from, to, 17, &datagram((40_000, port), b"anybody?"));
            self.socket.send(&frame).unwrap();
        }
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
            all.push(ip("fd96::1"));
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

#[test]
fn of_every_port_of_everything_that_is_the_node_only_doors_answer() {
    let fabric = Fabric::of(1);
    let pod = fabric.planned_pod(0, network(7), "10.0.0.5");
    let node = &fabric.nodes[0];
    {
        let mut plan = node.plan.lock().unwrap();
        let cluster = [ip("10.96.0.10")].into_iter().collect();
        plan.doors.insert(pod.network, Doors { cluster, ..Doors::default() });
        for (api, listener) in [("10.96.0.1", LISTENER), ("fd96::1", LISTENER + 1)] {
            let addr = NetAddr::new(pod.network, ip(api));
            plan.service_doors.insert(ServiceDoor { addr, port: 443 }, listener);
        }
    }
    fabric.converge();
    let _listening = listen(node);
    let mut scan = Scan { socket: pod.packets(), answers: BTreeSet::new() };
    for own in pod.ips() {
        for to in node_addresses(node, &pod, own) {
            scan.try_everything(speaking(&pod, own), to);
        }
    }
    let prober = Door::Prober.listeners()[0];
    let endings = frames(pod.v4(), prober, false, 1..=PROBER_PORTS - 1);
    endings.for_each(|frame| scan.socket.send(&frame).unwrap());
    let doors = ["10.96.0.1:443", "10.96.0.10:53", "[fd96::1]:443"];
    let doors: BTreeSet<SocketAddr> = doors.iter().map(|it| it.parse().unwrap()).collect();
    eventually("every door answers", || {
        scan.gather();
        doors.is_subset(&scan.answers).then_some(())
    });
    assert_eq!(scan.answers, doors);
}
