//! Pods that talk: TCP, UDP and ICMP by ordinary sockets, each exchange complete or an error.

use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use etherparse::{IcmpEchoHeader, Icmpv4Header, Icmpv4Type};
use socket2::{Domain, Protocol, Socket, Type};

use crate::fabric::Pod;

/// How long an answer may take.
pub(crate) const LIMIT: Duration = Duration::from_secs(5);
/// How long we wait when no answer should come.
pub(crate) const BRIEF: Duration = Duration::from_millis(200);

/// A UDP socket of the pod, bound to its own address and `port`.
pub(crate) fn udp(pod: &Pod, port: u16) -> UdpSocket {
    let socket = pod.namespace.run(|| UdpSocket::bind((pod.ip, port)).unwrap());
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    socket
}

/// A TCP listener of the pod.
pub(crate) fn listen(pod: &Pod, port: u16) -> TcpListener {
    pod.namespace.run(|| TcpListener::bind((pod.ip, port)).unwrap())
}

/// A TCP connection from the pod's own address and `port` (0: any).
pub(crate) fn connect(
    pod: &Pod,
    port: u16,
    to: SocketAddr,
    limit: Duration,
) -> io::Result<TcpStream> {
    pod.namespace.run(|| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        socket.bind(&SocketAddrV4::new(pod.ip, port).into())?;
        socket.connect_timeout(&to.into(), limit)?;
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(LIMIT))?;
        Ok(stream)
    })
}

/// One TCP conversation with `bytes` each way; gives the address the server saw.
pub(crate) fn converse_tcp(client: &Pod, server: &Pod, bytes: usize) -> IpAddr {
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
pub(crate) fn converse_udp(client: &Pod, server: &Pod) -> IpAddr {
    let (asker, answerer) = (udp(client, 0), udp(server, 0));
    let mut buffer = [0; 64];
    asker.send_to(b"who am I?", answerer.local_addr().unwrap()).unwrap();
    let (length, peer) = answerer.recv_from(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], b"who am I?");
    answerer.send_to(b"you", peer).unwrap();
    let (length, from) = asker.recv_from(&mut buffer).unwrap();
    assert_eq!((&buffer[..length], from.ip()), (&b"you"[..], server.ip.into()));
    peer.ip()
}

/// One echo request; whether the answer came from `to` within `limit`.
pub(crate) fn ping(client: &Pod, to: Ipv4Addr, limit: Duration) -> bool {
    let icmp = || Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4)).unwrap();
    let socket = client.namespace.run(icmp);
    socket.set_read_timeout(Some(limit)).unwrap();
    let echo = IcmpEchoHeader { id: 0xa701, seq: 1 };
    let header = Icmpv4Header::with_checksum(Icmpv4Type::EchoRequest(echo), b"atoll");
    let request = [&header.to_bytes()[..], b"atoll"].concat();
    socket.send_to(&request, &SocketAddrV4::new(to, 0).into()).unwrap();
    let mut buffer = [MaybeUninit::uninit(); 256];
    while let Ok((length, from)) = socket.recv_from(&mut buffer) {
        let is_reply = length == 20 + request.len();
        if is_reply && from.as_socket_ipv4().map(|from| *from.ip()) == Some(to) {
            return true;
        }
    }
    false
}

/// All three; each server must see the client's own address.
pub(crate) fn converse(client: &Pod, server: &Pod) {
    let own = IpAddr::V4(client.ip);
    assert_eq!(converse_tcp(client, server, 300_000), own);
    assert_eq!(converse_udp(client, server), own);
    assert!(ping(client, server.ip, LIMIT), "{} did not answer the ping", server.ip);
}
