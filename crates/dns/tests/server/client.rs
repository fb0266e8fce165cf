//! One who asks from an address of loopback, over UDP and TCP.

use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use atoll_testkit::Hears;

pub(crate) use atoll_testkit::names::{number, question, read_framed, summary, write_framed};
use hickory_proto::op::Message;
use socket2::{Domain, Socket, Type};

/// Generous: the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// One who asks over UDP from an address of its own.
pub(crate) struct Client(pub(crate) UdpSocket);

impl Client {
    /// Pod `pod` of network `network`.
    pub(crate) fn new(server: SocketAddr, network: u8, pod: u8) -> Self {
        let socket = UdpSocket::bind(SocketAddr::from(([127, 0, network, pod], 0))).unwrap();
        socket.connect(server).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Client(socket)
    }

    pub(crate) fn send(&self, packet: &[u8]) {
        self.0.send(packet).unwrap();
    }

    pub(crate) fn receive(&self) -> Option<Vec<u8>> {
        let mut packet = vec![0; 4096];
        let len = self.0.hear(&mut packet).ok()?;
        packet.truncate(len);
        Some(packet)
    }

    /// Asks, and reads the answer; none where none comes.
    pub(crate) fn raw(&self, packet: &[u8]) -> Option<Vec<u8>> {
        self.send(packet);
        self.receive()
    }

    pub(crate) fn ask(&self, name: &str, kind: &str) -> Message {
        let packet = question(name, number(kind), Some(1232));
        let answer = self.raw(&packet).unwrap_or_else(|| panic!("no answer for {name} {kind}"));
        Message::from_vec(&answer).unwrap()
    }

    /// Asks one that may not listen yet, and does not wait for long.
    pub(crate) fn try_ask(&self, name: &str, kind: &str) -> Option<Message> {
        self.0.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        self.0.send(&question(name, number(kind), Some(1232))).ok()?;
        Message::from_vec(&self.receive()?).ok()
    }

    /// Shortens the wait for an answer that is not expected to come.
    pub(crate) fn impatient(self) -> Self {
        self.0.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        self
    }
}

/// A TCP connection of pod `pod` of network `network`.
pub(crate) fn connect(server: SocketAddr, network: u8, pod: u8) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, network, pod], 0)).into()).unwrap();
    socket.connect(&server.into()).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}
