//! Three nodes whose tunnel has another port than the usual one: it carries what pods say, nobody listens at
//! the usual one, and what is refused there is refused here.

use std::net::UdpSocket;

use atoll_testkit::forge::IP;
use atoll_testkit::{Namespace, PacketSocket, eventually};

use crate::fixture::Lab;
use crate::isolation::everybody_reaches_its_own_alone;
use crate::threats::{
    NODES_IPV4, Player, STRANGERS, Stage, TUNNEL_PORT, a_stranger_is_dropped, assert_silence,
    stranger, tunnelled,
};

const PORT: u16 = 4790;
/// Where the inner packet begins in what a tunnel carries: behind VXLAN's header and Ethernet's.
const INNER: usize = 8 + IP;

fn lab() -> Lab {
    Lab::up_with(3, &["--tunnel-port", &PORT.to_string()])
}

/// The ports of the datagrams that an uplink has heard since.
fn ports(heard: &PacketSocket) -> Vec<u16> {
    let port = |frame: &Vec<u8>| {
        let is_datagram = frame.get(12..14) == Some(&[8, 0]) && frame[IP + 9] == 17;
        is_datagram.then(|| u16::from_be_bytes([frame[IP + 22], frame[IP + 23]]))
    };
    heard.received().unwrap().iter().filter_map(port).collect()
}

#[test]
fn pods_of_two_tenants_meet_their_own_by_another_port_of_the_tunnel_and_by_no_other() {
    let lab = lab().filled_with_two_tenants();
    let node = Namespace::at(&lab.place("node1"));
    let heard = node.run(|| PacketSocket::open("eth0").unwrap());
    everybody_reaches_its_own_alone(&lab);
    let ports = ports(&heard);
    assert!(!ports.is_empty() && ports.iter().all(|port| *port == PORT), "{ports:?}");
}

#[test]
fn every_row_of_the_threats_holds_and_no_stranger_is_heard_at_another_port_of_the_tunnel() {
    let stage = Stage { tunnel_port: PORT, ..Stage::set_in(lab()) };
    stage.every_row_holds();
    let machine = stranger(&stage.lab);
    let heard = stage.victims().map(Player::packets);
    a_stranger_is_dropped(&stage, &machine, STRANGERS[0], NODES_IPV4);
    let node = Namespace::at(&stage.lab.place("node2"));
    let socket = node.run(|| UdpSocket::bind((NODES_IPV4[1], 0)).unwrap());
    let word = tunnelled(&stage.far, &stage.near);
    let at_usual = node.run(|| UdpSocket::bind((NODES_IPV4[1], 0)).unwrap());
    at_usual.connect((NODES_IPV4[0], TUNNEL_PORT)).unwrap();
    eventually("nobody is at the usual port", || {
        let refused = at_usual.send(&word).err();
        refused.is_some_and(|it| it.kind() == std::io::ErrorKind::ConnectionRefused).then_some(())
    });
    heard.iter().for_each(|heard| assert_silence(heard, "row 5"));
    eventually("what a node says for its own pod is heard at the tunnel's port", || {
        socket.send_to(&word, (NODES_IPV4[0], PORT)).unwrap();
        let heard = heard[0].received().unwrap();
        heard.iter().any(|frame| frame[IP..] == word[INNER..]).then_some(())
    });
}
