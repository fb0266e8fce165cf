//! The decisions of `from_plain`: what a pod of no tenant sends to services, and what it may not send.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use atoll_datapath::DropReason::{self, Malformed, NoBackend, PortTaken, TunnelPort, VlanTagged};
use atoll_datapath::PlainServices;
use atoll_types::MacAddr;

use super::judge::Outcome;
use super::subject::Subject;
use super::{Packet, Row, Table, Verdict};
use crate::forge::{self, Face, Origin, fragment, packet, summed_datagram, tcp};
use crate::plain_stage::{BOTH, Host, OUTSIDE, Stage, State, TARGET, front};

struct Scene {
    stage: Stage,
    table: Table,
}

fn scene() -> Scene {
    let stage = Stage::serving(|stage| vec![&stage.near]);
    stage.client.namespace.ip("link set eth0 down");
    let shown = stage.node.ip("-o link show veth2");
    let link = shown.split(':').next().unwrap().parse().unwrap();
    let loaded = stage.worker.run(move |state| {
        Subject::in_force(&state.root.join("plain"), "plain_drops", "from_plain", link)
    });
    Scene { table: Table::of(loaded), stage }
}

fn counts(state: &State) -> Vec<u64> {
    let drops = PlainServices::drops(&state.root).unwrap();
    let of = |reason: &DropReason| {
        drops.iter().filter(|it| it.reason == *reason).map(|it| it.packets).sum()
    };
    DropReason::ALL.iter().map(of).collect()
}

fn origin(host: &Host, v4: bool) -> Origin {
    let face = Face { mac: MacAddr::for_ip(host.ip(true)), ip: host.ipv4, ipv6: host.ipv6 };
    Origin { face, ip: host.ip(v4) }
}

impl Scene {
    fn hold<P: Into<Packet>>(&self, rows: Vec<Row<P>>) {
        let run = |subject: Arc<Mutex<Subject>>, packets: Vec<Packet>| -> Vec<Outcome> {
            self.stage
                .worker
                .run(move |state| subject.lock().unwrap().run_all(&packets, || counts(state)))
        };
        self.table.judge(rows, run);
    }

    fn udp(&self, v4: bool, to: SocketAddr) -> Vec<u8> {
        let from = origin(&self.stage.client, v4);
        packet(from, to.ip(), 17, &summed_datagram((from.ip, to.ip()), (4000, to.port()), b"x"))
    }

    fn tcp(&self, v4: bool, to: SocketAddr) -> Vec<u8> {
        packet(origin(&self.stage.client, v4), to.ip(), 6, &tcp((4000, to.port()), 2))
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
        let first = summed_datagram((own, far), (4000, OUTSIDE.overlay_port), &[7; 24]);
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
            ("the first part of it", fragment(ends, 17, 7, (0, true), &first), drop(TunnelPort)),
            (
                "a later part, which is nothing alone",
                fragment(ends, 17, 7, (32, false), &[7; 8]),
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
        let other = packet(origin(&scene.stage.client, v4), to.ip(), 6, &tcp((4001, to.port()), 2));
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
