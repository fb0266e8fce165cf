//! The two other ways between a pod and the agent of its node: services of the cluster's own, which
//! pods call, and probes, which the agent makes.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use atoll_abi::{Door, PROBER_PORTS};
use atoll_datapath::DropReason;
use atoll_plan::ServiceDoor;
use atoll_testkit::bound;
use atoll_types::NetAddr;
use socket2::{Domain, Socket, Type};

use crate::doors::{alias, ip, speaking};
use crate::fabric::{Fabric, Node, Pod, network};
use crate::isolation::assert_checksums;
use crate::talk::{BRIEF, LIMIT, connect, ping, udp};

/// The agent's port for the API.
const LISTENER: u16 = 61100;
const APIS: [&str; 2] = ["10.96.0.1", "fd96::1"];

fn door(pod: &Pod, api: IpAddr) -> ServiceDoor {
    ServiceDoor { addr: NetAddr::new(pod.network, api), port: 443, datagrams: false }
}

/// Each family has a port of its own.
fn listener(api: IpAddr) -> u16 {
    LISTENER + u16::from(api.is_ipv6())
}

/// Two pods of two networks on one node with the very same addresses, of which the first's network
/// has the API.
fn twins() -> (Fabric, [Pod; 2]) {
    let fabric = Fabric::of(1);
    let pods = [7, 8].map(|number| fabric.planned_pod(0, network(number), "10.0.0.5"));
    give_api(&fabric.nodes[0], &pods[0]);
    fabric.converge();
    (fabric, pods)
}

fn give_api(node: &Node, pod: &Pod) {
    let mut plan = node.plan.lock().unwrap();
    for api in APIS.map(ip) {
        plan.service_doors.insert(door(pod, api), listener(api));
    }
}

fn agent(node: &Node, api: IpAddr) -> TcpListener {
    let behind = Door::Service.listeners()[usize::from(api.is_ipv6())];
    node.namespace.run(|| TcpListener::bind((behind, listener(api))).unwrap())
}

/// A long conversation with the API through the agent's port; the agent must see the pod's alias,
/// and the pod the address that it called.
fn call(node: &Node, pod: &Pod, api: IpAddr) {
    let agent = agent(node, api);
    let at = SocketAddr::new(api, 443);
    let mut ours = connect(speaking(pod, api), 0, at, LIMIT).unwrap();
    assert_eq!(ours.peer_addr().unwrap(), at);
    let (mut theirs, from) = agent.accept().unwrap();
    assert_eq!(from.ip(), alias(node, pod, api));
    pass(&mut theirs, &mut ours);
}

fn pass(from: &mut TcpStream, to: &mut TcpStream) {
    let sent = vec![7; 300_000];
    let (mut from, to) = (from.try_clone().unwrap(), to);
    to.set_read_timeout(Some(LIMIT)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| from.write_all(&sent).unwrap());
        let mut heard = vec![0; sent.len()];
        to.read_exact(&mut heard).unwrap();
        assert!(heard == sent, "what came is not what was sent");
    });
}

#[test]
fn pods_with_one_address_call_a_service_and_are_known_by_their_aliases() {
    let (fabric, [acme, globex]) = twins();
    let node = &fabric.nodes[0];
    for api in APIS.map(ip) {
        call(node, &acme, api);
    }
    give_api(node, &globex);
    fabric.converge();
    for api in APIS.map(ip) {
        call(node, &globex, api);
        call(node, &acme, api);
    }
    assert_eq!(node.observe(), node.planned());
}

#[test]
fn a_service_is_called_at_its_own_port_by_tcp_from_its_own_networks_alone() {
    let (fabric, [acme, globex]) = twins();
    let node = &fabric.nodes[0];
    let api = ip(APIS[0]);
    let at = |port| SocketAddr::new(api, port);
    let _agent = agent(node, api);
    assert!(connect(globex.v4(), 0, at(443), BRIEF).is_err(), "another network has no such door");
    assert!(connect(acme.v4(), 0, at(444), BRIEF).is_err(), "another port is no door");
    let behind = SocketAddr::new(Door::Service.listeners()[0], LISTENER);
    assert!(connect(acme.v4(), 0, behind, BRIEF).is_err(), "what is behind it is none either");
    udp(acme.v4(), 0).send_to(b"quic?", at(443)).unwrap();
    assert!(!ping(acme.v4(), api, BRIEF));
    for (pod, count) in [(&globex, 1), (&acme, 4)] {
        node.await_dropped(Some(pod.network), DropReason::NoEndpoint, count);
    }
    connect(acme.v4(), 0, at(443), LIMIT).unwrap();
}

