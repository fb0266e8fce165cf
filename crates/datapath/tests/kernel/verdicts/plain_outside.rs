//! The decisions of `from_outside` and `to_outside`: what comes to a node port goes on to somebody behind
//! it with its client's own address, and with the node's where it leaves again; answers leave from the
//! node port. All else is the node's own.

use std::net::SocketAddr;

use super::plain::{ACCEPTS, CLIENT, OPENS, datagram, hold, origin, stream, table};
use super::{Packet, Row, Table, Verdict};
use crate::forge::Origin;
use crate::plain_outside::{NODE_PORT, Scene, node_ip, node_port};
use crate::plain_stage::{BOTH, OUTSIDE, TARGET};

struct Uplink {
    scene: Scene,
    comes: Table,
    goes: Table,
}

impl Uplink {
    fn serving_near() -> Self {
        let scene = Scene::serving(|scene| vec![&scene.stage.near]);
        let at_uplink = |program| table(&scene.stage, program, "uplink");
        Uplink { comes: at_uplink("from_outside"), goes: at_uplink("to_outside"), scene }
    }

    fn comes<P: Into<Packet>>(&self, rows: Vec<Row<P>>) {
        hold(&self.scene.stage, &self.comes, rows);
    }

    fn goes<P: Into<Packet>>(&self, rows: Vec<Row<P>>) {
        hold(&self.scene.stage, &self.goes, rows);
    }

    fn hosts(&self, v4: bool) -> [Origin; 3] {
        let stage = &self.scene.stage;
        [&stage.far, &stage.near, &self.scene.beyond].map(|host| origin(host, v4))
    }
}

#[test]
fn what_comes_to_a_node_port_and_leaves_from_it() {
    let uplink = Uplink::serving_near();
    for v4 in BOTH {
        let [far, near, _] = uplink.hosts(v4);
        let home = SocketAddr::new(far.ip, CLIENT);
        let led = Verdict::PassLed(far.ip, SocketAddr::new(near.ip, TARGET));
        let at = |port| SocketAddr::new(node_ip(v4), port);
        let asks = |to| datagram(far, CLIENT, to);
        uplink.comes(vec![
            ("to the node port", asks(node_port(v4)), led),
            ("to it by TCP", stream(far, CLIENT, node_port(v4), OPENS), led),
            ("to another port of the node", asks(at(NODE_PORT + 1)), Verdict::Pass),
            ("to where nodes hear each other", asks(at(OUTSIDE.overlay_port)), Verdict::Pass),
            ("to the backend itself", asks(SocketAddr::new(near.ip, NODE_PORT)), Verdict::Pass),
        ]);
        let tagged = Packet::from(datagram(far, CLIENT + 1, node_port(v4))).tagged(7);
        uplink.comes(vec![("with a tag", tagged, Verdict::Pass)]);
        let answered = Verdict::PassLed(node_ip(v4), home);
        uplink.goes(vec![
            ("the answer", datagram(near, TARGET, home), answered),
            ("the stream's answer", stream(near, TARGET, home, ACCEPTS), answered),
            ("from another port of the backend", datagram(near, 9, home), Verdict::Pass),
            (
                "to another port of the client",
                datagram(near, TARGET, SocketAddr::new(far.ip, CLIENT + 1)),
                Verdict::Pass,
            ),
        ]);
    }
    uplink.scene.serve(&[], None);
    for v4 in BOTH {
        let [far, ..] = uplink.hosts(v4);
        let asks = datagram(far, CLIENT + 2, node_port(v4));
        uplink.comes(vec![("to a node port that nobody stands behind", asks, Verdict::Pass)]);
    }
}

#[test]
fn what_comes_to_a_node_port_whose_backend_is_elsewhere() {
    let uplink = Uplink::serving_near();
    uplink.scene.serve(&[&uplink.scene.beyond], None);
    for v4 in BOTH {
        let [far, _, beyond] = uplink.hosts(v4);
        let backend = SocketAddr::new(beyond.ip, TARGET);
        uplink.comes(vec![(
            "to the node port",
            datagram(far, CLIENT, node_port(v4)),
            Verdict::PassLed(far.ip, backend),
        )]);
        uplink.goes(vec![
            (
                "the same as it leaves again",
                datagram(far, CLIENT, backend),
                Verdict::PassLed(node_ip(v4), backend),
            ),
            ("of somebody else to the same", datagram(far, CLIENT + 1, backend), Verdict::Pass),
        ]);
    }
}
