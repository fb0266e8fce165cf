//! The way from a pod to the agent of its node and back: by doors and aliases, and no other way.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};

use atoll_testkit::Hears;

use atoll_abi::{DOOR_PORT, Door, aliases_of};
use atoll_datapath::DropReason;
use atoll_plan::{Doors, Resolver};

use crate::fabric::{Fabric, Node, Pod, network};
use crate::isolation::assert_checksums;
use crate::outside::World;
use crate::talk::{BRIEF, LIMIT, Voice, connect, ping, udp};

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn resolver(addresses: [&str; 2]) -> Resolver {
    addresses.into_iter().map(ip).collect()
}

/// The same cluster resolver for all, and an own one for each network.
fn doors(own: [&str; 2]) -> Doors {
    Doors { cluster: resolver(["10.96.0.10", "fd96::a"]), own: resolver(own) }
}

/// Two pods of two networks on one node, with the very same addresses.
pub(crate) fn twins() -> (Fabric, [Pod; 2]) {
    let fabric = Fabric::of(1);
    let pods = [7, 8].map(|number| fabric.planned_pod(0, network(number), "10.0.0.5"));
    {
        let mut plan = fabric.nodes[0].plan.lock().unwrap();
        plan.doors.insert(network(7), doors(["10.0.0.2", "fd00::2"]));
        plan.doors.insert(network(8), doors(["10.0.9.2", "fd00:9::2"]));
    }
    fabric.converge();
    (fabric, pods)
}

/// The alias that the node knows a pod by, in the family of `like`.
pub(crate) fn alias(node: &Node, pod: &Pod, like: IpAddr) -> IpAddr {
    let askers = node.run(|state| state.datapath.as_ref().unwrap().askers().unwrap());
    let (index, _) = askers.iter().find(|(_, name)| **name == pod.host_side).unwrap();
    aliases_of(*index)[usize::from(like.is_ipv6())]
}

/// Where the agent listens for what was sent to `asked`.
pub(crate) fn behind(door: Door, asked: IpAddr) -> SocketAddr {
    SocketAddr::new(door.listeners()[usize::from(asked.is_ipv6())], DOOR_PORT)
}

pub(crate) fn agent(node: &Node, at: SocketAddr) -> UdpSocket {
    let socket = node.namespace.run(|| UdpSocket::bind(at).unwrap());
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    socket
}

pub(crate) fn speaking(pod: &Pod, to: IpAddr) -> Voice<'_> {
    if to.is_ipv4() { pod.v4() } else { pod.v6() }
}

/// One question and its answer; the agent must see the pod's alias and the pod the address asked.
fn ask(node: &Node, pod: &Pod, door: Door, asked: IpAddr) {
    let agent = agent(node, behind(door, asked));
    let asker = udp(speaking(pod, asked), 0);
    asker.send_to(b"who?", (asked, 53)).unwrap();
    let mut buffer = [0; 16];
    let (length, from) = agent.hear_from(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], b"who?");
    assert_eq!(from.ip(), alias(node, pod, asked), "{asked}");
    agent.send_to(b"you", from).unwrap();
    let (length, from) = asker.hear_from(&mut buffer).unwrap();
    assert_eq!((&buffer[..length], from), (&b"you"[..], SocketAddr::new(asked, 53)));
}

#[test]
fn pods_with_one_address_are_known_by_their_aliases_and_get_their_own_answers() {
    let (fabric, [acme, globex]) = twins();
    let node = &fabric.nodes[0];
    for cluster in ["10.96.0.10", "fd96::a"].map(ip) {
        ask(node, &acme, Door::Cluster, cluster);
        ask(node, &globex, Door::Cluster, cluster);
        assert_ne!(alias(node, &acme, cluster), alias(node, &globex, cluster));
    }
    for own in ["10.0.0.2", "fd00::2"].map(ip) {
        ask(node, &acme, Door::Own, own);
    }
    for own in ["10.0.9.2", "fd00:9::2"].map(ip) {
        ask(node, &globex, Door::Own, own);
    }
}

