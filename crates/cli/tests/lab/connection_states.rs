//! What three nodes know of connections of pods: how far each is, where it passes and nowhere else, and for how
//! long. When its time is over it lets nothing back in, and is collected.

use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use atoll_abi::{ConnectionKey, KIND_CONNECTION};
use atoll_datapath::{ConnectionState, DropReason};
use atoll_testkit::forge::{IP, Origin, packet, tcp};
use atoll_testkit::{eventually, pinned};
use serde_json::{Value, json};

use crate::documents::yaml;
use crate::fixture::await_condition;
use crate::threats::{Player, Stage, assert_silence};
use crate::threats_to_flows::{ACK, FAMILIES, Family, Flow, PORTS};

const TCP: u8 = 6;
const PATIENCE: Duration = Duration::from_secs(60);
/// Longer than any connection that began to end may be silent.
const TOO_LONG: u64 = 400;

/// The ends of a TCP connection in a network.
#[derive(Clone, Copy)]
struct Ends {
    network: u32,
    ends: [SocketAddr; 2],
}

impl Ends {
    /// Of a flow between two pods.
    fn of([client, server]: [&Player; 2], family: Family, ports: (u16, u16)) -> Ends {
        let end = |player: &Player, port| SocketAddr::new(family(&player.face), port);
        Ends { network: client.network, ends: [end(client, ports.0), end(server, ports.1)] }
    }

    fn are(&self, key: &ConnectionKey) -> bool {
        let end = |ip, port| SocketAddr::new(IpAddr::from(ip), u16::from_be_bytes(port));
        let [low, high] = [end(key.low, key.low_port), end(key.high, key.high_port)];
        let is_ours = key.network == self.network && key.kind == KIND_CONNECTION;
        is_ours && key.protocol == TCP && (self.ends == [low, high] || self.ends == [high, low])
    }

    /// How far a node knows it to be.
    fn state(&self, stage: &Stage, node: &str) -> Option<ConnectionState> {
        let all = pinned::connections(&stage.lab.pins(node)).into_iter();
        let (_, entry) = all.into_iter().find(|(key, _)| self.are(key))?;
        ConnectionState::from_number(entry.state)
    }

    /// These nodes come to know it in this state.
    fn are_known(&self, stage: &Stage, nodes: [&str; 2], state: ConnectionState) {
        for node in nodes {
            eventually(&format!("{:?} is {state:?} on {node}", self.ends), || {
                (self.state(stage, node) == Some(state)).then_some(())
            });
        }
    }

    /// Makes it look as if its latest packet had come earlier.
    fn let_time_pass(&self, stage: &Stage, seconds: u64) {
        for node in ["node1", "node2"] {
            pinned::change_connections(&stage.lab.pins(node), |key, mut entry| {
                if self.are(key) {
                    entry.last_seen = entry.last_seen.saturating_sub(seconds * 1_000_000_000);
                }
                Some(entry)
            });
        }
    }
}

/// A connection of `acme` and one of `globex` with the very same ends, from open to closed.
fn states_are_gone_through(stage: &Stage, family: Family) {
    use ConnectionState::{Closed, Closing, Established};
    let (ours, theirs) = ([&stage.near, &stage.far], [&stage.double, &stage.twin]);
    let [our_ends, their_ends] = [ours, theirs].map(|ends| Ends::of(ends, family, PORTS));
    let (our_nodes, their_nodes) = (["node1", "node2"], ["node1", "node3"]);
    let broken = Flow::open(ours, family);
    our_ends.are_known(stage, our_nodes, Established);
    assert_eq!(our_ends.state(stage, "node3"), None, "nothing of it passes there");
    broken.break_off();
    our_ends.are_known(stage, our_nodes, Closed);
    let our_flow = Flow::open(ours, family);
    our_ends.are_known(stage, our_nodes, Established);
    let mut their_flow = Flow::open(theirs, family);
    our_flow.client.shutdown(Shutdown::Write).unwrap();
    our_ends.are_known(stage, our_nodes, Closing);
    drop(our_flow.server);
    our_ends.are_known(stage, our_nodes, Closed);
    their_flow.goes_on(b"theirs");
    their_ends.are_known(stage, their_nodes, Established);
    assert_eq!(their_ends.state(stage, "node2"), None, "nothing of it passes there");
    their_flow.break_off();
    their_ends.are_known(stage, their_nodes, Closed);
}

