//! Load balancers: the outside reaches the pods of a service by an address that one node answers for,
//! whether that node has any of them or not. Two networks with the same addresses inside each time, at
//! the same time.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};

use atoll_datapath::DropReason;
use atoll_plan::{Backend, Closed, Service, ServiceKey, Side};
use atoll_testkit::{Hears, eventually};
use atoll_types::{NetworkId, Protocol};
use socket2::{Domain, Socket, Type};

use crate::fabric::{Fabric, Node, Pod, network};
use crate::outside::{FAR, World};
use crate::talk::{BRIEF, LIMIT, Voice, connect, listen, udp};

pub(crate) const PORT: u16 = 80;
pub(crate) const TARGET: u16 = 8080;
pub(crate) const OWN: [u32; 2] = [100, 200];
/// The nodes: one without pods, and two with a pod of each network.
const NODES: u8 = 3;
pub(crate) const EMPTY: usize = 0;

pub(crate) struct Scene {
    pub(crate) world: World,
    pub(crate) fabric: Fabric,
    /// Of each network, the pods of the second and of the third node.
    pub(crate) pods: [[Pod; 2]; 2],
}

/// The address of a network's load balancer, of the family of `like`.
pub(crate) fn edge(number: u32, like: IpAddr) -> IpAddr {
    let last = (number / 100) as u8;
    match like {
        IpAddr::V4(_) => [192, 168, 77, 50 + last].into(),
        IpAddr::V6(_) => Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 0x50 + u16::from(last)).into(),
    }
}

fn key(network: NetworkId, ip: IpAddr, protocol: Protocol) -> ServiceKey {
    ServiceKey { network, side: Side::Outside, ip, protocol, port: PORT.try_into().unwrap() }
}

fn everybody(v4: bool) -> &'static str {
    if v4 { "0.0.0.0/0" } else { "::/0" }
}

impl Scene {
    /// These pods stand behind the addresses, which the node at `holder` answers for.
    pub(crate) fn held_by(holder: usize, behind: &[usize]) -> Scene {
        let (world, fabric) = World::with_nodes(NODES);
        let pods = OWN.map(|number| {
            [1, 2].map(|place| {
                fabric.planned_pod(place, network(number), &format!("10.0.0.{}", 4 + place))
            })
        });
        let scene = Scene { world, fabric, pods };
        scene.lead_to(behind, None);
        scene.hold_by(holder);
        scene
    }

    /// Puts exactly these pods behind the addresses, for clients of `sources` or for everybody.
    fn lead_to(&self, behind: &[usize], sources: Option<&str>) {
        for (node, pods) in self.fabric.nodes.iter().flat_map(|it| [(it, 0), (it, 1)]) {
            let (number, pods) = (OWN[pods], &self.pods[pods]);
            let mut plan = node.plan.lock().unwrap();
            for (far, protocol) in FAR.into_iter().flat_map(|far| Protocol::ALL.map(|it| (far, it)))
            {
                let addrs = behind.iter().flat_map(|place| pods[*place].addrs());
                let addrs = addrs.filter(|addr| addr.ip.is_ipv4() == far.is_ipv4());
                let port = TARGET.try_into().unwrap();
                let backends: BTreeSet<_> = addrs.map(|addr| Backend { addr, port }).collect();
                let sources = sources.unwrap_or(everybody(far.is_ipv4())).parse().unwrap();
                let service = Service { backends, affinity: None, sources: [sources].into() };
                plan.services.insert(key(network(number), edge(number, far), protocol), service);
            }
            let own = ["10.0.0.0/8", "fd00::/64"].map(|range| range.parse().unwrap());
            let to = Some(network(number));
            plan.closed.extend(own.map(|range| Closed { to, range }));
        }
        self.fabric.converge();
    }

