//! Clients outside whose address is one of the network's own: they come in by load balancers and node
//! ports as the gateway, each with a port of its own, and get their answers. Two networks with the same
//! addresses inside each time, at the same time.

use std::io::{self, Read};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use atoll_datapath::DropReason;
use atoll_testkit::{Hears, eventually};
use socket2::Socket;

use crate::balancers::{EMPTY, OWN, PORT, Scene, TARGET, edge, exchange, voice};
use crate::node_ports;
use crate::outside::{FAR, World};
use crate::talk::{LIMIT, await_refusal, connect, listen, udp};

/// Of each family, two addresses of the networks' own ranges that the world has, too.
const OUTSIDE: [[&str; 2]; 2] = [["10.9.9.8", "10.9.9.9"], ["fd00::9:8", "fd00::9:9"]];

/// As whom the pods see such clients.
fn gateway(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => [169, 254, 1, 1].into(),
        IpAddr::V6(_) => Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1).into(),
    }
}

/// Gives the world an address, whoever has it inside. The kernel takes one of IPv6 a moment later.
fn take(world: &World, ip: IpAddr) {
    let length = if ip.is_ipv4() { 32 } else { 128 };
    world.namespace.ip(&format!("address add {ip}/{length} dev lo nodad"));
    eventually("what comes to the address is the world's", || {
        let route = world.namespace.command("ip", &["route", "get", &ip.to_string()]);
        route.stdout.starts_with(b"local ").then_some(())
    });
}

/// Both clients of a family.
fn clients(world: &World, like: IpAddr) -> [IpAddr; 2] {
    let both = OUTSIDE[usize::from(like.is_ipv6())].map(|ip| ip.parse().unwrap());
    both.iter().for_each(|ip| take(world, *ip));
    both
}

/// A connection by both of its ends, and as whom its client was seen.
type Meeting = (TcpStream, TcpStream, SocketAddr);

/// Somebody outside speaks from an address and port with a backend of the service, and a pod that has the
/// same address from the same port; either may be first.
fn meet(scene: &Scene, tenant: usize, from: SocketAddr, pod_is_first: bool) -> [Meeting; 2] {
    let pods = &scene.pods[tenant];
    let listener = listen(voice(&pods[0], from.ip()), TARGET);
    let accept = |ours| {
        let (theirs, seen) = listener.accept().unwrap();
        (ours, theirs, seen)
    };
    let service = SocketAddr::new(edge(OWN[tenant], from.ip()), PORT);
    let enter = || accept(scene.connect(from, service).unwrap());
    let straight = listener.local_addr().unwrap();
    let pod = voice(&pods[1], from.ip());
    let call = || accept(connect(pod, from.port(), straight, LIMIT).unwrap());
    if pod_is_first {
        let called = call();
        [enter(), called]
    } else {
        [enter(), call()]
    }
}

#[test]
fn a_client_with_the_address_of_a_pod_comes_in_as_the_gateway_beside_that_pod() {
    for holder in [EMPTY, 1] {
        let scene = Scene::held_by(holder, &[0]);
        for like in FAR {
            let ip = voice(&scene.pods[0][1], like).ip;
            take(&scene.world, ip);
            for (port, pod_is_first) in [(40_000, false), (40_001, true)] {
                let from = SocketAddr::new(ip, port);
                let both = [0, 1].map(|tenant| meet(&scene, tenant, from, pod_is_first));
                for [(ours, theirs, seen), (pod, answers, peer)] in &both {
                    assert_eq!(seen.ip(), gateway(like), "held by node {holder}");
                    assert_eq!(*peer, from, "the pod is seen as itself");
                    exchange(ours, theirs);
                    exchange(pod, answers);
                }
            }
        }
    }
}

