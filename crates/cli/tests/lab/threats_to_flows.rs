//! Row 8 of the threats: two tenants' connections with the very same ends, which live and end by
//! their own ends alone, whatever another pod says of them; and what is left of a pod's connections when
//! another pod has its addresses: nothing.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use atoll_datapath::DropReason::{self, PolicyDeniedIngress, SpoofedAddress, UnrelatedIcmp};
use atoll_testkit::forge::{self, Face, Origin, packet, tcp};
use atoll_testkit::{Hears, eventually};
use serde_json::{Value, json};
use socket2::{Domain, Socket, Type};

use crate::documents::{nics, pod, yaml};
use crate::threats::{Player, Stage, assert_silence};

/// Of every client and of every server.
pub(crate) const PORTS: (u16, u16) = (7001, 7002);
const PATIENCE: Duration = Duration::from_secs(60);
pub(crate) const ACK: u8 = 0x10;
const RST: u8 = 0x04;

/// One of a pod's addresses.
pub(crate) type Family = fn(&Face) -> IpAddr;
pub(crate) const FAMILIES: [Family; 2] = [|face| face.ip.into(), |face| face.ipv6.into()];

/// An open connection, with both its ends.
pub(crate) struct Flow {
    pub(crate) client: TcpStream,
    pub(crate) server: TcpStream,
}

impl Flow {
    pub(crate) fn open([client, server]: [&Player; 2], family: Family) -> Flow {
        let to = SocketAddr::new(family(&server.face), PORTS.1);
        let from = SocketAddr::new(family(&client.face), PORTS.0);
        let listener = server.namespace.run(|| TcpListener::bind(to).unwrap());
        let client: TcpStream = client.namespace.run(|| {
            let socket = Socket::new(Domain::for_address(from), Type::STREAM, None).unwrap();
            socket.set_reuse_address(true).unwrap();
            socket.bind(&from.into()).unwrap();
            socket.connect_timeout(&to.into(), PATIENCE).unwrap();
            socket.into()
        });
        let (server, seen) = listener.accept().unwrap();
        assert_eq!(seen, from);
        for end in [&client, &server] {
            end.set_read_timeout(Some(PATIENCE)).unwrap();
        }
        Flow { client, server }
    }

    /// A word there and back.
    pub(crate) fn goes_on(&mut self, word: &[u8]) {
        let mut heard = vec![0; word.len()];
        self.client.write_all(word).unwrap();
        self.server.read_exact(&mut heard).unwrap();
        self.server.write_all(&heard).unwrap();
        self.client.read_exact(&mut heard).unwrap();
        assert_eq!(heard, word);
    }

    /// The client ends it with a reset, and the server hears of it.
    pub(crate) fn break_off(mut self) {
        let client = Socket::from(self.client);
        client.set_linger(Some(Duration::ZERO)).unwrap();
        drop(client);
        self.server.read_exact(&mut [0]).unwrap_err();
    }
}

/// What `liar` says of the connection between two others of its tenant, to each of them.
fn lies(liar: &Player, ends: [&Player; 2], family: Family) -> Vec<(DropReason, Vec<u8>)> {
    let of = |player: &Player| Origin { face: player.face, ip: family(&player.face) };
    let ways = [(ends[0], ends[1], PORTS), (ends[1], ends[0], (PORTS.1, PORTS.0))];
    let about = |(from, to, ports): (&Player, &Player, (u16, u16))| {
        let (own, from, to) = (of(liar), of(from), of(to));
        let reset = packet(Origin { face: own.face, ip: from.ip }, to.ip, 6, &tcp(ports, RST));
        let quote = packet(from, to.ip, 6, &tcp(ports, ACK));
        let errors = if own.ip.is_ipv4() { [(3, 1), (3, 4)] } else { [(1, 0), (2, 0)] };
        let errors = errors.map(|(kind, code)| {
            let error = forge::icmp_error(kind, code, &quote);
            (UnrelatedIcmp, packet(own, from.ip, forge::icmp_of(own.ip), &error))
        });
        [(SpoofedAddress, reset)].into_iter().chain(errors)
    };
    ways.into_iter().flat_map(about).collect()
}

/// Each lie is dropped under its name.
pub(crate) fn are_refused(
    stage: &Stage,
    liar: &Player,
    network: &str,
    lies: &[(DropReason, Vec<u8>)],
) {
    let socket = liar.packets();
    for (place, (reason, frame)) in lies.iter().enumerate() {
        let dropped = || stage.dropped("node1", Some(network), reason.name());
        let before = dropped();
        socket.send(frame).unwrap();
        eventually(&format!("lie {place} of {network} was {reason}"), || {
            (dropped() > before).then_some(())
        });
    }
}

/// Both tenants' connections at once, between the same addresses and ports.
fn row_holds(stage: &Stage, family: Family) {
    let ours = [&stage.near, &stage.far];
    let theirs = [&stage.double, &stage.twin];
    let [mut our_flow, mut their_flow] = [ours, theirs].map(|ends| Flow::open(ends, family));
    for (liar, ends, network) in
        [(&stage.attacker, ours, "acme.default"), (&stage.foreign, theirs, "globex.default")]
    {
        are_refused(stage, liar, network, &lies(liar, ends, family));
        our_flow.goes_on(b"ours");
        their_flow.goes_on(b"theirs");
    }
    their_flow.break_off();
    our_flow.goes_on(b"still ours");
    let mut their_next = Flow::open(theirs, family);
    their_next.goes_on(b"theirs again");
    our_flow.goes_on(b"still ours");
    their_next.break_off();
    our_flow.break_off();
}

