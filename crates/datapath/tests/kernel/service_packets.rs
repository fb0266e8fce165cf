//! Packets through a service: whole and in parts, with and without offloads, of every protocol,
//! errors about them, and a pod that is its own backend.

use std::io;
use std::net::{IpAddr, SocketAddr};

use atoll_testkit::{Hears, PacketSocket};

use crate::fabric::{Fabric, Pod};
use crate::forge;
use crate::services::{PORT, TARGET, ask, converse_tcp, front, two_tenants, vip, voice, voices};
use crate::talk::{LIMIT, Voice, connect, listen, udp};

fn set_offloads(pod: &Pod, to: &str) {
    let arguments = ["-K", "eth0", "tx", to, "tso", to, "gso", to];
    let output = pod.namespace.command("ethtool", &arguments);
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn checksums_are_right_with_every_offload_off() {
    let fabric = Fabric::of(2);
    let tenants = two_tenants(&fabric);
    let tenant = &tenants[0];
    let pods = [&tenant.client, &tenant.near, &tenant.far];
    pods.into_iter().for_each(|pod| set_offloads(pod, "off"));
    for server in tenant.backends() {
        fabric.serve(tenant.network(), &[server], None);
        for client in voices(&tenant.client) {
            converse_tcp(client, &listen(voice(client, server), TARGET), 100_000);
            let (asker, answerer) = (udp(client, 5000), udp(voice(client, server), TARGET));
            ask(&asker, &answerer, 100);
        }
    }
}

#[test]
fn large_datagrams_pass_a_service_in_parts() {
    let fabric = Fabric::of(2);
    for tenant in &two_tenants(&fabric) {
        for server in tenant.backends() {
            fabric.serve(tenant.network(), &[server], None);
            for client in voices(&tenant.client) {
                let (asker, answerer) = (udp(client, 5000), udp(voice(client, server), TARGET));
                ask(&asker, &answerer, 8000);
                ask(&asker, &answerer, 8000);
            }
        }
    }
}

#[test]
fn an_error_of_a_backend_comes_from_the_service() {
    let fabric = Fabric::of(2);
    for tenant in &two_tenants(&fabric) {
        for server in tenant.backends() {
            fabric.serve(tenant.network(), &[server], None);
            for client in voices(&tenant.client) {
                let asker = udp(client, 0);
                asker.connect(front(client.ip)).unwrap();
                asker.send(b"nobody listens").unwrap();
                let error = asker.hear(&mut [0; 8]).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused, "{}", client.ip);
            }
        }
    }
}

#[test]
fn an_error_of_a_client_about_an_answer_reaches_the_backend() {
    let fabric = Fabric::of(2);
    for tenant in &two_tenants(&fabric) {
        for server in tenant.backends() {
            fabric.serve(tenant.network(), &[server], None);
            for client in voices(&tenant.client) {
                let (asker, answerer) = (udp(client, 5000), udp(voice(client, server), TARGET));
                ask(&asker, &answerer, 100);
                drop(asker);
                answerer.connect(SocketAddr::new(client.ip, 5000)).unwrap();
                answerer.send(b"nobody is there any more").unwrap();
                let error = answerer.hear(&mut [0; 8]).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused, "{}", client.ip);
            }
        }
    }
}

#[test]
fn a_client_that_complains_of_what_no_service_sent_it_reaches_nobody() {
    let fabric = Fabric::of(1);
    let [tenant, _other] = two_tenants(&fabric);
    fabric.serve(tenant.network(), &[&tenant.near], None);
    let client = tenant.client.v4();
    let (asker, answerer) = (udp(client, 5000), udp(tenant.near.v4(), TARGET));
    ask(&asker, &answerer, 100);
    let (heard, socket) = (tenant.near.packets(), tenant.client.packets());
    let complain = |port: u16| {
        let answer = forge::datagram((PORT, port), b"answer");
        let from_service = Voice { pod: &tenant.near, ip: vip(client.ip) };
        let quote = forge::packet(from_service, client.ip, 17, &answer);
        let error = forge::icmp_error(3, 3, &quote);
        socket.send(&forge::packet(client, vip(client.ip), 1, &error)).unwrap();
    };
    complain(5001);
    complain(5000);
    let arrived = forge::arrived(&heard);
    let quoted = &arrived[forge::IP + 20 + 8..];
    assert_eq!(quoted[12..20], [tenant.near.ip.octets(), tenant.client.ip.octets()].concat());
    assert_eq!(quoted[20..24], [TARGET, 5000].map(u16::to_be_bytes).concat(), "the true one");
}

#[test]
fn a_pod_that_is_its_own_backend_sees_the_service_as_its_client() {
    let fabric = Fabric::of(1);
    let tenants = two_tenants(&fabric);
    for tenant in &tenants {
        fabric.serve(tenant.network(), &[&tenant.client], None);
    }
    for tenant in &tenants {
        for client in voices(&tenant.client) {
            let listener = listen(client, TARGET);
            let mut ours = connect(client, 0, front(client.ip), LIMIT).unwrap();
            let (mut theirs, peer) = listener.accept().unwrap();
            assert_eq!(peer.ip(), front(client.ip).ip());
            assert_eq!(peer.port(), ours.local_addr().unwrap().port());
            io::Write::write_all(&mut ours, b"to myself").unwrap();
            io::Read::read_exact(&mut theirs, &mut [0; 9]).unwrap();
            io::Write::write_all(&mut theirs, b"and back").unwrap();
            io::Read::read_exact(&mut ours, &mut [0; 8]).unwrap();
            talk_to_itself_by_udp(client);
        }
    }
}