/// Where nobody listens, what was tried is closed.
fn refused_is_closed(stage: &Stage, family: Family) {
    let to = SocketAddr::new(family(&stage.far.face), 9);
    let refused = stage.near.namespace.run(|| TcpStream::connect_timeout(&to, PATIENCE));
    assert_eq!(refused.unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
    for node in ["node1", "node2"] {
        let closed = || {
            let all = pinned::connections(&stage.lab.pins(node)).into_iter();
            let ours = all.filter(|(key, _)| {
                key.network == stage.near.network
                    && [(key.low, key.low_port), (key.high, key.high_port)]
                        .map(|(ip, port)| SocketAddr::new(ip.into(), u16::from_be_bytes(port)))
                        .contains(&to)
            });
            let states: Vec<u8> = ours.map(|(_, entry)| entry.state).collect();
            let is_closed = |state: &u8| *state == ConnectionState::Closed as u8;
            (!states.is_empty() && states.iter().all(is_closed)).then_some(())
        };
        eventually("what was refused is closed", closed);
    }
}

#[test]
fn tcp_connections_go_through_their_states_on_the_nodes_of_their_ends_and_on_no_other() {
    let stage = Stage::set();
    for family in FAMILIES {
        states_are_gone_through(&stage, family);
        refused_is_closed(&stage, family);
    }
}

/// Nobody reaches `near` but by connections that it opened itself.
fn closed_near() -> Value {
    json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
           "metadata": {"name": "closed", "namespace": "acme"},
           "spec": {"podSelector": {"matchLabels": {"app": "near"}}, "policyTypes": ["Ingress"]}})
}

/// The policy is there: who speaks first is not heard.
fn await_closed(stage: &Stage) {
    let to = SocketAddr::new(stage.near.face.ip.into(), 8080).to_string();
    await_condition(|| !stage.lab.connect("acme/far", "tcp", &to).ok).expect("near is closed");
}

/// A word of `far` in the middle of a connection that `near` opened.
fn answer(stage: &Stage, family: Family) -> Vec<u8> {
    let far = Origin { face: stage.far.face, ip: family(&stage.far.face) };
    packet(far, family(&stage.near.face), TCP, &tcp((PORTS.1, PORTS.0), ACK))
}

/// What an end says passes for as long as the connection lasts, however far it is, and is dropped by name
/// afterwards.
fn nothing_comes_back_when_it_is_over(stage: &Stage, ended: &Ends, word: &[u8]) {
    let (sender, heard) = (stage.far.packets(), stage.near.packets());
    for seconds in [0, 100] {
        ended.let_time_pass(stage, seconds);
        eventually("the answer passes while it lasts", || {
            sender.send(word).unwrap();
            let heard = heard.received().unwrap();
            heard.iter().any(|frame| frame[IP..] == word[IP..]).then_some(())
        });
    }
    let reason = DropReason::PolicyDeniedIngress.name();
    let dropped = || stage.dropped("node1", Some("acme.default"), reason);
    let before = dropped();
    // A late word of one end may have come after the time had passed.
    eventually("the answer is dropped when it is over", || {
        ended.let_time_pass(stage, TOO_LONG);
        sender.send(word).unwrap();
        (dropped() > before).then_some(())
    });
    drop(heard);
    let unheard = stage.near.packets();
    let before = dropped();
    sender.send(word).unwrap();
    eventually("it is dropped again", || (dropped() > before).then_some(()));
    assert_silence(&unheard, "the connection is over");
}

#[test]
fn a_connection_that_is_over_lets_nothing_back_in_and_is_collected_while_another_goes_on() {
    let stage = Stage::set();
    stage.lab.apply(&yaml(&[closed_near()])).good();
    await_closed(&stage);
    for family in FAMILIES {
        let pair = [&stage.near, &stage.far];
        let ended = Ends::of(pair, family, PORTS);
        let other = [&stage.attacker, &stage.far];
        let kept = Ends::of(other, family, PORTS);
        let mut kept_flow = Flow::open(other, family);
        Flow::open(pair, family).break_off();
        ended.are_known(&stage, ["node1", "node2"], ConnectionState::Closed);
        [ended, kept].iter().for_each(|ends| ends.let_time_pass(&stage, TOO_LONG));
        await_condition(|| {
            ["node1", "node2"].iter().all(|node| ended.state(&stage, node).is_none())
        })
        .expect("what is over is collected");
        kept.are_known(&stage, ["node1", "node2"], ConnectionState::Established);
        let flow = Flow::open(pair, family);
        flow.client.shutdown(Shutdown::Write).unwrap();
        ended.are_known(&stage, ["node1", "node2"], ConnectionState::Closing);
        nothing_comes_back_when_it_is_over(&stage, &ended, &answer(&stage, family));
        kept_flow.goes_on(b"still here");
        kept_flow.break_off();
    }
}
