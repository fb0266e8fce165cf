//! A word to the neighbours that an address has moved here: a gratuitous ARP request, or an
//! advertisement that nobody asked for.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd;

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{
    AddressFamily, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, bind, send as send_to,
    socket,
};

type Mac = [u8; 6];

const ARP: [u8; 2] = [0x08, 0x06];
const IPV6: [u8; 2] = [0x86, 0xdd];
const ICMPV6: u8 = 58;
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// Sends frames on a link as they are.
pub(crate) fn send(link: &str, frames: &[Vec<u8>]) -> io::Result<()> {
    let kind = SockType::Raw;
    let raw = socket(AddressFamily::Packet, kind, SockFlag::SOCK_CLOEXEC, SockProtocol::EthAll)?;
    bind(raw.as_raw_fd(), &link_address(link)?)?;
    for frame in frames {
        send_to(raw.as_raw_fd(), frame, MsgFlags::empty())?;
    }
    Ok(())
}

fn link_address(link: &str) -> io::Result<LinkAddr> {
    let own = getifaddrs()?.filter(|entry| entry.interface_name == link);
    let address = own.filter_map(|entry| entry.address?.as_link_addr().copied()).next();
    address.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("no link {link}")))
}

/// The frame that says that `ip` is at `mac`.
pub(crate) fn frame(mac: Mac, ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => gratuitous_arp(mac, ip),
        IpAddr::V6(ip) => advertisement(mac, ip),
    }
}

/// A question for the sender's own address, to everybody.
fn gratuitous_arp(mac: Mac, ip: Ipv4Addr) -> Vec<u8> {
    let ethernet_and_ipv4_question = [0, 1, 8, 0, 6, 4, 0, 1];
    let nobody = [0; 6];
    let parts: [&[u8]; 8] = [
        &[0xff; 6],
        &mac,
        &ARP,
        &ethernet_and_ipv4_question,
        &mac,
        &ip.octets(),
        &nobody,
        &ip.octets(),
    ];
    parts.concat()
}

/// A neighbour advertisement that takes the place of what was known before.
fn advertisement(mac: Mac, ip: Ipv6Addr) -> Vec<u8> {
    const ADVERTISEMENT: [u8; 4] = [136, 0, 0, 0];
    const OVERRIDE: [u8; 4] = [0x20, 0, 0, 0];
    const TARGETS_LINK_ADDRESS: [u8; 2] = [2, 1];
    let parts: [&[u8]; 5] = [&ADVERTISEMENT, &OVERRIDE, &ip.octets(), &TARGETS_LINK_ADDRESS, &mac];
    let mut message = parts.concat();
    let sum = checksum(ip, ALL_NODES, &message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let header = [0x60, 0, 0, 0, 0, message.len() as u8, ICMPV6, 255];
    let to_all = [0x33, 0x33, 0, 0, 0, 1];
    let parts: [&[u8]; 7] =
        [&to_all, &mac, &IPV6, &header, &ip.octets(), &ALL_NODES.octets(), &message];
    parts.concat()
}

/// The checksum of an ICMPv6 message between two addresses.
fn checksum(from: Ipv6Addr, to: Ipv6Addr, message: &[u8]) -> u16 {
    let length = [0, 0, 0, message.len() as u8, 0, 0, 0, ICMPV6];
    let parts: [&[u8]; 4] = [&from.octets(), &to.octets(), &length, message];
    let bytes = parts.concat();
    let words = bytes
        .chunks(2)
        .map(|pair| (u32::from(pair[0]) << 8) | pair.get(1).map_or(0, |it| u32::from(*it)));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    !(folded as u16)
}

#[cfg(test)]
mod tests {
    use etherparse::{NetSlice, SlicedPacket, TransportSlice};

    use super::*;

    const MAC: Mac = [2, 0, 0, 0, 0, 7];

    #[test]
    fn a_question_for_ones_own_address_goes_to_everybody() {
        let frame = frame(MAC, [192, 0, 2, 5].into());
        assert_eq!((&frame[..6], &frame[6..12]), (&[0xff; 6][..], &MAC[..]));
        assert_eq!(&frame[12..22], [8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
        assert_eq!((&frame[22..28], &frame[28..32]), (&MAC[..], &[192, 0, 2, 5][..]));
        assert_eq!((&frame[32..38], &frame[38..]), (&[0; 6][..], &[192, 0, 2, 5][..]));
    }

    #[test]
    fn an_advertisement_has_a_checksum_that_others_agree_with() {
        let ip: Ipv6Addr = "2001:db8::5".parse().unwrap();
        let frame = frame(MAC, ip.into());
        let packet = SlicedPacket::from_ethernet(&frame).unwrap();
        let Some(NetSlice::Ipv6(header)) = &packet.net else { panic!("no IPv6") };
        let (from, to) = (header.header().source(), header.header().destination());
        assert_eq!((header.header().source_addr(), header.header().hop_limit()), (ip, 255));
        let Some(TransportSlice::Icmpv6(message)) = &packet.transport else { panic!("no ICMPv6") };
        assert!(message.is_checksum_valid(from, to));
        assert_eq!(&frame[frame.len() - 8..frame.len() - 6], [2, 1]);
        assert_eq!(&frame[frame.len() - 6..], MAC);
    }
}
