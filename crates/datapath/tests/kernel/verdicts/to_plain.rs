//! The decisions of `to_plain`: answers of those behind a service come from the service, and errors about
//! packets to them are about packets to it; all else is as it is.

use std::net::{IpAddr, SocketAddr};

use super::plain::{ACCEPTS, CLIENT, OPENS, UDP, datagram, hold, origin, stream, table};
use super::{Table, Verdict};
use crate::forge::{Origin, fragment, icmp_error, icmp_of, packet, summed_datagram};
use crate::plain_stage::{BOTH, Stage, TARGET, front};

/// Where the part of a datagram stands that follows its first.
const SECOND: u16 = 32;

struct Scene {
    stage: Stage,
    sent: Table,
    received: Table,
}

fn scene() -> Scene {
    let stage = Stage::serving(|stage| vec![&stage.near]);
    stage.client.namespace.ip("link set eth0 down");
    let at_link = |program| table(&stage, program, "veth2");
    Scene { sent: at_link("from_plain"), received: at_link("to_plain"), stage }
}

/// What somebody says to a packet's sender who cannot send it on.
fn error(from: Origin, to: IpAddr, about: &[u8]) -> Vec<u8> {
    let unreachable = if to.is_ipv4() { 3 } else { 1 };
    packet(from, to, icmp_of(to), &icmp_error(unreachable, 1, about))
}

#[test]
fn what_comes_to_a_pod_of_no_tenant() {
    let scene = scene();
    let stage = &scene.stage;
    for v4 in BOTH {
        let [client, near, far] = [&stage.client, &stage.near, &stage.far].map(|it| origin(it, v4));
        let home = SocketAddr::new(client.ip, CLIENT);
        let backend = SocketAddr::new(near.ip, TARGET);
        let led = Verdict::PassLed(client.ip, backend);
        hold(
            stage,
            &scene.sent,
            vec![
                ("a question to the service", datagram(client, CLIENT, front(v4)), led),
                ("a stream to it", stream(client, CLIENT, front(v4), OPENS), led),
            ],
        );
        let parts = summed_datagram((near.ip, client.ip), (TARGET, CLIENT), &[7; 24]);
        let part = |at, more, content: &[u8]| fragment((near, client), UDP, 7, (at, more), content);
        let from_service = Verdict::PassLed(front(v4).ip(), home);
        // Whoever judges reads no ports behind a header of IPv6, and takes a later part's content for them.
        let in_parts = |port: u16| {
            let port = if v4 { port } else { 0 };
            Verdict::PassLed(front(v4).ip(), SocketAddr::new(client.ip, port))
        };
        let asked = datagram(client, CLIENT, backend);
        let other = datagram(client, CLIENT, SocketAddr::new(far.ip, TARGET));
        hold(
            stage,
            &scene.received,
            vec![
                ("the answer", datagram(near, TARGET, home), from_service),
                ("the stream's answer", stream(near, TARGET, home, ACCEPTS), from_service),
                ("the first part of an answer", part(0, true, &parts), in_parts(CLIENT)),
                ("a later part of it", part(SECOND, false, &[7; 8]), in_parts(0x0707)),
                ("from another port of the backend", datagram(near, 9, home), Verdict::Pass),
                (
                    "to another port of the client",
                    datagram(near, TARGET, SocketAddr::new(client.ip, CLIENT + 1)),
                    Verdict::Pass,
                ),
                ("of somebody else", datagram(far, TARGET, home), Verdict::Pass),
                (
                    "an error about the question, which the client sent to the service",
                    error(far, client.ip, &asked),
                    Verdict::PassLed(far.ip, SocketAddr::new(client.ip, 0)),
                ),
                ("an error about something else", error(far, client.ip, &other), Verdict::Pass),
            ],
        );
    }
    scene.received.reasons_are(&[]);
}
