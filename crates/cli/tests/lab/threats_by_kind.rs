//! Rows 3, 4 and 6 of the threats in networks of other kinds: routers' messages in one that has no IPv6, the
//! tunnel's port from one that has egress, and large datagrams of which the parts come in any order.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use atoll_datapath::DropReason::{Ipv6NotServed, OutsideClosed};
use atoll_testkit::forge::{self, Face, Origin, datagram, fragment, packet};
use atoll_testkit::threats::{Row, advertisements};
use atoll_testkit::{Hears, Namespace, eventually};
use atoll_types::GATEWAY_V6;
use serde_json::json;

use crate::documents::{nics, pod, tenant, yaml};
use crate::fixture::Lab;
use crate::outside::{WIRE, set_egress};
use crate::tenants::network;
use crate::threats::{
    NODES_IPV4, Player, TUNNEL_PORT, assert_silence, dropped, switch_offloads_off,
};
use crate::threats_to_flows::FAMILIES;

/// Of `acme`, with egress: `attacker` on one node, `far` on another. In its network `old`, which has IPv4 alone,
/// `liar`, `near` and `distant`. Of `globex`, `foreign` with the address of `far`.
struct Scene {
    lab: Lab,
    attacker: Player,
    far: Player,
    liar: Player,
    near: Player,
    distant: Player,
    foreign: Player,
}

impl Scene {
    fn set() -> Scene {
        let lab = Lab::up(3);
        ["acme", "globex"].iter().for_each(|name| drop(lab.apply(&tenant(name)).good()));
        set_egress(&lab, "acme", "node");
        let old = json!({"tenant": "acme", "type": "vpc", "cidrs": ["10.3.0.0/16"]});
        let at = |name: &str, node: &str, last| pod(name, node, &json!({}), &nics("default", last));
        let in_old = |name: &str, node: &str| {
            pod(name, node, &json!({"atoll.dev/network": "old"}), &json!({}))
        };
        lab.apply(&yaml(&[
            network("acme.old", &old),
            at("acme/attacker", "node1", 5),
            at("acme/far", "node2", 7),
            at("globex/foreign", "node1", 7),
            in_old("acme/liar", "node1"),
            in_old("acme/near", "node1"),
            in_old("acme/distant", "node3"),
        ]))
        .good();
        lab.wait_for_pods();
        let ours = ["attacker", "far", "liar", "near", "distant"];
        let [attacker, far, liar, near, distant] = ours.map(|it| Player::find(&lab, "acme", it));
        let foreign = Player::find(&lab, "globex", "foreign");
        Scene { lab, attacker, far, liar, near, distant, foreign }
    }

    fn everybody(&self) -> [&Player; 6] {
        [&self.attacker, &self.far, &self.liar, &self.near, &self.distant, &self.foreign]
    }
}

/// What a pod without IPv6 says in IPv6 all the same.
fn row_3(scene: &Scene) -> Row {
    let liar = Face { ipv6: "fd00::5".parse().unwrap(), ..scene.liar.face };
    let near_by = Face { ipv6: "fe80::5".parse().unwrap(), ..liar };
    let (near, all) = ("fe80::6".parse().unwrap(), "ff02::1".parse().unwrap());
    let routers = [liar, near_by].map(|face| advertisements(&face, near)).into_iter().flatten();
    let question = forge::nd(135, GATEWAY_V6, liar.mac.octets());
    let others = [
        forge::icmp6(liar, (near_by.ipv6, all), &question),
        packet(liar.v6(), IpAddr::V6(near), 17, &datagram((1, 2), b"?")),
    ];
    let forged = routers.chain(others).map(|frame| (Ipv6NotServed, frame)).collect();
    let honest = packet(liar.v4(), scene.near.face.ip.into(), 17, &datagram((1, 2), b"honest"));
    Row { number: 3, forged, honest: vec![honest] }
}

fn routers_are_unheard(scene: &Scene) {
    row_3(scene).holds(
        &scene.liar.packets(),
        || [&scene.near, &scene.distant, &scene.far, &scene.foreign].map(Player::packets).into(),
        |reason| dropped(&scene.lab, "node1", Some("acme.old"), reason.name()),
    );
}

/// What would reach a pod of another tenant if a node took it for another node's.
fn tunnels_are_closed(scene: &Scene) {
    let attacker = scene.attacker.face.v4();
    let inner = packet(attacker, scene.foreign.face.ip.into(), 17, &datagram((1, 2), b"?"));
    let carried = forge::vxlan(scene.foreign.network, &inner);
    let tunnelled = datagram((TUNNEL_PORT, TUNNEL_PORT), &carried);
    let wire = Namespace::at(&scene.lab.place("fabric"));
    let outside = wire.run(|| UdpSocket::bind((WIRE, TUNNEL_PORT)).unwrap());
    outside.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let socket = scene.attacker.packets();
    let to = |ip: &str| packet(attacker, ip.parse().unwrap(), 17, &tunnelled);
    eventually("who is no node is reached at that port", || {
        socket.send(&to(WIRE)).unwrap();
        let mut heard = vec![0; 2048];
        let length = outside.hear(&mut heard).ok()?;
        (heard[..length] == carried).then_some(())
    });
    let heard = [&scene.far, &scene.near, &scene.foreign].map(Player::packets);
    let count = || dropped(&scene.lab, "node1", Some("acme.default"), OutsideClosed.name());
    for node in NODES_IPV4 {
        let before = count();
        socket.send(&to(node)).unwrap();
        eventually(&format!("{node} is closed"), || (count() > before).then_some(()));
    }
    heard.iter().for_each(|heard| assert_silence(heard, "row 4"));
}

/// The parts of a datagram in each order that matters.
fn parts_arrive(scene: &Scene) {
    const ORDERS: [[usize; 3]; 4] = [[0, 1, 2], [2, 1, 0], [1, 2, 0], [0, 2, 1]];
    for (family, id) in FAMILIES.into_iter().zip([1000, 2000]) {
        let [from, to] = [&scene.attacker, &scene.far]
            .map(|player| Origin { face: player.face, ip: family(&player.face) });
        let listener = scene.far.namespace.run(|| UdpSocket::bind((to.ip, 4000)).unwrap());
        listener.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        let content: Vec<u8> = (0..3600).map(|place| (place % 251) as u8).collect();
        let whole = forge::summed_datagram((from.ip, to.ip), (4001, 4000), &content);
        let socket = scene.attacker.packets();
        let mut numbers = id..;
        for order in ORDERS {
            eventually("the datagram arrives whole", || {
                let id = numbers.next().unwrap();
                let parts: Vec<_> = (0_u16..).zip(whole.chunks(1208)).collect();
                for place in order {
                    let (number, part) = parts[place];
                    let at = (number * 1208, place != 2);
                    socket.send(&fragment((from, to), 17, id, at, part)).unwrap();
                }
                let mut heard = vec![0; 4096];
                let (length, sender) = listener.hear_from(&mut heard).ok()?;
                assert_eq!(sender, SocketAddr::new(from.ip, 4001));
                (heard[..length] == content).then_some(())
            });
        }
    }
}

#[test]
fn rows_hold_without_ipv6_and_with_egress_and_parts_arrive_in_any_order_also_with_offloads_off() {
    let scene = Scene::set();
    for with_offloads in [true, false] {
        if !with_offloads {
            switch_offloads_off(&scene.lab, scene.everybody());
        }
        routers_are_unheard(&scene);
        tunnels_are_closed(&scene);
        parts_arrive(&scene);
    }
}
