//! Forged frames, right in everything but the one thing a test is about, and how they arrive.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use atoll_types::MacAddr;
use etherparse::PacketBuilder;

use crate::{Direction, PacketSocket, eventually};

/// Who a pod is on its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Face {
    /// Its Ethernet address.
    pub mac: MacAddr,
    /// Its IPv4 address.
    pub ip: Ipv4Addr,
    /// Its IPv6 address.
    pub ipv6: Ipv6Addr,
}

impl Face {
    /// Speaking from its IPv4 address.
    pub fn v4(&self) -> Origin {
        Origin { face: *self, ip: self.ip.into() }
    }

    /// Speaking from its IPv6 address.
    pub fn v6(&self) -> Origin {
        Origin { face: *self, ip: self.ipv6.into() }
    }
}

/// One of a pod's addresses, as the source of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The pod.
    pub face: Face,
    /// The address.
    pub ip: IpAddr,
}

/// Ethernet address of the gateway that every pod sees.
pub const GATEWAY: [u8; 6] = MacAddr::GATEWAY.octets();
/// What forged datagrams carry.
pub const PAYLOAD: &[u8] = b"forged";

/// The offset of the IP header in a frame.
pub const IP: usize = 14;

/// A UDP frame from `pod` to `to`, right in everything.
pub fn udp(pod: impl Into<Face>, to: Ipv4Addr) -> Vec<u8> {
    let pod = pod.into();
    udp_from(pod.mac.octets(), pod.ip, to)
}

/// A UDP frame with these sender's addresses.
pub fn udp_from(mac: [u8; 6], from: Ipv4Addr, to: Ipv4Addr) -> Vec<u8> {
    let builder =
        PacketBuilder::ethernet2(mac, GATEWAY).ipv4(from.octets(), to.octets(), 64).udp(1111, 2222);
    let mut frame = vec![];
    builder.write(&mut frame, PAYLOAD).expect("a frame that can be");
    frame
}

/// A UDP frame with IP options, which must be a multiple of four bytes.
pub fn udp_with_options(pod: impl Into<Face>, to: Ipv4Addr, options: &[u8]) -> Vec<u8> {
    let mut frame = udp(pod, to);
    frame.splice(IP + 20..IP + 20, options.iter().copied());
    frame[IP] = 0x40 | (5 + options.len() as u8 / 4);
    let total = (frame.len() - IP) as u16;
    frame[IP + 2..IP + 4].copy_from_slice(&total.to_be_bytes());
    frame
}

/// A UDP frame of IPv6 with these sender's addresses.
pub fn udp6_from(mac: [u8; 6], from: Ipv6Addr, to: Ipv6Addr) -> Vec<u8> {
    let builder =
        PacketBuilder::ethernet2(mac, GATEWAY).ipv6(from.octets(), to.octets(), 64).udp(1111, 2222);
    let mut frame = vec![];
    builder.write(&mut frame, PAYLOAD).expect("a frame that can be");
    frame
}

/// A UDP frame of IPv6 with extension headers between; `first` is the type of the first.
pub fn udp6_with(pod: impl Into<Face>, to: Ipv6Addr, first: u8, extensions: &[u8]) -> Vec<u8> {
    let pod = pod.into();
    let mut frame = udp6_from(pod.mac.octets(), pod.ipv6, to);
    frame.splice(IP + 40..IP + 40, extensions.iter().copied());
    frame[IP + 6] = first;
    let payload = (frame.len() - IP - 40) as u16;
    frame[IP + 4..IP + 6].copy_from_slice(&payload.to_be_bytes());
    frame
}

/// An ICMPv6 message with the hop limit of neighbour discovery.
pub fn icmp6(pod: impl Into<Face>, (from, to): (Ipv6Addr, Ipv6Addr), message: &[u8]) -> Vec<u8> {
    let mut icmp = message.to_vec();
    let sum = etherparse::Icmpv6Type::Unknown {
        type_u8: message[0],
        code_u8: message[1],
        bytes5to8: message[4..8].try_into().expect("a frame that can be"),
    }
    .calc_checksum(from.octets(), to.octets(), &message[8..])
    .expect("a frame that can be");
    icmp[2..4].copy_from_slice(&sum.to_be_bytes());
    let header = [0x60, 0, 0, 0, 0, icmp.len() as u8, 58, 255];
    let eth = [&GATEWAY[..], &pod.into().mac.octets(), &[0x86, 0xdd]].concat();
    [&eth[..], &header, &from.octets(), &to.octets(), &icmp].concat()
}

/// A packet of any protocol with this content, right in everything around it.
pub fn packet(from: impl Into<Origin>, to: IpAddr, protocol: u8, content: &[u8]) -> Vec<u8> {
    let from = from.into();
    let mac = from.face.mac.octets();
    let mut frame = [&GATEWAY[..], &mac].concat();
    match (from.ip, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let size = u16::try_from(content.len()).expect("a frame that can be");
            let number = etherparse::IpNumber(protocol);
            let mut header =
                etherparse::Ipv4Header::new(size, 64, number, from.octets(), to.octets())
                    .expect("a frame that can be");
            header.header_checksum = header.calc_header_checksum();
            frame.extend([&[8, 0][..], &header.to_bytes()].concat());
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let size = u16::try_from(content.len()).expect("a frame that can be").to_be_bytes();
            let header = [0x60, 0, 0, 0, size[0], size[1], protocol, 64];
            frame.extend([&[0x86, 0xdd][..], &header, &from.octets(), &to.octets()].concat());
        }
        _ => panic!("addresses of two families"),
    }
    [&frame[..], content].concat()
}

