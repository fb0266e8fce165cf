//! Datagrams in fragments: whole ones arrive in any order, forged ones do not.

use std::net::IpAddr;

use atoll_datapath::{ConnectionState, DropReason};
use atoll_testkit::{Hears, eventually};

use crate::fabric::{Fabric, Pod, network};
use crate::forge::{self, IP, fragment};
use crate::talk::{Voice, udp};

const TCP: u8 = 6;
const UDP: u8 = 17;
const FRAGMENT: u8 = 44;
const OPTIONS: u8 = 60;
/// A header of IPv6 alone.
const IPV6: usize = 40;

struct Scene {
    fabric: Fabric,
    sender: Pod,
    receivers: [Pod; 2],
}

/// A sender with a receiver beside it and one on another node.
fn scene() -> Scene {
    let fabric = Fabric::of(2);
    let pod = |at, ip| fabric.pod(at, network(100), ip);
    let (sender, receivers) = (pod(0, "10.0.0.1"), [pod(0, "10.0.0.2"), pod(1, "10.0.0.3")]);
    Scene { fabric, sender, receivers }
}

impl Scene {
    fn pairs(&self) -> Vec<(Voice<'_>, Voice<'_>)> {
        let sender = &self.sender;
        let both = |to| [(sender.v4(), Pod::v4(to)), (sender.v6(), Pod::v6(to))];
        self.receivers.iter().flat_map(both).collect()
    }

    fn dropped(&self, reason: DropReason) -> u64 {
        self.fabric.nodes[0].dropped(Some(self.sender.network), reason)
    }

    fn is_dropped(&self, reason: DropReason, frame: &[u8]) {
        let heard = self.receivers.each_ref().map(Pod::packets);
        let before = self.dropped(reason);
        self.sender.packets().send(frame).unwrap();
        eventually(&format!("it was dropped as {reason}"), || {
            (self.dropped(reason) > before).then_some(())
        });
        for heard in heard {
            assert_eq!(heard.received().unwrap(), Vec::<Vec<u8>>::new());
        }
    }

    fn passes(&self, to: Voice, frame: &[u8]) {
        let heard = to.pod.packets();
        self.sender.packets().send(frame).unwrap();
        let arrived = forge::arrived_of(&heard, [frame[12], frame[13]]);
        assert_eq!(arrived[IP..], frame[IP..]);
    }
}

/// A UDP datagram with a right checksum, in fragments of up to 800 bytes.
pub(crate) fn in_fragments(
    ends: (Voice, Voice),
    id: u16,
    ports: (u16, u16),
    content: &[u8],
) -> Vec<Vec<u8>> {
    let mut datagram = forge::datagram(ports, content);
    let header = etherparse::UdpHeader::from_slice(&datagram).unwrap().0;
    let sum = match (ends.0.ip, ends.1.ip) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            header.calc_checksum_ipv4_raw(from.octets(), to.octets(), content)
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            header.calc_checksum_ipv6_raw(from.octets(), to.octets(), content)
        }
        _ => panic!("addresses of two families"),
    };
    datagram[6..8].copy_from_slice(&sum.unwrap().to_be_bytes());
    let last = (datagram.len() - 1) / 800;
    let parts = datagram.chunks(800).enumerate();
    parts.map(|(n, part)| fragment(ends, UDP, id, (n as u16 * 800, n < last), part)).collect()
}

#[test]
fn a_large_datagram_arrives_whole() {
    let scene = scene();
    for (from, to) in scene.pairs() {
        let (sender, receiver) = (udp(from, 0), udp(to, 0));
        let content: Vec<u8> = (0..20_000_u32).map(|n| n as u8).collect();
        sender.send_to(&content, receiver.local_addr().unwrap()).unwrap();
        let mut heard = vec![0; 30_000];
        let length = receiver.hear(&mut heard).unwrap();
        assert!(heard[..length] == content, "{length} bytes, or others than were sent");
    }
}

#[test]
fn fragments_arrive_whole_in_any_order() {
    let scene = scene();
    let orders: [[usize; 3]; 4] = [[0, 1, 2], [2, 1, 0], [1, 2, 0], [2, 0, 1]];
    for (from, to) in scene.pairs() {
        let receiver = udp(to, 53);
        for (id, order) in (1..).zip(orders) {
            let content = vec![id as u8; 2000];
            let fragments = in_fragments((from, to), id, (1234, 53), &content);
            let socket = from.pod.packets();
            order.iter().for_each(|place| socket.send(&fragments[*place]).unwrap());
            let mut heard = vec![0; 3000];
            assert_eq!(receiver.hear(&mut heard).unwrap(), 2000, "in the order {order:?}");
            assert!(heard[..2000] == content);
        }
    }
}

#[test]
fn a_datagram_in_fragments_is_one_connection() {
    let scene = scene();
    for (from, to) in scene.pairs() {
        let _receiver = udp(to, 53);
        let fragments = in_fragments((from, to), 7, (1234, 53), &[7; 2000]);
        fragments.iter().for_each(|fragment| scene.passes(to, fragment));
        for node in &scene.fabric.nodes[..if to.pod.ip == scene.receivers[0].ip { 1 } else { 2 }] {
            let all = node.connections(scene.sender.network);
            let own: Vec<_> = all.iter().filter(|it| it.server.ip() == to.ip).collect();
            assert_eq!(own.len(), 1, "{own:?}");
            assert_eq!((own[0].server.port(), own[0].state), (53, ConnectionState::New));
        }
    }
}

