//! SCTP at a load balancer. Kernels often lack it, so both ends are made by hand. Two networks with the
//! same addresses inside each time, and a client that speaks to both from one port.

use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};

use atoll_datapath::DropReason;
use atoll_testkit::{eventually, uninterrupted};
use socket2::{Domain, Protocol, Socket, Type};

use crate::balancers::{EMPTY, OWN, PORT, Scene, TARGET, edge, voice};
use crate::forge;
use crate::outside::FAR;
use crate::service_packets::{SCTP, heard, is_right, sctp};
use crate::talk::LIMIT;

const INIT: u8 = 1;
const INIT_ACK: u8 = 2;
const FROM: u16 = 7000;

/// What a client is told whose protocol is not spoken, in IPv4 and in IPv6.
const NO_PROTOCOL: [i32; 2] = [92, 71];

/// A client outside that speaks with one address, from `far`.
fn client(scene: &Scene, far: IpAddr, at: IpAddr) -> Socket {
    scene.world.namespace.run(|| {
        let domain = Domain::for_address(SocketAddr::new(far, 0));
        let protocol = Protocol::from(i32::from(SCTP));
        let socket = Socket::new(domain, Type::RAW, Some(protocol)).unwrap();
        socket.bind(&SocketAddr::new(far, 0).into()).unwrap();
        socket.connect(&SocketAddr::new(at, 0).into()).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        socket
    })
}

/// What the client hears next, from the ports on.
fn answer(mut client: &Socket, like: IpAddr) -> io::Result<Vec<u8>> {
    let mut buffer = [0; 2048];
    let length = uninterrupted(|| client.read(&mut buffer))?;
    let header = if like.is_ipv4() { 20 } else { 0 };
    Ok(buffer[header..length].to_vec())
}

#[test]
fn sctp_reaches_a_backend_by_the_address_and_its_answers_come_from_there() {
    for holder in [EMPTY, 1] {
        let scene = Scene::held_by(holder, &[0]);
        for (far, size) in FAR.into_iter().zip([0, 1001]) {
            for (number, pods) in OWN.into_iter().zip(&scene.pods) {
                let client = client(&scene, far, edge(number, far));
                let server = voice(&pods[0], far);
                let there = server.pod.packets();
                client.send(&sctp((FROM, PORT), INIT, size, true)).unwrap();
                let arrived = heard(&there, far, SCTP);
                assert_eq!(arrived[..4], [FROM, TARGET].map(u16::to_be_bytes).concat());
                assert!(is_right(&arrived, true), "{far} {size}");
                let said = sctp((TARGET, FROM), INIT_ACK, size, true);
                there.send(&forge::packet(server, far, SCTP, &said)).unwrap();
                let arrived = answer(&client, far).unwrap();
                assert_eq!(arrived[..4], [PORT, FROM].map(u16::to_be_bytes).concat());
                assert!(is_right(&arrived, true), "{far} {size}");
            }
        }
    }
}

/// The checksum of SCTP covers the ports, and nobody can make it from a part of a packet.
#[test]
fn sctp_in_parts_from_outside_is_dropped_under_a_name_and_whole_packets_pass() {
    let scene = Scene::held_by(EMPTY, &[0]);
    for (number, far) in OWN.into_iter().flat_map(|it| FAR.map(|far| (it, far))) {
        let place = usize::from(number != OWN[0]);
        let server = voice(&scene.pods[place][0], far);
        let there = server.pod.packets();
        let client = client(&scene, far, edge(number, far));
        let before = scene.dropped(number, DropReason::NoConnection);
        client.send(&sctp((FROM, PORT), INIT, 4000, true)).unwrap();
        eventually("the first part was dropped", || {
            (scene.dropped(number, DropReason::NoConnection) > before).then_some(())
        });
        client.send(&sctp((FROM, PORT), INIT, 100, true)).unwrap();
        let arrived = heard(&there, far, SCTP);
        assert_eq!(arrived.len(), sctp((FROM, PORT), INIT, 100, true).len(), "{far}");
        assert!(is_right(&arrived, true), "{far}");
    }
}

#[test]
fn sctp_to_nobody_is_refused_at_once_by_the_address() {
    let scene = Scene::held_by(EMPTY, &[]);
    for (number, far) in OWN.into_iter().flat_map(|it| FAR.map(|far| (it, far))) {
        let client = client(&scene, far, edge(number, far));
        client.send(&sctp((FROM, PORT), INIT, 16, true)).unwrap();
        let refused = answer(&client, far).unwrap_err();
        let code = refused.raw_os_error().unwrap_or_else(|| panic!("{far}: {refused}"));
        assert!(NO_PROTOCOL.contains(&code), "{far}: {refused}");
    }
}
