//! Ways around policy that lead over something that was allowed before: what a connection, a datagram
//! or a service was good for, it is good for no longer than policy says so.

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use atoll_datapath::DropReason;
use atoll_testkit::{Direction, Hears, PacketSocket, eventually};

use crate::forge;
use crate::policy_threats::{Scene, closed, passes, without_policy};
use crate::services::{TARGET, front};
use crate::talk::{BRIEF, LIMIT, Voice, connect, listen, udp};

const UDP: u8 = 17;
const IPV4: [u8; 2] = [8, 0];
const IPV6: [u8; 2] = [0x86, 0xdd];

/// Nothing of IP came in that is as long as this frame.
fn heard_nothing_like(frame: &[u8], heard: &PacketSocket) {
    while let Some((direction, came)) = heard.receive(Duration::from_millis(10)).unwrap() {
        let is_ip = came[12..14] == IPV4 || came[12..14] == IPV6;
        let is_like = direction == Direction::In && is_ip && came.len() == frame.len();
        assert!(!is_like, "{came:?}");
    }
}

impl Scene {
    /// Both ends in each family, the client first.
    fn families(&self) -> [(Voice<'_>, Voice<'_>); 2] {
        [(self.client.v4(), self.server.v4()), (self.client.v6(), self.server.v6())]
    }

    /// The frame is sent, counted as dropped by that node for that reason, and not heard.
    fn is_dropped(
        &self,
        from: Voice,
        to: Voice,
        frame: &[u8],
        (node, reason): (usize, DropReason),
    ) {
        let heard = to.pod.packets();
        let before = self.dropped(node, reason);
        from.pod.packets().send(frame).unwrap();
        eventually(&format!("it was dropped as {reason}"), || {
            (self.dropped(node, reason) > before).then_some(())
        });
        heard_nothing_like(frame, &heard);
    }

    /// A connection of the client through the service, and the server's end of it.
    fn through_service(&self, client: Voice, server: Voice) -> [TcpStream; 2] {
        let listener = listen(server, TARGET);
        let ours = connect(client, 0, front(client.ip), LIMIT).unwrap();
        let theirs = listener.accept().unwrap().0;
        for end in [&ours, &theirs] {
            end.set_read_timeout(Some(LIMIT)).unwrap();
        }
        [ours, theirs]
    }
}

#[test]
fn an_icmp_error_about_a_connection_that_was_not_decided_since_a_change_is_dropped() {
    let scene = Scene::new();
    for (client, server) in scene.families() {
        let (asker, answerer) = (udp(client, 2000), udp(server, 3000));
        asker.send_to(b"?", answerer.local_addr().unwrap()).unwrap();
        answerer.hear(&mut [0; 8]).unwrap();
        let quote =
            forge::packet(client, server.ip, UDP, &forge::datagram((2000, 3000), b"secret"));
        let kind = forge::icmp_of(client.ip);
        let code = if client.ip.is_ipv4() { (3, 3) } else { (1, 4) };
        let error =
            forge::packet(server, client.ip, kind, &forge::icmp_error(code.0, code.1, &quote));
        scene.happens(closed("Ingress", "server"));
        scene.is_dropped(server, client, &error, (1, DropReason::UnrelatedIcmp));
        scene.happens(without_policy());
    }
}

#[test]
fn a_later_fragment_does_not_pass_by_what_its_first_was_allowed() {
    let scene = Scene::new();
    for (id, (client, server)) in (7..).zip(scene.families()) {
        let _open = udp(server, 3000);
        let content = forge::datagram((2000, 3000), &[1; 64]);
        let part =
            |place, content: &[u8]| forge::fragment((client, server), UDP, id, place, content);
        let heard = server.pod.packets();
        client.pod.packets().send(&part((0, true), &content)).unwrap();
        forge::arrived_of(&heard, if client.ip.is_ipv4() { IPV4 } else { IPV6 });
        scene.happens(closed("Ingress", "server"));
        let later = part((72, false), &[2; 40]);
        scene.is_dropped(client, server, &later, (1, DropReason::PolicyDeniedIngress));
        let of_nothing = forge::fragment((client, server), UDP, id + 99, (72, false), &[2; 40]);
        scene.is_dropped(client, server, &of_nothing, (1, DropReason::NoConnection));
        scene.happens(without_policy());
    }
}

