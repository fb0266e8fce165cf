//! Egress by an address of the network: whatever node a pod is on, the outside sees that address, and
//! the answers find back. Two networks with the same addresses inside each time, at the same time.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};

use atoll_datapath::DropReason;
use atoll_plan::{Closed, Egress, Exit, Exits};
use atoll_testkit::{Hears, eventually};

use crate::fabric::{Fabric, Pod, network};
use crate::outside::{FAR, World};
use crate::talk::{BRIEF, LIMIT, Voice, connect, ping, udp};

pub(crate) const OWN: [u32; 2] = [100, 200];
const NODES: u8 = 3;

/// In each of two networks a pod on the first and on the second node, and an address that one node
/// answers for.
pub(crate) struct Scene {
    pub(crate) world: World,
    pub(crate) fabric: Fabric,
    pub(crate) pods: [[Pod; 2]; 2],
}

/// What the outside sees of a network, in the family of `like`.
pub(crate) fn face(number: u32, like: IpAddr) -> IpAddr {
    let last = (number / 100) as u8;
    match like {
        IpAddr::V4(_) => [192, 168, 77, 60 + last].into(),
        IpAddr::V6(_) => Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 0x60 + u16::from(last)).into(),
    }
}

impl Scene {
    pub(crate) fn held_by(holder: usize) -> Scene {
        let (world, fabric) = World::with_nodes(NODES);
        let pods = OWN.map(|number| {
            [0, 1].map(|place| {
                fabric.planned_pod(place, network(number), &format!("10.0.0.{}", 5 + place))
            })
        });
        let scene = Scene { world, fabric, pods };
        scene.hold_by(holder);
        scene
    }

    /// Has this node answer for the networks' addresses, and all pods leave there.
    fn hold_by(&self, holder: usize) {
        let there = self.fabric.nodes[holder].tunnel;
        for (place, node) in self.fabric.nodes.iter().enumerate() {
            let mut plan = node.plan.lock().unwrap();
            plan.held.clear();
            for number in OWN {
                let exit = |far| match place == holder {
                    true => Exit::Here(face(number, far)),
                    false => Exit::There(there),
                };
                let exits = Exits { v4: Some(exit(FAR[0])), v6: Some(exit(FAR[1])) };
                let has_pods = place < 2;
                if place == holder {
                    plan.held.extend(FAR.map(|far| (face(number, far), network(number))));
                }
                match has_pods || place == holder {
                    true => drop(plan.egress.insert(network(number), Egress::Addresses(exits))),
                    false => drop(plan.egress.remove(&network(number))),
                }
                let own = ["10.0.0.0/8", "fd00::/64"].map(|range| range.parse().unwrap());
                let to = Some(network(number));
                plan.closed.extend(own.map(|range| Closed { to, range }));
            }
        }
        self.fabric.converge();
        let told = OWN.iter().flat_map(|it| FAR.map(|far| face(*it, far))).collect();
        self.fabric.nodes[holder]
            .run(move |state| state.datapath.as_ref().unwrap().announce(&told).unwrap());
    }

    /// The pods at `place` of both networks.
    pub(crate) fn voices(&self, place: usize, far: IpAddr) -> [Voice<'_>; 2] {
        self.pods.each_ref().map(|pods| voice(&pods[place], far))
    }
}

fn voice(pod: &Pod, like: IpAddr) -> Voice<'_> {
    if like.is_ipv4() { pod.v4() } else { pod.v6() }
}

fn exchange(mut ours: &TcpStream, mut theirs: &TcpStream) {
    theirs.set_read_timeout(Some(LIMIT)).unwrap();
    let sent: Vec<u8> = (0..100_000).map(|n| (n * 31 % 251) as u8).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| ours.write_all(&sent).unwrap());
        let mut heard = vec![0; sent.len()];
        theirs.read_exact(&mut heard).unwrap();
        assert!(heard == sent, "what arrived is not what was sent");
    });
    theirs.write_all(&sent[..1000]).unwrap();
    let mut heard = vec![0; 1000];
    ours.read_exact(&mut heard).unwrap();
    assert!(heard == sent[..1000], "what came back is not what was sent");
}

#[test]
fn pods_of_every_node_leave_with_the_address_of_their_network_and_get_their_own_answers() {
    for holder in [2, 0] {
        let scene = Scene::held_by(holder);
        for (far, place) in FAR.into_iter().flat_map(|far| [(far, 0), (far, 1)]) {
            let at = SocketAddr::new(far, 8080);
            let listener = scene.world.listen(at);
            let ours = scene.voices(place, far).map(|it| {
                let ours = connect(it, 40_000, at, LIMIT).unwrap();
                (ours, listener.accept().unwrap())
            });
            for (number, (ours, (theirs, seen))) in OWN.into_iter().zip(&ours) {
                assert_eq!(seen.ip(), face(number, far), "a pod of node {place} by {holder}");
                exchange(ours, theirs);
            }
        }
        for node in &scene.fabric.nodes {
            assert_eq!(node.observe(), node.planned());
        }
    }
}

