//! Connections: which packets belong together, who may end them, and whose table they fill.

use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr};

use atoll_datapath::{Connection, ConnectionState, DropReason};
use atoll_testkit::{Hears, eventually};

use crate::decisions::let_time_pass;
use crate::fabric::{Fabric, Node, Pod, network};
use crate::forge::{self, IP};
use crate::talk::{LIMIT, Voice, connect, listen, ping, udp};

const OWN: u32 = 100;
const FOREIGN: u32 = 200;
const TCP: u8 = 6;
const UDP: u8 = 17;
const SCTP: u8 = 132;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;
const FIN: u8 = 0x01;

/// Two pods of one network, the second on the last node.
fn two_pods(fabric: &Fabric) -> [Pod; 2] {
    let last = fabric.nodes.len() - 1;
    [(0, "10.0.0.1"), (last, "10.0.0.2")].map(|(at, ip)| fabric.pod(at, network(OWN), ip))
}

fn families<'a>(one: &'a Pod, other: &'a Pod) -> [(Voice<'a>, Voice<'a>); 2] {
    [(one.v4(), other.v4()), (one.v6(), other.v6())]
}

/// What a node knows of the connection between two ends, whoever opened it.
fn known(node: &Node, protocol: u8, ends: (SocketAddr, SocketAddr)) -> Vec<Connection> {
    let is_it = |it: &Connection| {
        it.protocol == protocol
            && (ends == (it.client, it.server) || ends == (it.server, it.client))
    };
    node.connections(network(OWN)).into_iter().filter(is_it).collect()
}

/// Every node comes to know exactly one connection, opened by the first end, in this state.
fn all_know(fabric: &Fabric, protocol: u8, ends: (SocketAddr, SocketAddr), state: ConnectionState) {
    let (client, server) = ends;
    for node in &fabric.nodes {
        eventually(&format!("{client} to {server} is {state:?}"), || {
            let expected = Connection { client, server, protocol, state };
            (known(node, protocol, ends) == [expected]).then_some(())
        });
    }
}

#[test]
fn a_tcp_connection_goes_through_its_states_on_every_node_it_passes() {
    for nodes in [1, 2] {
        let fabric = Fabric::of(nodes);
        let [one, other] = two_pods(&fabric);
        for (client, server) in families(&one, &other).into_iter().chain(families(&other, &one)) {
            let listener = listen(server, 80);
            let ours = connect(client, 0, (server.ip, 80).into(), LIMIT).unwrap();
            let (theirs, _) = listener.accept().unwrap();
            let ends = (ours.local_addr().unwrap(), SocketAddr::from((server.ip, 80)));
            all_know(&fabric, TCP, ends, ConnectionState::Established);
            ours.shutdown(Shutdown::Write).unwrap();
            all_know(&fabric, TCP, ends, ConnectionState::Closing);
            drop(theirs);
            all_know(&fabric, TCP, ends, ConnectionState::Closed);
        }
    }
}

#[test]
fn a_tcp_connection_that_is_refused_is_closed_and_its_ports_open_another() {
    let fabric = Fabric::of(1);
    let [one, other] = two_pods(&fabric);
    for (client, server) in families(&one, &other) {
        let to = SocketAddr::new(server.ip, 80);
        let ends = (SocketAddr::new(client.ip, 1000), to);
        connect(client, 1000, to, LIMIT).unwrap_err();
        all_know(&fabric, TCP, ends, ConnectionState::Closed);
        let _listener = listen(server, 80);
        let _ours = connect(client, 1000, to, LIMIT).unwrap();
        all_know(&fabric, TCP, ends, ConnectionState::Established);
    }
}

