//! Plain pods and the tunnel: who can send with a node's address would be believed where nodes hear each
//! other, so no plain pod sends anything there.

use std::net::{Ipv6Addr, SocketAddr, UdpSocket};

use atoll_datapath::{DropReason, PlainServices};
use atoll_plan::{Backend, PLAIN, Service};
use atoll_testkit::{Hears, Namespace, PacketSocket, eventually};
use atoll_types::{MacAddr, NetAddr};
use socket2::{Domain, Protocol, Socket, Type};

use crate::forge;
use crate::plain_outside::{Scene, node_port};
use crate::plain_stage::{BOTH, Host, OUTSIDE, Stage, TARGET, ask, front, key, last, udp, vip};
use crate::talk::{BRIEF, await_refusal};

const UDP: u8 = 17;
const OPTIONS: u8 = 60;
/// A socket of this protocol is given the header of IPv6, too.
const WITH_HEADER: i32 = 255;

/// Waits until the node's programs of plain pods have dropped so many packets for this reason.
fn await_dropped(stage: &Stage, reason: DropReason, count: u64) {
    eventually(&format!("{count} packets were dropped as {reason}"), || {
        let drops = stage.worker.run(|state| PlainServices::drops(&state.root).unwrap());
        let dropped = drops.iter().find(|it| it.reason == reason);
        (dropped.map_or(0, |it| it.packets) >= count).then_some(())
    });
}

fn hears_nothing(socket: &UdpSocket) {
    socket.set_read_timeout(Some(BRIEF)).unwrap();
    socket.hear(&mut [0; 8]).unwrap_err();
}

#[test]
fn no_plain_pod_sends_to_where_nodes_hear_each_other_whole_or_in_parts() {
    let stage = Stage::serving(|stage| vec![&stage.far]);
    for v4 in BOTH {
        let asker = udp(&stage.client, v4, 0);
        let tunnel = udp(&stage.far, v4, OUTSIDE.overlay_port);
        let other = udp(&stage.far, v4, TARGET);
        for size in [1, 4000] {
            asker.send_to(&vec![0; size], tunnel.local_addr().unwrap()).unwrap();
            ask(&asker, &other, other.local_addr().unwrap(), size);
        }
        hears_nothing(&tunnel);
    }
    await_dropped(&stage, DropReason::TunnelPort, 4);
}

/// A tunnel packet with a frame of a network in it, to this node and to another.
#[test]
fn a_plain_pods_vxlan_to_a_node_goes_nowhere_and_is_counted() {
    const NETWORK: [u8; 3] = [0, 0, 100];
    let stage = Stage::serving(|stage| vec![&stage.far]);
    let face =
        forge::Face { mac: MacAddr::GATEWAY, ip: [10, 0, 0, 1].into(), ipv6: last(0xfd00, 1) };
    let inner = forge::udp(face, [10, 0, 0, 2].into());
    let vxlan = [&[8, 0, 0, 0][..], &NETWORK, &[0], &inner].concat();
    let node =
        Host { namespace: Namespace::new(), ipv4: [192, 0, 2, 1].into(), ipv6: last(0x2001, 1) };
    for (count, v4) in (1..).zip(BOTH) {
        let at_node =
            stage.node.run(|| UdpSocket::bind((node.ip(v4), OUTSIDE.overlay_port)).unwrap());
        let [there, other] = [OUTSIDE.overlay_port, TARGET].map(|port| udp(&stage.far, v4, port));
        let sender = udp(&stage.client, v4, 0);
        for tunnel in [&at_node, &there] {
            sender.send_to(&vxlan, tunnel.local_addr().unwrap()).unwrap();
        }
        await_dropped(&stage, DropReason::TunnelPort, 2 * count);
        [&at_node, &there].into_iter().for_each(hears_nothing);
        ask(&sender, &other, other.local_addr().unwrap(), vxlan.len());
    }
}

/// A datagram to a port of IPv6, behind so many extension headers.
fn behind_headers(from: Ipv6Addr, to: Ipv6Addr, port: u16, count: usize) -> Vec<u8> {
    let mut datagram = forge::datagram((4000, port), b"!");
    let header = etherparse::UdpHeader::from_slice(&datagram).unwrap().0;
    let sum = header.calc_checksum_ipv6_raw(from.octets(), to.octets(), b"!").unwrap();
    datagram[6..8].copy_from_slice(&sum.to_be_bytes());
    let nexts = (1..=count).map(|number| if number == count { UDP } else { OPTIONS });
    let headers: Vec<u8> = nexts.flat_map(|next| [next, 0, 1, 4, 0, 0, 0, 0]).collect();
    let length = ((headers.len() + datagram.len()) as u16).to_be_bytes();
    let first = [0x60, 0, 0, 0, length[0], length[1], OPTIONS, 64];
    [&first[..], &from.octets(), &to.octets(), &headers, &datagram].concat()
}

