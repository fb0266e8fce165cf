//! Forged frames, right in everything but the one thing a test is about, and how they arrive.

use std::net::Ipv4Addr;
use std::time::Duration;

use atoll_testkit::{Direction, PacketSocket, eventually};
use atoll_types::MacAddr;
use etherparse::PacketBuilder;

use crate::fabric::Pod;

pub(crate) const GATEWAY: [u8; 6] = MacAddr::GATEWAY.octets();
pub(crate) const PAYLOAD: &[u8] = b"forged";

/// The offset of the IP header in a frame.
pub(crate) const IP: usize = 14;

/// A UDP frame from `pod` to `to`, right in everything.
pub(crate) fn udp(pod: &Pod, to: Ipv4Addr) -> Vec<u8> {
    udp_from(pod.mac.octets(), pod.ip, to)
}

/// A UDP frame with these sender's addresses.
pub(crate) fn udp_from(mac: [u8; 6], from: Ipv4Addr, to: Ipv4Addr) -> Vec<u8> {
    let builder =
        PacketBuilder::ethernet2(mac, GATEWAY).ipv4(from.octets(), to.octets(), 64).udp(1111, 2222);
    let mut frame = vec![];
    builder.write(&mut frame, PAYLOAD).unwrap();
    frame
}

/// A UDP frame with IP options, which must be a multiple of four bytes.
pub(crate) fn udp_with_options(pod: &Pod, to: Ipv4Addr, options: &[u8]) -> Vec<u8> {
    let mut frame = udp(pod, to);
    frame.splice(IP + 20..IP + 20, options.iter().copied());
    frame[IP] = 0x40 | (5 + options.len() as u8 / 4);
    let total = (frame.len() - IP) as u16;
    frame[IP + 2..IP + 4].copy_from_slice(&total.to_be_bytes());
    frame
}

/// An ARP message of operation `operation`, sent from `pod`'s own MAC.
pub(crate) fn arp(
    pod: &Pod,
    operation: u16,
    sender: ([u8; 6], Ipv4Addr),
    target: Ipv4Addr,
) -> Vec<u8> {
    let fixed = [0, 1, 8, 0, 6, 4];
    [
        &[0xff; 6][..],
        &pod.mac.octets(),
        &[8, 6],
        &fixed,
        &operation.to_be_bytes(),
        &sender.0,
        &sender.1.octets(),
        &[0; 6],
        &target.octets(),
    ]
    .concat()
}

/// A frame of another protocol, from `pod`'s own MAC.
pub(crate) fn other(pod: &Pod, ether_type: u16, content: &[u8]) -> Vec<u8> {
    [&GATEWAY[..], &pod.mac.octets(), &ether_type.to_be_bytes(), content].concat()
}

/// The same frame with a VLAN tag.
pub(crate) fn tagged(frame: &[u8], vlan: u16) -> Vec<u8> {
    [&frame[..12], &[0x81, 0x00], &vlan.to_be_bytes(), &frame[12..]].concat()
}

/// What a tunnel packet carries: a VXLAN header and the frame.
pub(crate) fn vxlan(vni: u32, frame: &[u8]) -> Vec<u8> {
    let vni = (vni << 8).to_be_bytes();
    [&[8, 0, 0, 0][..], &vni, frame].concat()
}

/// The next IPv4 packet that arrives.
pub(crate) fn arrived(heard: &PacketSocket) -> Vec<u8> {
    eventually("an IPv4 packet arrived", || {
        let (direction, frame) = heard.receive(Duration::from_millis(10)).unwrap()?;
        (direction == Direction::In && frame[12..14] == [8, 0]).then_some(frame)
    })
}
