//! One ICMP echo request and its reply, over a raw socket (a datagram one where raw is not allowed).

use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};

use crate::answer::Outcome;

/// Tells requests of one process apart.
static NEXT_SEQUENCE: AtomicU16 = AtomicU16::new(1);

const IPV4_REQUEST: u8 = 8;
const IPV4_REPLY: u8 = 0;
const IPV6_REQUEST: u8 = 128;
const IPV6_REPLY: u8 = 129;

/// What a request and its reply share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Echo {
    /// `None` where the kernel fills it in (datagram sockets).
    identifier: Option<u16>,
    sequence: u16,
}

/// Sends one echo request to `ip` and waits for its reply.
pub(crate) async fn ask(ip: IpAddr, patience: Duration) -> io::Result<Outcome> {
    let asked = tokio::task::spawn_blocking(move || ask_blocking(ip, patience)).await;
    asked.map_err(io::Error::other)?.map(|()| Outcome::Replied(ip))
}

fn ask_blocking(ip: IpAddr, patience: Duration) -> io::Result<()> {
    let (mut socket, raw) = open(ip)?;
    socket.connect(&SocketAddr::new(ip, 0).into())?;
    let sequence = NEXT_SEQUENCE.fetch_add(1, Ordering::Relaxed);
    let identifier = raw.then(|| std::process::id() as u16);
    let echo = Echo { identifier, sequence };
    socket.send(&request(ip, echo))?;
    wait_for_reply(&mut socket, ip, echo, Instant::now() + patience)
}

/// The socket, and whether it is a raw one.
fn open(ip: IpAddr) -> io::Result<(Socket, bool)> {
    let (domain, protocol) = match ip {
        IpAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4),
        IpAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6),
    };
    match Socket::new(domain, Type::RAW, Some(protocol)) {
        Ok(socket) => Ok((socket, true)),
        Err(_) => Ok((Socket::new(domain, Type::DGRAM, Some(protocol))?, false)),
    }
}

fn wait_for_reply(
    socket: &mut Socket,
    ip: IpAddr,
    echo: Echo,
    deadline: Instant,
) -> io::Result<()> {
    let mut packet = [0; 2048];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "no echo reply"));
        }
        socket.set_read_timeout(Some(left))?;
        match socket.read(&mut packet) {
            Ok(length) if is_reply(ip, echo, &packet[..length]) => return Ok(()),
            Ok(_) => {}
            Err(error) if is_pause(&error) => {}
            Err(error) => return Err(error),
        }
    }
}

fn is_pause(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

fn request(ip: IpAddr, echo: Echo) -> Vec<u8> {
    let kind = if ip.is_ipv4() { IPV4_REQUEST } else { IPV6_REQUEST };
    let mut packet = vec![kind, 0, 0, 0];
    packet.extend(echo.identifier.unwrap_or_default().to_be_bytes());
    packet.extend(echo.sequence.to_be_bytes());
    packet.extend(b"atoll toolbox");
    if ip.is_ipv4() {
        // ICMPv6's checksum covers addresses, so the kernel fills that one in.
        let sum = checksum(&packet).to_be_bytes();
        packet[2..4].copy_from_slice(&sum);
    }
    packet
}

/// Raw IPv4 sockets hand out the IP header too; all others begin with ICMP.
fn is_reply(ip: IpAddr, echo: Echo, packet: &[u8]) -> bool {
    let has_header = ip.is_ipv4() && echo.identifier.is_some();
    let start =
        if has_header { packet.first().map_or(0, |b| usize::from(b & 0x0f) * 4) } else { 0 };
    let kind = if ip.is_ipv4() { IPV4_REPLY } else { IPV6_REPLY };
    let Some([first, _, _, _, id_high, id_low, seq_high, seq_low]) =
        packet.get(start..).and_then(|icmp| icmp.first_chunk::<8>())
    else {
        return false;
    };
    let identifier = u16::from_be_bytes([*id_high, *id_low]);
    *first == kind
        && echo.identifier.is_none_or(|mine| mine == identifier)
        && echo.sequence == u16::from_be_bytes([*seq_high, *seq_low])
}

/// The internet checksum: the one's complement of the one's complement sum.
fn checksum(packet: &[u8]) -> u16 {
    let words = packet.chunks(2).map(|pair| {
        u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or_default()]))
    });
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 5));

    fn echo() -> Echo {
        Echo { identifier: Some(0x1234), sequence: 7 }
    }

    /// The reply to `request` as a raw IPv4 socket delivers it.
    fn reply_with_header(mut request: Vec<u8>) -> Vec<u8> {
        request[0] = IPV4_REPLY;
        let mut packet = vec![0x45];
        packet.extend([0; 19]);
        packet.extend(request);
        packet
    }

    #[test]
    fn a_packet_with_its_checksum_sums_to_zero() {
        assert_eq!(checksum(&request(V4, echo())), 0);
        assert_eq!(checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0x220d);
    }

    #[test]
    fn only_the_reply_to_this_very_request_counts() {
        let reply = reply_with_header(request(V4, echo()));
        assert!(is_reply(V4, echo(), &reply));
        assert!(!is_reply(V4, Echo { sequence: 8, ..echo() }, &reply));
        assert!(!is_reply(V4, Echo { identifier: Some(1), ..echo() }, &reply));
        assert!(!is_reply(V4, echo(), &reply[..24]));
        assert!(!is_reply(V4, echo(), &[]));
    }

    #[test]
    fn ones_own_request_seen_on_a_raw_socket_is_no_reply() {
        let mut packet = reply_with_header(request(V4, echo()));
        packet[20] = IPV4_REQUEST;
        assert!(!is_reply(V4, echo(), &packet));
    }

    #[tokio::test]
    async fn loopback_replies() {
        let ip = IpAddr::from([127, 0, 0, 1]);
        assert_eq!(ask(ip, Duration::from_secs(5)).await.unwrap(), Outcome::Replied(ip));
    }
}
