//! Frames as they are: sent with any content, received before any protocol looks at them.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::sockopt::ReceiveTimeout;
use nix::sys::socket::{
    AddressFamily, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, bind, recvfrom, send,
    setsockopt, socket,
};
use nix::sys::time::TimeVal;

use crate::forge::GATEWAY;
use crate::uninterrupted;

/// The kernel's mark on frames that were sent, not received.
const OUTGOING: u8 = 4;

/// Which way a frame went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The interface received it.
    In,
    /// The interface sent it.
    Out,
}

/// A raw socket on one interface of the namespace it was opened in.
#[derive(Debug)]
pub struct PacketSocket {
    socket: OwnedFd,
}

impl PacketSocket {
    /// Opens a socket on `interface` in the current thread's namespace.
    pub fn open(interface: &str) -> io::Result<Self> {
        let raw = socket(
            AddressFamily::Packet,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::EthAll,
        )?;
        bind(raw.as_raw_fd(), &link_address(interface)?)?;
        Ok(PacketSocket { socket: raw })
    }

    /// Sends one frame, beginning with its Ethernet header.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        uninterrupted(|| Ok(send(self.socket.as_raw_fd(), frame, MsgFlags::empty())?))?;
        Ok(())
    }

    /// The next frame and which way it went, or `None` when `limit` passed without one.
    pub fn receive(&self, limit: Duration) -> io::Result<Option<(Direction, Vec<u8>)>> {
        let microseconds = i64::try_from(limit.as_micros()).map_err(io::Error::other)?.max(1);
        let limit = TimeVal::new(microseconds / 1_000_000, microseconds % 1_000_000);
        setsockopt(&self.socket, ReceiveTimeout, &limit)?;
        let mut frame = vec![0; 1 << 17];
        match uninterrupted(|| Ok(recvfrom::<LinkAddr>(self.socket.as_raw_fd(), &mut frame)?)) {
            Ok((length, from)) => {
                frame.truncate(length);
                let sent = from.is_some_and(|from| from.pkttype() == OUTGOING);
                Ok(Some((if sent { Direction::Out } else { Direction::In }, frame)))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All frames received up to now, but for those by which the gateway says where it is: a kernel asks
    /// for that whenever it has not heard of it for a while, whatever a test does.
    pub fn received(&self) -> io::Result<Vec<Vec<u8>>> {
        let mut frames = vec![];
        while let Some((direction, frame)) = self.receive(Duration::from_micros(1))? {
            if direction == Direction::In && !is_where_the_gateway_is(&frame) {
                frames.push(frame);
            }
        }
        Ok(frames)
    }
}

/// Whether the gateway itself answers a question for its own Ethernet address, over ARP or over
/// neighbour discovery. Whoever lies about somebody's address names another one.
fn is_where_the_gateway_is(frame: &[u8]) -> bool {
    let has = |at: usize, bytes: &[u8]| frame.get(at..at + bytes.len()) == Some(bytes);
    let is_arp = has(12, &[8, 6]) && has(20, &[0, 2]) && has(22, &GATEWAY);
    let is_nd = has(12, &[0x86, 0xdd]) && has(20, &[58]) && has(54, &[136]) && has(80, &GATEWAY);
    has(6, &GATEWAY) && (is_arp || is_nd)
}

fn link_address(interface: &str) -> io::Result<LinkAddr> {
    let own = getifaddrs()?.filter(|entry| entry.interface_name == interface);
    let address = own.filter_map(|entry| entry.address?.as_link_addr().copied()).next();
    address.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, interface.to_owned()))
}

#[cfg(test)]
mod tests {
    use atoll_types::{GATEWAY_V4, GATEWAY_V6, MacAddr};

    use super::*;
    use crate::Namespace;
    use crate::forge::{self, Face};

    #[test]
    fn a_frame_arrives_as_it_was_sent_and_knows_its_direction() {
        let namespace = Namespace::new();
        namespace.ip("link add one type veth peer name other");
        namespace.ip("link set one up");
        namespace.ip("link set other up");
        let open = |name: &str| namespace.run(|| PacketSocket::open(name).unwrap());
        let (sender, onlooker, receiver) = (open("one"), open("one"), open("other"));
        let frame = [[0xff; 6], [2; 6]].concat().into_iter().chain([0x88, 0xb5, 7, 7]);
        let frame: Vec<u8> = frame.collect();
        sender.send(&frame).unwrap();
        let mut seen = vec![];
        crate::eventually("the frame was seen on both sides", || {
            seen.extend(onlooker.receive(Duration::from_millis(1)).unwrap());
            seen.extend(receiver.receive(Duration::from_millis(1)).unwrap());
            let went = |way| seen.contains(&(way, frame.clone()));
            (went(Direction::Out) && went(Direction::In)).then_some(())
        });
    }

    #[test]
    fn of_all_answers_only_the_gateways_own_about_itself_is_passed_over() {
        let pod = Face {
            mac: MacAddr::for_ip([10, 0, 0, 5].into()),
            ip: [10, 0, 0, 5].into(),
            ipv6: "fd00::5".parse().unwrap(),
        };
        let from_gateway = |mut frame: Vec<u8>| {
            frame[6..12].copy_from_slice(&GATEWAY);
            frame
        };
        let arp = |mac, kind| from_gateway(forge::arp(pod, kind, (mac, GATEWAY_V4), pod.ip));
        let nd = |mac, kind| {
            let message = forge::nd(kind, GATEWAY_V6, mac);
            from_gateway(forge::icmp6(pod, (GATEWAY_V6, pod.ipv6), &message))
        };
        let liar = MacAddr::for_ip([10, 0, 0, 6].into()).octets();
        assert!(is_where_the_gateway_is(&arp(GATEWAY, 2)));
        assert!(is_where_the_gateway_is(&nd(GATEWAY, 136)));
        for other in [
            arp(liar, 2),
            arp(GATEWAY, 1),
            nd(liar, 136),
            nd(GATEWAY, 135),
            from_gateway(forge::udp(pod, pod.ip)),
            forge::arp(pod, 2, (GATEWAY, GATEWAY_V4), pod.ip),
            vec![],
        ] {
            assert!(!is_where_the_gateway_is(&other), "{other:?}");
        }
    }
}
