//! Row 16 of the threats: what an attacker says of names, from a pod and from outside. Nobody hears
//! it but who asked that very attacker, and of the network's own names nobody at all.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use atoll_abi::{DropReason, aliases_of};
use atoll_testkit::forge::{Origin, datagram, packet};
use atoll_testkit::names::{
    Part, Upstream, add, asked_name, number, question, reply, summary, wire_name,
};
use atoll_testkit::{Hears, Namespace, PacketSocket};
use hickory_proto::op::Message;
use serde_json::{Value, json};

use crate::documents::{self, yaml};
use crate::fixture::{Lab, await_condition};
use crate::names::{answer, code, counted, eventually, pod_spec, service};
use crate::records::{RESOLVER, inside};
use crate::threats::{Player, Stage};
use crate::threats_to_flows::are_refused;

const WIRE: &str = "172.30.0.1";
const NODE1: [u8; 4] = [172, 30, 0, 11];
const A: u16 = 1;
const NS: u16 = 2;
const CNAME: u16 = 5;
/// What is true of names outside, for everybody.
const TRUE: [u8; 4] = [192, 0, 2, 80];
/// What an attacker wants to be believed.
const LIE: [u8; 4] = [6, 6, 6, 6];
/// What the liar says of names for which it is the one to ask.
const ITS_WORD: [u8; 4] = [192, 0, 2, 66];
/// A name outside, and one that would be the network's own.
const WWW: &str = "www.example.com";
const NOBODY: &str = "nobody.acme.svc.cluster.local";
/// A service that is a name outside, which points inside.
const LAIR: &str = "lair.acme.svc.cluster.local";
const DNS: u16 = 53;
const UDP: u8 = 17;

/// The wire between the nodes, where servers outside are.
fn wire(lab: &Lab) -> Namespace {
    Namespace::at(&lab.place("fabric"))
}

/// Says how a tenant's network asks outside.
fn set_dns(lab: &Lab, tenant: &str, dns: &Value) {
    let (network, patch) = (format!("{tenant}.default"), json!({"spec": {"dns": dns}}).to_string());
    lab.kubectl(&["patch", "networks.atoll.dev", &network, "--type=merge", "-p", &patch]).good();
}

fn await_code(lab: &Lab, tenant: &str, name: &str, wanted: &str) {
    let mut last = String::new();
    await_condition(|| {
        last = code(lab, tenant, &[name]);
        last == wanted
    })
    .unwrap_or_else(|()| panic!("{tenant} {name}: {last} and never {wanted}"));
}

/// Everything that dig reads of an answer.
fn whole(lab: &Lab, tenant: &str, name: &str) -> String {
    let shown = ["dig", "+nocookie", "+noall", "+answer", "+authority", "+additional", name];
    lab.exec(&format!("{tenant}/web"), &shown).good()
}

/// A pod that asks from one port, and hears what comes back to it.
struct Asker {
    socket: UdpSocket,
    port: u16,
}

impl Asker {
    fn of(player: &Player) -> Asker {
        let socket = player.namespace.run(|| UdpSocket::bind(("0.0.0.0", 0)).unwrap());
        player.namespace.run(|| socket.connect(RESOLVER).unwrap());
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let port = socket.local_addr().unwrap().port();
        Asker { socket, port }
    }

    fn send(&self, name: &str) -> Vec<u8> {
        let packet = question(name, A, None);
        self.socket.send(&packet).unwrap();
        packet
    }

    fn hear(&self) -> String {
        let mut packet = [0; 1500];
        let len = self.socket.hear(&mut packet).expect("an answer");
        summary(&Message::from_vec(&packet[..len]).unwrap())
    }

    /// Asks again for as long as the resolver says that it could not find out.
    fn hear_or_ask_again(&self, name: &str) -> String {
        loop {
            match self.hear().as_str() {
                "SERVFAIL" => drop(self.send(name)),
                other => return other.to_owned(),
            }
        }
    }
}

/// The index of the host side of a pod's interface.
pub(crate) fn host_side(player: &Player) -> u32 {
    let link = player.namespace.ip("-o link show eth0");
    let index = link.split("eth0@if").nth(1).and_then(|rest| rest.split(':').next());
    index.and_then(|index| index.parse().ok()).unwrap_or_else(|| panic!("no peer in {link}"))
}

