//! Pods of networks that reach infra: this node and another, and a pod of no tenant on each. Two such
//! networks with the same addresses each time, at the same time, beside one that is isolated.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};

use atoll_datapath::DropReason;
use atoll_plan::{Closed, Egress, Exit, Exits, Infra};
use atoll_testkit::{Hears, Namespace, bound, eventually};
use atoll_types::Cidr;
use socket2::{Domain, Socket, Type};

use crate::doors::alias;
use crate::fabric::{Fabric, Node, OVERLAY_PORT, Pod, network};
use crate::plain_stage::{Host, pod as plain_pod, settings};
use crate::talk::{BRIEF, LIMIT, Voice, await_refusal, connect, listen, ping, udp};

const COMPATIBLE: [u32; 2] = [100, 300];
const ISOLATED: u32 = 200;
const BOTH: [bool; 2] = [true, false];

struct Scene {
    fabric: Fabric,
    compatible: [Pod; 2],
    isolated: Pod,
    /// Pods of no tenant: on the tenants' node, and on the other one.
    plain: [Host; 2],
}

/// Somebody of infra, and as whom it sees a pod: by the alias of the pod's interface, or as its node.
struct Target<'a> {
    namespace: &'a Namespace,
    ip: IpAddr,
    is_here: bool,
}

fn only(ip: IpAddr) -> Cidr {
    format!("{ip}/{}", if ip.is_ipv4() { 32 } else { 128 }).parse().unwrap()
}

impl Scene {
    fn new() -> Scene {
        let fabric = Fabric::of(2);
        fabric.nodes.iter().for_each(|node| settings(&node.namespace));
        let plain =
            [(0, 5), (1, 6)].map(|(at, number)| plain_pod(&fabric.nodes[at].namespace, number));
        let there = &fabric.nodes[1];
        fabric.nodes[0]
            .namespace
            .ip(&format!("route add {} via {}", plain[1].ipv4, there.underlay));
        fabric.nodes[0].namespace.ip(&format!("-6 route add {} via fd77::2", plain[1].ipv6));
        let compatible = COMPATIBLE.map(|it| fabric.planned_pod(0, network(it), "10.0.0.5"));
        let isolated = fabric.planned_pod(0, network(ISOLATED), "10.0.0.5");
        let scene = Scene { fabric, compatible, isolated, plain };
        scene.plan_infra();
        scene.fabric.converge();
        scene
    }

    fn plan_infra(&self) {
        let mut plan = self.node().plan.lock().unwrap();
        for v4 in BOTH {
            let places = [Infra::ThisNode, Infra::OtherNode, Infra::PodsHere, Infra::PodsThere];
            let ranges = self.targets(v4).map(|target| only(target.ip));
            plan.infra.extend(ranges.into_iter().zip(places));
        }
        for number in COMPATIBLE {
            let to = Some(network(number));
            let own = ["10.0.0.0/16", "fd00::/64"].map(|range| range.parse().unwrap());
            plan.closed.extend(own.map(|range| Closed { to, range }));
            plan.compatible.insert(network(number));
        }
    }

    fn node(&self) -> &Node {
        &self.fabric.nodes[0]
    }

    fn node_ip(&self, place: usize, v4: bool) -> IpAddr {
        let number = u16::try_from(place + 1).unwrap();
        let v6 = IpAddr::from([0xfd77, 0, 0, 0, 0, 0, 0, number]);
        if v4 { self.fabric.nodes[place].underlay.into() } else { v6 }
    }

    /// This node, the other one, the pod here, the pod there.
    fn targets(&self, v4: bool) -> [Target<'_>; 4] {
        let node = |place: usize| Target {
            namespace: &self.fabric.nodes[place].namespace,
            ip: self.node_ip(place, v4),
            is_here: place == 0,
        };
        let pod = |place: usize| Target {
            namespace: &self.plain[place].namespace,
            ip: self.plain[place].ip(v4),
            is_here: place == 0,
        };
        [node(0), node(1), pod(0), pod(1)]
    }

