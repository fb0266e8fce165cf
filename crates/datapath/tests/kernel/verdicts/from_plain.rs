//! The decisions of `from_plain`: what a pod of no tenant sends to services, and what it may not send.

use std::net::{IpAddr, SocketAddr};

use atoll_datapath::DropReason::{self, Malformed, NoBackend, PortTaken, TunnelPort, VlanTagged};

use super::plain::{CLIENT, OPENS, UDP, datagram, hold, origin, stream, table};
use super::{Packet, Row, Table, Verdict};
use crate::forge::{self, fragment, summed_datagram};
use crate::plain_stage::{BOTH, OUTSIDE, Stage, TARGET, front};

struct Scene {
    stage: Stage,
    table: Table,
}

fn scene() -> Scene {
    let stage = Stage::serving(|stage| vec![&stage.near]);
    stage.client.namespace.ip("link set eth0 down");
    Scene { table: table(&stage, "from_plain", "veth2"), stage }
}

impl Scene {
    fn hold<P: Into<Packet>>(&self, rows: Vec<Row<P>>) {
        hold(&self.stage, &self.table, rows);
    }

    fn udp(&self, v4: bool, to: SocketAddr) -> Vec<u8> {
        datagram(origin(&self.stage.client, v4), CLIENT, to)
    }

    fn tcp(&self, v4: bool, to: SocketAddr) -> Vec<u8> {
        stream(origin(&self.stage.client, v4), CLIENT, to, OPENS)
    }
}

pub(super) const SENT: &[DropReason] = &[Malformed, NoBackend, PortTaken, TunnelPort, VlanTagged];

#[test]
fn what_a_pod_of_no_tenant_sends() {
    let scene = scene();
    for v4 in BOTH {
        let (own, near) =
            (scene.stage.client.ip(v4), SocketAddr::new(scene.stage.near.ip(v4), TARGET));
        let far: IpAddr = scene.stage.far.ip(v4);
        let there = |port| SocketAddr::new(far, port);
        let led = Verdict::PassLed(own, near);
        let ends = (origin(&scene.stage.client, v4), origin(&scene.stage.far, v4));
        let first = summed_datagram((own, far), (CLIENT, OUTSIDE.overlay_port), &[7; 24]);
        let drop = Verdict::Drop;
        scene.hold(vec![
            ("to a service", scene.udp(v4, front(v4)), led),
            ("to it by TCP", scene.tcp(v4, front(v4)), led),
            (
                "to its backend from the same port, by TCP",
                scene.tcp(v4, near),
                Verdict::Answer(Some(PortTaken)),
            ),
            ("to another machine", scene.udp(v4, there(9)), Verdict::Pass),
            (
                "to where nodes hear each other",
                scene.udp(v4, there(OUTSIDE.overlay_port)),
                drop(TunnelPort),
            ),
            ("the first part of it", fragment(ends, UDP, 7, (0, true), &first), drop(TunnelPort)),
            (
                "a later part, which is nothing alone",
                fragment(ends, UDP, 7, (32, false), &[7; 8]),
                Verdict::Pass,
            ),
        ]);
        let tagged = forge::tagged(&scene.udp(v4, there(9)), 7);
        scene.hold(vec![("with two tags", Packet::from(tagged).tagged(8), drop(VlanTagged))]);
    }
    scene.hold(vec![
        ("behind as many headers as are followed", behind(&scene, 7), Verdict::Pass),
        ("behind more", behind(&scene, 9), Verdict::Drop(Malformed)),
    ]);
    scene.stage.serve_nobody();
    for v4 in BOTH {
        let refused = Verdict::Answer(Some(NoBackend));
        let to = front(v4);
        let other = stream(origin(&scene.stage.client, v4), CLIENT + 1, to, OPENS);
        scene.hold(vec![
            ("to a service that nobody stands behind, by TCP", other, refused),
            ("to it by UDP", scene.udp(v4, to), refused),
        ]);
    }
    scene.table.reasons_are(SENT);
}

/// A datagram of IPv6 behind so many headers of options.
fn behind(scene: &Scene, count: usize) -> Vec<u8> {
    let headers: Vec<u8> = (1..=count)
        .flat_map(|number| [if number == count { 17 } else { 60 }, 0, 1, 4, 0, 0, 0, 0])
        .collect();
    forge::udp6_with(origin(&scene.stage.client, false).face, scene.stage.far.ipv6, 60, &headers)
}