/// A fragment: `content` at `offset` of the datagram with the number `id`.
pub fn fragment(
    (from, to): (impl Into<Origin>, impl Into<Origin>),
    protocol: u8,
    id: u16,
    (offset, more): (u16, bool),
    content: &[u8],
) -> Vec<u8> {
    let (from, to) = (from.into(), to.into());
    let id = id.to_be_bytes();
    if from.ip.is_ipv6() {
        let place = (offset | u16::from(more)).to_be_bytes();
        let header = [&[protocol, 0][..], &place, &[0, 0], &id].concat();
        return packet(from, to.ip, 44, &[&header, content].concat());
    }
    let mut frame = packet(from, to.ip, protocol, content);
    let place = ((offset / 8) | if more { 0x2000 } else { 0 }).to_be_bytes();
    frame[IP + 4..IP + 6].copy_from_slice(&id);
    frame[IP + 6..IP + 8].copy_from_slice(&place);
    frame[IP + 10..IP + 12].fill(0);
    let header = etherparse::Ipv4Header::from_slice(&frame[IP..]).expect("a frame that can be").0;
    frame[IP + 10..IP + 12].copy_from_slice(&header.calc_header_checksum().to_be_bytes());
    frame
}

/// A TCP header alone, with these ports and flags.
pub fn tcp(ports: (u16, u16), flags: u8) -> Vec<u8> {
    let (from, to) = (ports.0.to_be_bytes(), ports.1.to_be_bytes());
    [&from[..], &to, &[0, 0, 0, 1, 0, 0, 0, 1, 0x50, flags, 2, 0, 0, 0, 0, 0]].concat()
}

/// A UDP datagram with these ports; its checksum is left out.
pub fn datagram(ports: (u16, u16), content: &[u8]) -> Vec<u8> {
    let size = u16::try_from(8 + content.len()).expect("a frame that can be");
    let fields = [ports.0, ports.1, size, 0].map(u16::to_be_bytes).concat();
    [&fields, content].concat()
}

/// The same with its checksum, as who receives it over IPv6 asks for.
pub fn summed_datagram((from, to): (IpAddr, IpAddr), ports: (u16, u16), content: &[u8]) -> Vec<u8> {
    let size = u16::try_from(8 + content.len()).expect("a frame that can be");
    let header = etherparse::UdpHeader {
        source_port: ports.0,
        destination_port: ports.1,
        length: size,
        checksum: 0,
    };
    let sum = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            header.calc_checksum_ipv4_raw(from.octets(), to.octets(), content)
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            header.calc_checksum_ipv6_raw(from.octets(), to.octets(), content)
        }
        _ => panic!("addresses of two families"),
    };
    let mut datagram = datagram(ports, content);
    datagram[6..8].copy_from_slice(&sum.expect("a frame that can be").to_be_bytes());
    datagram
}

/// An ICMP error of this type and code that quotes a packet, given as a frame.
pub fn icmp_error(kind: u8, code: u8, quoted: &[u8]) -> Vec<u8> {
    [&[kind, code, 0, 0, 0, 0, 5, 0][..], &quoted[IP..]].concat()
}

/// The number of ICMP in the family of this address.
pub fn icmp_of(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { 1 } else { 58 }
}

/// A neighbour solicitation (135) or advertisement (136) for `target` with a MAC in it.
pub fn nd(kind: u8, target: Ipv6Addr, mac: [u8; 6]) -> Vec<u8> {
    let option = if kind == 135 { 1 } else { 2 };
    [&[kind, 0, 0, 0, 0, 0, 0, 0][..], &target.octets(), &[option, 1], &mac].concat()
}

/// An ARP message of operation `operation`, sent from `pod`'s own MAC.
pub fn arp(
    pod: impl Into<Face>,
    operation: u16,
    sender: ([u8; 6], Ipv4Addr),
    target: Ipv4Addr,
) -> Vec<u8> {
    let fixed = [0, 1, 8, 0, 6, 4];
    [
        &[0xff; 6][..],
        &pod.into().mac.octets(),
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
pub fn other(pod: impl Into<Face>, ether_type: u16, content: &[u8]) -> Vec<u8> {
    [&GATEWAY[..], &pod.into().mac.octets(), &ether_type.to_be_bytes(), content].concat()
}

/// The same frame with a VLAN tag.
pub fn tagged(frame: &[u8], vlan: u16) -> Vec<u8> {
    [&frame[..12], &[0x81, 0x00], &vlan.to_be_bytes(), &frame[12..]].concat()
}

/// What a tunnel packet carries: a VXLAN header and the frame.
pub fn vxlan(vni: u32, frame: &[u8]) -> Vec<u8> {
    let vni = (vni << 8).to_be_bytes();
    [&[8, 0, 0, 0][..], &vni, frame].concat()
}

/// The next IPv4 packet that arrives.
pub fn arrived(heard: &PacketSocket) -> Vec<u8> {
    arrived_of(heard, [0x08, 0x00])
}

/// The next frame of a protocol that arrives.
pub fn arrived_of(heard: &PacketSocket, ether_type: [u8; 2]) -> Vec<u8> {
    eventually("a frame arrived", || {
        let (direction, frame) =
            heard.receive(Duration::from_millis(10)).expect("a frame that can be")?;
        (direction == Direction::In && frame[12..14] == ether_type).then_some(frame)
    })
}