#[test]
fn a_service_leads_nobody_to_a_backend_that_policy_keeps_from_it() {
    let scene = Scene::new();
    scene.fabric.serve(scene.server.network, &[&scene.server], None);
    let cases = [
        ("Ingress", "server", 1, DropReason::PolicyDeniedIngress),
        ("Egress", "client", 0, DropReason::PolicyDeniedEgress),
    ];
    for (direction, app, node, reason) in cases {
        for (client, server) in scene.families() {
            let _open = listen(server, TARGET);
            scene.happens(closed(direction, app));
            let before = scene.dropped(node, reason);
            assert!(connect(client, 0, front(client.ip), BRIEF).is_err(), "{direction}");
            eventually("it was dropped", || (scene.dropped(node, reason) > before).then_some(()));
            scene.happens(without_policy());
        }
    }
}

#[test]
fn a_connection_through_a_service_ends_with_the_policy_that_allowed_it() {
    let scene = Scene::new();
    scene.fabric.serve(scene.server.network, &[&scene.server], None);
    for (direction, app) in [("Ingress", "server"), ("Egress", "client")] {
        for (client, server) in scene.families() {
            let [mut ours, mut theirs] = scene.through_service(client, server);
            assert!(passes(&mut ours, &mut theirs) && passes(&mut theirs, &mut ours));
            scene.happens(closed(direction, app));
            theirs.set_read_timeout(Some(BRIEF)).unwrap();
            assert!(!passes(&mut ours, &mut theirs), "{direction}");
            ours.set_read_timeout(Some(BRIEF)).unwrap();
            assert!(!passes(&mut theirs, &mut ours), "an answer passes: {direction}");
            scene.happens(without_policy());
        }
    }
}

#[test]
fn who_speaks_through_a_service_cannot_speak_past_it_from_the_same_port() {
    let scene = Scene::new();
    scene.fabric.serve(scene.server.network, &[&scene.server], None);
    for (client, server) in scene.families() {
        let [ours, _theirs] = scene.through_service(client, server);
        let port = ours.local_addr().unwrap().port();
        let past = forge::packet(client, server.ip, 6, &forge::tcp((port, TARGET), 0x10));
        scene.is_dropped(client, server, &past, (0, DropReason::NoConnection));
    }
}

#[test]
fn an_answer_of_a_refusing_service_goes_to_who_asked_and_to_nobody_else() {
    let scene = Scene::new();
    scene.fabric.serve(scene.server.network, &[], None);
    for (client, server) in scene.families() {
        let victim: IpAddr = server.ip;
        let heard = server.pod.packets();
        let forged = forge::packet(
            Voice { pod: client.pod, ip: victim },
            front(client.ip).ip(),
            6,
            &forge::tcp((5000, 80), 2),
        );
        let before = scene.dropped(0, DropReason::SpoofedAddress);
        client.pod.packets().send(&forged).unwrap();
        eventually("it was dropped", || {
            (scene.dropped(0, DropReason::SpoofedAddress) > before).then_some(())
        });
        let refused = connect(client, 0, SocketAddr::new(front(client.ip).ip(), 80), LIMIT);
        assert_eq!(refused.unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
        assert_eq!(heard.received().unwrap(), Vec::<Vec<u8>>::new());
    }
}

/// A question for the address of `a.`, as a resolver would be asked.
const QUESTION: &[u8] = &[0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, b'a', 0, 0, 1, 0, 1];

/// Datagrams that could be a question, an answer, or one of many to a neighbour, and the beginning
/// of a connection to a resolver.
fn like_dns(from: Voice, to: IpAddr) -> Vec<Vec<u8>> {
    let ports = [(40_000, 53), (53, 40_001), (53, 53), (5353, 5353), (40_002, 8080)];
    let datagrams =
        ports.map(|ports| forge::packet(from, to, UDP, &forge::datagram(ports, QUESTION)));
    let opening = forge::packet(from, to, 6, &forge::tcp((40_003, 53), 0x02));
    datagrams.into_iter().chain([opening]).collect()
}

#[test]
fn what_looks_like_a_question_for_a_name_slips_past_no_policy() {
    let scene = Scene::new();
    let ways = [
        ("Egress", "client", (0, DropReason::PolicyDeniedEgress)),
        ("Ingress", "server", (1, DropReason::PolicyDeniedIngress)),
    ];
    for (direction, app, dropped) in ways {
        scene.happens(closed(direction, app));
        for (client, server) in scene.families() {
            for frame in like_dns(client, server.ip) {
                scene.is_dropped(client, server, &frame, dropped);
            }
        }
        scene.happens(without_policy());
        for (client, server) in scene.families() {
            for frame in like_dns(client, server.ip) {
                let heard = server.pod.packets();
                client.pod.packets().send(&frame).unwrap();
                let arrived = forge::arrived_of(&heard, [frame[12], frame[13]]);
                assert_eq!(arrived[forge::IP..], frame[forge::IP..], "{direction}");
            }
        }
    }
}