#[test]
fn udp_is_new_until_it_is_answered() {
    let fabric = Fabric::of(2);
    let [one, other] = two_pods(&fabric);
    for (client, server) in families(&one, &other) {
        let (asker, answerer) = (udp(client, 1234), udp(server, 53));
        let ends = (asker.local_addr().unwrap(), answerer.local_addr().unwrap());
        asker.send_to(b"?", ends.1).unwrap();
        answerer.hear(&mut [0; 8]).unwrap();
        all_know(&fabric, UDP, ends, ConnectionState::New);
        answerer.send_to(b"!", ends.0).unwrap();
        asker.hear(&mut [0; 8]).unwrap();
        all_know(&fabric, UDP, ends, ConnectionState::Established);
    }
}

#[test]
fn a_ping_is_a_connection_by_its_id() {
    let fabric = Fabric::of(2);
    let [one, other] = two_pods(&fabric);
    for (client, server) in families(&one, &other) {
        assert!(ping(client, server.ip, LIMIT));
        let ends = (SocketAddr::new(client.ip, 0xa701), SocketAddr::new(server.ip, 0));
        all_know(&fabric, forge::icmp_of(client.ip), ends, ConnectionState::Established);
    }
}

#[test]
fn sctp_goes_through_its_states() {
    let fabric = Fabric::of(2);
    let [one, other] = two_pods(&fabric);
    for (client, server) in families(&one, &other) {
        let chunk = |from: Voice, to: Voice, ports: (u16, u16), kind: u8| {
            let ports = [ports.0, ports.1].map(u16::to_be_bytes).concat();
            let content = [&ports, &[0; 8][..], &[kind, 0, 0, 4]].concat();
            from.pod.packets().send(&forge::packet(from, to.ip, SCTP, &content)).unwrap();
        };
        let ends = (SocketAddr::new(client.ip, 7), SocketAddr::new(server.ip, 9));
        let heard = server.pod.packets();
        chunk(client, server, (7, 9), 1);
        let kind = if client.ip.is_ipv4() { [8, 0] } else { [0x86, 0xdd] };
        forge::arrived_of(&heard, kind);
        chunk(server, client, (9, 7), 2);
        all_know(&fabric, SCTP, ends, ConnectionState::Established);
        chunk(client, server, (7, 9), 7);
        all_know(&fabric, SCTP, ends, ConnectionState::Closing);
        chunk(server, client, (9, 7), 6);
        all_know(&fabric, SCTP, ends, ConnectionState::Closed);
    }
}

/// An attacker with a victim and a bystander beside it and another victim on another node.
struct Scene {
    fabric: Fabric,
    attacker: Pod,
    victim: Pod,
    far: Pod,
}

fn scene() -> Scene {
    let fabric = Fabric::of(2);
    let pod = |at, ip| fabric.pod(at, network(OWN), ip);
    let (attacker, victim, far) = (pod(0, "10.0.0.1"), pod(0, "10.0.0.2"), pod(1, "10.0.0.3"));
    Scene { fabric, attacker, victim, far }
}

impl Scene {
    fn dropped(&self, reason: DropReason) -> u64 {
        self.fabric.nodes[0].dropped(Some(network(OWN)), reason)
    }

    /// Nothing of the frame reaches anybody, and it is counted.
    fn is_dropped(&self, reason: DropReason, frame: &[u8]) {
        let heard = [&self.victim, &self.far].map(Pod::packets);
        let before = self.dropped(reason);
        self.attacker.packets().send(frame).unwrap();
        eventually(&format!("it was dropped as {reason}"), || {
            (self.dropped(reason) > before).then_some(())
        });
        for heard in heard {
            assert_eq!(heard.received().unwrap(), Vec::<Vec<u8>>::new());
        }
    }

    /// The frame arrives as it was sent.
    fn passes(&self, to: &Pod, frame: &[u8]) {
        let heard = to.packets();
        self.attacker.packets().send(frame).unwrap();
        let arrived = forge::arrived_of(&heard, [frame[12], frame[13]]);
        assert_eq!(arrived[IP..], frame[IP..]);
    }

    fn pairs(&self) -> Vec<(Voice<'_>, Voice<'_>)> {
        [&self.victim, &self.far]
            .into_iter()
            .flat_map(|other| families(&self.attacker, other))
            .collect()
    }
}