    fn all(&self) -> impl Iterator<Item = Target<'_>> {
        BOTH.into_iter().flat_map(|v4| self.targets(v4))
    }

    /// What the target sees in the place of a pod.
    fn face(&self, target: &Target<'_>, pod: &Pod) -> IpAddr {
        match target.is_here {
            true => alias(self.node(), pod, voice(pod, target.ip).ip),
            false => self.node_ip(0, target.ip.is_ipv4()),
        }
    }

    /// A pod's packet goes nowhere, and is counted.
    fn is_dropped(&self, pod: &Pod, reason: DropReason, send: impl FnOnce()) {
        let before = self.node().dropped(Some(pod.network), reason);
        send();
        self.node().await_dropped(Some(pod.network), reason, before + 1);
    }
}

impl Target<'_> {
    fn listen(&self, port: u16) -> TcpListener {
        self.namespace.run(|| bound(|| TcpListener::bind((self.ip, port))))
    }

    fn udp(&self, port: u16) -> UdpSocket {
        let socket = self.namespace.run(|| bound(|| UdpSocket::bind((self.ip, port))));
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        socket
    }
}

/// The pod speaking from its address of this family.
fn voice(pod: &Pod, like: IpAddr) -> Voice<'_> {
    if like.is_ipv4() { pod.v4() } else { pod.v6() }
}

fn exchange(ours: &TcpStream, theirs: &TcpStream) {
    theirs.set_read_timeout(Some(LIMIT)).unwrap();
    let sent: Vec<u8> = (0..200_000).map(|n| (n * 31 % 251) as u8).collect();
    for (mut from, mut to) in [(ours, theirs), (theirs, ours)] {
        std::thread::scope(|scope| {
            scope.spawn(|| from.write_all(&sent).unwrap());
            let mut heard = vec![0; sent.len()];
            to.read_exact(&mut heard).unwrap();
            assert!(heard == sent, "what arrived is not what was sent");
        });
    }
}

#[test]
fn pods_of_compatible_networks_speak_tcp_with_nodes_and_plain_pods_and_isolated_ones_do_not() {
    let scene = Scene::new();
    for target in scene.all() {
        let at = SocketAddr::new(target.ip, 8080);
        let listener = target.listen(8080);
        let pods = scene.compatible.each_ref();
        let ours = pods.map(|pod| connect(voice(pod, at.ip()), 40_000, at, LIMIT).unwrap());
        for (pod, ours) in pods.into_iter().zip(&ours) {
            let (theirs, from) = listener.accept().unwrap();
            assert_eq!(from.ip(), scene.face(&target, pod), "{at}");
            exchange(ours, &theirs);
        }
        scene.is_dropped(&scene.isolated, DropReason::NoEndpoint, || {
            connect(voice(&scene.isolated, at.ip()), 40_000, at, BRIEF).unwrap_err();
        });
    }
}

#[test]
fn each_gets_its_own_datagrams_in_parts_too_and_its_own_pings_and_errors() {
    let scene = Scene::new();
    for target in scene.all() {
        let server = target.udp(5353);
        let sockets = scene.compatible.each_ref().map(|pod| udp(voice(pod, target.ip), 40_000));
        let mut heard = vec![0; 8000];
        for (number, (socket, pod)) in sockets.iter().zip(&scene.compatible).enumerate() {
            let said: Vec<u8> = (0..5000).map(|n| ((n + number) % 251) as u8).collect();
            socket.send_to(&said, (target.ip, 5353)).unwrap();
            let (length, from) = server.hear_from(&mut heard).unwrap();
            assert!(heard[..length] == said, "{}: not what was sent", target.ip);
            assert_eq!(from.ip(), scene.face(&target, pod));
            socket.set_read_timeout(Some(BRIEF)).unwrap();
            let (length, from) = eventually("it learns how much fits, and is heard", || {
                server.send_to(&said, from).unwrap();
                socket.hear_from(&mut heard).ok()
            });
            assert!(heard[..length] == said, "{}: not what was answered", target.ip);
            assert_eq!(from, SocketAddr::new(target.ip, 5353));
            assert!(ping(voice(pod, target.ip), target.ip, LIMIT), "{}", target.ip);
            let asking = udp(voice(pod, target.ip), 0);
            asking.connect((target.ip, 5354)).unwrap();
            await_refusal(&asking);
        }
        scene.is_dropped(&scene.isolated, DropReason::NoEndpoint, || {
            assert!(!ping(voice(&scene.isolated, target.ip), target.ip, BRIEF));
        });
    }
}

