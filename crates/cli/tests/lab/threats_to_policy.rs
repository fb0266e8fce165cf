//! Rows 9 and 10 of the threats: the moments at which policy might not be in place yet, or not any more.
//! An attacker sends raw frames from the moment that it has an interface, and goes on with connections
//! that were allowed before.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use atoll_testkit::forge::{self, Face, IP, Origin, packet};
use atoll_testkit::{Namespace, PacketSocket, Stops, eventually};
use atoll_types::MacAddr;
use serde_json::{Value, json};

use crate::documents::{nics, pod, tenant, yaml};
use crate::fixture::{Lab, kill_agent_and_await_the_next};
use crate::threats::{NODES, Player, Stage, attack, switch_offloads_off};

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;
const DENIED: &str = "policy-denied-ingress";
/// How many rounds of its frames an attacker sends at least.
const ROUNDS: u64 = 50;
/// How long anything may take here. Generous: the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(90);

/// Everybody in a namespace is reached by friends alone.
fn only_friends(namespace: &str) -> Value {
    let friends = json!({ "matchLabels": { "app": "friend" } });
    let from = json!([{ "namespaceSelector": {}, "podSelector": friends }]);
    json!({ "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": { "name": "only-friends", "namespace": namespace },
            "spec": { "podSelector": {}, "policyTypes": ["Ingress"],
                      "ingress": [{ "from": from }] } })
}

/// What a pod at this place sends to a victim, of both families.
fn frames(from: &Face, victim: &Face) -> Vec<Vec<u8>> {
    let ends = [(from.v4(), IpAddr::from(victim.ip)), (from.v6(), victim.ipv6.into())];
    let of = |(from, to): (Origin, IpAddr)| {
        let datagram = packet(from, to, 17, &forge::datagram((4000, 4001), b"too early"));
        [datagram, packet(from, to, 6, &forge::tcp((4000, 4001), SYN))]
    };
    ends.into_iter().flat_map(of).collect()
}

/// A pod that is about to come, and attacks as soon as it can.
struct Newcomer {
    name: String,
    face: Face,
}

impl Newcomer {
    fn new(number: u8) -> Newcomer {
        let last = 20 + number;
        let ip = [10, 0, 0, last].into();
        let ipv6 = format!("fd00::{last}").parse().unwrap();
        let face = Face { mac: MacAddr::for_ip(IpAddr::V4(ip)), ip, ipv6 };
        Newcomer { name: format!("newcomer{number}"), face }
    }

    fn document(&self) -> String {
        let place = nics("default", self.face.ip.octets()[3]);
        yaml(&[pod(&format!("acme/{}", self.name), "node1", &json!({}), &place)])
    }
}

/// As soon as `condition` gives something, however long an agent takes to be there again.
fn as_soon_as<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = condition() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "waited {PATIENCE:?} in vain until {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Its interface, as soon as there is one: a namespace is there before it can be entered, and has its
/// interface later still.
fn first_interface(lab: &Lab, before: &BTreeSet<PathBuf>) -> PacketSocket {
    as_soon_as("the newcomer has an interface", || {
        let new = lab.sandboxes().difference(before).next().cloned()?;
        let open = || Namespace::at(&new).run(|| PacketSocket::open("eth0"));
        thread::scope(|scope| scope.spawn(open).join()).ok()?.ok()
    })
}

/// Whether a frame is from a pod's own addresses.
fn is_from(frame: &[u8], face: &Face) -> bool {
    match frame[12..14] {
        [0x08, 0x00] => frame[IP + 12..IP + 16] == face.ip.octets(),
        [0x86, 0xdd] => frame[IP + 8..IP + 24] == face.ipv6.octets(),
        _ => false,
    }
}

/// A socket says once that its interface is gone, and then gives what came until that.
fn assert_nothing_of(face: &Face, heard: &PacketSocket, when: &str) {
    let heard = heard.received().or_else(|_| heard.received()).unwrap();
    let leaked: Vec<_> = heard.iter().filter(|frame| is_from(frame, face)).collect();
    assert!(leaked.is_empty(), "{when}: {} frames, the first {:?}", leaked.len(), leaked[0]);
}

/// A frame comes to arrive as it is sent.
fn arrives(from: &Player, to: &Player, frame: &[u8]) {
    let (socket, heard) = (from.packets(), to.packets());
    eventually("the frame arrived", || {
        socket.send(frame).unwrap();
        let arrived = heard.received().unwrap();
        arrived.iter().any(|it| it[IP..] == frame[IP..]).then_some(())
    });
}