#[test]
fn what_belongs_to_no_connection_and_starts_none_is_dropped() {
    let scene = scene();
    for (attacker, victim) in scene.pairs() {
        let tcp = |flags| forge::packet(attacker, victim.ip, TCP, &forge::tcp((3, 4), flags));
        for flags in [0, SYN | FIN, SYN | RST, SYN | ACK | FIN] {
            scene.is_dropped(DropReason::NoConnection, &tcp(flags));
        }
    }
}

#[test]
fn the_middle_of_a_connection_is_picked_up_while_nothing_forbids_it() {
    let scene = scene();
    for (attacker, victim) in scene.pairs() {
        let header = forge::tcp((5, 6), ACK);
        scene.passes(victim.pod, &forge::packet(attacker, victim.ip, TCP, &header));
        let ends = (SocketAddr::new(attacker.ip, 5), SocketAddr::new(victim.ip, 6));
        assert_eq!(known(&scene.fabric.nodes[0], TCP, ends).len(), 1);
    }
}

/// Types and codes of "unreachable", "too big" and "time exceeded" of a family.
fn errors(ip: IpAddr) -> [(u8, u8); 3] {
    if ip.is_ipv4() { [(3, 3), (3, 4), (11, 0)] } else { [(1, 4), (2, 0), (3, 0)] }
}

#[test]
fn an_icmp_error_passes_only_about_a_connection_of_its_two_ends() {
    let scene = scene();
    for (attacker, victim) in scene.pairs() {
        let kind = forge::icmp_of(attacker.ip);
        let quoted = |from: Voice, to: Voice, ports| {
            forge::packet(from, to.ip, UDP, &forge::datagram(ports, b"quoted"))
        };
        let error = |(number, code), quote: &[u8]| {
            forge::packet(attacker, victim.ip, kind, &forge::icmp_error(number, code, quote))
        };
        let socket = udp(victim, 2000);
        socket.send_to(b"hello", (attacker.ip, 3000)).unwrap();
        let ends = (SocketAddr::new(victim.ip, 2000), SocketAddr::new(attacker.ip, 3000));
        let node = &scene.fabric.nodes[0];
        eventually("the connection is known", || (known(node, UDP, ends).len() == 1).then_some(()));
        for number in errors(attacker.ip) {
            scene.passes(victim.pod, &error(number, &quoted(victim, attacker, (2000, 3000))));
            let unrelated = [
                quoted(victim, attacker, (2000, 3001)),
                quoted(victim, attacker, (3000, 2000)),
                quoted(attacker, victim, (3000, 2000)),
                quoted(victim, victim, (2000, 3000)),
            ];
            for quote in &unrelated {
                scene.is_dropped(DropReason::UnrelatedIcmp, &error(number, quote));
            }
        }
    }
}

#[test]
fn an_icmp_error_of_a_third_pod_about_a_connection_of_others_is_dropped() {
    let scene = scene();
    for ((_, one), (_, other)) in families(&scene.attacker, &scene.victim)
        .into_iter()
        .zip(families(&scene.attacker, &scene.far))
    {
        let attacker = if one.ip.is_ipv4() { scene.attacker.v4() } else { scene.attacker.v6() };
        let (asker, answerer) = (udp(one, 2000), udp(other, 3000));
        asker.send_to(b"?", answerer.local_addr().unwrap()).unwrap();
        answerer.hear(&mut [0; 8]).unwrap();
        let quote = forge::packet(one, other.ip, UDP, &forge::datagram((2000, 3000), b"?"));
        let kind = forge::icmp_of(one.ip);
        for (number, code) in errors(one.ip) {
            let error = forge::icmp_error(number, code, &quote);
            let frame = forge::packet(attacker, one.ip, kind, &error);
            scene.is_dropped(DropReason::UnrelatedIcmp, &frame);
        }
    }
}