/// What the attacker sends, knowing all that nobody can know: the answer to the resolver and to the
/// asker, from whom it should come and from itself; and questions in the name of the asker.
fn lies(
    stage: &Stage,
    (asked, resolver): &(Vec<u8>, SocketAddr),
    (own, port): (&[u8], u16),
) -> Vec<(DropReason, Vec<u8>)> {
    let attacker = stage.attacker.face.v4();
    let near: IpAddr = stage.near.face.ip.into();
    let node: IpAddr = NODE1.into();
    let lie = |packet: &[u8]| reply(packet, 0, &[(A, 300, &LIE)]);
    let send = |from: IpAddr, to: IpAddr, ports, content: &[u8]| {
        packet(Origin { ip: from, ..attacker }, to, UDP, &datagram(ports, content))
    };
    let to_resolver = (DNS, resolver.port());
    let spoofed = |frame| (DropReason::SpoofedAddress, frame);
    let in_its_name = question(NOBODY, A, None);
    let alias = aliases_of(host_side(&stage.near))[0];
    vec![
        spoofed(send(WIRE.parse().unwrap(), node, to_resolver, &lie(asked))),
        (DropReason::NoEndpoint, send(attacker.ip, node, to_resolver, &lie(asked))),
        spoofed(send(RESOLVER.ip(), near, (DNS, port), &lie(own))),
        spoofed(send(near, RESOLVER.ip(), (port, DNS), &in_its_name)),
        spoofed(send(alias, RESOLVER.ip(), (port, DNS), &in_its_name)),
    ]
}

/// The frames that a pod heard since it was last looked, and that have any of these words in them.
fn heard(at: &PacketSocket, words: &[&[u8]]) -> usize {
    let has = |frame: &[u8], word: &[u8]| frame.windows(word.len()).any(|it| it == word);
    let frames = at.received().unwrap();
    frames.iter().filter(|frame| words.iter().any(|word| has(frame, word))).count()
}

#[test]
fn forged_answers_and_questions_of_a_pod_reach_nobody_and_the_true_answer_arrives() {
    let stage = Stage::set();
    let silent = Arc::new(AtomicBool::new(false));
    let is_silent = silent.clone();
    let socket = wire(&stage.lab).run(|| UdpSocket::bind((WIRE, DNS)).unwrap());
    let upstream = Upstream::at(socket, move |packet, _| match is_silent.load(Ordering::Relaxed) {
        true => vec![],
        false => vec![reply(packet, 0, &[(A, 300, &TRUE)])],
    });
    set_dns(&stage.lab, "acme", &json!({"upstreams": [WIRE]}));
    let asks = ["dig", "+short", "+tries=1", "first.example.com"];
    let first = || stage.lab.exec("acme/near", &asks).out.trim() == "192.0.2.80";
    await_condition(first).expect("the network asks its upstream");

    silent.store(true, Ordering::Relaxed);
    let (asker, ear) = (Asker::of(&stage.near), stage.near.packets());
    let question = asker.send(WWW);
    upstream.wait_for_names(2);
    let mut asked = upstream.asked().into_iter();
    let asked = asked.find(|(packet, _)| asked_name(packet) == WWW).unwrap();
    let lies = lies(&stage, &asked, (&question, asker.port));
    are_refused(&stage, &stage.attacker, "acme.default", &lies);
    assert_eq!(heard(&ear, &[&LIE, b"nobody"]), 0, "the asker hears of none of it");
    silent.store(false, Ordering::Relaxed);
    assert_eq!(asker.hear_or_ask_again(WWW), "192.0.2.80", "the resolver asked again");
    assert_eq!(heard(&ear, &[&TRUE]), 1, "which is heard where a lie would be");
    let mismatched = "atoll_dns_mismatched_total{network=\"acme.default\"}";
    assert_eq!(counted(&stage.lab, "node1", mismatched), 0, "nothing came to the resolver");
    let own = Asker::of(&stage.attacker);
    own.send(WWW);
    assert_eq!(own.hear(), "192.0.2.80", "the attacker is told the same");
    let foreign = Asker::of(&stage.foreign);
    foreign.send(WWW);
    assert_eq!(foreign.hear(), "REFUSED", "and another network asks nobody");
}

