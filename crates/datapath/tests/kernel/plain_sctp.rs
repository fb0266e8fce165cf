//! SCTP at services of plain pods and at their node ports. Kernels often lack it, so both ends are made by
//! hand. Each case in both families.

use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};

use atoll_testkit::uninterrupted;
use socket2::{Domain, Protocol, Socket, Type};

use crate::plain_outside::{NODE_PORT, Scene, node_ip};
use crate::plain_stage::{BOTH, Host, Stage, TARGET, front};
use crate::service_packets::{SCTP, is_right, sctp};
use crate::talk::LIMIT;

const INIT: u8 = 1;
const INIT_ACK: u8 = 2;
const FROM: u16 = 7000;

/// What a client is told whose protocol is not spoken, in IPv4 and in IPv6.
const NO_PROTOCOL: [i32; 2] = [92, 71];

/// A socket that speaks and hears SCTP as it is on the wire.
fn raw(host: &Host, v4: bool) -> Socket {
    host.namespace.run(|| {
        let own = SocketAddr::new(host.ip(v4), 0);
        let protocol = Protocol::from(i32::from(SCTP));
        let socket = Socket::new(Domain::for_address(own), Type::RAW, Some(protocol)).unwrap();
        socket.bind(&own.into()).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        socket
    })
}

/// The same, which speaks with one address and hears nobody else.
fn raw_to(host: &Host, to: IpAddr) -> Socket {
    let socket = raw(host, to.is_ipv4());
    socket.connect(&SocketAddr::new(to, 0).into()).unwrap();
    socket
}

/// What is heard next, from the ports on.
fn heard(mut socket: &Socket, v4: bool) -> io::Result<Vec<u8>> {
    let mut buffer = [0; 2048];
    let length = uninterrupted(|| socket.read(&mut buffer))?;
    let header = if v4 { 20 } else { 0 };
    Ok(buffer[header..length].to_vec())
}

fn ports(packet: &[u8]) -> [u16; 2] {
    [0, 2].map(|at| u16::from_be_bytes([packet[at], packet[at + 1]]))
}

/// A first word to `at` reaches the server's own port from an address that it answers to, and the answer
/// comes from there, however large both are.
fn passes(client: &Host, server: &Host, at: SocketAddr, seen: IpAddr) {
    let v4 = at.is_ipv4();
    for size in [0, 1001] {
        let (ours, theirs) = (raw_to(client, at.ip()), raw(server, v4));
        ours.send(&sctp((FROM, at.port()), INIT, size, true)).unwrap();
        let arrived = heard(&theirs, v4).unwrap();
        let [from, to] = ports(&arrived);
        assert_eq!(to, TARGET, "{at}");
        assert!(is_right(&arrived, true), "{at} {size}");
        let answer = sctp((TARGET, from), INIT_ACK, size, true);
        theirs.send_to(&answer, &SocketAddr::new(seen, 0).into()).unwrap();
        let arrived = heard(&ours, v4).unwrap();
        assert_eq!(ports(&arrived), [at.port(), FROM], "{at}");
        assert!(is_right(&arrived, true), "{at} {size}");
    }
}

#[test]
fn sctp_passes_a_plain_service_and_a_node_port_with_a_right_checksum() {
    let stage = Stage::serving(|stage| vec![&stage.near]);
    let here = Scene::serving(|scene| vec![&scene.stage.near]);
    let there = Scene::serving(|scene| vec![&scene.stage.far]);
    for v4 in BOTH {
        passes(&stage.client, &stage.near, front(v4), stage.client.ip(v4));
        let at = SocketAddr::new(node_ip(v4), NODE_PORT);
        passes(&here.beyond, &here.stage.near, at, here.beyond.ip(v4));
        passes(&there.beyond, &there.stage.far, at, at.ip());
    }
}

#[test]
fn sctp_to_nobody_is_refused_at_once_by_a_plain_service() {
    let stage = Stage::serving(|_| vec![]);
    for v4 in BOTH {
        let ours = raw_to(&stage.client, front(v4).ip());
        ours.send(&sctp((FROM, front(v4).port()), INIT, 16, true)).unwrap();
        let refused = heard(&ours, v4).unwrap_err();
        let code = refused.raw_os_error().unwrap_or_else(|| panic!("{refused}"));
        assert!(NO_PROTOCOL.contains(&code), "{refused}");
    }
}
