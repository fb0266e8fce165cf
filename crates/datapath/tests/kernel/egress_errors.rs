//! Errors from outside about what a pod sent by an address of its network, on another node: they come
//! from the far end or from a router on the way, and reach that pod and no other. Two networks with the
//! same addresses inside each time, at the same time.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

use atoll_datapath::DropReason;
use atoll_testkit::{Hears, eventually};

use crate::egress_address::{OWN, Scene};
use crate::fabric::{OVERLAY_PORT, Pod, network};
use crate::forge;
use crate::outside::FAR;
use crate::talk::{Voice, await_refusal, udp};

/// Behind a narrow link of the world, of each family, and how narrow it is.
const BEYOND: [&str; 2] = ["198.51.100.9", "2001:db8:9::9"];
const NARROW: u16 = 1300;

/// Which node answers for the networks' addresses: one without their pods.
const HOLDER: usize = 2;

/// The world leads on by a link that is narrower than those before it.
fn narrow_world(scene: &Scene) {
    let world = &scene.world.namespace;
    world.ip(&format!("link add narrow mtu {NARROW} type veth peer name beyond"));
    world.ip("address add 198.51.100.1/24 dev narrow");
    world.ip("address add 2001:db8:9::1/64 dev narrow nodad");
    ["narrow", "beyond"].iter().for_each(|link| drop(world.ip(&format!("link set {link} up"))));
    for family in ["ipv4", "ipv6"] {
        let all = format!("/proc/sys/net/{family}/conf/all/forwarding");
        world.run(|| std::fs::write(&all, "1").unwrap());
    }
}

#[test]
fn who_sends_too_much_for_a_link_outside_hears_of_it_on_whatever_node_it_is() {
    let scene = Scene::held_by(HOLDER);
    narrow_world(&scene);
    for beyond in BEYOND.map(|ip| ip.parse::<IpAddr>().unwrap()) {
        let told = |voice: Voice| {
            let route = voice.pod.namespace.ip(&format!("route get {beyond}"));
            route.contains(&format!("mtu {NARROW}"))
        };
        let [asker, bystander] = scene.voices(0, beyond);
        let [socket, other] = [asker, bystander].map(|voice| udp(voice, 40_000));
        other.send_to(b"not too much", (beyond, 5353)).unwrap();
        eventually("the pod hears how narrow it is", || {
            socket.send_to(&[7; 1350], (beyond, 5353)).ok();
            told(asker).then_some(())
        });
        assert!(!told(bystander), "{beyond}: it sent nothing that is too big");
    }
}

#[test]
fn a_refusal_from_outside_reaches_the_pod_of_another_node_that_asked_and_no_other() {
    let scene = Scene::held_by(HOLDER);
    for far in FAR {
        let at = SocketAddr::new(far, 5353);
        let [asker, bystander] = scene.voices(0, far).map(|voice| udp(voice, 40_000));
        let server = scene.world.udp(at);
        for socket in [&asker, &bystander] {
            socket.connect(at).unwrap();
            socket.send(b"anybody?").unwrap();
            server.hear(&mut [0; 8]).unwrap();
        }
        drop(server);
        await_refusal(&asker);
        bystander.set_nonblocking(true).unwrap();
        let silent = bystander.hear(&mut [0; 8]).unwrap_err();
        assert_eq!(silent.kind(), io::ErrorKind::WouldBlock, "{far}");
    }
}

/// An error of a router outside about a datagram of a pod, from its port 40000 to a port of `far`.
fn complaint(pod: &Pod, far: Ipv4Addr, port: u16) -> Vec<u8> {
    let datagram = forge::datagram((40_000, port), b"anybody?");
    let quoted = forge::packet(pod.v4(), far.into(), 17, &datagram);
    let router = forge::Origin { face: pod.into(), ip: [198, 51, 100, 77].into() };
    let error = with_checksum(forge::icmp_error(3, 3, &quoted));
    forge::packet(router, pod.ip.into(), 1, &error)
}

/// A message of ICMP with the sum that it should have.
fn with_checksum(mut message: Vec<u8>) -> Vec<u8> {
    let words = message
        .chunks(2)
        .map(|it| u32::from(it[0]) << 8 | it.get(1).map_or(0, |low| u32::from(*low)));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    let sum = !(folded as u16);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    message
}

#[test]
fn an_error_from_outside_is_believed_only_by_the_node_that_the_packet_left_by() {
    let scene = Scene::held_by(HOLDER);
    let IpAddr::V4(far) = FAR[0] else { unreachable!("the first is of IPv4") };
    let server = scene.world.udp(SocketAddr::new(FAR[0], 5353));
    let pod = &scene.pods[0][0];
    let socket = udp(pod.v4(), 40_000);
    socket.connect((FAR[0], 5353)).unwrap();
    socket.send(b"anybody?").unwrap();
    server.hear(&mut [0; 8]).unwrap();
    let victim = &scene.fabric.nodes[0];
    let refused = || victim.dropped(Some(network(OWN[0])), DropReason::OverlaySpoof);
    let tell = |node: usize, port: u16| {
        let node = &scene.fabric.nodes[node];
        let sender = node.namespace.run(|| UdpSocket::bind((node.underlay, 0)).unwrap());
        let frame = complaint(pod, far, port);
        let to = (victim.underlay, OVERLAY_PORT);
        sender.send_to(&forge::vxlan(OWN[0], &frame), to).unwrap();
    };
    for (liar, port) in [(1, 5353), (HOLDER, 5354)] {
        let before = refused();
        tell(liar, port);
        eventually("it was dropped", || (refused() > before).then_some(()));
    }
    server.send_to(b"here I am", socket_face(&server, &socket)).unwrap();
    assert_eq!(socket.hear(&mut [0; 16]).unwrap(), 9, "nothing was heard before the answer");
    tell(HOLDER, 5353);
    let heard = eventually("the true one comes", || socket.hear(&mut [0; 8]).err());
    assert_eq!(heard.kind(), io::ErrorKind::ConnectionRefused);
}

/// What the server sees of the socket.
fn socket_face(server: &UdpSocket, socket: &UdpSocket) -> SocketAddr {
    socket.send(b"again").unwrap();
    server.hear_from(&mut [0; 8]).unwrap().1
}