/// Sends whenever the interface takes it, until told to stop.
fn attack_early(socket: &PacketSocket, frames: &[Vec<u8>], stop: &AtomicBool, rounds: &AtomicU64) {
    while !stop.load(Ordering::Relaxed) {
        let taken = frames.iter().filter(|frame| socket.send(frame).is_ok()).count();
        rounds.fetch_add(u64::from(taken == frames.len()), Ordering::Relaxed);
        thread::sleep(Duration::from_millis(1));
    }
}

impl Stage {
    /// What was denied on the nodes of both victims.
    fn denied(&self) -> [u64; 2] {
        ["node1", "node2"].map(|node| self.dropped(node, Some("acme.default"), DENIED))
    }

    /// Waits until somebody who was there before is denied on both nodes.
    fn await_denial(&self, of: &Player) {
        let (socket, before) = (of.packets(), self.denied());
        let victims = [&self.near, &self.far].map(|victim| victim.face);
        let frames = victims.map(|victim| frames(&of.face, &victim)).concat();
        as_soon_as("the policy is in force on both nodes", || {
            frames.iter().for_each(|frame| socket.send(frame).unwrap());
            let denied = self.denied();
            (0..2).all(|node| denied[node] > before[node]).then_some(())
        });
    }

    /// A pod comes while `moment` happens, and nobody hears of it.
    fn holds_back(&self, newcomer: &Newcomer, moment: impl FnOnce(&Lab)) {
        let before = (self.lab.sandboxes(), self.denied());
        let heard = self.victims().map(Player::packets);
        let victims = [&self.near, &self.far];
        let frames: Vec<_> =
            victims.iter().flat_map(|victim| frames(&newcomer.face, &victim.face)).collect();
        let (stop, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
        let strike = || {
            let socket = first_interface(&self.lab, &before.0);
            attack_early(&socket, &frames, &stop, &rounds);
        };
        thread::scope(|scope| {
            let _stopped = Stops(&stop);
            let attacker = scope.spawn(strike);
            self.lab.apply(&newcomer.document()).good();
            moment(&self.lab);
            self.lab.wait_for_pods();
            let now = rounds.load(Ordering::Relaxed);
            as_soon_as("the attack went on, and was denied on both nodes", || {
                let denied = self.denied();
                let counted = (0..2).all(|node| denied[node] > before.1[node]);
                let went_on = rounds.load(Ordering::Relaxed) > now + ROUNDS;
                (attacker.is_finished() || counted && went_on).then_some(())
            });
        });
        heard.iter().for_each(|it| assert_nothing_of(&newcomer.face, it, &newcomer.name));
        let known = Player::find(&self.lab, "acme", &newcomer.name);
        assert_eq!(known.face, newcomer.face, "it attacked as who it is");
    }

    /// What the newcomers send arrives where a friend sends it.
    fn a_friend_is_heard(&self, friend: &Player) {
        for victim in [&self.near, &self.far] {
            frames(&friend.face, &victim.face).iter().for_each(|it| arrives(friend, victim, it));
        }
    }
}

/// A stage on which friends alone are heard, and a friend.
fn with_policy() -> (Stage, Player) {
    let stage = Stage::set();
    let friend = pod("acme/friend", "node1", &json!({"app": "friend"}), &nics("default", 9));
    stage.lab.apply(&yaml(&[only_friends("acme"), friend])).good();
    stage.lab.wait_for_pods();
    stage.await_denial(&stage.attacker);
    let friend = Player::find(&stage.lab, "acme", "friend");
    (stage, friend)
}

/// What goes on with, breaks off, or never was of a connection that `frames` opened.
fn later_frames(from: &Face, victim: &Face) -> Vec<Vec<u8>> {
    const FLAGS: [u8; 6] = [ACK, ACK | PSH, ACK | FIN, ACK | SYN, RST, RST | ACK];
    let ends = [(from.v4(), IpAddr::from(victim.ip)), (from.v6(), victim.ipv6.into())];
    let of = |(from, to): (Origin, IpAddr)| {
        FLAGS.map(|flags| packet(from, to, 6, &forge::tcp((4000, 4001), flags)))
    };
    ends.into_iter().flat_map(of).collect()
}

/// A friend is none any more, and nothing of its connections arrives.
fn the_end_of_a_friendship_is_one_of_its_connections(stage: &Stage, friend: &Player) {
    stage.a_friend_is_heard(friend);
    stage.lab.kubectl(&["label", "pod", "-n", "acme", "friend", "app-"]).good();
    stage.await_denial(friend);
    let heard = stage.victims().map(Player::packets);
    for (node, victim) in [(0, &stage.near), (1, &stage.far)] {
        for frame in later_frames(&friend.face, &victim.face) {
            let before = stage.denied();
            friend.packets().send(&frame).unwrap();
            eventually("it was denied", || (stage.denied()[node] > before[node]).then_some(()));
        }
    }
    heard.iter().for_each(|it| assert_nothing_of(&friend.face, it, "row 9"));
    stage.lab.kubectl(&["label", "pod", "-n", "acme", "friend", "app=friend"]).good();
    stage.a_friend_is_heard(friend);
}

#[test]
fn no_frame_passes_before_a_policy_is_in_place_or_after_what_let_it_pass_also_with_offloads_off() {
    let (stage, friend) = with_policy();
    let moments: [fn(&Lab); 4] = [
        |_| (),
        |lab| kill_agent_and_await_the_next(lab, "node1"),
        |lab| kill_agent_and_await_the_next(lab, "node2"),
        |_| (),
    ];
    for (number, moment) in (0..).zip(moments) {
        if number == 3 {
            the_end_of_a_friendship_is_one_of_its_connections(&stage, &friend);
            stage.switch_offloads_off();
        }
        stage.a_friend_is_heard(&friend);
        stage.holds_back(&Newcomer::new(number), moment);
    }
    the_end_of_a_friendship_is_one_of_its_connections(&stage, &friend);
}

/// A namespace with a pod on each node that takes its time to end.
fn vault() -> String {
    let safe = |(node, last): (&str, u8)| {
        let name = format!("vault/safe-{node}");
        let mut safe = pod(&name, node, &json!({}), &nics("default", last));
        safe["spec"]["terminationGracePeriodSeconds"] = json!(4);
        safe["spec"]["containers"][0]["command"] = json!(["sh", "-c", "trap '' TERM; sleep 600"]);
        safe
    };
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace",
        "metadata": { "name": "vault", "labels": { "atoll.dev/tenant": "acme" } } });
    let safes: Vec<Value> = NODES.into_iter().zip(40..).map(safe).collect();
    yaml(&[&[namespace, only_friends("vault")][..], &safes].concat())
}