#[test]
fn connections_with_equal_ends_in_two_tenants_end_by_their_own_ends_alone_also_with_offloads_off() {
    let stage = Stage::set();
    FAMILIES.iter().for_each(|family| row_holds(&stage, *family));
    stage.switch_offloads_off();
    FAMILIES.iter().for_each(|family| row_holds(&stage, *family));
}

/// Nobody reaches the heirs of addresses, but for what they ask for themselves.
fn closed_heirs() -> Value {
    json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
           "metadata": {"name": "closed", "namespace": "acme"},
           "spec": {"podSelector": {"matchLabels": {"app": "heir"}}, "policyTypes": ["Ingress"]}})
}

/// What the attacker says of packets of the connections that it had with who was at these addresses before, and
/// how it goes on with them: each frame with the reason under which it is dropped. In this order: going on is
/// an attempt to open another connection, of which errors may speak as far as it came.
fn inheritance(attacker: &Face, before: &Face) -> Vec<(DropReason, Vec<u8>)> {
    let families = [(attacker.v4(), before.v4()), (attacker.v6(), before.v6())];
    let of = |(own, old): (Origin, Origin)| {
        let words = [(6, tcp(PORTS, ACK)), (17, forge::datagram(PORTS, b"?"))];
        let went_on = words
            .map(|(protocol, word)| (PolicyDeniedIngress, packet(own, old.ip, protocol, &word)));
        let back = (PORTS.1, PORTS.0);
        let answers = [(6, tcp(back, ACK)), (17, forge::datagram(back, b"?"))];
        let errors = answers.map(|(protocol, answer)| {
            let (kind, code) = if own.ip.is_ipv4() { (3, 3) } else { (1, 4) };
            let error = forge::icmp_error(kind, code, &packet(old, own.ip, protocol, &answer));
            (UnrelatedIcmp, packet(own, old.ip, forge::icmp_of(own.ip), &error))
        });
        errors.into_iter().chain(went_on)
    };
    families.into_iter().flat_map(of).collect()
}

/// A word of each protocol there and back in each family, so that both ends' nodes know the connections. What is
/// given has to be kept: neither end says another word until then.
fn converse(attacker: &Player, victim: &Player) -> [Flow; 2] {
    FAMILIES.map(|family| {
        let mut flow = Flow::open([attacker, victim], family);
        flow.goes_on(b"before");
        let [own, other] = [(attacker, PORTS.0), (victim, PORTS.1)].map(|(player, port)| {
            player.namespace.run(|| UdpSocket::bind((family(&player.face), port)).unwrap())
        });
        for (from, to) in [(&own, &other), (&other, &own)] {
            to.set_read_timeout(Some(PATIENCE)).unwrap();
            from.send_to(b"before", to.local_addr().unwrap()).unwrap();
            to.hear(&mut [0; 16]).unwrap();
        }
        flow
    })
}

/// Who had these addresses goes, and another comes to have them on this node, to whom nothing is left of it.
fn another_inherits_nothing(stage: &Stage, (name, place): (&str, u8), node: &str) {
    let lab = &stage.lab;
    let victim = Player::find(lab, "acme", name);
    let _kept = converse(&stage.attacker, &victim);
    let frames = inheritance(&stage.attacker.face, &victim.face);
    for (_, frame) in &frames {
        let heard = victim.packets();
        stage.attacker.packets().send(frame).unwrap();
        eventually("the same arrives at who had the connection", || {
            let (_, heard) = heard.receive(Duration::from_millis(10)).unwrap()?;
            (heard[forge::IP..] == frame[forge::IP..]).then_some(())
        });
    }
    lab.kubectl(&["delete", "pod", "-n", "acme", name, "--timeout=180s"]).good();
    let heir = format!("heir-of-{name}");
    let document =
        pod(&format!("acme/{heir}"), node, &json!({"app": "heir"}), &nics("default", place));
    lab.apply(&yaml(&[document])).good();
    lab.wait_for_pods();
    let heir = Player::find(lab, "acme", &heir);
    assert_eq!(heir.face.ip, victim.face.ip);
    let heard = heir.packets();
    for (reason, frame) in frames {
        let at = if reason == UnrelatedIcmp { "node1" } else { node };
        let dropped = || stage.dropped(at, Some("acme.default"), reason.name());
        let before = dropped();
        eventually(&format!("it was dropped as {reason} on {at}"), || {
            stage.attacker.packets().send(&frame).unwrap();
            (dropped() > before).then_some(())
        });
    }
    assert_silence(&heard, "row 8");
}

#[test]
fn an_address_that_is_used_again_inherits_no_connection_on_three_nodes() {
    let stage = Stage::set();
    stage.lab.apply(&yaml(&[closed_heirs()])).good();
    another_inherits_nothing(&stage, ("near", 6), "node1");
    another_inherits_nothing(&stage, ("far", 7), "node3");
}
