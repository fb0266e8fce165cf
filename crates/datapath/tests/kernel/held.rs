//! Addresses of the outside: the uplink has them, the neighbours are told, nothing that comes there
//! reaches the node's own programs, and nothing stays.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use atoll_datapath::{Datapath, DropReason};
use atoll_plan::Step;
use atoll_testkit::{Direction, Hears, PacketSocket, eventually};

use crate::fabric::{Fabric, Node, network};
use crate::outside::World;
use crate::talk::{BRIEF, LIMIT};

const HELD: [&str; 2] = ["192.168.77.50", "fd77::50"];
const OWN: [&str; 2] = ["192.168.77.1", "fd77::1"];

/// Sends a datagram from the current namespace.
fn send(bytes: &[u8], ip: &str, port: u16) {
    let to = SocketAddr::new(ip.parse().unwrap(), port);
    let own = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let _lost = UdpSocket::bind(own).unwrap().send_to(bytes, to);
}

/// A node, and a neighbour on its link.
struct Link {
    neighbour: World,
    fabric: Fabric,
}

fn link() -> Link {
    let (neighbour, fabric) = World::with_nodes(1);
    Link { neighbour, fabric }
}

fn ips(texts: &[&str]) -> BTreeSet<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

impl Link {
    fn node(&self) -> &Node {
        &self.fabric.nodes[0]
    }

    /// Has the node answer for exactly these, for one network.
    fn hold(&self, texts: &[&str]) {
        let held = ips(texts).into_iter().map(|ip| (ip, network(100)));
        self.node().plan.lock().unwrap().held = held.collect();
        self.fabric.converge();
        assert_eq!(self.node().observe(), self.node().planned());
    }

    fn addresses(&self) -> String {
        self.node().namespace.ip("-o address show dev uplink")
    }

    /// Whether the neighbour finds anybody at the address.
    fn is_found(&self, ip: &str) -> bool {
        self.neighbour.namespace.ip("neigh flush all");
        let found = || {
            let known = self.neighbour.namespace.ip(&format!("neigh show {ip}"));
            if known.is_empty() {
                // Not asked for yet, or forgotten in the meantime.
                self.neighbour.namespace.run(|| send(b"?", ip, 9));
            }
            (known.contains("lladdr") || known.contains("FAILED")).then_some(known)
        };
        eventually("the neighbour knows", found).contains("lladdr")
    }

    fn connect(&self, ip: &str, port: u16, limit: Duration) -> std::io::Result<TcpStream> {
        let to = SocketAddr::new(ip.parse().unwrap(), port);
        self.neighbour.namespace.run(|| TcpStream::connect_timeout(&to, limit))
    }

    fn not_served(&self) -> u64 {
        self.node().dropped(Some(network(100)), DropReason::NotServed)
    }
}

#[test]
fn a_neighbour_finds_an_address_where_it_is_held_and_not_after_it_went() {
    let link = link();
    assert!(link.is_found(OWN[0]) && !link.is_found(HELD[0]));
    link.hold(&HELD);
    assert!(HELD.iter().all(|ip| link.is_found(ip)));
    assert!(link.node().converge().is_empty(), "it was there before");
    link.hold(&HELD[..1]);
    assert!(!link.addresses().contains(HELD[1]));
    link.hold(&[]);
    assert!(!link.is_found(HELD[0]) && link.is_found(OWN[0]));
    let left = link.addresses();
    assert!(left.contains("192.168.77.1/24") && left.contains("fd77::1/64"), "{left}");
}

#[test]
fn nothing_that_comes_to_a_held_address_reaches_the_nodes_own_programs_but_pings() {
    let link = link();
    link.hold(&HELD);
    let listen = |ip: &str| TcpListener::bind((ip, 10_250)).unwrap();
    let _v6 = link.node().namespace.run(|| listen("::"));
    let udp = link.node().namespace.run(|| UdpSocket::bind("[::]:5353").unwrap());
    let hears = |limit| {
        udp.set_read_timeout(Some(limit)).unwrap();
        udp.hear(&mut [0; 8])
    };
    for (held, own) in HELD.into_iter().zip(OWN) {
        link.connect(own, 10_250, LIMIT).expect("the node answers at its own address");
        for port in [10_250, 22] {
            let before = link.not_served();
            let silent = link.connect(held, port, BRIEF).unwrap_err();
            assert_eq!(silent.kind(), ErrorKind::TimedOut, "{held}:{port}");
            eventually("it was dropped", || (link.not_served() > before).then_some(()));
        }
        link.neighbour.namespace.run(|| send(b"held", held, 5353));
        assert!(hears(BRIEF).is_err(), "{held} by UDP");
        link.neighbour.namespace.run(|| send(b"!", own, 5353));
        assert_eq!(hears(LIMIT).unwrap(), 1, "{own} by UDP");
        assert!(crate::talk::ping_from(&link.neighbour.namespace, held.parse().unwrap()));
    }
}