#[test]
fn clients_behind_the_gateway_are_told_apart_and_others_are_seen_as_themselves() {
    let scene = Scene::held_by(EMPTY, &[0]);
    for far in FAR {
        let [one, other] = clients(&scene.world, far);
        let sockets = [one, other, far].map(|ip| scene.world.udp(SocketAddr::new(ip, 40_000)));
        for (number, pods) in OWN.into_iter().zip(&scene.pods) {
            let server = udp(voice(&pods[0], far), TARGET);
            let at = SocketAddr::new(edge(number, far), PORT);
            let seen = sockets.each_ref().map(|socket| ask(socket, &server, at));
            assert_eq!(seen.map(|it| it.ip()), [gateway(far), gateway(far), far]);
            assert_ne!(seen[0].port(), seen[1].port());
            let again = sockets.each_ref().map(|socket| ask(socket, &server, at));
            assert_eq!(again, seen, "each stays who it is");
            for (socket, seen) in sockets.iter().zip(seen) {
                server.send_to(seen.port().to_string().as_bytes(), seen).unwrap();
                let mut buffer = [0; 16];
                let (length, from) = socket.hear_from(&mut buffer).unwrap();
                let heard = String::from_utf8_lossy(&buffer[..length]).into_owned();
                assert_eq!((heard, from), (seen.port().to_string(), at));
            }
        }
    }
}

/// Asks a service by an address; says as whom the server saw the asker, and hears nothing yet.
fn ask(client: &UdpSocket, server: &UdpSocket, at: SocketAddr) -> SocketAddr {
    client.send_to(b"hello", at).unwrap();
    let mut buffer = [0; 16];
    let (length, seen) = server.hear_from(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], b"hello");
    seen
}

#[test]
fn a_client_with_an_address_of_the_network_comes_in_by_a_port_of_every_node() {
    let scene = node_ports::Scene::with_backends(&[0]);
    for far in FAR {
        let [client, _] = clients(&scene.world, far);
        for (entry, tenant) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let port = node_ports::OWN[tenant].1;
            let listener = listen(voice(&scene.pods[tenant][0], far), node_ports::TARGET);
            let to = SocketAddr::new(scene.node(entry, far), port);
            let ours = scene.connect(SocketAddr::new(client, 40_000), to).unwrap();
            let (theirs, seen) = listener.accept().unwrap();
            assert_eq!(seen.ip(), gateway(far), "by node {entry}");
            exchange(&ours, &theirs);
        }
    }
}

#[test]
fn a_client_behind_the_gateway_opens_a_second_connection_from_the_same_port_after_the_first() {
    let scene = Scene::held_by(EMPTY, &[0]);
    let [client, _] = clients(&scene.world, FAR[0]);
    let to = SocketAddr::new(edge(OWN[0], FAR[0]), PORT);
    let listener = listen(scene.pods[0][0].v4(), TARGET);
    for _ in 0..3 {
        let ours = scene.connect(SocketAddr::new(client, 40_000), to).unwrap();
        let (theirs, _) = listener.accept().unwrap();
        exchange(&ours, &theirs);
        let lingers = Socket::from(ours);
        lingers.set_linger(Some(Duration::ZERO)).unwrap();
        drop(lingers);
        eventually("the other end hears of it", || (&theirs).read(&mut [0; 1]).err());
    }
}

#[test]
fn datagrams_of_such_clients_pass_in_parts_both_ways_and_each_is_its_senders() {
    for holder in [EMPTY, 1] {
        let scene = Scene::held_by(holder, &[0]);
        for far in FAR {
            let sockets = clients(&scene.world, far)
                .map(|client| scene.world.udp(SocketAddr::new(client, 40_000)));
            for (number, pods) in OWN.into_iter().zip(&scene.pods) {
                let server = udp(voice(&pods[0], far), TARGET);
                let at = SocketAddr::new(edge(number, far), PORT);
                for (round, socket) in (1..).zip(sockets.iter().cycle().take(6)) {
                    let (sent, mut heard) = (vec![round; 5000], vec![0; 8000]);
                    socket.send_to(&sent, at).unwrap();
                    let (length, seen) = server.hear_from(&mut heard).unwrap();
                    assert!(heard[..length] == sent, "{far}: what arrived is not what was sent");
                    assert_eq!(seen.ip(), gateway(far));
                    server.send_to(&sent, seen).unwrap();
                    let (length, from) = socket.hear_from(&mut heard).unwrap();
                    assert!(heard[..length] == sent, "{far}: what came back is not what was sent");
                    assert_eq!(from, at);
                }
            }
        }
    }
}

