//! Pods that talk: TCP, UDP and ICMP by ordinary sockets, each exchange complete or an error.

use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use atoll_testkit::{Hears, Namespace, bound, eventually, uninterrupted};
use etherparse::{IcmpEchoHeader, Icmpv4Header, Icmpv4Type};
use socket2::{Domain, Protocol, Socket, Type};

use crate::fabric::Pod;
use crate::forge::{Face, Origin};

/// How long an answer may take. Generous: the machine may be busy.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);
/// How long we wait when no answer should come.
pub(crate) const BRIEF: Duration = Duration::from_millis(200);

/// A pod speaking from one of its addresses.
#[derive(Clone, Copy)]
pub(crate) struct Voice<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) ip: IpAddr,
}

impl From<&Pod> for Face {
    fn from(pod: &Pod) -> Self {
        Face { mac: pod.mac, ip: pod.ip, ipv6: pod.ipv6 }
    }
}

impl From<Voice<'_>> for Origin {
    fn from(voice: Voice) -> Self {
        Origin { face: voice.pod.into(), ip: voice.ip }
    }
}

impl Pod {
    /// The pod speaking from its IPv4 address.
    pub(crate) fn v4(&self) -> Voice<'_> {
        Voice { pod: self, ip: self.ip.into() }
    }

    /// The pod speaking from its IPv6 address.
    pub(crate) fn v6(&self) -> Voice<'_> {
        Voice { pod: self, ip: self.ipv6.into() }
    }
}

/// A UDP socket of the pod, bound to its own address and `port`.
pub(crate) fn udp(voice: Voice, port: u16) -> UdpSocket {
    let socket = voice.pod.namespace.run(|| bound(|| UdpSocket::bind((voice.ip, port))));
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    socket
}

/// Speaks to the socket's peer until somebody says that it is not there.
pub(crate) fn await_refusal(socket: &UdpSocket) {
    socket.set_read_timeout(Some(BRIEF)).unwrap();
    let is_refusal = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    eventually("the peer is refused", || {
        let sent = socket.send(b"are you there?");
        sent.err().or_else(|| socket.hear(&mut [0; 8]).err()).filter(is_refusal)
    });
}

/// A TCP listener of the pod.
pub(crate) fn listen(voice: Voice, port: u16) -> TcpListener {
    voice.pod.namespace.run(|| bound(|| TcpListener::bind((voice.ip, port))))
}

/// A TCP connection from the pod's own address and `port` (0: any).
pub(crate) fn connect(
    voice: Voice,
    port: u16,
    to: SocketAddr,
    limit: Duration,
) -> io::Result<TcpStream> {
    voice.pod.namespace.run(|| {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        socket.bind(&SocketAddr::new(voice.ip, port).into())?;
        socket.connect_timeout(&to.into(), limit)?;
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(LIMIT))?;
        Ok(stream)
    })
}

/// One TCP conversation with `bytes` each way; gives the address the server saw.
pub(crate) fn converse_tcp(client: Voice, server: Voice, bytes: usize) -> IpAddr {
    let listener = listen(server, 0);
    let ours = connect(client, 0, listener.local_addr().unwrap(), LIMIT).unwrap();
    let (mut theirs, peer) = listener.accept().unwrap();
    theirs.set_read_timeout(Some(LIMIT)).unwrap();
    let sent: Vec<u8> = (0..bytes).map(|n| (n * 31 % 251) as u8).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut heard = vec![0; bytes];
            theirs.read_exact(&mut heard).unwrap();
            theirs.write_all(&heard).unwrap();
        });
        scope.spawn(|| ours.try_clone().unwrap().write_all(&sent).unwrap());
        let mut heard = vec![0; bytes];
        ours.try_clone().unwrap().read_exact(&mut heard).unwrap();
        assert!(heard == sent, "what came back is not what was sent");
    });
    peer.ip()
}

/// One UDP question and answer; gives the address the server saw.
pub(crate) fn converse_udp(client: Voice, server: Voice) -> IpAddr {
    let (asker, answerer) = (udp(client, 0), udp(server, 0));
    let mut buffer = [0; 64];
    asker.send_to(b"who am I?", answerer.local_addr().unwrap()).unwrap();
    let (length, peer) = answerer.hear_from(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], b"who am I?");
    answerer.send_to(b"you", peer).unwrap();
    let (length, from) = asker.hear_from(&mut buffer).unwrap();
    assert_eq!((&buffer[..length], from.ip()), (&b"you"[..], server.ip));
    peer.ip()
}

/// An echo request; for IPv6, the kernel fills in the checksum.
fn echo_request(to: IpAddr) -> Vec<u8> {
    let echo = IcmpEchoHeader { id: 0xa701, seq: 1 };
    let header = Icmpv4Header::with_checksum(Icmpv4Type::EchoRequest(echo), b"atoll");
    let mut request = [&header.to_bytes()[..], b"atoll"].concat();
    if to.is_ipv6() {
        request[0] = 128;
    }
    request
}

/// One echo request; whether the answer came from `to` within `limit`.
pub(crate) fn ping(client: Voice, to: IpAddr, limit: Duration) -> bool {
    let socket = icmp(&client.pod.namespace, to);
    socket.bind(&SocketAddr::new(client.ip, 0).into()).unwrap();
    socket.bind_device(Some(b"eth0")).unwrap();
    is_answered(&socket, to, limit)
}

/// The same from a namespace that is no pod's.
pub(crate) fn ping_from(namespace: &Namespace, to: IpAddr) -> bool {
    is_answered(&icmp(namespace, to), to, LIMIT)
}

fn icmp(namespace: &Namespace, to: IpAddr) -> Socket {
    let protocol = if to.is_ipv4() { Protocol::ICMPV4 } else { Protocol::ICMPV6 };
    let domain = Domain::for_address(SocketAddr::new(to, 0));
    namespace.run(|| Socket::new(domain, Type::RAW, Some(protocol)).unwrap())
}

fn is_answered(socket: &Socket, to: IpAddr, limit: Duration) -> bool {
    let target = SocketAddr::new(to, 0);
    socket.set_read_timeout(Some(limit)).unwrap();
    let request = echo_request(to);
    socket.send_to(&request, &target.into()).unwrap();
    let mut buffer = [MaybeUninit::uninit(); 256];
    while let Ok((length, from)) = uninterrupted(|| socket.recv_from(&mut buffer)) {
        let has_size = length == request.len() + if to.is_ipv4() { 20 } else { 0 };
        if has_size && from.as_socket().map(|from| from.ip()) == Some(to) {
            return true;
        }
    }
    false
}

/// All three in one family; each server must see the client's own address.
pub(crate) fn converse_in(client: Voice, server: Voice) {
    assert_eq!(converse_tcp(client, server, 300_000), client.ip);
    assert_eq!(converse_udp(client, server), client.ip);
    assert!(ping(client, server.ip, LIMIT), "{} did not answer the ping", server.ip);
}

/// All three in both families.
pub(crate) fn converse(client: &Pod, server: &Pod) {
    converse_in(client.v4(), server.v4());
    converse_in(client.v6(), server.v6());
}