#[test]
fn redirects_and_icmp_of_other_kinds_are_dropped() {
    let scene = scene();
    let (attacker, victim) = (scene.attacker.v4(), scene.victim.v4());
    udp(victim, 2000).send_to(b"hello", (attacker.ip, 3000)).unwrap();
    let quote = forge::packet(victim, attacker.ip, UDP, &forge::datagram((2000, 3000), b"hello"));
    let icmp = |content: &[u8]| forge::packet(attacker, victim.ip, 1, content);
    scene.is_dropped(DropReason::IcmpRedirect, &icmp(&forge::icmp_error(5, 1, &quote)));
    for kind in [4, 9, 10, 13, 14, 17, 18] {
        scene.is_dropped(DropReason::UnrelatedIcmp, &icmp(&[kind, 0, 0, 0, 0, 1, 0, 1]));
    }
    scene.passes(victim.pod, &icmp(&[8, 0, 0xf7, 0xfd, 0, 1, 0, 1]));
}

#[test]
fn only_its_own_ends_can_break_a_connection_off() {
    let scene = scene();
    let foreign = scene.fabric.pod(0, network(FOREIGN), "10.0.0.2");
    let _foreign_far = scene.fabric.pod(1, network(FOREIGN), "10.0.0.3");
    let (client, server) = (scene.victim.v4(), scene.far.v4());
    let listener = listen(server, 80);
    let mut ours = connect(client, 5000, (server.ip, 80).into(), LIMIT).unwrap();
    let (mut theirs, _) = listener.accept().unwrap();
    let reset = forge::tcp((5000, 80), RST);
    let mut spoofed = forge::packet(client, server.ip, TCP, &reset);
    spoofed[6..12].copy_from_slice(&scene.attacker.mac.octets());
    scene.is_dropped(DropReason::SpoofedAddress, &spoofed);
    let own = forge::packet(scene.attacker.v4(), server.ip, TCP, &reset);
    scene.passes(&scene.far, &own);
    foreign.packets().send(&forge::packet(foreign.v4(), server.ip, TCP, &reset)).unwrap();
    let ends = (SocketAddr::new(client.ip, 5000), SocketAddr::new(server.ip, 80));
    all_know(&scene.fabric, TCP, ends, ConnectionState::Established);
    ours.write_all(b"still here").unwrap();
    let mut heard = [0; 10];
    theirs.read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"still here");
}

#[test]
fn a_network_that_floods_its_table_pushes_out_its_own_connections_only() {
    let fabric = Fabric::of(1);
    let [one, other] = two_pods(&fabric);
    let [quiet, friend] = ["10.0.0.1", "10.0.0.2"].map(|ip| fabric.pod(0, network(FOREIGN), ip));
    let node = &fabric.nodes[0];
    let greet = |from: &Pod, to: &Pod| {
        udp(from.v4(), 7).send_to(b"first", (to.ip, 9)).unwrap();
        let is_first = |it: &Connection| it.client.port() == 7 && it.server.port() == 9;
        eventually("it is known", || {
            node.connections(from.network).iter().any(is_first).then_some(())
        });
    };
    greet(&one, &other);
    greet(&quiet, &friend);
    let frames = (0..40_000_u16).map(|number| {
        let content = forge::datagram((1024 + number, 1), b"");
        forge::packet(one.v4(), other.ip.into(), UDP, &content)
    });
    node.flood(&one, frames);
    let full = node.connections(one.network);
    assert!((8000..=16_384).contains(&full.len()), "{}", full.len());
    assert_eq!(node.dropped(Some(one.network), DropReason::ConnectionsExhausted), 0);
    assert!(node.connections(quiet.network).iter().any(|it| it.client.port() == 7));
}