#[test]
fn a_process_of_the_node_that_listens_at_every_address_answers_from_the_one_it_was_asked_at() {
    let scene = Scene::new();
    let pod = &scene.compatible[0];
    for (v4, any) in BOTH.into_iter().zip(["0.0.0.0", "::"]) {
        let at = SocketAddr::new(scene.node_ip(0, v4), 5353);
        let bind = || bound(|| UdpSocket::bind((any, at.port())));
        let server = scene.node().namespace.run(bind);
        server.set_read_timeout(Some(LIMIT)).unwrap();
        let asking = udp(voice(pod, at.ip()), 0);
        asking.send_to(b"where?", at).unwrap();
        let (_, from) = server.hear_from(&mut [0; 16]).unwrap();
        server.send_to(b"here", from).unwrap();
        assert_eq!(asking.hear_from(&mut [0; 16]).unwrap().1, at);
    }
}

/// Egress is closed to nodes, and the way to them is another one, which begins at the pod's own node.
#[test]
fn a_network_with_egress_reaches_infra_as_one_without_however_it_leaves() {
    let scene = Scene::new();
    let pod = &scene.compatible[0];
    let there = Some(Exit::There(scene.fabric.nodes[1].tunnel));
    for egress in [Egress::Node, Egress::Addresses(Exits { v4: there, v6: there })] {
        {
            let mut plan = scene.node().plan.lock().unwrap();
            let nodes = scene.all().map(|target| Closed { to: None, range: only(target.ip) });
            plan.closed.extend(nodes);
            plan.egress.insert(pod.network, egress);
        }
        scene.fabric.converge();
        for target in scene.all() {
            let (at, listener) = (SocketAddr::new(target.ip, 8080), target.listen(8080));
            let ours = connect(voice(pod, at.ip()), 0, at, LIMIT).unwrap();
            let (theirs, from) = listener.accept().unwrap();
            assert_eq!(from.ip(), scene.face(&target, pod), "{at} {egress:?}");
            exchange(&ours, &theirs);
        }
        scene.node().plan.lock().unwrap().compatible.remove(&pod.network);
        scene.fabric.converge();
        scene.is_dropped(pod, DropReason::OutsideClosed, || {
            assert!(!ping(pod.v4(), scene.node_ip(1, true), BRIEF));
        });
        scene.node().plan.lock().unwrap().compatible.insert(pod.network);
    }
}

/// A connection from `from` in its namespace, which nobody takes.
fn is_refused(namespace: &Namespace, from: IpAddr, to: SocketAddr) {
    let opened = namespace.run(|| {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::new(from, 0).into()).unwrap();
        socket.connect_timeout(&to.into(), BRIEF)
    });
    opened.unwrap_err();
}

#[test]
fn neither_nodes_nor_plain_pods_open_anything_to_a_pod_that_speaks_with_them() {
    let scene = Scene::new();
    let pod = &scene.compatible[0];
    for target in scene.all().filter(|target| target.is_here) {
        let own = voice(pod, target.ip);
        let (theirs, ours) = (target.listen(8080), listen(own, 9090));
        let at = SocketAddr::new(target.ip, 8080);
        let speaking = connect(own, 0, at, LIMIT).unwrap();
        let (heard, face) = theirs.accept().unwrap();
        for port in [9090, face.port()] {
            scene.is_dropped(pod, DropReason::NoEndpoint, || {
                is_refused(target.namespace, target.ip, SocketAddr::new(face.ip(), port));
            });
        }
        ours.set_nonblocking(true).unwrap();
        assert!(ours.accept().is_err(), "somebody came in from {}", target.ip);
        exchange(&speaking, &heard);
    }
    for v4 in BOTH {
        let there = &scene.targets(v4)[1];
        let face = SocketAddr::new(scene.node_ip(0, v4), 9090);
        let ours = listen(voice(pod, there.ip), 9090);
        is_refused(there.namespace, there.ip, face);
        ours.set_nonblocking(true).unwrap();
        assert!(ours.accept().is_err());
    }
}

