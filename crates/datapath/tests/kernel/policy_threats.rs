//! Policy with real packets on two nodes: what an attacker tries around it, and what becomes of
//! connections when it changes. Each node asks for its own pods alone.

use std::io::{Read, Write};
use std::net::{IpAddr, TcpStream};
use std::sync::Mutex;
use std::time::Duration;

use atoll_datapath::DropReason;
use atoll_policy::{
    Compiler, Event, Interface, Labels, Pod as Facts, PolicyKey, read_network_policy,
};
use atoll_testkit::eventually;
use atoll_types::{Label, PodRef};
use serde_json::{Value, json};

use crate::fabric::{Fabric, Pod, network};
use crate::forge::{datagram, packet, tcp};
use crate::talk::{BRIEF, LIMIT, connect, converse, listen, ping, udp};

const NETWORK: u32 = 100;

/// A client on the first node and a server on the second, both known to policy.
pub(crate) struct Scene {
    pub(crate) fabric: Fabric,
    pub(crate) client: Pod,
    pub(crate) server: Pod,
    compiler: Mutex<Compiler>,
}

fn tenant() -> Label {
    "acme".parse().unwrap()
}

fn facts(pod: &Pod, name: &str) -> Facts {
    let ips = pod.ips().into_iter().collect();
    let interface = Interface { network: "default".parse().unwrap(), id: pod.network, ips };
    let labels = Labels::from([("app".to_owned(), name.to_owned())]);
    Facts { labels, interfaces: vec![interface], ..Facts::default() }
}

/// A policy of the only namespace, about the pods called `app`.
fn policy(app: &str, mut spec: Value) -> Event {
    spec["podSelector"] = json!({ "matchLabels": { "app": app } });
    let object = json!({ "metadata": { "namespace": "shop", "name": "rule" }, "spec": spec });
    let read = read_network_policy(&tenant(), &serde_json::from_value(object).unwrap());
    assert_eq!(read.reports, []);
    Event::Policy(read.policy.key.clone(), Some(Box::new(read)))
}

pub(crate) fn closed(direction: &str, app: &str) -> Event {
    policy(app, json!({ "policyTypes": [direction] }))
}

pub(crate) fn without_policy() -> Event {
    Event::Policy(PolicyKey::namespaced(tenant(), "shop", "rule"), None)
}

impl Scene {
    pub(crate) fn new() -> Scene {
        let fabric = Fabric::of(2);
        let client = fabric.pod(0, network(NETWORK), "10.0.0.1");
        let server = fabric.pod(1, network(NETWORK), "10.0.0.2");
        let scene = Scene { fabric, client, server, compiler: Mutex::default() };
        let mut compiler = scene.compiler.lock().unwrap();
        compiler.apply(Event::Namespace(tenant(), "shop".into(), Some(Labels::new())));
        for (pod, name) in [(&scene.client, "client"), (&scene.server, "server")] {
            let named = PodRef::new("shop", name);
            compiler.apply(Event::Pod(tenant(), named, Some(facts(pod, name))));
        }
        drop(compiler);
        scene.exchange();
        scene
    }

    /// Exchanges all tables of both nodes, as a restarted agent does.
    fn exchange(&self) {
        let tables = self.compiler.lock().unwrap().tables().clone();
        for node in &self.fabric.nodes {
            let tables = tables.clone();
            node.run(move |state| {
                let datapath = state.datapath.as_mut().unwrap();
                datapath.replace_policy(&tables).unwrap();
                datapath.decide_anew(&[network(NETWORK)].into()).unwrap();
            });
        }
    }

    /// Something happens, and both nodes get to know it.
    pub(crate) fn happens(&self, event: Event) {
        let changes = self.compiler.lock().unwrap().apply(event);
        for node in &self.fabric.nodes {
            let changes = changes.clone();
            node.run(move |state| {
                let datapath = state.datapath.as_mut().unwrap();
                datapath.change_policy(&changes).unwrap();
                datapath.decide_anew(&[network(NETWORK)].into()).unwrap();
            });
        }
    }