#[test]
fn an_address_that_is_used_again_inherits_no_connection() {
    let scene = scene();
    let node = &scene.fabric.nodes[0];
    // What the attacker says of a datagram that the victim sent to its address, in each family.
    let about = |attacker: &Pod| {
        families(attacker, &scene.victim).map(|(attacker, victim)| {
            let datagram = forge::datagram((2000, 3000), b"?");
            let quote = forge::packet(victim, attacker.ip, UDP, &datagram);
            let (kind, code) = if victim.ip.is_ipv4() { (3, 3) } else { (1, 4) };
            let error = forge::icmp_error(kind, code, &quote);
            forge::packet(attacker, victim.ip, forge::icmp_of(victim.ip), &error)
        })
    };
    for (attacker, victim) in families(&scene.attacker, &scene.victim) {
        let ends = (SocketAddr::new(victim.ip, 2000), SocketAddr::new(attacker.ip, 3000));
        udp(victim, 2000).send_to(b"hello", ends.1).unwrap();
        eventually("the connection is known", || (known(node, UDP, ends).len() == 1).then_some(()));
    }
    about(&scene.attacker).iter().for_each(|error| scene.passes(&scene.victim, error));
    scene.fabric.remove(&scene.attacker);
    let heir = scene.fabric.pod(0, network(OWN), "10.0.0.1");
    for error in about(&heir) {
        let (heard, before) = (scene.victim.packets(), scene.dropped(DropReason::UnrelatedIcmp));
        heir.packets().send(&error).unwrap();
        eventually("it was dropped", || {
            (scene.dropped(DropReason::UnrelatedIcmp) > before).then_some(())
        });
        assert_eq!(heard.received().unwrap(), Vec::<Vec<u8>>::new());
    }
}

#[test]
fn a_connection_that_was_silent_for_too_long_is_over() {
    let scene = scene();
    let (attacker, victim) = (scene.attacker.v4(), scene.victim.v4());
    let node = &scene.fabric.nodes[0];
    udp(victim, 2000).send_to(b"hello", (attacker.ip, 3000)).unwrap();
    let ends = (SocketAddr::new(victim.ip, 2000), SocketAddr::new(attacker.ip, 3000));
    eventually("the connection is known", || (known(node, UDP, ends).len() == 1).then_some(()));
    let quote = forge::packet(victim, attacker.ip, UDP, &forge::datagram((2000, 3000), b"hello"));
    let error = forge::packet(attacker, victim.ip, 1, &forge::icmp_error(3, 3, &quote));
    let_time_pass::<15>(node);
    scene.passes(&scene.victim, &error);
    let_time_pass::<16>(node);
    scene.is_dropped(DropReason::UnrelatedIcmp, &error);
}

#[test]
fn what_is_left_of_a_network_that_is_gone_is_collected_and_nothing_else() {
    let fabric = Fabric::of(1);
    let [one, other] = two_pods(&fabric);
    let gone = fabric.pod(0, network(FOREIGN), "10.0.0.1");
    let node = &fabric.nodes[0];
    let nobody = SocketAddr::from(([10, 0, 0, 77], 9));
    for pod in [&one, &gone] {
        udp(pod.v4(), 0).send_to(b"?", nobody).unwrap();
        eventually("it was dropped", || {
            (node.dropped(Some(pod.network), DropReason::NoEndpoint) == 1).then_some(())
        });
    }
    udp(one.v4(), 7).send_to(b"?", (other.ip, 9)).unwrap();
    eventually("it is known", || (node.connections(one.network).len() == 1).then_some(()));
    fabric.remove(&gone);
    node.run(|state| state.datapath.as_mut().unwrap().collect().unwrap());
    assert_eq!(node.dropped(Some(gone.network), DropReason::NoEndpoint), 0);
    assert_eq!(node.dropped(Some(one.network), DropReason::NoEndpoint), 1);
    assert_eq!(node.connections(one.network).len(), 1);
    let again = fabric.pod(0, network(FOREIGN), "10.0.0.1");
    let friend = fabric.pod(0, network(FOREIGN), "10.0.0.2");
    assert!(ping(again.v4(), friend.ip.into(), LIMIT));
}
