//! Pods and the outside: who has egress reaches it as its node, and gets the answers that are its
//! own. Two networks with the same addresses each time, at the same time.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};

use atoll_datapath::DropReason;
use atoll_plan::{Closed, Egress};
use atoll_testkit::{Hears, Namespace, bound, eventually};

use crate::fabric::{Fabric, Node, Pod, network};
use crate::forge::{self, Origin, fragment};
use crate::service_packets::{SCTP, sctp};
use crate::talk::{BRIEF, LIMIT, Voice, connect, ping, udp};

const WORLD_V4: Ipv4Addr = Ipv4Addr::new(192, 168, 77, 200);
const WORLD_V6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 0x200);

/// A machine on the node's wire that is no node, and leads to one further away.
pub(crate) struct World {
    pub(crate) namespace: Namespace,
}

/// The addresses of a machine behind that one.
pub(crate) const FAR: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(203, 0, 113, 5)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 5)),
];

impl World {
    /// This many nodes, and the world on their wire.
    pub(crate) fn with_nodes(count: u8) -> (World, Fabric) {
        let namespace = Namespace::new();
        let fabric = Fabric::on_wire_through(&namespace, count);
        namespace.ip(&format!("address add {WORLD_V4}/24 dev wire"));
        namespace.ip(&format!("address add {WORLD_V6}/64 dev wire nodad"));
        for ip in FAR {
            let length = if ip.is_ipv4() { 32 } else { 128 };
            namespace.ip(&format!("address add {ip}/{length} dev lo nodad"));
        }
        for node in &fabric.nodes {
            node.namespace.ip(&format!("route add default via {WORLD_V4}"));
            node.namespace.ip(&format!("-6 route add default via {WORLD_V6}"));
        }
        (World { namespace }, fabric)
    }

    pub(crate) fn listen(&self, at: SocketAddr) -> TcpListener {
        self.namespace.run(|| bound(|| TcpListener::bind(at)))
    }

    pub(crate) fn udp(&self, at: SocketAddr) -> UdpSocket {
        let socket = self.namespace.run(|| bound(|| UdpSocket::bind(at)));
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        socket
    }
}

/// A node, the outside, and two pods alike in two networks, of which those in `with_egress` have it.
pub(crate) struct Scene {
    pub(crate) fabric: Fabric,
    pub(crate) world: World,
    pub(crate) pods: [Pod; 2],
}

const OWN: [u32; 2] = [100, 200];

impl Scene {
    fn with_egress(networks: &[u32]) -> Scene {
        let (world, fabric) = World::with_nodes(1);
        let pods = OWN.map(|number| fabric.planned_pod(0, network(number), "10.0.0.5"));
        let scene = Scene { fabric, world, pods };
        {
            let mut plan = scene.node().plan.lock().unwrap();
            let own = ["10.0.0.0/8", "fd00::/64"].map(|range| range.parse().unwrap());
            for number in OWN {
                let to = Some(network(number));
                plan.closed.extend(own.map(|range| Closed { to, range }));
            }
            let node = [scene.node_address(true), scene.node_address(false)];
            plan.closed.extend(node.map(|ip| Closed { to: None, range: only(ip) }));
            plan.egress.extend(networks.iter().map(|it| (network(*it), Egress::Node)));
        }
        scene.fabric.converge();
        scene
    }

    pub(crate) fn node(&self) -> &Node {
        &self.fabric.nodes[0]
    }

    /// What the outside sees in the place of a pod.
    fn node_address(&self, v4: bool) -> IpAddr {
        if v4 { self.node().underlay.into() } else { [0xfd77, 0, 0, 0, 0, 0, 0, 1].into() }
    }

    fn dropped(&self, pod: &Pod, reason: DropReason) -> u64 {
        self.node().dropped(Some(pod.network), reason)
    }

    /// Both pods in the family of `far`.
    fn voices(&self, far: IpAddr) -> [Voice<'_>; 2] {
        self.pods.each_ref().map(|pod| if far.is_ipv4() { pod.v4() } else { pod.v6() })
    }
}