/// The sockets of a forger on the wire: at another port of the upstream, and at another address.
fn forgers(wire: &Namespace) -> [UdpSocket; 2] {
    wire.ip("address add 172.30.0.99/24 dev fabric0");
    [(WIRE, 1053), ("172.30.0.99", DNS)].map(|at| wire.run(|| UdpSocket::bind(at).unwrap()))
}

/// The lie with another id, and to another question.
fn forged(packet: &[u8]) -> Vec<Vec<u8>> {
    let lie = reply(packet, 0, &[(A, 300, &LIE)]);
    let (mut id, mut question) = (lie.clone(), lie);
    id[1] ^= 0xff;
    question[13] ^= 0x01;
    vec![id, question]
}

/// What was asked for, and beside it what was not.
fn with_extra_records(packet: &[u8]) -> Vec<u8> {
    let mut answer = reply(packet, 0, &[(A, 300, &ITS_WORD)]);
    let (bank, shop) = (wire_name("bank.example.com"), wire_name("shop.acme.svc.cluster.local"));
    add(&mut answer, Part::Answer, &bank, (A, 300, &LIE));
    add(&mut answer, Part::Answer, &shop, (A, 300, &LIE));
    add(&mut answer, Part::Authority, &wire_name("com"), (NS, 300, &bank));
    add(&mut answer, Part::Additional, &bank, (A, 300, &LIE));
    add(&mut answer, Part::Additional, &shop, (A, 300, &LIE));
    answer
}

/// An alias to a name of the network's own, with an address for that.
fn into_the_network(packet: &[u8]) -> Vec<u8> {
    let shop = wire_name("shop.acme.svc.cluster.local");
    let mut answer = reply(packet, 0, &[(CNAME, 300, &shop)]);
    add(&mut answer, Part::Answer, &shop, (A, 300, &LIE));
    answer
}

/// The upstream of acme, which lies where it can.
fn liar(lab: &Lab) -> Upstream {
    let (wire, times) = (wire(lab), AtomicUsize::new(0));
    let forgers = forgers(&wire);
    let socket = wire.run(|| UdpSocket::bind((WIRE, DNS)).unwrap());
    Upstream::at(socket, move |packet, from| match asked_name(packet).as_str() {
        WWW if times.fetch_add(1, Ordering::Relaxed) == 0 => {
            let lie = reply(packet, 0, &[(A, 300, &LIE)]);
            forgers.iter().for_each(|forger| drop(forger.send_to(&lie, from)));
            forged(packet)
        }
        WWW => vec![with_extra_records(packet)],
        "inside.example.com" => vec![reply(packet, 0, &[(A, 300, &[10, 0, 0, 5])])],
        "service.example.com" => vec![reply(packet, 0, &[(A, 300, &[198, 18, 1, 1])])],
        "door.example.com" => vec![into_the_network(packet)],
        name if name.ends_with("silent.example.com") => vec![],
        _ => vec![reply(packet, 0, &[(A, 300, &ITS_WORD)])],
    })
}

/// The upstream of globex, which says what is so.
fn honest(lab: &Lab) -> Upstream {
    let socket = wire(lab).run(|| UdpSocket::bind((WIRE, 5353)).unwrap());
    Upstream::at(socket, |packet, _| match asked_name(packet).as_str() {
        "inside.example.com" => vec![reply(packet, 0, &[(A, 300, &[10, 0, 0, 5])])],
        _ => vec![reply(packet, 0, &[(A, 300, &TRUE)])],
    })
}

fn times_asked(upstream: &Upstream, name: &str) -> usize {
    upstream.asked().iter().filter(|(packet, _)| asked_name(packet) == name).count()
}

