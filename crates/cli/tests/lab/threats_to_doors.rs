//! Row 16 of the threats, from beside a node: a machine on its wire that has the alias of a pod, and
//! speaks to where the agent hears pods. The pod alone is heard, by the node's link.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use atoll_abi::{DOOR_PORT, Door, aliases_of};
use atoll_testkit::names::question;
use atoll_testkit::{Hears, Namespace, PacketSocket};
use serde_json::json;

use crate::documents::{nics, pod, tenant, yaml};
use crate::fixture::{Lab, await_condition};
use crate::names::counted;
use crate::threats::Player;
use crate::threats_to_names::host_side;

const NODE1: &str = "172.30.0.11";
const A: u16 = 1;
/// A port behind the door where nobody hears pods, and everybody is heard.
const BESIDE: u16 = DOOR_PORT + 1;
const FORGED: &str = "forged.acme.svc.cluster.local";
const TRUE: &str = "nobody.acme.svc.cluster.local";
const ASKED: &str = "atoll_dns_queries_total{network=\"acme.default\"}";

/// A node with one pod, and who speaks for that pod from the node's wire.
struct Scene {
    lab: Lab,
    near: PacketSocket,
    node: Namespace,
    /// Of the node, beside the agent's own.
    beside: UdpSocket,
    forger: UdpSocket,
}

fn behind() -> IpAddr {
    Door::Cluster.listeners()[0]
}

impl Scene {
    fn set() -> Scene {
        let lab = Lab::up(1);
        lab.apply(&tenant("acme")).good();
        lab.apply(&yaml(&[pod("acme/near", "node1", &json!({}), &nics("default", 6))])).good();
        lab.wait_for_pods();
        let near = Player::find(&lab, "acme", "near");
        let of = |name| Namespace::at(&lab.place(name));
        let (wire, node) = (of("fabric"), of("node1"));
        node.run(believe_every_source);
        let alias = aliases_of(host_side(&near))[0];
        wire.ip(&format!("address add {alias}/32 dev lo"));
        wire.ip(&format!("route add {}/32 via {NODE1}", behind()));
        let forger = wire.run(|| UdpSocket::bind((alias, 4711)).unwrap());
        let beside = node.run(|| UdpSocket::bind((behind(), BESIDE)).unwrap());
        beside.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Scene { near: near.packets(), lab, node, beside, forger }
    }

    /// Whether the pod itself is answered.
    fn is_answered(&self) -> bool {
        let ask = ["dig", "+tries=1", "+time=2", TRUE];
        self.lab.exec("acme/near", &ask).out.contains("NXDOMAIN")
    }

    /// The machine's packets come to the node and to the very address, and the resolver, which reads its
    /// questions in order, has none of them before the pod's own.
    fn the_forger_is_not_heard(&self) {
        await_condition(|| self.is_answered()).expect("the pod is answered");
        self.near.received().unwrap();
        let before = counted(&self.lab, "node1", ASKED);
        for _ in 0..5 {
            self.forger.send_to(&question(FORGED, A, None), (behind(), DOOR_PORT)).unwrap();
            self.forger.send_to(b"beside", (behind(), BESIDE)).unwrap();
            let heard = self.beside.hear_from(&mut [0; 16]);
            let (_, from) = heard.expect("the machine's word");
            assert_eq!(from, self.forger.local_addr().unwrap(), "it is taken for the pod");
        }
        let mut tries = 1;
        while !self.is_answered() {
            tries += 1;
            assert!(tries < 10, "the pod is not answered");
        }
        let asked = counted(&self.lab, "node1", ASKED) - before;
        assert!(asked <= tries, "{asked} questions, of which the pod sent {tries}");
        let word = &FORGED.as_bytes()[..6];
        let is_forged = |frame: &Vec<u8>| frame.windows(word.len()).any(|it| it == word);
        assert!(!self.near.received().unwrap().iter().any(is_forged), "nor is it answered");
    }
}

/// Lets in what comes by another link than answers would leave by, as many nodes do.
fn believe_every_source() {
    for link in std::fs::read_dir("/proc/sys/net/ipv4/conf").unwrap() {
        std::fs::write(link.unwrap().path().join("rp_filter"), "0").unwrap();
    }
}

#[test]
fn who_speaks_for_a_pod_from_the_wire_is_not_heard_and_the_pod_is_also_when_its_link_is_made_anew()
{
    let scene = Scene::set();
    scene.the_forger_is_not_heard();
    scene.node.ip("link delete atoll-node");
    await_condition(|| scene.is_answered()).expect("the pod is answered by the new link");
    scene.node.run(believe_every_source);
    scene.the_forger_is_not_heard();
    let open = SocketAddr::new(behind(), DOOR_PORT);
    let wire = Namespace::at(&scene.lab.place("fabric"));
    let brief = Duration::from_millis(500);
    let called = wire.run(|| std::net::TcpStream::connect_timeout(&open, brief));
    assert!(called.is_err(), "nor does it get a connection");
}
