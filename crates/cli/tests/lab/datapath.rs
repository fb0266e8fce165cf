//! What pods do with a network all day, on three nodes in both families: pings, routes, datagrams of
//! any size, SCTP, other subnets of their VPC; and what goes on while it is full of connections.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use atoll_testkit::forge::{self, GATEWAY, IP, Origin, datagram, icmp_error, packet};
use atoll_testkit::{Direction, Hears, eventually};
use atoll_types::{GATEWAY_V4, GATEWAY_V6};
use serde_json::{Value, json};

use crate::documents::{addresses, nics, pod, tenant, yaml};
use crate::fixture::{Lab, await_some};
use crate::several_networks::{answer, server};
use crate::tenants::network;
use crate::threats::Player;
use crate::threats_to_flows::{ACK, FAMILIES, Family, Flow, PORTS};

const ARP: [u8; 2] = [8, 6];
const IPV6: [u8; 2] = [0x86, 0xdd];
const UDP: u8 = 17;
const SCTP: u8 = 132;

/// A pod's eth0 in another subnet of the default VPC.
fn in_more(last: u8) -> Value {
    let ips = json!([{"ips": [format!("10.2.0.{last}"), format!("fd00:2::{last}")]}]);
    json!({"atoll.dev/nics": ips.to_string()})
}

/// Of `acme`: `web` and `near` on one node, `far` on another, on the third `more` in another subnet of
/// the VPC, and `apart` in another VPC. Of `globex`: two pods with the addresses of `web` and `near`.
struct Scene {
    lab: Lab,
    web: Player,
    near: Player,
    far: Player,
    more: Player,
    quiet: Player,
    friend: Player,
}

impl Scene {
    fn set() -> Scene {
        let lab = Lab::up(3);
        ["acme", "globex"].iter().for_each(|name| drop(lab.apply(&tenant(name)).good()));
        let more = json!({"tenant": "acme", "type": "vpc", "vpcID": "default",
                          "cidrs": ["10.2.0.0/16", "fd00:2::/64"]});
        let of = |network: &str| json!({"atoll.dev/network": network});
        let at = |name: &str, node: &str, last| pod(name, node, &json!({}), &nics("default", last));
        lab.apply(&yaml(&[
            network("acme.more", &more),
            at("acme/web", "node1", 5),
            at("acme/near", "node1", 6),
            at("acme/far", "node2", 7),
            pod("acme/more", "node3", &of("more"), &in_more(8)),
            pod("acme/apart", "node3", &of("b"), &nics("b", 9)),
            at("globex/web", "node1", 5),
            at("globex/near", "node1", 6),
        ]))
        .good();
        lab.wait_for_pods();
        let ours = ["web", "near", "far", "more"].map(|name| Player::find(&lab, "acme", name));
        let [quiet, friend] = ["web", "near"].map(|name| Player::find(&lab, "globex", name));
        let [web, near, far, more] = ours;
        Scene { lab, web, near, far, more, quiet, friend }
    }

    /// The one that tests share: none of them changes what another looks at.
    fn shared() -> Arc<Scene> {
        static SHARED: Mutex<Weak<Scene>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        shared.upgrade().unwrap_or_else(|| {
            let scene = Arc::new(Scene::set());
            *shared = Arc::downgrade(&scene);
            scene
        })
    }

    /// Pods that meet: on one node, over two, and over two from one subnet to another.
    fn pairs(&self) -> [[&Player; 2]; 3] {
        [[&self.web, &self.near], [&self.web, &self.far], [&self.far, &self.more]]
    }