#[test]
fn a_door_that_moves_to_another_port_or_goes_is_followed() {
    let (fabric, [acme, _other]) = twins();
    let node = &fabric.nodes[0];
    let api = door(&acme, ip(APIS[0]));
    node.plan.lock().unwrap().service_doors.insert(api, LISTENER + 7);
    assert_eq!(node.converge().len(), 1);
    assert_eq!(node.observe(), node.planned());
    node.plan.lock().unwrap().service_doors.clear();
    node.converge();
    assert_eq!(node.observe(), node.planned());
    assert!(connect(acme.v4(), 0, "10.96.0.1:443".parse().unwrap(), BRIEF).is_err());
}

#[test]
fn a_service_is_called_with_right_checksums_also_with_every_offload_off() {
    let (fabric, [acme, _other]) = twins();
    let node = &fabric.nodes[0];
    acme.namespace.switch_offloads_off("eth0");
    ["atoll-node", "atoll-door"].iter().for_each(|link| node.namespace.switch_offloads_off(link));
    for api in APIS.map(ip) {
        let seen = acme.packets();
        call(node, &acme, api);
        let frames = seen.received().unwrap();
        assert!(frames.len() > 30, "{} frames of a long talk", frames.len());
        frames.iter().for_each(|frame| assert_checksums(frame));
    }
}

/// A connection of the agent from this address of its own to a port of the pod.
fn probe(node: &Node, from: IpAddr, to: SocketAddr, patience: Duration) -> Option<TcpStream> {
    probe_from(node, SocketAddr::new(from, PROBER_PORTS + 77), to, patience)
}

fn probe_from(
    node: &Node,
    from: SocketAddr,
    to: SocketAddr,
    patience: Duration,
) -> Option<TcpStream> {
    node.namespace.run(|| {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, None).unwrap();
        socket.set_reuse_address(true).unwrap();
        socket.bind(&from.into()).unwrap();
        socket.connect_timeout(&to.into(), patience).ok()?;
        Some(socket.into())
    })
}

#[test]
fn the_agent_probes_the_very_pod_whose_alias_it_calls() {
    let (fabric, pods) = twins();
    let node = &fabric.nodes[0];
    for own in pods[0].ips() {
        let place = usize::from(own.is_ipv6());
        let prober = Door::Prober.listeners()[place];
        for pod in &pods {
            let to = SocketAddr::new(alias(node, pod, own), 8080);
            assert!(probe(node, prober, to, LIMIT).is_none(), "nobody listens there yet");
            let server = pod.namespace.run(|| bound(|| TcpListener::bind((own, 8080))));
            let mut ours = probe(node, prober, to, LIMIT).unwrap();
            let (mut theirs, from) = server.accept().unwrap();
            assert_eq!(from.ip(), prober);
            pass(&mut theirs, &mut ours);
        }
    }
}

#[test]
fn nobody_of_the_node_but_the_prober_opens_a_connection_to_a_pod() {
    let (fabric, [acme, _other]) = twins();
    let node = &fabric.nodes[0];
    let server = acme.namespace.run(|| TcpListener::bind("0.0.0.0:8080").unwrap());
    let to = SocketAddr::new(alias(node, &acme, ip("10.0.0.5")), 8080);
    let [resolver, service] = [Door::Cluster, Door::Service].map(|door| door.listeners()[0]);
    for from in [resolver, service, node.underlay.into()] {
        assert!(probe(node, from, to, BRIEF).is_none(), "{from} reached the pod");
    }
    let prober = SocketAddr::new(Door::Prober.listeners()[0], PROBER_PORTS - 1);
    assert!(probe_from(node, prober, to, BRIEF).is_none(), "not from any port of the prober");
    server.set_nonblocking(true).unwrap();
    assert!(server.accept().is_err());
    node.await_dropped(Some(acme.network), DropReason::NoEndpoint, 4);
}

#[test]
fn a_pod_opens_nothing_towards_the_prober() {
    let (fabric, [acme, _other]) = twins();
    let node = &fabric.nodes[0];
    let kubelet = node.namespace.run(|| TcpListener::bind("[::]:10250").unwrap());
    for (place, own) in acme.ips().into_iter().enumerate() {
        let prober = Door::Prober.listeners()[place];
        let at = SocketAddr::new(prober, 10250);
        assert!(connect(speaking(&acme, own), 0, at, BRIEF).is_err(), "{at} was reached");
        udp(speaking(&acme, own), 0).send_to(b"let me in", at).unwrap();
    }
    kubelet.set_nonblocking(true).unwrap();
    assert!(kubelet.accept().is_err());
    node.await_dropped(Some(acme.network), DropReason::NoEndpoint, 4);
}
