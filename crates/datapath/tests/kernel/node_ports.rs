//! Node ports: the outside reaches a service by a port of any node that has a pod of its network. Two
//! networks with the same addresses each time, at the same time.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};

use atoll_datapath::{DropReason, OutsideConfig, PlainServices};
use atoll_plan::{Backend, Closed, PLAIN, Service, ServiceKey, Side};
use atoll_testkit::{Hears, eventually};
use atoll_types::{NetAddr, NetworkId, Protocol};
use socket2::{Domain, Socket, Type};

use crate::fabric::{Fabric, Node, Pod, network};
use crate::outside::{FAR, World};
use crate::talk::{BRIEF, LIMIT, Voice, connect, listen, udp};

pub(crate) const TARGET: u16 = 8080;
/// The networks, and the node port of each.
pub(crate) const OWN: [(u32, u16); 2] = [(100, 30100), (200, 30200)];

/// In each of two networks a pod on either node, of which those in `behind` stand behind the port.
pub(crate) struct Scene {
    pub(crate) world: World,
    fabric: Fabric,
    pub(crate) pods: [[Pod; 2]; 2],
}

impl Scene {
    pub(crate) fn with_backends(behind: &[usize]) -> Scene {
        let (world, fabric) = World::with_nodes(2);
        let pods = OWN.map(|(number, _)| {
            [0, 1].map(|place| {
                fabric.planned_pod(place, network(number), &format!("10.0.0.{}", 5 + place))
            })
        });
        let scene = Scene { world, fabric, pods };
        scene.lead_to(behind);
        scene
    }

    /// Puts exactly these pods behind the node ports, on every node.
    fn lead_to(&self, behind: &[usize]) {
        for node in &self.fabric.nodes {
            let mut plan = node.plan.lock().unwrap();
            for ((number, port), pods) in OWN.into_iter().zip(&self.pods) {
                let backends = |v4: bool| -> BTreeSet<Backend> {
                    let addrs = behind.iter().flat_map(|place| pods[*place].addrs());
                    let addrs = addrs.filter(|addr| addr.ip.is_ipv4() == v4);
                    addrs.map(|addr| Backend { addr, port: TARGET.try_into().unwrap() }).collect()
                };
                for protocol in Protocol::ALL {
                    for v4 in [true, false] {
                        let service = Service { backends: backends(v4), ..Service::default() };
                        plan.services.insert(key(network(number), v4, protocol, port), service);
                    }
                }
                let own = ["10.0.0.0/8", "fd00::/64"].map(|range| range.parse().unwrap());
                let to = Some(network(number));
                plan.closed.extend(own.map(|range| Closed { to, range }));
            }
        }
        self.fabric.converge();
    }

    /// The addresses of a node, of the family of `like`.
    pub(crate) fn node(&self, place: usize, like: IpAddr) -> IpAddr {
        match like {
            IpAddr::V4(_) => self.fabric.nodes[place].underlay.into(),
            IpAddr::V6(_) => [0xfd77, 0, 0, 0, 0, 0, 0, 1 + place as u16].into(),
        }
    }

    pub(crate) fn connect(&self, from: SocketAddr, to: SocketAddr) -> io::Result<TcpStream> {
        self.world.namespace.run(|| {
            let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
            socket.set_reuse_address(true)?;
            socket.bind(&from.into())?;
            socket.connect_timeout(&to.into(), LIMIT)?;
            let stream = TcpStream::from(socket);
            stream.set_read_timeout(Some(LIMIT))?;
            Ok(stream)
        })
    }
}

fn key(network: NetworkId, v4: bool, protocol: Protocol, port: u16) -> ServiceKey {
    let ip: IpAddr = if v4 { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    ServiceKey { network, side: Side::Outside, ip, protocol, port: port.try_into().unwrap() }
}

fn voice(pod: &Pod, like: IpAddr) -> Voice<'_> {
    if like.is_ipv4() { pod.v4() } else { pod.v6() }
}

#[test]
fn the_outside_reaches_a_pod_by_a_port_of_its_own_node_and_of_another_and_is_seen_by_its_address() {
    for behind in [0, 1] {
        let scene = Scene::with_backends(&[behind]);
        for (far, entry) in FAR.into_iter().flat_map(|far| [(far, 0), (far, 1)]) {
            let from = SocketAddr::new(far, 40_000);
            let listeners =
                scene.pods.each_ref().map(|pods| listen(voice(&pods[behind], far), TARGET));
            let ours = OWN.map(|(_, port)| {
                scene.connect(from, SocketAddr::new(scene.node(entry, far), port)).unwrap()
            });
            for (mut ours, listener) in ours.iter().zip(&listeners) {
                let (mut theirs, seen) = listener.accept().unwrap();
                assert_eq!(seen, from, "by node {entry} to a pod of node {behind}");
                theirs.set_read_timeout(Some(LIMIT)).unwrap();
                ours.write_all(&[7; 20_000]).unwrap();
                let mut heard = vec![0; 20_000];
                theirs.read_exact(&mut heard).unwrap();
                theirs.write_all(&heard).unwrap();
                ours.read_exact(&mut heard).unwrap();
                assert!(heard.iter().all(|byte| *byte == 7));
            }
        }
    }
}

#[test]
fn datagrams_from_outside_reach_the_backend_and_answers_come_from_the_port_that_was_asked() {
    for behind in [0, 1] {
        let scene = Scene::with_backends(&[behind]);
        for far in FAR {
            let client = scene.world.udp(SocketAddr::new(far, 40_000));
            for ((_, port), pods) in OWN.into_iter().zip(&scene.pods) {
                let server = udp(voice(&pods[behind], far), TARGET);
                let at = SocketAddr::new(scene.node(0, far), port);
                client.send_to(b"hello", at).unwrap();
                let mut buffer = [0; 16];
                let (length, seen) = server.hear_from(&mut buffer).unwrap();
                assert_eq!(seen, client.local_addr().unwrap());
                server.send_to(&buffer[..length], seen).unwrap();
                assert_eq!(client.hear_from(&mut buffer).unwrap(), (length, at));
            }
        }
    }
}