#[test]
fn a_first_fragment_without_its_whole_header_is_dropped() {
    let scene = scene();
    for ends in scene.pairs() {
        let first = |protocol, content: &[u8]| fragment(ends, protocol, 9, (0, true), content);
        scene.is_dropped(DropReason::TinyFragment, &first(TCP, &forge::tcp((1, 2), 2)[..8]));
        scene.is_dropped(DropReason::TinyFragment, &first(TCP, &forge::tcp((1, 2), 2)[..16]));
        scene.is_dropped(DropReason::TinyFragment, &first(132, &[0, 1, 0, 2, 0, 0, 0, 0]));
        scene.passes(ends.1, &first(UDP, &forge::datagram((1, 2), b"")));
    }
}

#[test]
fn a_later_fragment_inside_the_header_is_dropped() {
    let scene = scene();
    for ends in scene.pairs() {
        let later = |protocol, offset| fragment(ends, protocol, 9, (offset, false), &[0; 24]);
        scene.is_dropped(DropReason::TinyFragment, &later(TCP, 8));
        scene.is_dropped(DropReason::TinyFragment, &later(TCP, 16));
        scene.is_dropped(DropReason::TinyFragment, &later(132, 8));
        scene.is_dropped(DropReason::Malformed, &later(UDP, 0xfff8));
        scene.passes(ends.1, &later(TCP, 24));
    }
}

#[test]
fn a_fragment_that_overwrites_the_first_is_dropped() {
    let scene = scene();
    for ends in scene.pairs() {
        let first = forge::datagram((1, 2), &[1; 56]);
        let at = |offset, id| fragment(ends, UDP, id, (offset, true), &[2; 64]);
        scene.passes(ends.1, &fragment(ends, UDP, 9, (0, true), &first));
        scene.is_dropped(DropReason::OverlappingFragment, &at(8, 9));
        scene.is_dropped(DropReason::OverlappingFragment, &at(56, 9));
        scene.passes(ends.1, &at(64, 9));
        scene.passes(ends.1, &at(56, 10));
    }
}

/// Destination options of `size` bytes, padding alone, before `next`.
fn padding(next: u8, size: usize) -> Vec<u8> {
    const PAD: u8 = 1;
    let mut header = vec![0; size];
    header[..4].copy_from_slice(&[next, (size / 8 - 1) as u8, PAD, (size - 4) as u8]);
    header
}

#[test]
fn a_first_fragment_with_more_headers_before_its_own_is_dropped() {
    let scene = scene();
    let ends = (scene.sender.v6(), scene.receivers[0].v6());
    let datagram = forge::datagram((1, 2), &[1; 56]);
    let behind_padding = [padding(UDP, 64), datagram.clone()].concat();
    for more in [true, false] {
        let parted = fragment(ends, OPTIONS, 9, (0, more), &behind_padding);
        scene.is_dropped(DropReason::Malformed, &parted);
    }
    scene.passes(ends.1, &fragment(ends, UDP, 10, (0, true), &datagram));
}

#[test]
fn a_fragment_of_a_fragment_is_dropped() {
    let scene = scene();
    let (from, to) = (scene.sender.v6(), scene.receivers[0].v6());
    for offset in [0, 64] {
        let inner = fragment((from, to), UDP, 7, (offset, true), &[0; 64]);
        let outer = fragment((from, to), FRAGMENT, 9, (0, true), &inner[IP + IPV6..]);
        scene.is_dropped(DropReason::Malformed, &outer);
    }
}

#[test]
fn what_is_neither_tcp_udp_sctp_nor_icmp_is_dropped_whatever_it_carries() {
    let scene = scene();
    for (from, to) in scene.pairs() {
        let inner = forge::packet(to, from.ip, UDP, &forge::datagram((1, 2), b"spoofed"));
        let inner = &inner[IP..];
        let gre = [&[0, 0, 8, 0][..], inner].concat();
        for (protocol, content) in [
            (4, inner),
            (41, inner),
            (47, &gre),
            (50, inner),
            (2, inner),
            (59, inner),
            (255, inner),
        ] {
            scene.is_dropped(DropReason::Protocol, &forge::packet(from, to.ip, protocol, content));
        }
        let other_family = if from.ip.is_ipv4() { 58 } else { 1 };
        let echo = forge::packet(from, to.ip, other_family, &[8, 0, 0, 0, 0, 1, 0, 1]);
        scene.is_dropped(DropReason::Protocol, &echo);
    }
}

#[test]
fn an_inner_packet_behind_extension_headers_or_in_fragments_is_dropped_too() {
    let scene = scene();
    let (from, to) = (scene.sender.v6(), scene.receivers[0].v6());
    let options = [41, 0, 1, 4, 0, 0, 0, 0];
    scene.is_dropped(DropReason::Protocol, &forge::packet(from, to.ip, 60, &options));
    for ends in scene.pairs() {
        let first = fragment(ends, 47, 5, (0, true), &[0; 64]);
        let later = fragment(ends, 47, 5, (64, false), &[0; 64]);
        scene.is_dropped(DropReason::Protocol, &first);
        scene.is_dropped(DropReason::Protocol, &later);
    }
}