/// A tenant with pod `web`, service `shop`, and two that are names outside.
fn tenant(name: &str, shop: &str) -> String {
    let pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "namespace": name,
                     "annotations": {"atoll.dev/nics": r#"[{"ip":"10.0.0.5"}]"#}},
        "spec": pod_spec(&json!({"kubernetes.io/hostname": "node1"}))});
    let shop = service(name, "shop", &json!({"vip": shop}));
    let away = |it: &str, to: &str| {
        service(name, it, &json!({"type": "ExternalName", "externalName": to}))
    };
    let services = [shop, away("away", WWW), away("lair", "inside.example.com")];
    format!("{}{}{}", documents::tenant(name), yaml(&[pod]), yaml(&services))
}

/// Two tenants with the same addresses on one node, one of which asks a liar.
fn lab_with_a_liar() -> (Lab, Upstream, Upstream) {
    let lab = Lab::up(1);
    lab.apply(&tenant("acme", "198.18.1.1")).good();
    lab.apply(&tenant("globex", "198.18.1.2")).good();
    lab.wait_for_pods();
    let (liar, honest) = (liar(&lab), honest(&lab));
    set_dns(&lab, "acme", &json!({"upstreams": [WIRE], "refusePrivate": true}));
    set_dns(&lab, "globex", &json!({"upstreams": [format!("{WIRE}:5353")]}));
    eventually(&lab, "acme", &["ready.example.com"], &["192.0.2.66"]);
    eventually(&lab, "globex", &["ready.example.com"], &["192.0.2.80"]);
    (lab, liar, honest)
}

#[test]
fn an_upstream_that_lies_is_believed_by_its_own_network_alone_and_in_nothing_but_what_was_asked() {
    let (lab, liar, honest) = lab_with_a_liar();
    let asked = [0, 1].map(|_| {
        let said = whole(&lab, "acme", WWW);
        assert!(said.contains("192.0.2.66"), "{said}");
        assert!(!said.contains("6.6.6.6") && !said.contains("bank"), "{said}");
        assert_eq!(answer(&lab, "globex", &[WWW]), ["192.0.2.80"]);
        [&liar, &honest].map(|upstream| times_asked(upstream, WWW))
    });
    assert_eq!(asked[0], asked[1], "what a network was told, it does not ask for again");
    let mismatched = |network: &str| {
        let series = format!("atoll_dns_mismatched_total{{network=\"{network}\"}}");
        counted(&lab, "node1", &series)
    };
    assert_eq!([mismatched("acme.default"), mismatched("globex.default")], [2, 0]);
    assert!(asked[0][0] >= 2, "once while it forged, and then for its word: {asked:?}");
    assert!(asked[0][1] >= 1, "what one network was told, no other is: {asked:?}");
    assert_eq!(answer(&lab, "acme", &["away"]), ["192.0.2.66", "www.example.com."]);
    assert_eq!(answer(&lab, "globex", &["away"]), ["192.0.2.80", "www.example.com."]);
    assert_eq!(answer(&lab, "acme", &["bank.example.com"]), ["192.0.2.66"], "when it is asked");
    assert!(times_asked(&liar, "bank.example.com") >= 1);
    for (tenant, shop, other) in
        [("acme", "198.18.1.1", "globex"), ("globex", "198.18.1.2", "acme")]
    {
        assert_eq!(answer(&lab, tenant, &["shop"]), [shop]);
        let foreign = format!("shop.{other}.svc.cluster.local");
        assert_eq!(code(&lab, tenant, &[&foreign]), "NXDOMAIN");
        assert_eq!(code(&lab, tenant, &["-x", "10.0.0.77"]), "NXDOMAIN");
    }
    let outside = liar.names().into_iter().chain(honest.names());
    let own: Vec<String> =
        outside.filter(|it| it.ends_with("cluster.local") || it.ends_with("arpa")).collect();
    assert_eq!(own, Vec::<String>::new(), "upstreams were not asked for the networks' own");
}