/// The range of one address.
pub(crate) fn only(ip: IpAddr) -> atoll_types::Cidr {
    format!("{ip}/{}", if ip.is_ipv4() { 32 } else { 128 }).parse().unwrap()
}

fn exchange(mut ours: &TcpStream, mut theirs: &TcpStream, bytes: usize) {
    theirs.set_read_timeout(Some(LIMIT)).unwrap();
    let sent: Vec<u8> = (0..bytes).map(|n| (n * 31 % 251) as u8).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| ours.write_all(&sent).unwrap());
        let mut heard = vec![0; bytes];
        theirs.read_exact(&mut heard).unwrap();
        assert!(heard == sent, "what arrived is not what was sent");
    });
    std::thread::scope(|scope| {
        scope.spawn(|| theirs.write_all(&sent).unwrap());
        let mut heard = vec![0; bytes];
        ours.read_exact(&mut heard).unwrap();
        assert!(heard == sent, "what came back is not what was sent");
    });
}

#[test]
fn two_pods_with_one_address_and_port_each_speak_tcp_with_the_outside_as_their_node() {
    let scene = Scene::with_egress(&OWN);
    for far in FAR {
        let at = SocketAddr::new(far, 8080);
        let listener = scene.world.listen(at);
        let ours = scene.voices(far).map(|voice| connect(voice, 40_000, at, LIMIT).unwrap());
        let theirs = [0, 1].map(|_| listener.accept().unwrap());
        let seen = theirs.each_ref().map(|(_, from)| *from);
        assert!(seen.iter().all(|from| from.ip() == scene.node_address(far.is_ipv4())));
        assert_ne!(seen[0].port(), seen[1].port());
        for (ours, (theirs, _)) in ours.iter().zip(&theirs) {
            exchange(ours, theirs, 300_000);
        }
    }
}

#[test]
fn two_pods_with_one_address_and_port_each_get_their_own_datagrams_and_pings() {
    let scene = Scene::with_egress(&OWN);
    for far in FAR {
        let server = scene.world.udp(SocketAddr::new(far, 5353));
        let sockets = scene.voices(far).map(|voice| udp(voice, 40_000));
        let words: [&[u8]; 2] = [b"one", b"other"];
        let mut buffer = [0; 64];
        for (socket, word) in sockets.iter().zip(words) {
            socket.send_to(word, (far, 5353)).unwrap();
            let (length, from) = server.hear_from(&mut buffer).unwrap();
            assert_eq!(from.ip(), scene.node_address(far.is_ipv4()));
            server.send_to(&buffer[..length], from).unwrap();
        }
        for (socket, word) in sockets.iter().zip(words) {
            let (length, from) = socket.hear_from(&mut buffer).unwrap();
            assert_eq!((&buffer[..length], from), (word, SocketAddr::new(far, 5353)));
        }
        assert!(scene.voices(far).into_iter().all(|voice| ping(voice, far, LIMIT)));
    }
}

#[test]
fn a_network_without_egress_reaches_nobody_outside_beside_one_that_has_it() {
    let scene = Scene::with_egress(&OWN[..1]);
    for far in FAR {
        let [with, without] = scene.voices(far);
        assert!(ping(with, far, LIMIT));
        let before = scene.dropped(without.pod, DropReason::NoEndpoint);
        assert!(!ping(without, far, BRIEF));
        let own = Some(without.pod.network);
        scene.node().await_dropped(own, DropReason::NoEndpoint, before + 1);
    }
}

#[test]
fn a_network_that_loses_its_egress_is_silent_in_connections_that_it_had() {
    let scene = Scene::with_egress(&OWN);
    let at = SocketAddr::new(FAR[0], 8080);
    let listener = scene.world.listen(at);
    let [mut kept, mut lost] = scene.voices(FAR[0]).map(|it| connect(it, 0, at, LIMIT).unwrap());
    let [(mut first, _), (second, _)] = [0, 1].map(|_| listener.accept().unwrap());
    scene.node().plan.lock().unwrap().egress.remove(&network(OWN[1]));
    scene.fabric.converge();
    lost.write_all(b"anybody?").unwrap();
    eventually("it was dropped", || {
        (scene.dropped(&scene.pods[1], DropReason::NoEndpoint) > 0).then_some(())
    });
    second.set_nonblocking(true).unwrap();
    assert!((&second).read(&mut [0; 8]).is_err());
    kept.write_all(b"still me").unwrap();
    first.set_read_timeout(Some(LIMIT)).unwrap();
    first.read_exact(&mut [0; 8]).unwrap();
}