    pub(crate) fn dropped(&self, node: usize, reason: DropReason) -> u64 {
        self.fabric.nodes[node].dropped(Some(network(NETWORK)), reason)
    }

    /// An open connection: the client's end and the server's.
    fn connection(&self) -> [TcpStream; 2] {
        let listener = listen(self.server.v4(), 0);
        let to = listener.local_addr().unwrap();
        let ours = connect(self.client.v4(), 0, to, LIMIT).unwrap();
        let theirs = listener.accept().unwrap().0;
        for end in [&ours, &theirs] {
            end.set_read_timeout(Some(LIMIT)).unwrap();
        }
        [ours, theirs]
    }
}

pub(crate) fn passes(from: &mut TcpStream, to: &mut TcpStream) -> bool {
    from.write_all(b"word").unwrap();
    to.read_exact(&mut [0; 4]).is_ok()
}

#[test]
fn a_connection_that_a_changed_policy_no_longer_allows_ends_with_its_next_packet() {
    let scene = Scene::new();
    let cases = [
        ("Ingress", "server", 1, DropReason::PolicyDeniedIngress),
        ("Egress", "client", 0, DropReason::PolicyDeniedEgress),
    ];
    for (direction, app, node, reason) in cases {
        let [mut ours, mut theirs] = scene.connection();
        assert!(passes(&mut ours, &mut theirs) && passes(&mut theirs, &mut ours));
        let before = scene.dropped(node, reason);
        scene.happens(closed(direction, app));
        theirs.set_read_timeout(Some(BRIEF)).unwrap();
        assert!(!passes(&mut ours, &mut theirs), "{direction}");
        ours.set_read_timeout(Some(BRIEF)).unwrap();
        assert!(!passes(&mut theirs, &mut ours), "an answer passes: {direction}");
        assert!(scene.dropped(node, reason) > before, "{direction}");
        scene.happens(without_policy());
        theirs.set_read_timeout(Some(LIMIT)).unwrap();
        theirs.read_exact(&mut [0; 4]).expect("what TCP sends again passes once it may");
    }
}

#[test]
fn nothing_in_the_middle_of_a_connection_passes_a_policy_that_forbids_to_open_it() {
    let scene = Scene::new();
    let heard = scene.server.packets();
    scene.happens(closed("Ingress", "server"));
    let before = scene.dropped(1, DropReason::PolicyDeniedIngress);
    let server: IpAddr = scene.server.ip.into();
    let sent = scene.client.packets();
    let flags = [0x10_u8, 0x11, 0x18, 0x04, 0x14, 0x12];
    for (place, flags) in (0_u16..).zip(flags) {
        let frame = packet(scene.client.v4(), server, 6, &tcp((5000 + place, 80), flags));
        sent.send(&frame).unwrap();
    }
    sent.send(&packet(scene.client.v4(), server, 17, &datagram((5000, 80), b"x"))).unwrap();
    let all = before + flags.len() as u64 + 1;
    eventually("every packet was dropped", || {
        (scene.dropped(1, DropReason::PolicyDeniedIngress) == all).then_some(())
    });
    while let Some((direction, frame)) = heard.receive(Duration::from_millis(10)).unwrap() {
        let is_ipv4 = frame[12..14] == [8, 0];
        assert!(!(direction == atoll_testkit::Direction::In && is_ipv4), "{frame:?}");
    }
}

#[test]
fn answers_pass_where_only_the_way_there_is_open() {
    let scene = Scene::new();
    scene.happens(closed("Ingress", "client"));
    converse(&scene.client, &scene.server);
    assert!(connect(scene.server.v4(), 0, (scene.client.ip, 80).into(), BRIEF).is_err());
    assert!(!ping(scene.server.v4(), scene.client.ip.into(), BRIEF));
    assert!(scene.dropped(0, DropReason::PolicyDeniedIngress) > 0);
}