#[test]
fn equal_questions_of_two_networks_at_the_same_moment_get_their_own_answers() {
    let (fabric, pods) = twins();
    let agent = agent(&fabric.nodes[0], behind(Door::Cluster, ip("10.96.0.10")));
    let askers = pods.each_ref().map(|pod| udp(pod.v4(), 4711));
    for asker in &askers {
        asker.send_to(b"who?", "10.96.0.10:53").unwrap();
    }
    let mut buffer = [0; 64];
    let heard = [(); 2].map(|()| agent.hear_from(&mut [0; 16]).unwrap().1);
    for from in heard {
        agent.send_to(from.ip().to_string().as_bytes(), from).unwrap();
    }
    for (pod, asker) in pods.iter().zip(&askers) {
        let length = asker.hear(&mut buffer).unwrap();
        let told: IpAddr = std::str::from_utf8(&buffer[..length]).unwrap().parse().unwrap();
        assert_eq!(told, alias(&fabric.nodes[0], pod, told));
    }
}

/// A long conversation by TCP through a door.
fn converse_through(node: &Node, pod: &Pod, asked: IpAddr) {
    let listener = node.namespace.run(|| TcpListener::bind(behind(Door::Cluster, asked)).unwrap());
    let voice = speaking(pod, asked);
    let mut ours = connect(voice, 0, SocketAddr::new(asked, 53), LIMIT).unwrap();
    let (mut theirs, _) = listener.accept().unwrap();
    let sent = vec![7; 300_000];
    std::thread::scope(|scope| {
        scope.spawn(|| theirs.write_all(&sent).unwrap());
        let mut heard = vec![0; sent.len()];
        ours.read_exact(&mut heard).unwrap();
        assert!(heard == sent, "what came is not what was sent");
    });
}

#[test]
fn tcp_passes_a_door_with_right_checksums_also_with_every_offload_off() {
    let (fabric, [acme, _]) = twins();
    let node = &fabric.nodes[0];
    for asked in ["10.96.0.10", "fd96::a"].map(ip) {
        converse_through(node, &acme, asked);
    }
    acme.namespace.switch_offloads_off("eth0");
    ["atoll-node", "atoll-door"].iter().for_each(|it| node.namespace.switch_offloads_off(it));
    for asked in ["10.96.0.10", "fd96::a"].map(ip) {
        let seen = acme.packets();
        converse_through(node, &acme, asked);
        ask(node, &acme, Door::Cluster, asked);
        let frames = seen.received().unwrap();
        assert!(frames.len() > 30, "{} frames of a long talk", frames.len());
        frames.iter().for_each(|frame| assert_checksums(frame));
    }
}

#[test]
fn nothing_but_a_question_to_a_door_of_its_own_network_reaches_the_node() {
    let (fabric, [acme, globex]) = twins();
    let node = &fabric.nodes[0];
    let agent = node.namespace.run(|| UdpSocket::bind(("0.0.0.0", DOOR_PORT)).unwrap());
    agent.set_read_timeout(Some(BRIEF)).unwrap();
    let asker = udp(acme.v4(), 0);
    let globex_alias = alias(node, &globex, ip("10.0.0.5"));
    let wrong = [
        ("10.96.0.10".to_owned(), 54),
        ("10.96.0.10".to_owned(), DOOR_PORT),
        ("169.254.1.2".to_owned(), DOOR_PORT),
        ("169.254.1.2".to_owned(), 53),
        ("10.0.9.2".to_owned(), 53),
        (node.underlay.to_string(), DOOR_PORT),
        (globex_alias.to_string(), DOOR_PORT),
    ];
    for (to, port) in &wrong {
        asker.send_to(b"let me in", (to.as_str(), *port)).unwrap();
        assert!(agent.hear(&mut [0; 16]).is_err(), "{to} {port} reached the node");
    }
    assert!(!ping(acme.v4(), ip("10.96.0.10"), BRIEF), "a door answers no ping");
    let own = Some(acme.network);
    node.await_dropped(own, DropReason::NoEndpoint, wrong.len() as u64);
    assert_eq!(node.dropped(own, DropReason::NoEndpoint), wrong.len() as u64);
    assert!(node.dropped(own, DropReason::Multicast) >= 1, "the alias is no pod's address");
    drop(agent);
    ask(node, &acme, Door::Cluster, ip("10.96.0.10"));
}