#[test]
fn nothing_leaves_for_a_node_for_what_is_denied_or_for_the_networks_own_ranges() {
    let scene = Scene::with_egress(&OWN);
    let pod = &scene.pods[0];
    let denied: IpAddr = [203, 0, 113, 5].into();
    assert!(ping(pod.v4(), denied, LIMIT), "until it is denied");
    let range = "203.0.113.0/24".parse().unwrap();
    scene.node().plan.lock().unwrap().closed.insert(Closed { to: None, range });
    scene.fabric.converge();
    for (to, reason) in [
        (denied, DropReason::OutsideClosed),
        (scene.node().underlay.into(), DropReason::OutsideClosed),
        ([10, 77, 0, 1].into(), DropReason::NoEndpoint),
    ] {
        let before = scene.dropped(pod, reason);
        assert!(!ping(pod.v4(), to, BRIEF), "{to}");
        scene.node().await_dropped(Some(pod.network), reason, before + 1);
    }
    assert!(ping(pod.v4(), WORLD_V4.into(), LIMIT));
}

#[test]
fn the_program_is_at_the_uplink_while_a_network_has_egress_and_not_otherwise() {
    let scene = Scene::with_egress(&OWN[..1]);
    let found = |scene: &Scene| {
        scene.node().run(|state| {
            let layouts = std::fs::read_dir(&state.config.bpf_root).unwrap();
            let mut pins = layouts.map(|layout| layout.unwrap().path().join("links/uplink"));
            pins.any(|pin| pin.exists())
        })
    };
    assert!(found(&scene));
    assert_eq!(scene.node().observe(), scene.node().planned());
    scene.node().plan.lock().unwrap().egress.clear();
    scene.fabric.converge();
    assert!(!found(&scene));
    assert_eq!(scene.node().observe(), scene.node().planned());
}

/// Datagrams larger than a packet, in both directions.
#[test]
fn datagrams_in_fragments_pass_both_ways() {
    let scene = Scene::with_egress(&OWN);
    let large: Vec<u8> = (0..5000).map(|n| (n % 251) as u8).collect();
    for far in FAR {
        let server = scene.world.udp(SocketAddr::new(far, 5353));
        for voice in scene.voices(far) {
            let socket = udp(voice, 40_000);
            let mut heard = vec![0; 8000];
            socket.send_to(&large, (far, 5353)).unwrap();
            let (length, from) = server.hear_from(&mut heard).unwrap();
            assert!(heard[..length] == large, "{far}: what left is not what was sent");
            server.send_to(&large, from).unwrap();
            let (length, _) = socket.hear_from(&mut heard).unwrap();
            assert!(heard[..length] == large, "{far}: what came back is not what was sent");
        }
    }
}

/// A face changes the ports, which the checksum of SCTP covers.
#[test]
fn sctp_in_parts_does_not_leave_and_whole_packets_do() {
    let scene = Scene::with_egress(&OWN);
    for far in FAR {
        for voice in scene.voices(far) {
            let socket = voice.pod.packets();
            let packet = sctp((7000, 7001), 1, 1000, true);
            let to = Origin { face: voice.pod.into(), ip: far };
            let before = scene.dropped(voice.pod, DropReason::NoConnection);
            socket.send(&fragment((voice, to), SCTP, 7, (0, true), &packet[..800])).unwrap();
            let own = Some(voice.pod.network);
            scene.node().await_dropped(own, DropReason::NoConnection, before + 1);
            let sent = || scene.node().traffic(voice.pod).unwrap().counters.sent_packets;
            let passed = sent();
            socket.send(&forge::packet(voice, far, SCTP, &packet)).unwrap();
            eventually("a whole packet left", || (sent() > passed).then_some(()));
        }
    }
}