#[test]
fn two_pods_that_ping_each_other_with_one_id_are_judged_apart() {
    let scene = Scene::new();
    scene.happens(closed("Ingress", "client"));
    assert!(ping(scene.client.v4(), scene.server.ip.into(), LIMIT));
    assert!(!ping(scene.server.v4(), scene.client.ip.into(), BRIEF), "it has the same id");
    assert!(ping(scene.client.v4(), scene.server.ip.into(), LIMIT));
}

#[test]
fn a_pod_of_which_policy_knows_nothing_neither_sends_nor_receives() {
    let scene = Scene::new();
    converse(&scene.client, &scene.server);
    scene.happens(Event::Pod(tenant(), PodRef::new("shop", "client"), None));
    assert!(!ping(scene.client.v4(), scene.server.ip.into(), BRIEF));
    assert!(!ping(scene.server.v4(), scene.client.ip.into(), BRIEF));
    assert!(scene.dropped(0, DropReason::PolicyUnknown) >= 2);
    let known = Some(facts(&scene.client, "client"));
    scene.happens(Event::Pod(tenant(), PodRef::new("shop", "client"), known));
    converse(&scene.client, &scene.server);
}

#[test]
fn nobody_unknown_passes_where_a_rule_would_have_to_tell_who_it_is() {
    let scene = Scene::new();
    let from_client =
        json!([{ "from": [{ "podSelector": { "matchLabels": { "app": "client" } } }] }]);
    scene.happens(policy("server", json!({ "policyTypes": ["Ingress"], "ingress": from_client })));
    converse(&scene.client, &scene.server);
    let changes = scene.compiler.lock().unwrap().apply(Event::Pod(
        tenant(),
        PodRef::new("shop", "client"),
        None,
    ));
    scene.fabric.nodes[1].run(move |state| {
        let datapath = state.datapath.as_mut().unwrap();
        datapath.change_policy(&changes).unwrap();
        datapath.decide_anew(&[network(NETWORK)].into()).unwrap();
    });
    assert!(!ping(scene.client.v4(), scene.server.ip.into(), BRIEF));
    assert!(scene.dropped(1, DropReason::PolicyUnknown) > 0);
}

#[test]
fn tables_are_exchanged_under_traffic_without_a_loss_and_without_a_leak() {
    let scene = Scene::new();
    let only_udp_80 = json!([{ "ports": [{ "protocol": "UDP", "port": 80 }] }]);
    scene.happens(policy("server", json!({ "policyTypes": ["Ingress"], "ingress": only_udp_80 })));
    let (asker, open, shut) =
        (udp(scene.client.v4(), 0), udp(scene.server.v4(), 80), udp(scene.server.v4(), 81));
    shut.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    for round in 0..50_u8 {
        scene.exchange();
        asker.send_to(&[round], (scene.server.ip, 81)).unwrap();
        asker.send_to(&[round], (scene.server.ip, 80)).unwrap();
        let mut word = [0];
        open.recv_from(&mut word).unwrap();
        assert_eq!(word, [round]);
        assert!(shut.recv_from(&mut word).is_err(), "a leak in round {round}");
    }
    assert_eq!(scene.dropped(1, DropReason::PolicyUnknown), 0);
}

#[test]
fn an_event_of_a_refused_packet_names_the_rule() {
    let scene = Scene::new();
    scene.happens(closed("Ingress", "server"));
    let mut events =
        scene.fabric.nodes[1].run(|state| state.datapath.as_ref().unwrap().events().unwrap());
    assert!(!ping(scene.client.v4(), scene.server.ip.into(), BRIEF));
    let refused = events.take().into_iter().find(|event| event.ingress_rule != 0).unwrap();
    let number = refused.ingress_rule;
    let rule = scene.fabric.nodes[1]
        .run(move |state| state.datapath.as_ref().unwrap().policy_rule(number).unwrap());
    let compiler = scene.compiler.lock().unwrap();
    let name = compiler.tables().rules.get(&rule.unwrap()).unwrap().to_string();
    assert_eq!(name, "NetworkPolicy shop/rule: no ingress rule allows it");
}
