//! Networks with the same addresses work side by side and never meet.

use std::io::{Read, Write};
use std::net::SocketAddr;

use atoll_datapath::{Attachment, DropReason};
use atoll_testkit::eventually;

use crate::fabric::{Fabric, Pod, network};
use crate::talk::{BRIEF, LIMIT, Voice, connect, converse, listen, ping, udp};

const ACME: u32 = 100;
const GLOBEX: u32 = 200;

/// The same pair of addresses in both networks, the second of each on the last node.
fn twins(fabric: &Fabric) -> [[Pod; 2]; 2] {
    let last = fabric.nodes.len() - 1;
    [ACME, GLOBEX]
        .map(network)
        .map(|network| [fabric.pod(0, network, "10.0.0.1"), fabric.pod(last, network, "10.0.0.2")])
}

fn within_each_network_all_talk(fabric: &Fabric) {
    for [one, other] in &twins(fabric) {
        converse(one, other);
        converse(other, one);
    }
}

#[test]
fn two_networks_with_equal_addresses_work_on_one_node() {
    within_each_network_all_talk(&Fabric::of(1));
}

#[test]
fn two_networks_with_equal_addresses_work_across_nodes() {
    within_each_network_all_talk(&Fabric::of(2));
}

#[test]
fn both_work_with_filters_of_older_kernels() {
    within_each_network_all_talk(&Fabric::attached_by(1, Attachment::Clsact));
    within_each_network_all_talk(&Fabric::attached_by(2, Attachment::Clsact));
}

/// An address that only the other network has cannot be reached, by any protocol.
fn nothing_passes_across(fabric: &Fabric) {
    let last = fabric.nodes.len() - 1;
    let insider = fabric.pod(0, network(ACME), "10.0.0.1");
    let outsider = fabric.pod(last, network(GLOBEX), "10.0.0.9");
    let heard = outsider.packets();
    for (from, to) in [(insider.v4(), outsider.v4()), (insider.v6(), outsider.v6())] {
        let _listener = listen(to, 80);
        let target = SocketAddr::from((to.ip, 80));
        connect(from, 0, target, BRIEF).unwrap_err();
        udp(from, 0).send_to(b"hello?", target).unwrap();
        assert!(!ping(from, to.ip, BRIEF));
    }
    eventually("TCP, UDP and ICMP of both families were dropped", || {
        let dropped = fabric.nodes[0].dropped(Some(insider.network), DropReason::NoEndpoint);
        (dropped >= 6).then_some(())
    });
    assert_eq!(heard.received().unwrap(), Vec::<Vec<u8>>::new());
}

#[test]
fn nothing_passes_between_networks_on_one_node() {
    nothing_passes_across(&Fabric::of(1));
}

#[test]
fn nothing_passes_between_networks_across_nodes() {
    nothing_passes_across(&Fabric::of(2));
}

/// Both networks use the very same five-tuple at the same time; each hears only its own.
fn equal_tuples_at_once(fabric: &Fabric) {
    let twins = twins(fabric);
    equal_tuples(twins.each_ref().map(|[client, server]| [client.v4(), server.v4()]));
    equal_tuples(twins.each_ref().map(|[client, server]| [client.v6(), server.v6()]));
}

fn equal_tuples(twins: [[Voice; 2]; 2]) {
    let talks = twins.map(|[client, server]| {
        let listener = listen(server, 7000);
        let ours = connect(client, 5000, (server.ip, 7000).into(), LIMIT).unwrap();
        let (theirs, peer) = listener.accept().unwrap();
        assert_eq!(peer, SocketAddr::from((client.ip, 5000)));
        (ours, theirs)
    });
    for (name, (ours, _)) in ["acme", "glbx"].iter().zip(&talks) {
        (&mut &*ours).write_all(name.as_bytes()).unwrap();
    }
    for (name, (_, theirs)) in ["acme", "glbx"].iter().zip(&talks) {
        let mut heard = [0; 4];
        (&mut &*theirs).read_exact(&mut heard).unwrap();
        assert_eq!(&heard, name.as_bytes());
    }
}

#[test]
fn equal_tuples_in_two_networks_are_two_connections_on_one_node() {
    equal_tuples_at_once(&Fabric::of(1));
}

#[test]
fn equal_tuples_in_two_networks_are_two_connections_across_nodes() {
    equal_tuples_at_once(&Fabric::of(2));
}

#[test]
fn checksums_are_right_with_every_offload_off() {
    let fabric = Fabric::of(2);
    let network = network(ACME);
    let pods = [(0, "10.0.0.1"), (0, "10.0.0.2"), (1, "10.0.0.3")]
        .map(|(place, ip)| fabric.pod(place, network, ip));
    pods.iter().for_each(|pod| pod.namespace.switch_offloads_off("eth0"));
    for node in &fabric.nodes {
        ["uplink", "atoll-vx"].iter().for_each(|link| node.namespace.switch_offloads_off(link));
    }
    for other in &pods[1..] {
        let seen = other.packets();
        converse(&pods[0], other);
        let frames = seen.received().unwrap();
        assert!(frames.len() > 30, "{} frames of a long talk", frames.len());
        frames.iter().for_each(|frame| assert_checksums(frame));
    }
}

pub(crate) fn assert_checksums(frame: &[u8]) {
    for (found, right) in checksums(frame) {
        assert_eq!(found, right);
    }
}

/// The checksums of a frame, each as it is and as it should be.
pub(crate) fn checksums(frame: &[u8]) -> Vec<(u16, u16)> {
    use etherparse::{NetSlice, SlicedPacket, TransportSlice};
    let packet = SlicedPacket::from_ethernet(frame).unwrap();
    let transport = match (&packet.net, &packet.transport) {
        (Some(NetSlice::Ipv4(ip)), Some(TransportSlice::Tcp(tcp))) => {
            let header = ip.header().to_header();
            (tcp.checksum(), tcp.to_header().calc_checksum_ipv4(&header, tcp.payload()))
        }
        (Some(NetSlice::Ipv4(ip)), Some(TransportSlice::Udp(udp))) => {
            let header = ip.header().to_header();
            (udp.checksum(), udp.to_header().calc_checksum_ipv4(&header, udp.payload()))
        }
        (Some(NetSlice::Ipv6(ip)), Some(TransportSlice::Tcp(tcp))) => {
            let header = ip.header().to_header();
            (tcp.checksum(), tcp.to_header().calc_checksum_ipv6(&header, tcp.payload()))
        }
        (Some(NetSlice::Ipv6(ip)), Some(TransportSlice::Udp(udp))) => {
            let header = ip.header().to_header();
            (udp.checksum(), udp.to_header().calc_checksum_ipv6(&header, udp.payload()))
        }
        _ => return vec![],
    };
    let header = match &packet.net {
        Some(NetSlice::Ipv4(ip)) => Some(ip.header().to_header()),
        _ => None,
    };
    let header = header.map(|it| (it.header_checksum, it.calc_header_checksum()));
    header.into_iter().chain([(transport.0, transport.1.unwrap())]).collect()
}