#[test]
fn nobody_but_the_pod_that_was_called_speaks_to_who_is_behind_the_gateway() {
    let scene = Scene::held_by(1, &[0]);
    let [client, _] = clients(&scene.world, FAR[0]);
    let client = scene.world.udp(SocketAddr::new(client, 40_000));
    let at = SocketAddr::new(edge(OWN[0], FAR[0]), PORT);
    let server = udp(scene.pods[0][0].v4(), TARGET);
    let seen = ask(&client, &server, at);
    for (pod, node) in [(&scene.pods[0][1], 2), (&scene.pods[1][0], 1)] {
        let node = &scene.fabric.nodes[node];
        let dropped = || node.dropped(Some(pod.network), DropReason::NoEndpoint);
        let before = dropped();
        udp(pod.v4(), TARGET).send_to(b"let me in", seen).unwrap();
        eventually("it reaches nobody", || (dropped() > before).then_some(()));
    }
    server.send_to(b"the answer", seen).unwrap();
    let mut buffer = [0; 16];
    let (length, from) = client.hear_from(&mut buffer).unwrap();
    assert_eq!((&buffer[..length], from), (&b"the answer"[..], at), "it alone arrives");
    client.set_nonblocking(true).unwrap();
    assert!(client.hear(&mut buffer).is_err());
}

/// A pod of a network and somebody outside who asked it and got an answer; the pod's socket has no other
/// peer.
fn acquainted(scene: &Scene, tenant: usize, client: IpAddr, seen_as: IpAddr) -> [UdpSocket; 2] {
    let server = udp(voice(&scene.pods[tenant][0], client), TARGET);
    let client = scene.world.udp(SocketAddr::new(client, 40_000 + tenant as u16));
    let at = SocketAddr::new(edge(OWN[tenant], seen_as), PORT);
    let seen = ask(&client, &server, at);
    assert_eq!(seen.ip(), seen_as);
    server.connect(seen).unwrap();
    server.send(b"yes").unwrap();
    assert_eq!(client.hear(&mut [0; 8]).unwrap(), 3);
    [server, client]
}

#[test]
fn an_error_about_an_answer_reaches_the_pod_that_gave_it_whoever_its_client_is_seen_as() {
    for holder in [EMPTY, 1] {
        let scene = Scene::held_by(holder, &[0]);
        for far in FAR {
            let [masked, _] = clients(&scene.world, far);
            for (client, seen_as) in [(masked, gateway(far)), (far, far)] {
                let [[told, gone], [untold, _stays]] =
                    [0, 1].map(|tenant| acquainted(&scene, tenant, client, seen_as));
                drop(gone);
                await_refusal(&told);
                untold.set_nonblocking(true).unwrap();
                let silent = untold.hear(&mut [0; 8]).unwrap_err();
                assert_eq!(
                    silent.kind(),
                    io::ErrorKind::WouldBlock,
                    "{client}: it is not about this"
                );
            }
        }
    }
}

#[test]
fn who_has_the_gateways_own_address_outside_is_told_from_it_by_a_port_like_others() {
    let scene = Scene::held_by(EMPTY, &[0]);
    let ip = gateway(FAR[0]);
    take(&scene.world, ip);
    let client = scene.world.udp(SocketAddr::new(ip, 40_000));
    let at = SocketAddr::new(edge(OWN[0], ip), PORT);
    let server = udp(scene.pods[0][0].v4(), TARGET);
    let seen = ask(&client, &server, at);
    assert_eq!((seen.ip(), seen.port() < 32_768), (ip, true), "{seen}: a port of a mask");
    server.send_to(b"yes", seen).unwrap();
    let mut buffer = [0; 8];
    let (length, from) = client.hear_from(&mut buffer).unwrap();
    assert_eq!((&buffer[..length], from), (&b"yes"[..], at));
}