#[test]
fn an_error_from_outside_reaches_the_pod_whose_packet_it_is_about_and_no_other() {
    let scene = Scene::with_egress(&OWN);
    for far in FAR {
        let [asker, bystander] = scene.voices(far).map(|voice| udp(voice, 40_000));
        let server = scene.world.udp(SocketAddr::new(far, 5353));
        for socket in [&asker, &bystander] {
            socket.connect((far, 5353)).unwrap();
            socket.send(b"anybody?").unwrap();
            server.hear(&mut [0; 8]).unwrap();
        }
        drop(server);
        asker.send(b"anybody?").unwrap();
        let refused = eventually("the refusal comes", || asker.hear(&mut [0; 8]).err());
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused, "{far}");
        bystander.set_nonblocking(true).unwrap();
        let silent = bystander.hear(&mut [0; 8]).unwrap_err();
        assert_eq!(silent.kind(), std::io::ErrorKind::WouldBlock, "{far}");
    }
}

#[test]
fn nobody_outside_opens_a_connection_to_a_pod_by_its_face() {
    let scene = Scene::with_egress(&OWN);
    let at = SocketAddr::new(FAR[0], 5353);
    let server = scene.world.udp(at);
    let socket = udp(scene.pods[0].v4(), 40_000);
    socket.send_to(b"hello", at).unwrap();
    let (_, face) = server.hear_from(&mut [0; 8]).unwrap();
    let stranger = scene.world.udp(SocketAddr::new(WORLD_V4.into(), 5353));
    let heard = scene.pods[0].packets();
    stranger.send_to(b"let me in", face).unwrap();
    server.send_to(b"welcome", face).unwrap();
    let (length, from) = socket.hear_from(&mut [0; 16]).unwrap();
    assert_eq!((length, from), (7, at), "the answer alone arrives");
    let from_stranger = |frame: &Vec<u8>| frame[26..30] == WORLD_V4.octets();
    assert!(!heard.received().unwrap().iter().any(from_stranger));
}

#[test]
fn a_network_spends_its_own_ports_towards_one_end_and_nobody_elses() {
    let scene = Scene::with_egress(&OWN);
    let far = FAR[0];
    let server = scene.world.udp(SocketAddr::new(far, 5353));
    let greedy = &scene.pods[0];
    let sender = greedy.packets();
    let spent = || scene.dropped(greedy, DropReason::NatPortsSpent);
    for port in 1..=u16::MAX {
        let frame = forge::packet(greedy.v4(), far, 17, &forge::datagram((port, 5353), b"more"));
        sender.send(&frame).unwrap();
        if port % 256 == 0 && spent() > 0 {
            break;
        }
    }
    eventually("a network has no more than its part", || (spent() > 0).then_some(()));
    while server.hear(&mut [0; 8]).is_ok() {
        server.set_read_timeout(Some(BRIEF)).unwrap();
    }
    server.set_read_timeout(Some(LIMIT)).unwrap();
    let other = udp(scene.pods[1].v4(), 40_000);
    other.send_to(b"hello", (far, 5353)).unwrap();
    let mut heard = std::iter::repeat_with(|| server.hear_from(&mut [0; 8]).unwrap());
    let (_, from) = heard.find(|(length, _)| *length == 5).unwrap();
    server.send_to(b"hello", from).unwrap();
    assert_eq!(other.hear(&mut [0; 8]).unwrap(), 5);
}

#[test]
fn a_connection_goes_on_while_the_datapath_is_opened_anew() {
    let scene = Scene::with_egress(&OWN);
    let at = SocketAddr::new(FAR[0], 8080);
    let listener = scene.world.listen(at);
    let ours = connect(scene.pods[0].v4(), 0, at, LIMIT).unwrap();
    let (theirs, _) = listener.accept().unwrap();
    exchange(&ours, &theirs, 10_000);
    scene.node().run(crate::fabric::State::open);
    assert_eq!(scene.node().observe(), scene.node().planned());
    exchange(&ours, &theirs, 10_000);
}