    /// Has this node answer for the addresses, and no other; the neighbours hear of it.
    fn hold_by(&self, holder: usize) {
        let all = OWN.iter().flat_map(|it| FAR.map(|far| (edge(*it, far), network(*it))));
        for (place, node) in self.fabric.nodes.iter().enumerate() {
            let held = if place == holder { all.clone().collect() } else { [].into() };
            node.plan.lock().unwrap().held = held;
        }
        self.fabric.converge();
        let told: BTreeSet<IpAddr> = all.map(|(ip, _)| ip).collect();
        self.fabric.nodes[holder]
            .run(move |state| state.datapath.as_ref().unwrap().announce(&told).unwrap());
    }

    /// Takes a pod's addresses away on every node and puts them back, as another pod's.
    fn make_anew(&self, pod: &Pod) {
        let nodes = &self.fabric.nodes;
        let before: Vec<_> = nodes.iter().map(|node| node.plan.lock().unwrap().clone()).collect();
        for node in nodes {
            let mut plan = node.plan.lock().unwrap();
            plan.endpoints.retain(|addr, _| !pod.addrs().contains(addr));
        }
        self.fabric.converge();
        nodes.iter().zip(before).for_each(|(node, plan)| *node.plan.lock().unwrap() = plan);
        self.fabric.converge();
    }

    fn holder(&self) -> &Node {
        &self.fabric.nodes[EMPTY]
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

    pub(crate) fn dropped(&self, number: u32, reason: DropReason) -> u64 {
        self.holder().dropped(Some(network(number)), reason)
    }
}

pub(crate) fn voice(pod: &Pod, like: IpAddr) -> Voice<'_> {
    if like.is_ipv4() { pod.v4() } else { pod.v6() }
}

pub(crate) fn exchange(mut ours: &TcpStream, mut theirs: &TcpStream) {
    theirs.set_read_timeout(Some(LIMIT)).unwrap();
    let sent: Vec<u8> = (0..20_000).map(|n| (n * 31 % 251) as u8).collect();
    let mut heard = vec![0; sent.len()];
    ours.write_all(&sent).unwrap();
    theirs.read_exact(&mut heard).unwrap();
    theirs.write_all(&heard).unwrap();
    ours.read_exact(&mut heard).unwrap();
    assert!(heard == sent, "what came back is not what was sent");
}

#[test]
fn the_outside_reaches_pods_by_an_address_and_is_seen_by_its_own() {
    for (holder, behind) in [(EMPTY, 0), (1, 0), (1, 1)] {
        let scene = Scene::held_by(holder, &[behind]);
        for far in FAR {
            let from = SocketAddr::new(far, 40_000);
            let listeners =
                scene.pods.each_ref().map(|pods| listen(voice(&pods[behind], far), TARGET));
            let ours =
                OWN.map(|it| scene.connect(from, SocketAddr::new(edge(it, far), PORT)).unwrap());
            for (ours, listener) in ours.iter().zip(&listeners) {
                let (theirs, seen) = listener.accept().unwrap();
                assert_eq!(seen, from, "held by node {holder}, pod {behind}");
                exchange(ours, &theirs);
            }
        }
        for node in &scene.fabric.nodes {
            assert_eq!(node.observe(), node.planned());
        }
    }
}

#[test]
fn datagrams_reach_a_backend_and_answers_come_from_the_address_that_was_asked() {
    let scene = Scene::held_by(EMPTY, &[0]);
    for far in FAR {
        let client = scene.world.udp(SocketAddr::new(far, 40_000));
        for (number, pods) in OWN.into_iter().zip(&scene.pods) {
            let server = udp(voice(&pods[0], far), TARGET);
            let at = SocketAddr::new(edge(number, far), PORT);
            client.send_to(b"hello", at).unwrap();
            let mut buffer = [0; 16];
            let (length, seen) = server.hear_from(&mut buffer).unwrap();
            assert_eq!(seen, client.local_addr().unwrap());
            server.send_to(&buffer[..length], seen).unwrap();
            assert_eq!(client.hear_from(&mut buffer).unwrap(), (length, at));
        }
    }
}

