//! The first two words of an SCTP association over raw sockets, since kernels often lack SCTP: the
//! client's INIT and the server's INIT ACK. IPv4 only. Checksums are left out: nobody here looks.

use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};

use crate::answer::Outcome;

const SCTP: i32 = 132;
const INIT: u8 = 1;
const INIT_ACK: u8 = 2;

/// Tells requests of one process apart.
static NEXT_PORT: AtomicU16 = AtomicU16::new(0);

/// Ports and kind of a packet with one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Word {
    from: u16,
    to: u16,
    kind: u8,
}

impl Word {
    fn packet(self) -> Vec<u8> {
        let ports = [self.from.to_be_bytes(), self.to.to_be_bytes()].concat();
        let chunk = [self.kind, 0, 0, 20, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1];
        [&ports[..], &[0; 8], &chunk].concat()
    }

    /// Reads a packet with its IPv4 header.
    fn read(packet: &[u8]) -> Option<Word> {
        let header = usize::from(packet.first()? & 0x0f) * 4;
        let [a, b, c, d, _, _, _, _, _, _, _, _, kind] =
            *packet.get(header..)?.first_chunk::<13>()?;
        Some(Word { from: u16::from_be_bytes([a, b]), to: u16::from_be_bytes([c, d]), kind })
    }

    fn answer(self) -> Word {
        Word { from: self.to, to: self.from, kind: INIT_ACK }
    }
}

fn open() -> io::Result<Socket> {
    Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(SCTP)))
}

/// Sends an INIT and waits for its answer.
pub(crate) async fn ask(server: SocketAddr, patience: Duration) -> io::Result<Outcome> {
    let asked = tokio::task::spawn_blocking(move || ask_blocking(server, patience)).await;
    asked.map_err(io::Error::other)?.map(|()| Outcome::Replied(server.ip()))
}

fn ask_blocking(server: SocketAddr, patience: Duration) -> io::Result<()> {
    if server.is_ipv6() {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "SCTP is tried over IPv4 only"));
    }
    let mut socket = open()?;
    socket.connect(&server.into())?;
    let from = 20_000 + NEXT_PORT.fetch_add(1, Ordering::Relaxed) % 20_000;
    let init = Word { from, to: server.port(), kind: INIT };
    socket.send(&init.packet())?;
    let deadline = Instant::now() + patience;
    let mut packet = [0; 2048];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "no answer to INIT"));
        }
        socket.set_read_timeout(Some(left))?;
        match socket.read(&mut packet) {
            Ok(length) if Word::read(&packet[..length]) == Some(init.answer()) => return Ok(()),
            Err(error) if !is_pause(&error) => return Err(error),
            _ => {}
        }
    }
}

fn is_pause(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Answers every INIT to these ports for good, on a thread of its own.
pub(crate) fn serve(ports: Vec<u16>) -> io::Result<()> {
    let socket = open()?;
    std::thread::spawn(move || {
        loop {
            // What cannot be answered is not: the client asks again, or gives up.
            let _unanswered = answer_one(&socket, &ports);
        }
    });
    Ok(())
}

fn answer_one(socket: &Socket, ports: &[u16]) -> io::Result<()> {
    let mut room = [MaybeUninit::uninit(); 2048];
    let mut reader = socket;
    let (length, peer) = socket.peek_from(&mut room)?;
    let mut packet = vec![0; length];
    reader.read_exact(&mut packet)?;
    let heard = Word::read(&packet).filter(|word| word.kind == INIT && ports.contains(&word.to));
    let peer_ip = peer.as_socket().map(|peer| peer.ip());
    if let (Some(word), Some(ip @ IpAddr::V4(_))) = (heard, peer_ip) {
        socket.send_to(&word.answer().packet(), &SocketAddr::new(ip, 0).into())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_reads_back_behind_an_ip_header_and_its_answer_goes_the_other_way() {
        let word = Word { from: 20_001, to: 80, kind: INIT };
        let packet = [&[0x45][..], &[0; 19], &word.packet()].concat();
        assert_eq!(Word::read(&packet), Some(word));
        assert_eq!(word.answer(), Word { from: 80, to: 20_001, kind: INIT_ACK });
        assert_eq!(Word::read(&packet[..30]), None);
    }

    #[tokio::test]
    async fn an_init_to_a_served_port_is_answered_and_one_to_another_is_not() {
        serve(vec![7001]).unwrap();
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        assert!(ask(at(7001), Duration::from_secs(5)).await.is_ok());
        let error = ask(at(7002), Duration::from_millis(50)).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
