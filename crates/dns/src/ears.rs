//! What hears at one address: one port, over TCP, and by a socket of UDP for each thread.
//!
//! The rule: a port that was left open is one that nobody else has, over either of the two.

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};

use socket2::{Domain, Protocol, Socket, Type};

use crate::server::ServerError;

/// Room for questions that came while the thread was not running.
const RECEIVE_ROOM: usize = 16 << 20;
const BACKLOG: i32 = 256;
/// So many ports are tried where any would do.
const OPEN_PORTS_TRIED: usize = 32;

/// The sockets of one address.
pub(crate) struct Ears {
    pub(crate) connections: TcpListener,
    pub(crate) datagrams: Vec<UdpSocket>,
}

impl Ears {
    /// Binds them all.
    pub(crate) fn open(address: SocketAddr, threads: usize) -> Result<Ears, ServerError> {
        match address.port() {
            0 => until_free(|| Ears::open_once(address, threads)),
            _ => Ears::open_once(address, threads),
        }
    }

    /// TCP comes first: its listeners share a port with nobody, while a socket of UDP that may share
    /// its port is also given one that another resolver has.
    fn open_once(address: SocketAddr, threads: usize) -> Result<Ears, ServerError> {
        let over = |over| move |source| ServerError::Listen { address, over, source };
        let connections = tcp_listener(address).map_err(over("TCP"))?;
        let bound = connections.local_addr().map_err(over("TCP"))?;
        let datagrams = (0..threads).map(|_| udp_socket(bound)).collect::<io::Result<_>>();
        Ok(Ears { connections, datagrams: datagrams.map_err(over("UDP"))? })
    }
}

fn until_free<T>(mut open: impl FnMut() -> Result<T, ServerError>) -> Result<T, ServerError> {
    let mut outcome = open();
    for _ in 1..OPEN_PORTS_TRIED {
        if !outcome.as_ref().is_err_and(is_taken) {
            break;
        }
        outcome = open();
    }
    outcome
}

fn is_taken(error: &ServerError) -> bool {
    matches!(error, ServerError::Listen { source, .. } if source.kind() == io::ErrorKind::AddrInUse)
}

fn udp_socket(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_reuse_port(true)?;
    // Without the right to exceed the system's limit, the limit is what we get.
    let force = nix::sys::socket::sockopt::RcvBufForce;
    if nix::sys::socket::setsockopt(&socket, force, &RECEIVE_ROOM).is_err() {
        socket.set_recv_buffer_size(RECEIVE_ROOM)?;
    }
    socket.bind(&address.into())?;
    Ok(socket.into())
}

fn tcp_listener(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANYWHERE: SocketAddr =
        SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

    fn refusal(opened: Result<Ears, ServerError>) -> String {
        opened.err().expect("somebody is there").to_string()
    }

    /// Somebody's socket of UDP, at a port that nobody has over TCP.
    fn stranger() -> UdpSocket {
        let half_taken = || {
            let free = TcpListener::bind(ANYWHERE).unwrap();
            UdpSocket::bind(free.local_addr().unwrap()).ok()
        };
        std::iter::repeat_with(half_taken).flatten().next().unwrap()
    }

    #[test]
    fn all_sockets_of_an_address_have_one_port() {
        let ears = Ears::open(ANYWHERE, 2).unwrap();
        let port = ears.connections.local_addr().unwrap();
        let others = ears.datagrams.iter().map(|socket| socket.local_addr().unwrap());
        assert_eq!(others.collect::<Vec<_>>(), [port; 2]);
    }

    #[test]
    fn a_port_that_somebody_has_over_either_is_refused_by_name() {
        let ears = Ears::open(ANYWHERE, 1).unwrap();
        let taken = ears.connections.local_addr().unwrap();
        assert!(refusal(Ears::open(taken, 1)).contains("over TCP"));
        let stranger = stranger();
        assert!(refusal(Ears::open(stranger.local_addr().unwrap(), 1)).contains("over UDP"));
    }

    #[test]
    fn a_port_that_was_left_open_and_is_half_taken_is_left_for_another() {
        let stranger = stranger();
        let half_taken = stranger.local_addr().unwrap();
        let mut candidates = [half_taken, half_taken, ANYWHERE].into_iter();
        let ears = until_free(|| Ears::open_once(candidates.next().unwrap(), 1)).unwrap();
        assert_ne!(ears.connections.local_addr().unwrap(), half_taken);
        let never = until_free(|| Ears::open_once(half_taken, 1));
        assert!(refusal(never).contains("over UDP"), "the search comes to an end");
    }
}
