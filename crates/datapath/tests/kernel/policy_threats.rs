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
use atoll_testkit::{Hears, eventually};
use atoll_types::{Label, NetAddr, PodRef};
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

pub(crate) fn tenant() -> Label {
    "acme".parse().unwrap()
}

/// What policy knows of a pod that is called `app`, in a network that its tenant calls `network`.
pub(crate) fn facts(pod: &Pod, app: &str, network: &str) -> Facts {
    let ips = pod.ips().into_iter().collect();
    let interface = Interface { network: network.parse().unwrap(), id: pod.network, ips };
    let labels = Labels::from([("app".to_owned(), app.to_owned())]);
    Facts { labels, interfaces: vec![interface], ..Facts::default() }
}

/// A policy of the only namespace, about the pods called `app`.
pub(crate) fn policy(app: &str, mut spec: Value) -> Event {
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
            compiler.apply(Event::Pod(tenant(), named, Some(facts(pod, name, "default"))));
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
        self.is_written(event);
        self.is_decided_anew();
    }

    /// Something happens, and the tables of both nodes say so; no connection is decided anew.
    fn is_written(&self, event: Event) {
        let changes = self.compiler.lock().unwrap().apply(event);
        for node in &self.fabric.nodes {
            let changes = changes.clone();
            node.run(move |state| {
                state.datapath.as_mut().unwrap().change_policy(&changes).unwrap();
            });
        }
    }

    fn is_decided_anew(&self) {
        for node in &self.fabric.nodes {
            node.run(|state| {
                let datapath = state.datapath.as_mut().unwrap();
                datapath.decide_anew(&[network(NETWORK)].into()).unwrap();
            });
        }
    }

    pub(crate) fn dropped(&self, node: usize, reason: DropReason) -> u64 {
        self.fabric.nodes[node].dropped(Some(network(NETWORK)), reason)
    }

    fn await_dropped(&self, node: usize, reason: DropReason, count: u64) {
        self.fabric.nodes[node].await_dropped(Some(network(NETWORK)), reason, count);
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
        eventually("it was dropped", || (scene.dropped(node, reason) > before).then_some(()));
        scene.happens(without_policy());
        theirs.set_read_timeout(Some(LIMIT)).unwrap();
        theirs.read_exact(&mut [0; 4]).expect("what TCP sends again passes once it may");
    }
}

#[test]
fn packets_of_a_connection_that_was_decided_ask_no_table_of_policy() {
    let scene = Scene::new();
    let [mut ours, mut theirs] = scene.connection();
    assert!(passes(&mut ours, &mut theirs) && passes(&mut theirs, &mut ours));
    scene.is_written(closed("Ingress", "server"));
    let to = theirs.local_addr().unwrap();
    assert!(connect(scene.client.v4(), 0, to, BRIEF).is_err(), "what is new is asked about");
    assert!(passes(&mut ours, &mut theirs) && passes(&mut theirs, &mut ours));
    scene.is_decided_anew();
    theirs.set_read_timeout(Some(BRIEF)).unwrap();
    assert!(!passes(&mut ours, &mut theirs));
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
    scene.await_dropped(0, DropReason::PolicyDeniedIngress, 1);
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
    scene.await_dropped(0, DropReason::PolicyUnknown, 2);
    let known = Some(facts(&scene.client, "client", "default"));
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
    scene.await_dropped(1, DropReason::PolicyUnknown, 1);
}

impl Scene {
    /// The server's node knows the server and what happened, and of the client no more than that.
    fn server_alone(&self, events: impl IntoIterator<Item = Event>) {
        let mut compiler = Compiler::new();
        compiler.apply(Event::Namespace(tenant(), "shop".into(), Some(Labels::new())));
        let server = Some(facts(&self.server, "server", "default"));
        compiler.apply(Event::Pod(tenant(), PodRef::new("shop", "server"), server));
        events.into_iter().for_each(|event| drop(compiler.apply(event)));
        self.fabric.nodes[1].run(move |state| {
            let datapath = state.datapath.as_mut().unwrap();
            datapath.replace_policy(compiler.tables()).unwrap();
            datapath.decide_anew(&[network(NETWORK)].into()).unwrap();
        });
    }
}