#[test]
fn large_datagrams_reach_a_backend_of_another_node_and_so_do_its_answers() {
    let scene = Scene::held_by(EMPTY, &[0]);
    let large: Vec<u8> = (0..5000).map(|n| (n % 251) as u8).collect();
    for far in FAR {
        let client = scene.world.udp(SocketAddr::new(far, 40_000));
        let whole = if far.is_ipv4() { 1500 - 28 } else { 1500 - 48 };
        for (number, pods) in OWN.into_iter().zip(&scene.pods) {
            let server = udp(voice(&pods[0], far), TARGET);
            let at = SocketAddr::new(edge(number, far), PORT);
            let mut heard = vec![0; 8000];
            for sent in [&large[..whole], &large[..]] {
                client.send_to(sent, at).unwrap();
                let (length, seen) = server.hear_from(&mut heard).unwrap();
                assert!(heard[..length] == *sent, "{far}: what arrived is not what was sent");
                server.send_to(sent, seen).unwrap();
                let (length, from) = client.hear_from(&mut heard).unwrap();
                assert!(heard[..length] == *sent, "{far}: what came back is not what was sent");
                assert_eq!(from, at);
            }
        }
    }
}

#[test]
fn where_nobody_is_left_the_client_is_refused_at_once_and_no_program_of_the_node_hears_of_it() {
    let scene = Scene::held_by(EMPTY, &[]);
    let own = scene.holder().namespace.run(|| TcpListener::bind(("::", PORT)).unwrap());
    own.set_nonblocking(true).unwrap();
    for (number, far) in OWN.into_iter().flat_map(|it| FAR.map(|far| (it, far))) {
        let (from, to) = (SocketAddr::new(far, 0), SocketAddr::new(edge(number, far), PORT));
        let refused = scene.connect(from, to).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused, "{to}");
        let client = scene.world.udp(from);
        client.connect(to).unwrap();
        client.send(b"anybody?").unwrap();
        let refused = client.hear(&mut [0; 8]).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused, "{to} by UDP");
        assert!(scene.dropped(number, DropReason::NoBackend) >= 2);
    }
    assert_eq!(own.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    let node: SocketAddr = (scene.holder().underlay, PORT).into();
    scene.connect(SocketAddr::new(FAR[0], 0), node).expect("it is there at the node's address");
}

#[test]
fn clients_that_the_service_does_not_name_stay_outside() {
    let scene = Scene::held_by(EMPTY, &[0]);
    let _listener = listen(scene.pods[0][0].v4(), TARGET);
    let to = SocketAddr::new(edge(OWN[0], FAR[0]), PORT);
    let (named, other) = (SocketAddr::new(FAR[0], 0), "192.168.77.200:0".parse().unwrap());
    scene.connect(other, to).expect("everybody is let in");
    scene.lead_to(&[0], Some("203.0.113.0/24"));
    let before = scene.dropped(OWN[0], DropReason::SourceRefused);
    let silent = scene.world.namespace.run(|| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&other.into()).unwrap();
        socket.connect_timeout(&to.into(), BRIEF).unwrap_err()
    });
    assert_eq!(silent.kind(), io::ErrorKind::TimedOut);
    assert!(scene.dropped(OWN[0], DropReason::SourceRefused) > before);
    scene.connect(named, to).expect("whom it names");
    assert_eq!(scene.holder().observe(), scene.holder().planned());
}

#[test]
fn no_pod_reaches_an_address_that_a_node_answers_for_by_way_of_the_outside() {
    let scene = Scene::held_by(1, &[0]);
    let _listener = listen(scene.pods[0][0].v4(), TARGET);
    let to = SocketAddr::new(edge(OWN[0], FAR[0]), PORT);
    for pod in [&scene.pods[0][0], &scene.pods[1][0]] {
        assert!(connect(pod.v4(), 0, to, BRIEF).is_err(), "pods have other ways");
    }
    scene.connect(SocketAddr::new(FAR[0], 0), to).expect("the outside comes in");
}