fn talk_to_itself_by_udp(client: Voice) {
    let (asker, answerer) = (udp(client, 5000), udp(client, TARGET));
    asker.send_to(b"who am I?", front(client.ip)).unwrap();
    let mut buffer = [0; 16];
    let (_, peer) = answerer.hear_from(&mut buffer).unwrap();
    assert_eq!(peer, SocketAddr::new(front(client.ip).ip(), 5000));
    answerer.send_to(b"you", peer).unwrap();
    let (length, from) = asker.hear_from(&mut buffer).unwrap();
    assert_eq!((&buffer[..length], from), (&b"you"[..], front(client.ip)));
}

pub(crate) const SCTP: u8 = 132;
const ICMP_PROTOCOL_UNREACHABLE: [u8; 2] = [3, 2];
const ICMPV6_UNKNOWN_HEADER: [u8; 2] = [4, 1];

/// SCTP's checksum of a packet, bit by bit.
fn crc32c(bytes: &[u8]) -> [u8; 4] {
    let step = |sum: u32| sum >> 1 ^ (0x82f6_3b78 & (sum & 1).wrapping_neg());
    let byte = |sum: u32, byte: &u8| (0..8).fold(sum ^ u32::from(*byte), |sum, _| step(sum));
    (!bytes.iter().fold(u32::MAX, byte)).to_le_bytes()
}

/// A packet with one chunk of this kind and size, with a right checksum or one left to be made.
pub(crate) fn sctp(ports: (u16, u16), kind: u8, size: usize, is_summed: bool) -> Vec<u8> {
    let ports = [ports.0, ports.1].map(u16::to_be_bytes).concat();
    let chunk: Vec<u8> = (0..size).map(|n| (n * 5 % 253) as u8).collect();
    let mut packet = [&ports[..], &[1, 2, 3, 4, 0, 0, 0, 0], &[kind, 0, 0, 4], &chunk].concat();
    if is_summed {
        let sum = crc32c(&packet);
        packet[8..12].copy_from_slice(&sum);
    }
    packet
}

/// What comes after the IP header of the next packet of this protocol. A pod that does not speak
/// SCTP says so, which is passed over.
pub(crate) fn heard(at: &PacketSocket, of: IpAddr, protocol: u8) -> Vec<u8> {
    let (kind, protocol_at, content_at) = match of {
        IpAddr::V4(_) => ([8, 0], 23, 34),
        IpAddr::V6(_) => ([0x86, 0xdd], 20, 54),
    };
    loop {
        let frame = forge::arrived_of(at, kind);
        if frame[protocol_at] == protocol {
            return frame[content_at..].to_vec();
        }
    }
}

/// Whether a packet has the checksum that it should have.
pub(crate) fn is_right(packet: &[u8], is_summed: bool) -> bool {
    let mut bare = packet.to_vec();
    bare[8..12].fill(0);
    packet[8..12] == if is_summed { crc32c(&bare) } else { [0; 4] }
}

#[test]
fn sctp_passes_a_service_with_a_right_checksum_or_one_left_to_be_made() {
    let fabric = Fabric::of(2);
    for tenant in &two_tenants(&fabric) {
        for (server, is_summed) in
            tenant.backends().into_iter().flat_map(|it| [(it, true), (it, false)])
        {
            fabric.serve(tenant.network(), &[server], None);
            for (client, size) in voices(&tenant.client).into_iter().zip([0, 1001]) {
                let server = voice(client, server);
                let (there, back) = (server.pod.packets(), client.pod.packets());
                let port = if is_summed { 7000 } else { 7001 };
                let first = sctp((port, PORT), 1, size, is_summed);
                back.send(&forge::packet(client, vip(client.ip), SCTP, &first)).unwrap();
                let arrived = heard(&there, client.ip, SCTP);
                assert_eq!(arrived[..4], [port, TARGET].map(u16::to_be_bytes).concat());
                assert!(is_right(&arrived, is_summed), "{} {size}", client.ip);
                let answer = sctp((TARGET, port), 2, size, is_summed);
                there.send(&forge::packet(server, client.ip, SCTP, &answer)).unwrap();
                let arrived = heard(&back, client.ip, SCTP);
                assert_eq!(arrived[..4], [PORT, port].map(u16::to_be_bytes).concat());
                assert!(is_right(&arrived, is_summed), "{} {size}", client.ip);
            }
        }
    }
}

#[test]
fn sctp_to_nobody_is_told_that_the_protocol_is_not_spoken() {
    let fabric = Fabric::of(1);
    for tenant in &two_tenants(&fabric) {
        fabric.serve(tenant.network(), &[], None);
        for client in voices(&tenant.client) {
            let socket = client.pod.packets();
            let first = sctp((7000, PORT), 1, 16, true);
            socket.send(&forge::packet(client, vip(client.ip), SCTP, &first)).unwrap();
            let (told, quote) = match client.ip {
                IpAddr::V4(_) => (ICMP_PROTOCOL_UNREACHABLE, 8 + 20),
                IpAddr::V6(_) => (ICMPV6_UNKNOWN_HEADER, 8 + 40),
            };
            let error = heard(&socket, client.ip, forge::icmp_of(client.ip));
            assert_eq!(error[..2], told);
            assert_eq!(error[quote..][..12], first[..12], "the packet is quoted");
        }
    }
}