/// The namespace comes with its pods and goes, and nobody in it hears of an attacker.
fn a_vault_stays_closed_to_its_end(lab: &Lab, with_offloads: bool) {
    lab.apply(&vault()).good();
    lab.wait_for_pods();
    let [attacker, friend] = ["attacker", "friend"].map(|name| Player::find(lab, "acme", name));
    let safes = NODES.map(|node| Player::find(lab, "vault", &format!("safe-{node}")));
    if !with_offloads {
        switch_offloads_off(lab, safes.iter().chain([&attacker, &friend]));
    }
    let to_all = |from: &Face| safes.iter().flat_map(|safe| frames(from, &safe.face)).collect();
    for safe in &safes {
        frames(&friend.face, &safe.face).iter().for_each(|frame| arrives(&friend, safe, frame));
    }
    let frames: Vec<Vec<u8>> = to_all(&attacker.face);
    let (stop, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    let (socket, heard) = (attacker.packets(), safes.each_ref().map(Player::packets));
    // Without a network: a node that has no pod of it any more does not know its name.
    let before = lab.drops(None, DENIED);
    let nothing = |when: &str| {
        heard.iter().for_each(|heard| assert_nothing_of(&attacker.face, heard, when));
    };
    thread::scope(|scope| {
        let _stopped = Stops(&stop);
        scope.spawn(|| attack(&socket, &frames, &stop, &rounds));
        lab.kubectl(&["delete", "namespace", "vault", "--wait=false"]).good();
        let policies = ["get", "networkpolicies", "-n", "vault"];
        lab.eventually(&policies, |said| said.contains("No resources"));
        nothing("its policies are gone");
        let now = rounds.load(Ordering::Relaxed);
        eventually("the attack went on", || {
            (rounds.load(Ordering::Relaxed) > now + ROUNDS).then_some(())
        });
        lab.kubectl(&["wait", "--for=delete", "namespace/vault", "--timeout=180s"]).good();
    });
    nothing("until its end");
    assert!(lab.drops(None, DENIED) > before + ROUNDS);
}

#[test]
fn no_frame_reaches_a_pod_whose_namespace_is_deleted_with_its_policies() {
    let lab = Lab::up(3);
    lab.apply(&tenant("acme")).good();
    let attacker = pod("acme/attacker", "node1", &json!({}), &nics("default", 5));
    let friend = pod("acme/friend", "node1", &json!({"app": "friend"}), &nics("default", 9));
    lab.apply(&yaml(&[attacker, friend])).good();
    lab.wait_for_pods();
    [true, false].iter().for_each(|offloads| a_vault_stays_closed_to_its_end(&lab, *offloads));
}