#[test]
fn the_tunnels_port_node_ports_and_what_is_denied_stay_closed() {
    let scene = Scene::new();
    let pod = &scene.compatible[0];
    for target in scene.all() {
        let own = udp(voice(pod, target.ip), 0);
        let is_node =
            scene.fabric.nodes.iter().any(|it| std::ptr::eq(&it.namespace, target.namespace));
        for port in [OVERLAY_PORT, 30_000, 32_767] {
            let at = (target.ip, port);
            if is_node || port == OVERLAY_PORT {
                scene.is_dropped(pod, DropReason::OutsideClosed, || {
                    own.send_to(b"let me in", at).unwrap();
                });
            } else {
                let server = target.udp(port);
                own.send_to(b"let me in", at).unwrap();
                server.hear_from(&mut [0; 16]).unwrap();
            }
        }
        for port in [OVERLAY_PORT + 1, 29_999, 32_768] {
            let server = target.udp(port);
            own.send_to(b"hello", (target.ip, port)).unwrap();
            server.hear_from(&mut [0; 16]).unwrap();
        }
    }
    let there = scene.targets(true)[3].ip;
    assert!(ping(pod.v4(), there, LIMIT), "until it is denied");
    scene.node().plan.lock().unwrap().infra.insert(only(there), Infra::Nowhere);
    scene.fabric.converge();
    scene.is_dropped(pod, DropReason::OutsideClosed, || {
        assert!(!ping(pod.v4(), there, BRIEF));
    });
}

#[test]
fn what_is_neither_infra_nor_the_networks_stays_closed_doors_and_metadata_among_it() {
    let scene = Scene::new();
    let pod = &scene.compatible[0];
    let own = alias(scene.node(), pod, pod.ip.into());
    for ip in ["169.254.1.2", "169.254.1.4", "169.254.169.254", "10.0.77.1"] {
        let to: IpAddr = ip.parse().unwrap();
        scene.is_dropped(pod, DropReason::NoEndpoint, || {
            assert!(!ping(pod.v4(), to, BRIEF), "{to}");
        });
    }
    assert!(!ping(pod.v4(), own, BRIEF), "an alias");
    assert!(ping(pod.v4(), scene.node_ip(0, true), LIMIT));
}

/// The node has a way there only because it has one to everywhere.
#[test]
fn what_no_pod_of_this_node_has_does_not_leave_by_its_uplink_with_an_alias() {
    let scene = Scene::new();
    let pod = &scene.compatible[0];
    let nobody = ["10.244.1.77", "fd44::77"].map(|ip| ip.parse::<IpAddr>().unwrap());
    scene.node().namespace.ip("route add default via 192.168.77.2");
    scene.node().namespace.ip("-6 route add default via fd77::2");
    for ip in nobody {
        scene.node().plan.lock().unwrap().infra.insert(only(ip), Infra::PodsHere);
    }
    scene.fabric.converge();
    for ip in nobody {
        scene.is_dropped(pod, DropReason::NoEndpoint, || {
            assert!(!ping(voice(pod, ip), ip, BRIEF), "{ip}");
        });
    }
    for v4 in BOTH {
        let there = &scene.targets(v4)[2];
        assert!(ping(voice(pod, there.ip), there.ip, LIMIT));
    }
}

#[test]
fn a_network_that_is_isolated_again_is_silent_and_the_other_goes_on() {
    let scene = Scene::new();
    assert_eq!(scene.node().observe(), scene.node().planned());
    let at = SocketAddr::new(scene.node_ip(0, true), 8080);
    let listener = scene.targets(true)[0].listen(8080);
    let [mut lost, kept] =
        scene.compatible.each_ref().map(|pod| connect(pod.v4(), 0, at, LIMIT).unwrap());
    let [(silent, _), (heard, _)] = [0, 1].map(|_| listener.accept().unwrap());
    scene.node().plan.lock().unwrap().compatible.remove(&network(COMPATIBLE[0]));
    scene.fabric.converge();
    assert_eq!(scene.node().observe(), scene.node().planned());
    scene.is_dropped(&scene.compatible[0], DropReason::NoEndpoint, || {
        lost.write_all(b"anybody?").unwrap();
    });
    silent.set_nonblocking(true).unwrap();
    assert!((&silent).read(&mut [0; 8]).is_err());
    exchange(&kept, &heard);
    scene.node().plan.lock().unwrap().compatible.clear();
    scene.node().plan.lock().unwrap().infra.clear();
    scene.fabric.converge();
    assert_eq!(scene.node().observe(), scene.node().planned());
}
