//! Frames as they are: sent with any content, received before any protocol looks at them.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::sys::socket::sockopt::ReceiveTimeout;
use nix::sys::socket::{
    AddressFamily, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, bind, recvfrom, send,
    setsockopt, socket,
};
use nix::sys::time::TimeVal;

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
        send(self.socket.as_raw_fd(), frame, MsgFlags::empty())?;
        Ok(())
    }

    /// The next frame and which way it went, or `None` when `limit` passed without one.
    pub fn receive(&self, limit: Duration) -> io::Result<Option<(Direction, Vec<u8>)>> {
        let microseconds = i64::try_from(limit.as_micros()).map_err(io::Error::other)?.max(1);
        let limit = TimeVal::new(microseconds / 1_000_000, microseconds % 1_000_000);
        setsockopt(&self.socket, ReceiveTimeout, &limit)?;
        let mut frame = vec![0; 1 << 17];
        match recvfrom::<LinkAddr>(self.socket.as_raw_fd(), &mut frame) {
            Ok((length, from)) => {
                frame.truncate(length);
                let sent = from.is_some_and(|from| from.pkttype() == OUTGOING);
                Ok(Some((if sent { Direction::Out } else { Direction::In }, frame)))
            }
            Err(Errno::EAGAIN) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// All frames received up to now.
    pub fn received(&self) -> io::Result<Vec<Vec<u8>>> {
        let mut frames = vec![];
        while let Some((direction, frame)) = self.receive(Duration::from_micros(1))? {
            if direction == Direction::In {
                frames.push(frame);
            }
        }
        Ok(frames)
    }
}

fn link_address(interface: &str) -> io::Result<LinkAddr> {
    let own = getifaddrs()?.filter(|entry| entry.interface_name == interface);
    let address = own.filter_map(|entry| entry.address?.as_link_addr().copied()).next();
    address.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, interface.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Namespace;

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
}