#[test]
fn an_address_that_moves_serves_from_its_next_node() {
    let scene = Scene::held_by(EMPTY, &[0]);
    for number in OWN {
        let to = SocketAddr::new(edge(number, FAR[0]), PORT);
        let pods = &scene.pods[if number == OWN[0] { 0 } else { 1 }];
        let listener = listen(pods[0].v4(), TARGET);
        scene.hold_by(EMPTY);
        exchange(&scene.connect(SocketAddr::new(FAR[0], 0), to).unwrap(), &accept(&listener));
        scene.hold_by(2);
        let ours = eventually("the next node serves", || {
            scene.connect(SocketAddr::new(FAR[0], 0), to).ok()
        });
        exchange(&ours, &accept(&listener));
    }
    let first = scene.holder();
    assert!(!first.namespace.ip("-o address show dev uplink").contains("192.168.77.51"));
}

fn accept(listener: &TcpListener) -> TcpStream {
    listener.accept().unwrap().0
}

#[test]
fn datagrams_move_when_their_backend_is_no_longer_chosen_and_streams_stay() {
    let scene = Scene::held_by(EMPTY, &[0]);
    let to = SocketAddr::new(edge(OWN[0], FAR[0]), PORT);
    let [first, second] = scene.pods[0].each_ref().map(|pod| udp(pod.v4(), TARGET));
    let listener = listen(scene.pods[0][0].v4(), TARGET);
    let client = scene.world.udp(SocketAddr::new(FAR[0], 40_000));
    let stream = scene.connect(SocketAddr::new(FAR[0], 40_001), to).unwrap();
    let theirs = accept(&listener);
    let mut buffer = [0; 16];
    for word in [b"one", b"two"] {
        client.send_to(word, to).unwrap();
        assert_eq!(first.hear(&mut buffer).unwrap(), 3);
    }
    scene.lead_to(&[1], None);
    client.send_to(b"three", to).unwrap();
    let (length, seen) = second.hear_from(&mut buffer).unwrap();
    assert_eq!((length, seen), (5, client.local_addr().unwrap()));
    second.send_to(b"yes", seen).unwrap();
    assert_eq!(client.hear_from(&mut buffer).unwrap(), (3, to));
    exchange(&stream, &theirs);
}

#[test]
fn who_keeps_its_port_reaches_the_pod_that_came_later_with_the_address_of_another() {
    let scene = Scene::held_by(EMPTY, &[0]);
    for (far, voice) in FAR.into_iter().zip([Pod::v4, Pod::v6]) {
        let to = SocketAddr::new(edge(OWN[0], far), PORT);
        let server = udp(voice(&scene.pods[0][0]), TARGET);
        let client = scene.world.udp(SocketAddr::new(far, 40_000));
        let mut buffer = [0; 16];
        for word in [b"one", b"two"] {
            client.send_to(word, to).unwrap();
            let (length, seen) = server.hear_from(&mut buffer).unwrap();
            assert_eq!((length, seen), (3, client.local_addr().unwrap()));
            server.send_to(word, seen).unwrap();
            assert_eq!(client.hear_from(&mut buffer).unwrap(), (3, to));
            scene.make_anew(&scene.pods[0][0]);
        }
    }
}

#[test]
fn a_network_leaves_nothing_on_a_node_that_it_was_a_guest_of() {
    let scene = Scene::held_by(EMPTY, &[0]);
    let _listener = listen(scene.pods[0][0].v4(), TARGET);
    let to = SocketAddr::new(edge(OWN[0], FAR[0]), PORT);
    scene.connect(SocketAddr::new(FAR[0], 0), to).unwrap();
    assert_eq!(scene.holder().connections(network(OWN[0])).len(), 1);
    let mut plan = scene.holder().plan.lock().unwrap();
    (plan.held, plan.services, plan.endpoints, plan.closed) = Default::default();
    drop(plan);
    scene.fabric.converge();
    assert_eq!(scene.holder().observe(), scene.holder().planned());
    let collect = |state: &mut crate::fabric::State| {
        state.datapath.as_mut().unwrap().collect().unwrap();
    };
    eventually("its connections are taken away", || {
        scene.holder().run(collect);
        scene.holder().connections(network(OWN[0])).is_empty().then_some(())
    });
    let unspecified = Ipv4Addr::UNSPECIFIED;
    let refused = scene.connect((unspecified, 0).into(), (scene.holder().underlay, PORT).into());
    assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::ConnectionRefused, "a node as before");
}