#[test]
fn the_same_client_port_opens_a_second_connection_after_the_first() {
    let scene = Scene::with_backends(&[0]);
    let from = SocketAddr::new(FAR[0], 40_000);
    let to = SocketAddr::new(scene.node(0, FAR[0]), OWN[0].1);
    let listener = listen(scene.pods[0][0].v4(), TARGET);
    for _ in 0..2 {
        let ours = scene.connect(from, to).unwrap();
        let (theirs, _) = listener.accept().unwrap();
        let lingers = Socket::from(ours);
        lingers.set_linger(Some(std::time::Duration::ZERO)).unwrap();
        drop(lingers);
        eventually("the other end hears of it", || (&theirs).read(&mut [0; 1]).err());
    }
}

#[test]
fn a_port_that_leads_to_nobody_refuses_at_once() {
    let scene = Scene::with_backends(&[]);
    let to = SocketAddr::new(scene.node(0, FAR[0]), OWN[0].1);
    let refused = scene.connect(SocketAddr::new(FAR[0], 40_000), to).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    scene.lead_to(&[0]);
    let _listener = listen(scene.pods[0][0].v4(), TARGET);
    scene.connect(SocketAddr::new(FAR[0], 40_001), to).unwrap();
}

#[test]
fn no_pod_reaches_a_node_port_which_the_outside_does() {
    let scene = Scene::with_backends(&[0]);
    let _listener = listen(scene.pods[0][0].v4(), TARGET);
    let to = SocketAddr::new(scene.node(0, FAR[0]), OWN[0].1);
    for pod in [&scene.pods[0][0], &scene.pods[1][0]] {
        assert!(connect(pod.v4(), 0, to, BRIEF).is_err());
        scene.fabric.nodes[0].await_dropped(Some(pod.network), DropReason::NoEndpoint, 1);
    }
    scene.connect(SocketAddr::new(FAR[0], 40_000), to).unwrap();
}

#[test]
fn a_tunnel_packet_from_outside_is_believed_only_for_networks_that_the_outside_reaches() {
    let scene = Scene::with_backends(&[0]);
    let victim = &scene.pods[0][0];
    let other = &scene.fabric.nodes[1];
    let frame =
        crate::forge::udp_from([2, 0, 0, 0, 0, 9], Ipv4Addr::new(203, 0, 113, 9), victim.ip);
    let send = || {
        let socket = other.namespace.run(|| UdpSocket::bind((other.underlay, 0)).unwrap());
        let to = (scene.fabric.nodes[0].underlay, crate::fabric::OVERLAY_PORT);
        socket.send_to(&crate::forge::vxlan(OWN[0].0, &frame), to).unwrap();
    };
    let heard = victim.packets();
    send();
    assert_eq!(crate::forge::arrived(&heard)[crate::forge::IP..], frame[crate::forge::IP..]);
    for node in &scene.fabric.nodes {
        node.plan.lock().unwrap().services.clear();
    }
    scene.fabric.converge();
    let dropped =
        || scene.fabric.nodes[0].dropped(Some(network(OWN[0].0)), DropReason::OverlaySpoof);
    let (before, heard) = (dropped(), victim.packets());
    send();
    eventually("it was dropped", || (dropped() > before).then_some(()));
    assert_eq!(heard.received().unwrap(), Vec::<Vec<u8>>::new());
}

/// A node port of no tenant at this node, which leads to another machine.
fn serve_plain(node: &Node, at: SocketAddr, to: SocketAddr) {
    node.run(move |state| {
        std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
        let overlay_port = state.config.overlay_port;
        let outside = OutsideConfig { underlay: at.ip(), overlay_port };
        let opened = PlainServices::open(&state.config.bpf_root, outside);
        let mut plain = state.runtime.block_on(opened).unwrap();
        let place = ServiceKey { ip: at.ip(), ..key(PLAIN, true, Protocol::Tcp, at.port()) };
        let (addr, port) = (NetAddr::new(PLAIN, to.ip()), to.port().try_into().unwrap());
        let service = Service { backends: [Backend { addr, port }].into(), ..Service::default() };
        plain.put(place, Some(&service)).unwrap();
        state.runtime.block_on(plain.serve_outside(true)).unwrap();
    });
}

#[test]
fn a_node_port_of_no_tenant_on_the_same_uplink_leads_to_its_own_and_tenants_to_theirs() {
    let scene = Scene::with_backends(&[0]);
    let (node, other) = (scene.node(0, FAR[0]), scene.node(1, FAR[0]));
    let (plain, machine) = (SocketAddr::new(node, 30_300), SocketAddr::new(other, TARGET));
    serve_plain(&scene.fabric.nodes[0], plain, machine);
    let of_machine = scene.fabric.nodes[1].run(move |_| TcpListener::bind(machine).unwrap());
    let of_tenant = listen(scene.pods[0][0].v4(), TARGET);
    for port in [40_000, 40_001] {
        let from = SocketAddr::new(FAR[0], port);
        let _ours = scene.connect(from, SocketAddr::new(node, OWN[0].1)).unwrap();
        assert_eq!(of_tenant.accept().unwrap().1, from);
        let _ours = scene.connect(from, plain).unwrap();
        assert_eq!(of_machine.accept().unwrap().1.ip(), node);
    }
}
