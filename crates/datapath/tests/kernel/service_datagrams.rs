//! Datagrams of pods to services of the cluster's own: by a door of their own beside that of TCP at the same
//! port, and no more of them than one pod may have waiting where others wait, too.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::time::Instant;

use atoll_abi::Door;
use atoll_datapath::DropReason;
use atoll_plan::ServiceDoor;
use atoll_testkit::{Hears, eventually};
use atoll_types::NetAddr;
use nix::sys::socket::{setsockopt, sockopt};

use crate::doors::{agent, alias, behind, ip, speaking, twins};
use crate::fabric::{Node, Pod};
use crate::isolation::assert_checksums;
use crate::talk::{BRIEF, LIMIT, connect, udp};

const CLOCKS: [&str; 2] = ["10.96.0.7", "fd96::7"];
const PORT: u16 = 123;
/// The agent's port for TCP; that for UDP is the next, and those for IPv6 follow.
const LISTENER: u16 = 61200;

/// What passes at once, and in a second.
const AT_ONCE: u64 = 1_000;
const IN_A_SECOND: u64 = 10_000;

fn listener(clock: IpAddr, datagrams: bool) -> SocketAddr {
    let family = usize::from(clock.is_ipv6());
    let port = LISTENER + 2 * u16::from(clock.is_ipv6()) + u16::from(datagrams);
    SocketAddr::new(Door::Service.listeners()[family], port)
}

/// Gives the network of a pod the service by UDP, or by TCP.
fn give(node: &Node, pod: &Pod, datagrams: bool) {
    let mut plan = node.plan.lock().unwrap();
    for clock in CLOCKS.map(ip) {
        let addr = NetAddr::new(pod.network, clock);
        let door = ServiceDoor { addr, port: PORT, datagrams };
        plan.service_doors.insert(door, listener(clock, datagrams).port());
    }
}

/// One datagram and its answer; the agent must see the pod's alias, and the pod the service.
fn ask(node: &Node, pod: &Pod, clock: IpAddr) {
    let agent = agent(node, listener(clock, true));
    let (asker, at) = (udp(speaking(pod, clock), 0), SocketAddr::new(clock, PORT));
    asker.send_to(b"what time?", at).unwrap();
    let mut buffer = [0; 16];
    let (length, from) = agent.hear_from(&mut buffer).unwrap();
    assert_eq!((&buffer[..length], from.ip()), (&b"what time?"[..], alias(node, pod, clock)));
    assert_eq!(from.port(), asker.local_addr().unwrap().port());
    agent.send_to(b"late", from).unwrap();
    let (length, from) = asker.hear_from(&mut buffer).unwrap();
    assert_eq!((&buffer[..length], from), (&b"late"[..], at));
}

#[test]
fn datagrams_of_pods_with_one_address_reach_a_service_and_its_answers_come_back_to_each() {
    let (fabric, [acme, globex]) = twins();
    let node = &fabric.nodes[0];
    [&acme, &globex].iter().for_each(|pod| give(node, pod, true));
    fabric.converge();
    for clock in CLOCKS.map(ip) {
        [&acme, &globex, &acme].iter().for_each(|pod| ask(node, pod, clock));
    }
    assert_eq!(node.observe(), node.planned());
}

#[test]
fn a_port_leads_to_one_place_by_udp_and_to_another_by_tcp_and_to_none_by_what_it_is_not() {
    let (fabric, [acme, globex]) = twins();
    let node = &fabric.nodes[0];
    give(node, &acme, true);
    fabric.converge();
    for clock in CLOCKS.map(ip) {
        let at = SocketAddr::new(clock, PORT);
        assert!(connect(speaking(&acme, clock), 0, at, BRIEF).is_err(), "it is of UDP alone");
        udp(speaking(&globex, clock), 0).send_to(b"what time?", at).unwrap();
        ask(node, &acme, clock);
    }
    node.await_dropped(Some(globex.network), DropReason::NoEndpoint, CLOCKS.len() as u64);
    give(node, &acme, false);
    fabric.converge();
    for clock in CLOCKS.map(ip) {
        let calls = node.namespace.run(|| TcpListener::bind(listener(clock, false)).unwrap());
        let at = SocketAddr::new(clock, PORT);
        let ours = connect(speaking(&acme, clock), 0, at, LIMIT).unwrap();
        assert_eq!(ours.peer_addr().unwrap(), at);
        assert_eq!(calls.accept().unwrap().1.ip(), alias(node, &acme, clock));
        ask(node, &acme, clock);
    }
    assert_eq!(node.observe(), node.planned());
}

