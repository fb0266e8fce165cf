//! One who asks: packets written by hand, answers read by an independent library.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use hickory_proto::op::Message;
use hickory_proto::rr::RecordType;
use socket2::{Domain, Socket, Type};

const PATIENCE: Duration = Duration::from_secs(5);

/// The packet of a question, with the id 0x0707.
pub(crate) fn question(name: &str, kind: u16, edns: Option<u16>) -> Vec<u8> {
    let mut packet = vec![7, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, u8::from(edns.is_some())];
    for label in name.split('.').filter(|label| !label.is_empty()) {
        packet.push(label.len() as u8);
        packet.extend(label.as_bytes());
    }
    packet.push(0);
    packet.extend(kind.to_be_bytes());
    packet.extend([0, 1]);
    if let Some(size) = edns {
        packet.extend([0, 0, 41]);
        packet.extend(size.to_be_bytes());
        packet.extend([0; 6]);
    }
    packet
}

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
        let len = self.0.recv(&mut packet).ok()?;
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

    /// Asks one that may not listen yet.
    pub(crate) fn try_ask(&self, name: &str, kind: &str) -> Option<Message> {
        self.0.send(&question(name, number(kind), Some(1232))).ok()?;
        Message::from_vec(&self.receive()?).ok()
    }

    /// Shortens the wait for an answer that is not expected to come.
    pub(crate) fn impatient(self) -> Self {
        self.0.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        self
    }
}

pub(crate) fn number(kind: &str) -> u16 {
    kind.parse::<RecordType>().unwrap().into()
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

pub(crate) fn write_framed(stream: &mut TcpStream, packet: &[u8]) -> std::io::Result<()> {
    stream.write_all(&[&(packet.len() as u16).to_be_bytes()[..], packet].concat())
}

pub(crate) fn read_framed(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut len = [0; 2];
    stream.read_exact(&mut len)?;
    let mut packet = vec![0; u16::from_be_bytes(len).into()];
    stream.read_exact(&mut packet)?;
    Ok(packet)
}

/// What an answer says, as one line: data in order of text, NODATA, or the code.
pub(crate) fn summary(answer: &Message) -> String {
    let code = answer.metadata.response_code.to_string();
    let mut data: Vec<String> = answer.answers.iter().map(data).collect();
    data.sort();
    match (code.as_str(), data.is_empty()) {
        ("No Error", true) => "NODATA".to_owned(),
        ("No Error", false) => data.join("; "),
        ("Non-Existent Domain", _) => "NXDOMAIN".to_owned(),
        ("Query Refused", _) => "REFUSED".to_owned(),
        ("Server Failure", _) => "SERVFAIL".to_owned(),
        (other, _) => other.to_owned(),
    }
}

fn data(record: &hickory_proto::rr::Record) -> String {
    let text = record.data.to_string();
    if record.record_type() == RecordType::TXT { format!("{text:?}") } else { text }
}