#[test]
fn names_outside_lead_into_a_network_only_where_it_wants_that() {
    let (lab, liar, honest) = lab_with_a_liar();
    let rebinding = "atoll_dns_refusals_total{network=\"acme.default\",why=\"rebinding\"}";
    let names = ["inside.example.com", "service.example.com", "door.example.com", LAIR];
    for (name, refused) in names.iter().zip(1..) {
        assert_eq!(code(&lab, "acme", &[name]), "REFUSED", "{name}");
        assert_eq!(counted(&lab, "node1", rebinding), refused, "{name}");
    }
    assert_eq!(answer(&lab, "globex", &["inside.example.com"]), ["10.0.0.5"]);
    set_dns(&lab, "acme", &json!({"refusePrivate": false}));
    set_dns(&lab, "globex", &json!({"refusePrivate": true}));
    await_code(&lab, "globex", "inside.example.com", "REFUSED");
    eventually(&lab, "acme", &["inside.example.com"], &["10.0.0.5"]);
    eventually(&lab, "acme", &["service.example.com"], &["198.18.1.1"]);
    let said = whole(&lab, "acme", "door.example.com");
    assert!(said.contains("CNAME") && !said.contains("6.6.6.6"), "{said}");
    assert_eq!(answer(&lab, "acme", &["shop"]), ["198.18.1.1"]);

    set_dns(&lab, "globex", &json!({"upstreams": []}));
    await_code(&lab, "globex", "words.tunnel.example.com", "REFUSED");
    let before = honest.asked().len();
    assert_eq!(code(&lab, "globex", &["more-words.tunnel.example.com"]), "REFUSED");
    assert_eq!(code(&lab, "acme", &["other-words.tunnel.example.com"]), "NOERROR");
    assert_eq!(honest.asked().len(), before, "a network that asks nobody tells nobody anything");
    assert!(liar.names().contains("other-words.tunnel.example.com"));
    assert!(!liar.names().contains("more-words.tunnel.example.com"));
}

#[test]
fn a_network_cannot_have_the_agent_ask_a_node_and_what_else_it_names_is_asked() {
    let (lab, liar, _honest) = lab_with_a_liar();
    let node = Namespace::at(&lab.place("node1"));
    let at = |ip: &str| node.run(|| UdpSocket::bind((ip, 5300)).unwrap());
    let servers = ["172.30.0.11", "127.0.0.1"]
        .map(|ip| Upstream::at(at(ip), |packet, _| vec![reply(packet, 0, &[(A, 300, &LIE)])]));
    for (upstreams, wanted) in [
        (json!(["172.30.0.11:5300"]), "REFUSED"),
        (json!(["172.30.0.11:5300", WIRE]), "NOERROR"),
        (json!(["127.0.0.1:5300"]), "REFUSED"),
        (json!([WIRE]), "NOERROR"),
    ] {
        set_dns(&lab, "acme", &json!({"upstreams": upstreams}));
        await_code(&lab, "acme", &format!("{wanted}.example.com"), wanted);
        let said = whole(&lab, "acme", &format!("again-{wanted}.example.com"));
        assert_eq!(said.contains("192.0.2.66"), wanted == "NOERROR", "{upstreams}: {said}");
    }
    assert!(servers.iter().all(|server| server.asked().is_empty()), "no node was asked");
    assert!(liar.names().contains("again-noerror.example.com"));
    let phase = ["get", "networks.atoll.dev", "acme.default", "-o", "jsonpath={.status.phase}"];
    lab.eventually(&phase, |said| said == "Active");
}

#[test]
fn a_pod_whose_questions_outside_are_never_answered_leaves_room_for_everybody_else() {
    let (lab, _liar, _honest) = lab_with_a_liar();
    inside(&lab, "acme/web").run(|| {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        for n in 0..300 {
            let name = format!("n{n}.silent.example.com");
            socket.send_to(&question(&name, number("A"), None), RESOLVER).unwrap();
        }
    });
    let refused = "atoll_dns_refusals_total{network=\"acme.default\",why=\"pod_forwards\"}";
    await_condition(|| counted(&lab, "node1", refused) >= 200).expect("it has its share alone");
    assert_eq!(answer(&lab, "globex", &["fresh.example.com"]), ["192.0.2.80"]);
    assert_eq!(answer(&lab, "acme", &["shop"]), ["198.18.1.1"], "its own names are answered");
    eventually(&lab, "acme", &["later.example.com"], &["192.0.2.66"]);
}