#[test]
fn a_tunnel_packet_to_a_held_address_is_no_nodes() {
    let link = link();
    link.hold(&HELD);
    let before = link.not_served();
    let frame = crate::forge::vxlan(100, &[0; 60]);
    let port = crate::fabric::OVERLAY_PORT;
    link.neighbour.namespace.run(|| send(&frame, HELD[0], port));
    eventually("it was dropped", || (link.not_served() > before).then_some(()));
    let strangers = || link.node().dropped(None, DropReason::OverlayStranger);
    assert_eq!(strangers(), 0);
    link.neighbour.namespace.run(|| send(&frame, OWN[0], port));
    eventually("the tunnel saw the other", || (strangers() > 0).then_some(()));
}

#[test]
fn the_node_itself_never_speaks_from_an_address_that_it_holds() {
    let link = link();
    link.hold(&HELD);
    for (to, own) in [("192.168.77.2", OWN[0]), ("fd77::2", OWN[1])] {
        let route = link.node().namespace.ip(&format!("route get {to}"));
        assert!(route.contains(&format!("src {own} ")), "{route}");
    }
}

#[test]
fn an_address_that_somebody_else_gave_the_link_stays_theirs() {
    let link = link();
    link.node().namespace.ip("address add 192.168.77.50/32 dev uplink");
    let step = Step::Hold(HELD[0].parse().unwrap(), network(100));
    let error = link.node().run(move |state| state.apply(&step)).unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("give link uplink the address 192.168.77.50"), "{cause}");
    link.hold(&[]);
    assert!(link.addresses().contains("192.168.77.50/32"));
}

#[test]
fn the_neighbours_are_told_where_an_address_is_in_both_families() {
    let link = link();
    let heard = link.neighbour.namespace.run(|| PacketSocket::open("node1").unwrap());
    link.hold(&HELD);
    let told = ips(&HELD);
    link.node().run(move |state| state.datapath.as_ref().unwrap().announce(&told).unwrap());
    let (mut arp, mut advertisement) = (false, false);
    eventually("both were announced", || {
        while let Some((way, frame)) = heard.receive(Duration::from_millis(1)).unwrap() {
            let is_in = way == Direction::In;
            arp |=
                is_in && frame.get(12..14) == Some(&[8, 6]) && frame[38..42] == [192, 168, 77, 50];
            advertisement |= is_in && frame.get(54) == Some(&136) && frame[20] == 58;
        }
        (arp && advertisement).then_some(())
    });
}

#[test]
fn an_address_goes_on_being_held_while_the_datapath_is_opened_anew() {
    let link = link();
    link.hold(&HELD);
    link.node().run(crate::fabric::State::open);
    assert_eq!(link.node().observe(), link.node().planned());
    link.node().namespace.ip("address del 192.168.77.50/32 dev uplink");
    assert_eq!(link.node().converge().len(), 1, "what somebody took away is put back");
    assert!(link.is_found(HELD[0]));
}

#[test]
fn what_is_held_goes_when_a_node_is_left() {
    let link = link();
    link.hold(&HELD[..1]);
    let (traces, left) = link.node().run(|state| {
        let root = state.config.bpf_root.clone();
        let traces = state.runtime.block_on(Datapath::traces(&root)).unwrap();
        state.runtime.block_on(Datapath::remove(&root)).unwrap();
        (traces, state.runtime.block_on(Datapath::traces(&root)).unwrap())
    });
    assert!(traces.contains(&"address 192.168.77.50".to_owned()), "{traces:?}");
    assert_eq!(left, Vec::<String>::new());
    assert!(!link.addresses().contains(HELD[0]));
}