#[test]
fn a_node_speaks_as_a_service_by_the_protocol_of_its_port_alone() {
    let (fabric, [acme, _other]) = twins();
    let node = &fabric.nodes[0];
    give(node, &acme, false);
    fabric.converge();
    let clock = ip(CLOCKS[0]);
    let asker = udp(speaking(&acme, clock), 0);
    let to = SocketAddr::new(alias(node, &acme, clock), asker.local_addr().unwrap().port());
    let stranger = agent(node, listener(clock, false));
    stranger.send_to(b"unasked", to).unwrap();
    node.await_dropped(Some(acme.network), DropReason::NoEndpoint, 1);
    give(node, &acme, true);
    fabric.converge();
    let asked = agent(node, listener(clock, true));
    asked.send_to(b"late", to).unwrap();
    let mut buffer = [0; 16];
    let (length, _) = asker.hear_from(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], b"late");
}

#[test]
fn datagrams_to_a_service_have_right_checksums_also_with_every_offload_off() {
    let (fabric, [acme, _other]) = twins();
    let node = &fabric.nodes[0];
    give(node, &acme, true);
    fabric.converge();
    acme.namespace.switch_offloads_off("eth0");
    ["atoll-node", "atoll-door"].iter().for_each(|link| node.namespace.switch_offloads_off(link));
    for clock in CLOCKS.map(ip) {
        let seen = acme.packets();
        ask(node, &acme, clock);
        let frames = seen.received().unwrap();
        assert!(!frames.is_empty());
        frames.iter().for_each(|frame| assert_checksums(frame));
    }
}

/// How many datagrams the agent has heard from each alias, once it heard this one.
fn heard(agent: &UdpSocket, one: IpAddr) -> BTreeMap<IpAddr, u64> {
    let mut heard = BTreeMap::<IpAddr, u64>::new();
    eventually("it is heard", || {
        while let Ok((_, from)) = agent.hear_from(&mut [0; 64]) {
            *heard.entry(from.ip()).or_default() += 1;
        }
        heard.contains_key(&one).then_some(())
    });
    heard
}

#[test]
fn a_flood_of_one_pods_datagrams_costs_another_none_and_leaves_it_its_questions() {
    let (fabric, [flooder, other]) = twins();
    let node = &fabric.nodes[0];
    [&flooder, &other].iter().for_each(|pod| give(node, pod, true));
    fabric.converge();
    let (clock, at) = (ip(CLOCKS[0]), SocketAddr::new(ip(CLOCKS[0]), PORT));
    let hears = agent(node, listener(clock, true));
    setsockopt(&hears, sockopt::RcvBufForce, &(16 << 20)).unwrap();
    hears.set_read_timeout(Some(BRIEF)).unwrap();
    let [loud, quiet] = [&flooder, &other].map(|pod| udp(speaking(pod, clock), 0));
    let dropped = || node.dropped(Some(flooder.network), DropReason::TooManyQuestions);
    let (began, mut sent) = (Instant::now(), 0);
    eventually("some are too much", || {
        (0..128).for_each(|_| {
            loud.send_to(b"what time?", at).unwrap();
        });
        sent += 128;
        (dropped() > 100).then_some(())
    });
    quiet.send_to(b"what time?", at).unwrap();
    let aliases = [&flooder, &other].map(|pod| alias(node, pod, clock));
    let of_flood = heard(&hears, aliases[1]).get(&aliases[0]).copied().unwrap_or_default();
    let since = u64::try_from(began.elapsed().as_millis()).unwrap() + 20;
    let allowed = AT_ONCE + 1 + since * IN_A_SECOND / 1000;
    assert!(of_flood <= allowed && of_flood < sent, "{of_flood} of {sent} passed, not {allowed}");
    assert_eq!(node.dropped(Some(other.network), DropReason::TooManyQuestions), 0);
    let resolver = agent(node, behind(Door::Cluster, ip("10.96.0.10")));
    loud.send_to(b"who?", "10.96.0.10:53").unwrap();
    assert_eq!(
        resolver.hear_from(&mut [0; 8]).unwrap().1.ip(),
        aliases[0],
        "its budget is another"
    );
}