#[test]
fn a_guest_passes_where_a_rule_names_its_address_and_is_told_from_somebody_unknown() {
    let scene = Scene::new();
    let from = |peer: Value| {
        policy("server", json!({ "policyTypes": ["Ingress"], "ingress": [{ "from": [peer] }] }))
    };
    let block = || from(json!({ "ipBlock": { "cidr": format!("{}/32", scene.client.ip) } }));
    let known = || {
        let address = NetAddr::new(network(NETWORK), scene.client.ip.into());
        Event::Guest("globex".parse().unwrap(), address, true)
    };
    let reaches = |within| ping(scene.client.v4(), scene.server.ip.into(), within);
    scene.server_alone([block()]);
    assert!(!reaches(BRIEF));
    scene.await_dropped(1, DropReason::PolicyUnknown, 1);
    let unknown = scene.dropped(1, DropReason::PolicyUnknown);
    scene.server_alone([block(), known()]);
    assert!(reaches(LIMIT));
    scene.server_alone([from(json!({ "podSelector": {} })), known()]);
    assert!(!reaches(BRIEF));
    scene.await_dropped(1, DropReason::PolicyDeniedIngress, 1);
    assert_eq!(scene.dropped(1, DropReason::PolicyUnknown), unknown);
}

/// A pinned map of rows, as anybody may write it.
type Rows = aya::maps::HashMap<aya::maps::MapData, [u32; 2], u32>;

fn rows(state: &crate::fabric::State) -> Rows {
    let pin = state.config.bpf_root.join("v5/maps/policy_columns");
    let map = aya::maps::MapData::from_pin(pin).unwrap();
    aya::maps::Map::HashMap(map).try_into().unwrap()
}

/// Rows of sets that nobody has.
fn junk() -> impl Iterator<Item = [u32; 2]> {
    (0..).map(|number| [0x4000_0000, number])
}

#[test]
fn when_a_map_is_full_what_was_in_force_stays_in_force() {
    let scene = Scene::new();
    let only_80 = json!([{ "ports": [{ "protocol": "UDP", "port": 80 }] }]);
    scene.happens(policy("server", json!({ "policyTypes": ["Ingress"], "ingress": only_80 })));
    let (asker, open, shut) =
        (udp(scene.client.v4(), 0), udp(scene.server.v4(), 80), udp(scene.server.v4(), 81));
    let is_heard = |socket: &std::net::UdpSocket, limit: Duration| {
        socket.set_read_timeout(Some(limit)).unwrap();
        let port = socket.local_addr().unwrap().port();
        asker.send_to(b"?", (scene.server.ip, port)).unwrap();
        socket.hear_from(&mut [0]).is_ok()
    };
    assert!(is_heard(&open, LIMIT) && !is_heard(&shut, BRIEF));
    let (changes, tables) = {
        let mut compiler = scene.compiler.lock().unwrap();
        (compiler.apply(closed("Ingress", "server")), compiler.tables().clone())
    };
    let written = changes.clone();
    scene.fabric.nodes[1].run(move |state| {
        let mut rows = rows(state);
        junk().try_for_each(|key| rows.insert(key, 0, 0)).unwrap_err();
        let datapath = state.datapath.as_mut().unwrap();
        let changed = datapath.change_policy(&written).unwrap_err().to_string();
        let replaced = datapath.replace_policy(&tables).unwrap_err().to_string();
        assert!([changed, replaced].iter().all(|error| error.contains("policy_columns")));
        datapath.decide_anew(&[network(NETWORK)].into()).unwrap();
    });
    assert!(is_heard(&open, LIMIT) && !is_heard(&shut, BRIEF));
    scene.fabric.nodes[1].run(move |state| {
        let mut rows = rows(state);
        junk().take(100).for_each(|key| rows.remove(&key).unwrap());
        let datapath = state.datapath.as_mut().unwrap();
        datapath.change_policy(&changes).unwrap();
        datapath.decide_anew(&[network(NETWORK)].into()).unwrap();
    });
    let waited = [&open, &shut].map(|socket| is_heard(socket, BRIEF));
    assert_eq!(waited, [false; 2], "what waited is in force once there is room");
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
        open.hear_from(&mut word).unwrap();
        assert_eq!(word, [round]);
        assert!(shut.hear_from(&mut word).is_err(), "a leak in round {round}");
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
    let refused = eventually("it is told", || {
        events.take().into_iter().find(|event| event.ingress_rule != 0)
    });
    let number = refused.ingress_rule;
    let rule = scene.fabric.nodes[1]
        .run(move |state| state.datapath.as_ref().unwrap().policy_rule(number).unwrap());
    let compiler = scene.compiler.lock().unwrap();
    let name = compiler.tables().rules.get(&rule.unwrap()).unwrap().to_string();
    assert_eq!(name, "NetworkPolicy shop/rule: no ingress rule allows it");
}