#[test]
fn datagrams_of_two_pods_alike_pass_both_ways_also_in_fragments_and_pings_find_back() {
    let scene = Scene::held_by(2);
    let large: Vec<u8> = (0..5000).map(|n| (n % 251) as u8).collect();
    for far in FAR {
        let server = scene.world.udp(SocketAddr::new(far, 5353));
        for (number, voice) in OWN.into_iter().zip(scene.voices(0, far)) {
            let socket = udp(voice, 40_000);
            let mut heard = vec![0; 8000];
            let whole = if far.is_ipv4() { 1500 - 28 } else { 1500 - 48 };
            for sent in [&large[..3], &large[..whole], &large[..]] {
                socket.send_to(sent, (far, 5353)).unwrap();
                let (length, from) = server.hear_from(&mut heard).unwrap();
                assert_eq!((&heard[..length], from.ip()), (sent, face(number, far)));
                server.send_to(sent, from).unwrap();
                let (length, from) = socket.hear_from(&mut heard).unwrap();
                assert!(heard[..length] == *sent, "{far}: what came back is not what was sent");
                assert_eq!(from, SocketAddr::new(far, 5353));
            }
        }
        assert!(scene.voices(0, far).into_iter().all(|voice| ping(voice, far, LIMIT)));
    }
}

#[test]
fn an_address_that_moves_is_left_by_from_its_next_node() {
    let scene = Scene::held_by(2);
    let at = SocketAddr::new(FAR[0], 8080);
    let listener = scene.world.listen(at);
    for holder in [2, 1, 0] {
        scene.hold_by(holder);
        for (number, voice) in OWN.into_iter().zip(scene.voices(0, FAR[0])) {
            let ours =
                eventually("the next node lets it out", || connect(voice, 0, at, LIMIT).ok());
            let (theirs, seen) = listener.accept().unwrap();
            assert_eq!(seen.ip(), face(number, FAR[0]), "by node {holder}");
            exchange(&ours, &theirs);
        }
    }
}

#[test]
fn nobody_but_the_node_that_a_pod_left_by_speaks_for_the_outside() {
    let scene = Scene::held_by(2);
    let at = SocketAddr::new(FAR[0], 2222);
    let server = scene.world.udp(at);
    let socket = udp(scene.pods[0][0].v4(), 1111);
    socket.send_to(b"hello", at).unwrap();
    let (_, seen) = server.hear_from(&mut [0; 8]).unwrap();
    let IpAddr::V4(from) = FAR[0] else { unreachable!("the first is of IPv4") };
    let frame = crate::forge::packet(
        crate::forge::Origin {
            face: crate::forge::Face {
                mac: scene.pods[0][1].mac,
                ip: from,
                ipv6: Ipv6Addr::UNSPECIFIED,
            },
            ip: from.into(),
        },
        scene.pods[0][0].ip.into(),
        17,
        &crate::forge::datagram((2222, 1111), b"forged"),
    );
    let liar = &scene.fabric.nodes[1];
    let victim = &scene.fabric.nodes[0];
    let spoofs = || victim.dropped(Some(network(OWN[0])), DropReason::OverlaySpoof);
    let before = spoofs();
    let sender = liar.namespace.run(|| UdpSocket::bind((liar.underlay, 0)).unwrap());
    let tunnel = (victim.underlay, crate::fabric::OVERLAY_PORT);
    sender.send_to(&crate::forge::vxlan(OWN[0], &frame), tunnel).unwrap();
    eventually("it was dropped", || (spoofs() > before).then_some(()));
    server.send_to(b"the answer", seen).unwrap();
    let mut buffer = [0; 16];
    let (length, from) = socket.hear_from(&mut buffer).unwrap();
    assert_eq!((&buffer[..length], from), (&b"the answer"[..], at));
}

#[test]
fn nobody_leaves_by_a_node_that_does_not_answer_for_the_networks_address() {
    let scene = Scene::held_by(2);
    let exit = &scene.fabric.nodes[2];
    exit.plan.lock().unwrap().egress.insert(network(OWN[0]), Egress::Node);
    scene.fabric.converge();
    let dropped = |number| exit.dropped(Some(network(number)), DropReason::NoEndpoint);
    let [lost, kept] = scene.voices(0, FAR[0]);
    let before = dropped(OWN[0]);
    assert!(!ping(lost, FAR[0], BRIEF), "its own pods' way out is no other node's");
    eventually("it was dropped", || (dropped(OWN[0]) > before).then_some(()));
    assert!(ping(kept, FAR[0], LIMIT));
    exit.plan.lock().unwrap().egress.remove(&network(OWN[1]));
    scene.fabric.converge();
    assert!(!ping(kept, FAR[0], BRIEF));
}

#[test]
fn what_is_closed_stays_closed_on_the_way_by_another_node() {
    let scene = Scene::held_by(2);
    let voice = scene.voices(0, FAR[0])[0];
    assert!(ping(voice, FAR[0], LIMIT));
    let range = "203.0.113.0/24".parse().unwrap();
    for node in [0, 2] {
        scene.fabric.nodes[node].plan.lock().unwrap().closed.insert(Closed { to: None, range });
        scene.fabric.converge();
        let dropped =
            || scene.fabric.nodes[node].dropped(Some(network(OWN[0])), DropReason::OutsideClosed);
        let before = dropped();
        assert!(!ping(voice, FAR[0], BRIEF), "closed on node {node}");
        eventually("it was dropped", || (dropped() == before + 1).then_some(()));
        scene.fabric.nodes[node].plan.lock().unwrap().closed.remove(&Closed { to: None, range });
        scene.fabric.converge();
        assert!(ping(voice, FAR[0], LIMIT));
    }
}