#[test]
fn the_node_speaks_to_a_pod_only_in_answer_from_behind_a_door() {
    let (fabric, [acme, _]) = twins();
    let node = &fabric.nodes[0];
    let pod = udp(acme.v4(), 4711);
    pod.set_read_timeout(Some(BRIEF)).unwrap();
    let to = SocketAddr::new(alias(node, &acme, ip("10.0.0.5")), 4711);
    for from in ["169.254.1.2:4712", "192.168.77.1:61053"] {
        let stranger = node.namespace.run(|| UdpSocket::bind(from).unwrap());
        stranger.send_to(b"psst", to).unwrap();
        assert!(pod.hear(&mut [0; 8]).is_err(), "{from} reached the pod");
    }
    node.await_dropped(Some(acme.network), DropReason::NoEndpoint, 2);
    let nobody = SocketAddr::new(aliases_of(0x00ff_ffff)[0], 4711);
    agent(node, behind(Door::Cluster, ip("10.96.0.10"))).send_to(b"you", nobody).unwrap();
    node.await_dropped(None, DropReason::UnknownInterface, 1);
}

/// A machine on the node's link that has the agent's address, and sends what the node has to forward.
#[test]
fn what_the_node_only_forwards_is_not_taken_for_the_agents() {
    let (world, fabric) = World::with_nodes(1);
    let node = &fabric.nodes[0];
    let acme = fabric.planned_pod(0, network(7), "10.0.0.5");
    node.plan.lock().unwrap().doors.insert(network(7), doors(["10.0.0.2", "fd00::2"]));
    fabric.converge();
    let forwarding = "/proc/sys/net/ipv6/conf/all/forwarding";
    node.namespace.run(|| std::fs::write(forwarding, "1").unwrap());
    let door = behind(Door::Cluster, ip("fd96::a"));
    let (router, alias) = (ip("fd77::1"), alias(node, &acme, door.ip()));
    // It must know the node before it has an address that the node would answer itself at.
    world.udp("[fd77::200]:0".parse().unwrap()).send_to(b"hello", (router, 9)).unwrap();
    world.namespace.ip(&format!("address add {}/128 dev wire nodad", door.ip()));
    world.namespace.ip(&format!("-6 route add {alias} via {router}"));
    let pod = udp(acme.v6(), 4711);
    world.udp(door).send_to(b"me", (alias, 4711)).unwrap();
    node.await_dropped(Some(acme.network), DropReason::NoEndpoint, 1);
    agent(node, door).send_to(b"you", (alias, 4711)).unwrap();
    let mut heard = [0; 8];
    let length = pod.hear(&mut heard).unwrap();
    assert_eq!(&heard[..length], b"you", "the agent alone is heard");
}

#[test]
fn a_network_without_doors_has_no_way_to_the_node_until_it_gets_one() {
    let (fabric, [acme, globex]) = twins();
    let node = &fabric.nodes[0];
    node.plan.lock().unwrap().doors.remove(&acme.network);
    assert_eq!(node.converge().len(), 1);
    udp(acme.v4(), 0).send_to(b"who?", "10.96.0.10:53").unwrap();
    node.await_dropped(Some(acme.network), DropReason::NoEndpoint, 1);
    ask(node, &globex, Door::Cluster, ip("10.96.0.10"));
    let back = doors(["10.0.0.2", "fd00::2"]);
    node.plan.lock().unwrap().doors.insert(acme.network, back);
    node.converge();
    ask(node, &acme, Door::Cluster, ip("10.96.0.10"));
    assert_eq!(node.observe(), node.planned());
}

#[test]
fn doors_stay_open_when_the_datapath_is_opened_again() {
    let (fabric, [acme, _other]) = twins();
    let node = &fabric.nodes[0];
    node.run(crate::fabric::State::open);
    ask(node, &acme, Door::Cluster, ip("10.96.0.10"));
    node.namespace.ip("link delete atoll-node");
    node.run(crate::fabric::State::open);
    node.converge();
    ask(node, &acme, Door::Own, ip("fd00::2"));
}
