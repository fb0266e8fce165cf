//! Addresses of the outside: the uplink has them, the neighbours are told, and nothing stays.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use atoll_datapath::Datapath;
use atoll_testkit::{Direction, Namespace, PacketSocket, eventually};

const UNDERLAY: &str = "192.168.77.1";

/// A node, and a neighbour on its link.
struct Link {
    node: Namespace,
    neighbour: Namespace,
}

fn link() -> Link {
    let (node, neighbour) = (Namespace::new(), Namespace::new());
    let there = neighbour.path();
    node.ip(&format!("link add uplink type veth peer name eth0 netns {}", there.display()));
    node.ip(&format!("address add {UNDERLAY}/24 dev uplink"));
    node.ip("address add 2001:db8::1/64 dev uplink nodad");
    node.ip("link set uplink up");
    neighbour.ip("address add 192.168.77.2/24 dev eth0");
    neighbour.ip("address add 2001:db8::2/64 dev eth0 nodad");
    neighbour.ip("link set eth0 up");
    Link { node, neighbour }
}

fn ips(texts: &[&str]) -> BTreeSet<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

impl Link {
    fn run<T: Send>(&self, job: impl AsyncFnOnce() -> T + Send) -> T {
        self.node.run(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(job())
        })
    }

    fn hold(&self, texts: &[&str]) -> BTreeSet<IpAddr> {
        let wanted = ips(texts);
        self.run(async || Datapath::hold(UNDERLAY.parse().unwrap(), &wanted).await.unwrap())
    }

    fn announce(&self, texts: &[&str]) {
        let told = ips(texts);
        self.run(async || Datapath::announce(UNDERLAY.parse().unwrap(), &told).await.unwrap());
    }

    fn addresses(&self) -> String {
        self.node.ip("-o address show dev uplink")
    }

    /// Whether anybody has the address: a port where nobody listens refuses at once.
    fn reaches(&self, ip: &str) -> bool {
        let to = SocketAddr::new(ip.parse().unwrap(), 9);
        let tried = self.neighbour.run(|| TcpStream::connect_timeout(&to, Duration::from_secs(5)));
        tried.unwrap_err().kind() == ErrorKind::ConnectionRefused
    }
}

#[test]
fn a_neighbour_finds_an_address_where_it_is_held_and_not_after_it_went() {
    let link = link();
    assert!(link.reaches(UNDERLAY) && !link.reaches("192.168.77.50"));
    assert_eq!(
        link.hold(&["192.168.77.50", "2001:db8::50"]),
        ips(&["192.168.77.50", "2001:db8::50"])
    );
    for ip in ["192.168.77.50", "2001:db8::50"] {
        eventually(&format!("{ip} is found"), || link.reaches(ip).then_some(()));
    }
    assert!(link.hold(&["192.168.77.50"]).is_empty(), "it was there before");
    assert!(!link.addresses().contains("2001:db8::50"));
    link.hold(&[]);
    link.neighbour.ip("neigh flush all");
    assert!(!link.reaches("192.168.77.50") && link.reaches(UNDERLAY));
    let left = link.addresses();
    assert!(left.contains("192.168.77.1/24") && left.contains("2001:db8::1/64"), "{left}");
}

#[test]
fn the_node_itself_never_speaks_from_an_address_that_it_holds() {
    let link = link();
    link.hold(&["192.168.77.50", "2001:db8::50"]);
    for (to, own) in [("192.168.77.2", "192.168.77.1"), ("2001:db8::2", "2001:db8::1")] {
        let route = link.node.ip(&format!("route get {to}"));
        assert!(route.contains(&format!("src {own} ")), "{route}");
    }
}

#[test]
fn an_address_that_somebody_else_gave_the_link_stays_theirs() {
    let link = link();
    link.node.ip("address add 192.168.77.50/32 dev uplink");
    let wanted = ips(&["192.168.77.50", "192.168.77.51"]);
    let held = async || Datapath::hold(UNDERLAY.parse().unwrap(), &wanted).await;
    let error = link.run(held).unwrap_err().to_string();
    assert!(error.contains("give link uplink the address 192.168.77.50"), "{error}");
    assert!(link.addresses().contains("192.168.77.51/32"), "the others are held all the same");
    link.hold(&[]);
    let left = link.addresses();
    assert!(left.contains("192.168.77.50/32") && !left.contains("192.168.77.51"), "{left}");
}

#[test]
fn the_neighbours_are_told_where_an_address_is_in_both_families() {
    let link = link();
    let heard = link.neighbour.run(|| PacketSocket::open("eth0").unwrap());
    link.hold(&["192.168.77.50", "2001:db8::50"]);
    link.announce(&["192.168.77.50", "2001:db8::50"]);
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
fn what_is_held_goes_when_a_node_is_left() {
    let link = link();
    link.hold(&["192.168.77.50"]);
    let pins = tempfile::tempdir().unwrap();
    let traces = link.run(async || Datapath::traces(pins.path()).await.unwrap());
    assert!(traces.contains(&"address 192.168.77.50".to_owned()), "{traces:?}");
    link.run(async || Datapath::remove(pins.path()).await.unwrap());
    assert!(!link.addresses().contains("192.168.77.50"));
}