fn send(from: &Host, to: &Host, port: u16, headers: usize) {
    let packet = behind_headers(from.ipv6, to.ipv6, port, headers);
    from.namespace.run(|| {
        let socket = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::from(WITH_HEADER)));
        let to = SocketAddr::new(to.ipv6.into(), 0);
        socket.unwrap().send_to(&packet, &to.into()).unwrap();
    });
}

#[test]
fn no_plain_pod_hides_behind_headers_where_it_sends_to() {
    let stage = Stage::serving(|stage| vec![&stage.far]);
    let tunnel = udp(&stage.far, false, OUTSIDE.overlay_port);
    let other = udp(&stage.far, false, TARGET);
    for headers in [1, 7, 9, 12] {
        send(&stage.client, &stage.far, OUTSIDE.overlay_port, headers);
    }
    for headers in [1, 7] {
        send(&stage.client, &stage.far, TARGET, headers);
        assert_eq!(other.hear(&mut [0; 8]).unwrap(), 1);
    }
    hears_nothing(&tunnel);
    await_dropped(&stage, DropReason::TunnelPort, 2);
    await_dropped(&stage, DropReason::Malformed, 2);
}

fn mac(namespace: &Namespace, link: &str) -> MacAddr {
    let shown = namespace.ip(&format!("-o link show {link}"));
    let mac = shown.split("link/ether ").nth(1).and_then(|rest| rest.split(' ').next());
    mac.and_then(|mac| mac.parse().ok()).unwrap_or_else(|| panic!("no address in {shown}"))
}

/// A datagram from the client to a port of the far machine, in a frame with so many tags that say nothing.
fn tagged(stage: &Stage, port: u16, tags: usize) -> Vec<u8> {
    let face = forge::Face {
        mac: mac(&stage.client.namespace, "eth0"),
        ip: stage.client.ipv4,
        ipv6: stage.client.ipv6,
    };
    let datagram = forge::datagram((4000, port), b"!");
    let mut frame = forge::packet(face.v4(), stage.far.ipv4.into(), UDP, &datagram);
    frame[..6].copy_from_slice(&mac(&stage.node, "veth2").octets());
    let untagged = frame.split_off(12);
    [frame, [0x81, 0, 0, 0].repeat(tags), untagged].concat()
}

#[test]
fn no_plain_pod_hides_behind_tags_where_it_sends_to() {
    let stage = Stage::serving(|stage| vec![&stage.far]);
    let [tunnel, other] = [OUTSIDE.overlay_port, TARGET].map(|port| udp(&stage.far, true, port));
    let sender = stage.client.namespace.run(|| PacketSocket::open("eth0").unwrap());
    for tags in 0..4 {
        sender.send(&tagged(&stage, OUTSIDE.overlay_port, tags)).unwrap();
    }
    for tags in 0..2 {
        sender.send(&tagged(&stage, TARGET, tags)).unwrap();
        assert_eq!(other.hear(&mut [0; 8]).unwrap(), 1, "{tags} tags");
    }
    hears_nothing(&tunnel);
    await_dropped(&stage, DropReason::TunnelPort, 2);
    await_dropped(&stage, DropReason::VlanTagged, 2);
}

#[test]
fn no_service_leads_a_plain_pod_to_where_nodes_hear_each_other() {
    use atoll_types::Protocol::Udp;
    let stage = Stage::serving(|stage| vec![&stage.far]);
    for v4 in BOTH {
        let [tunnel, other] = [OUTSIDE.overlay_port, TARGET].map(|port| udp(&stage.far, v4, port));
        stage.serve(&[&stage.far], None);
        ask(&udp(&stage.client, v4, 0), &other, front(v4), 1);
        let addr = NetAddr::new(PLAIN, stage.far.ip(v4));
        let backends = [Backend { addr, port: OUTSIDE.overlay_port.try_into().unwrap() }].into();
        let service = Service { backends, ..Service::default() };
        let wanted = [(key(vip(v4), Udp), service)].into();
        stage.worker.run(move |state| state.plain.set(&wanted).unwrap());
        let asker = udp(&stage.client, v4, 0);
        asker.connect(front(v4)).unwrap();
        await_refusal(&asker);
        hears_nothing(&tunnel);
    }
    await_dropped(&stage, DropReason::NoBackend, 2);
}

/// What leaves for another node's backend has this node's address.
#[test]
fn no_node_port_leads_to_where_nodes_hear_each_other() {
    let scene = Scene::serving(|scene| vec![&scene.beyond]);
    for v4 in BOTH {
        let [tunnel, other] =
            [OUTSIDE.overlay_port, TARGET].map(|port| udp(&scene.beyond, v4, port));
        scene.serve_at(&[&scene.beyond], TARGET, None);
        ask(&udp(&scene.stage.far, v4, 0), &other, node_port(v4), 1);
        scene.serve_at(&[&scene.beyond], OUTSIDE.overlay_port, None);
        let asker = udp(&scene.stage.far, v4, 0);
        asker.connect(node_port(v4)).unwrap();
        await_refusal(&asker);
        hears_nothing(&tunnel);
    }
}