    /// The same pairs by their names.
    fn names() -> [[&'static str; 2]; 3] {
        [["acme/web", "acme/near"], ["acme/web", "acme/far"], ["acme/far", "acme/more"]]
    }
}

/// The hops that traceroute names on its way. It sends all its probes at once: where a busy machine lost them, it
/// is asked again.
fn hops(lab: &Lab, from: &str, options: &[&str], to: &str) -> Vec<String> {
    let command = ["traceroute", "-n", "-q", "1", "-w", "5", "-m", "4"];
    await_some(|| {
        let said = lab.exec(from, &[&command, options, &[to]].concat()).good();
        let hop = |line: &str| line.split_whitespace().nth(1).map(ToOwned::to_owned);
        let hops: Vec<_> = said.lines().skip(1).filter_map(hop).collect();
        hops.iter().any(|hop| hop != "*").then_some(hops)
    })
}

#[test]
fn the_gateway_is_pinged_and_a_route_ends_at_the_other_pod_in_both_families() {
    let scene = Scene::shared();
    for pod in ["acme/web", "acme/far", "acme/more"] {
        assert_eq!(hops(&scene.lab, pod, &["-I"], "169.254.1.1"), ["169.254.1.1"], "{pod}");
        assert_eq!(hops(&scene.lab, pod, &["-6", "-I"], "fe80::1%eth0"), ["fe80::1%eth0"], "{pod}");
    }
    for ([from, _], [_, to]) in Scene::names().into_iter().zip(scene.pairs()) {
        for family in FAMILIES {
            let to = family(&to.face).to_string();
            for options in [&["-U"][..], &["-I"], &["-T", "-p", "8080"], &[]] {
                assert_eq!(
                    hops(&scene.lab, from, options, &to),
                    [to.as_str()],
                    "{from} {options:?}"
                );
            }
        }
    }
}

/// Where the answer to a question says that the address asked for is. It is asked again where a busy machine
/// lost a frame.
fn told(player: &Player, question: &[u8], place: impl Fn(&[u8]) -> Option<Vec<u8>>) -> Vec<u8> {
    let socket = player.packets();
    eventually("the question is answered", || {
        socket.send(question).unwrap();
        let heard = std::iter::from_fn(|| socket.receive(Duration::from_millis(10)).unwrap());
        heard.filter(|(way, _)| *way == Direction::In).find_map(|(_, frame)| place(&frame))
    })
}

/// The MAC in an answer of ARP about `target`.
fn arp_about(frame: &[u8], target: Ipv4Addr) -> Option<Vec<u8>> {
    let is_it = frame[12..14] == ARP && frame[20..22] == [0, 2] && frame[28..32] == target.octets();
    is_it.then(|| frame[22..28].into())
}

/// The MAC in an advertisement about `target`.
fn nd_about(frame: &[u8], target: Ipv6Addr) -> Option<Vec<u8>> {
    let is_it = frame[12..14] == IPV6 && frame[IP + 6] == 58 && frame[IP + 40] == 136;
    (is_it && frame[IP + 48..IP + 64] == target.octets()).then(|| frame[IP + 66..IP + 72].into())
}

#[test]
fn honest_questions_for_an_address_are_answered_by_the_gateway_and_heard_by_nobody() {
    let scene = Scene::shared();
    let face = scene.web.face;
    let mac = face.mac.octets();
    let others = [&scene.near, &scene.far, &scene.friend].map(Player::packets);
    for target in [GATEWAY_V4, scene.near.face.ip, scene.far.face.ip] {
        let question = forge::arp(face, 1, (mac, face.ip), target);
        let told = told(&scene.web, &question, |frame| arp_about(frame, target));
        assert_eq!(told, GATEWAY, "{target}");
    }
    for target in [GATEWAY_V6, scene.near.face.ipv6, scene.far.face.ipv6] {
        let to = "ff02::1:ff00:1".parse().unwrap();
        let question = forge::icmp6(face, (face.ipv6, to), &forge::nd(135, target, mac));
        let told = told(&scene.web, &question, |frame| nd_about(frame, target));
        assert_eq!(told, GATEWAY, "{target}");
    }
    let is_question = |frame: &Vec<u8>| {
        frame[6..12] == mac
            && (frame[12..14] == ARP || frame[12..14] == IPV6 && frame[IP + 6] == 58)
    };
    for others in others {
        let heard = others.received().unwrap();
        assert!(!heard.iter().any(is_question), "{heard:?}");
    }
}

pub(crate) fn udp(player: &Player, ip: IpAddr) -> UdpSocket {
    let socket = player.namespace.run(|| UdpSocket::bind((ip, 0)).unwrap());
    socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    socket
}

/// Has a datagram arrive, sent again where a busy machine lost it.
pub(crate) fn arrives(from: &UdpSocket, to: &UdpSocket, content: &[u8]) {
    let mut room = vec![0; 1 << 16];
    eventually("the datagram arrives", || {
        from.send_to(content, to.local_addr().unwrap()).unwrap();
        let (length, sender) = to.hear_from(&mut room).ok()?;
        (&room[..length] == content && sender == from.local_addr().unwrap()).then_some(())
    });
}

#[test]
fn datagrams_of_every_size_pass_between_pods_near_and_far_in_both_families() {
    let scene = Scene::shared();
    for ends in scene.pairs() {
        for family in FAMILIES {
            let [one, other] = ends.map(|player| udp(player, family(&player.face)));
            for size in [0, 1, 1400, 1451, 9000, 65_000] {
                let content: Vec<u8> = (0..size).map(|place| (place % 251) as u8).collect();
                arrives(&one, &other, &content);
                arrives(&other, &one, &content);
            }
        }
    }
}

/// An SCTP packet with one chunk and some content.
fn sctp(ports: (u16, u16), chunk: u8) -> Vec<u8> {
    let ports = [ports.0.to_be_bytes(), ports.1.to_be_bytes()].concat();
    let content = [chunk, 0, 0, 20, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1];
    [&ports[..], &[0, 0, 0, 1, 0, 0, 0, 0], &content].concat()
}

#[test]
fn sctp_passes_between_pods_near_and_far_in_both_families() {
    const CHUNKS: [(usize, u8); 6] = [(0, 1), (1, 2), (0, 10), (1, 11), (0, 0), (1, 3)];
    let scene = Scene::shared();
    for ends in scene.pairs() {
        for family in FAMILIES {
            let origins = ends.map(|it| Origin { face: it.face, ip: family(&it.face) });
            let sockets = ends.map(Player::packets);
            for (sender, chunk) in CHUNKS {
                let (from, to) = (origins[sender], origins[1 - sender]);
                let ports = if sender == 0 { (5001, 5002) } else { (5002, 5001) };
                let frame = packet(from, to.ip, SCTP, &sctp(ports, chunk));
                // Said again where a busy machine lost it.
                eventually("the chunk arrives", || {
                    sockets[sender].send(&frame).unwrap();
                    let heard = sockets[1 - sender].received().unwrap();
                    heard.iter().any(|heard| heard[IP..] == frame[IP..]).then_some(())
                });
            }
        }
    }
}

#[test]
fn the_subnets_of_a_vpc_reach_each_other_over_three_nodes_and_another_vpc_does_not() {
    let scene = Scene::shared();
    let pods = [("acme/web", &scene.web), ("acme/far", &scene.far), ("acme/more", &scene.more)];
    for (family, of) in FAMILIES.into_iter().enumerate() {
        let apart = &addresses("b", 9)[family];
        for (from, own) in pods {
            for (name, other) in pods.iter().filter(|(name, _)| *name != from) {
                let said = answer(&scene.lab, from, &of(&other.face).to_string());
                assert_eq!(said, ((*name).to_owned(), of(&own.face).to_string()));
            }
            scene.lab.connect(from, "tcp", &server(apart)).bad();
        }
        let itself = answer(&scene.lab, "acme/apart", apart);
        assert_eq!(itself.0, "acme/apart", "it does serve");
    }
}

/// What the server of an open connection says of it that only a network which knows it lets through.
fn soft_error(client: Origin, server: Origin, protocol: u8, head: &[u8]) -> Vec<u8> {
    let quote = packet(client, server.ip, protocol, head);
    let (kind, code) = if server.ip.is_ipv4() { (3, 1) } else { (1, 3) };
    packet(server, client.ip, forge::icmp_of(server.ip), &icmp_error(kind, code, &quote))
}

/// What one pod says of a connection comes to reach the other. Before each time that it is said, the connection
/// may say a word itself: a change of the network may have come in between.
fn passes(from: &Player, to: &Player, frame: &[u8], mut word: impl FnMut()) {
    let (socket, heard) = (from.packets(), to.packets());
    eventually("the error arrives", || {
        word();
        socket.send(frame).unwrap();
        let heard = heard.received().unwrap();
        heard.iter().any(|heard| heard[IP..] == frame[IP..]).then_some(())
    });
}

#[test]
fn a_network_that_fills_its_share_of_connections_loses_its_own_and_another_loses_none() {
    const FIRST: (u16, u16) = (1001, 1002);
    let scene = Scene::shared();
    let of =
        |player: &Player, family: Family| Origin { face: player.face, ip: family(&player.face) };
    for family in FAMILIES {
        let [web, near] = [&scene.web, &scene.near].map(|it| of(it, family));
        let [quiet, friend] = [&scene.quiet, &scene.friend].map(|it| of(it, family));
        let first = datagram(FIRST, b"first");
        let about_first = soft_error(web, near, UDP, &first);
        let about_kept = soft_error(quiet, friend, 6, &forge::tcp(PORTS, ACK));
        let listener = udp(&scene.near, near.ip);
        let first = packet(web, near.ip, UDP, &first);
        let say_first = || scene.web.packets().send(&first).unwrap();
        passes(&scene.near, &scene.web, &about_first, say_first);
        let mut kept = Flow::open([&scene.quiet, &scene.friend], family);
        passes(&scene.friend, &scene.quiet, &about_kept, || kept.goes_on(b"before"));
        let flooder = scene.web.packets();
        let to = listener.local_addr().unwrap().port();
        for port in 2000..42_000_u16 {
            flooder.send(&packet(web, near.ip, UDP, &datagram((port, to), b""))).unwrap();
        }
        let dropped = || scene.lab.drops(Some("acme.default"), "unrelated-icmp");
        eventually("the flooder's first connection is gone", || {
            let before = dropped();
            scene.near.packets().send(&about_first).unwrap();
            (dropped() > before).then_some(())
        });
        passes(&scene.friend, &scene.quiet, &about_kept, || ());
        kept.goes_on(b"still here");
        kept.break_off();
        let near = SocketAddr::new(near.ip, 8080).to_string();
        scene.lab.reach("acme/web", "tcp", &near).good();
        scene.lab.reach("globex/web", "tcp", &near).good();
    }
    assert_eq!(scene.lab.drops(None, "connections-exhausted"), 0);
}
