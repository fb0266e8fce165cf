//! One pod asks more than anybody answers: it loses its own questions, and no other loses one.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::time::{Duration, Instant};

use atoll_abi::Door;
use atoll_datapath::DropReason;
use atoll_testkit::{Hears, eventually};
use nix::sys::socket::{setsockopt, sockopt};

use crate::doors::{agent, alias, behind, ip, speaking, twins};
use crate::fabric::{Fabric, Node, Pod};
use crate::forge;
use crate::talk::{BRIEF, LIMIT, connect, udp};

/// Both families of the cluster's resolver.
const RESOLVERS: [&str; 2] = ["10.96.0.10", "fd96::a"];

/// So few that any machine asks more: in a second, and at once.
const FEW: u32 = 100;
const AT_ONCE: u64 = FEW as u64 / 2 + 1;

/// A queue of the kernel, which others use, too, takes no more than some hundreds at once; what is more
/// might be lost there.
const PART: u64 = 128;
/// How many parts come before each question of the other, and how many it asks.
const PARTS: u64 = 4;
const ASKED: u64 = 20;

/// Room for the few that pass, and not for half of a flood.
const ROOM: usize = 2 << 20;

/// Pods of two networks that may ask a few questions a second.
fn scene() -> (Fabric, [Pod; 2]) {
    let (fabric, pods) = twins();
    fabric.nodes[0].run(|state| {
        state.config.pod_questions = FEW;
        state.open();
    });
    fabric.converge();
    (fabric, pods)
}

/// An agent that reads nothing before it is asked what it heard.
fn patient(node: &Node, asked: IpAddr) -> UdpSocket {
    let agent = agent(node, behind(Door::Cluster, asked));
    setsockopt(&agent, sockopt::RcvBufForce, &ROOM).unwrap();
    agent.set_read_timeout(Some(BRIEF)).unwrap();
    agent
}

/// How many datagrams came from each alias, once there are at least so many from one of them.
fn heard(agent: &UdpSocket, one: IpAddr, least: u64) -> BTreeMap<IpAddr, u64> {
    let mut heard = BTreeMap::<IpAddr, u64>::new();
    eventually(&format!("{least} questions of {one} are heard"), || {
        while let Ok((_, from)) = agent.hear_from(&mut [0; 64]) {
            *heard.entry(from.ip()).or_default() += 1;
        }
        (heard.get(&one).copied().unwrap_or_default() >= least).then_some(())
    });
    heard
}

/// What was sent of a flood, and since when.
struct Flood<'a> {
    node: &'a Node,
    pod: &'a Pod,
    began: Instant,
    sent: u64,
}

impl<'a> Flood<'a> {
    fn of(node: &'a Node, pod: &'a Pod) -> Self {
        Flood { node, pod, began: Instant::now(), sent: 0 }
    }

    fn dropped(&self) -> u64 {
        self.node.dropped(Some(self.pod.network), DropReason::TooManyQuestions)
    }

    /// The most that may have passed by now: what passes at once, and what time has brought since. The
    /// kernel's clock goes in steps, of which one more may count.
    fn allowed(&self) -> u64 {
        let time = self.began.elapsed() + Duration::from_millis(20);
        AT_ONCE + 1 + u64::try_from(time.as_millis()).unwrap() * u64::from(FEW) / 1000
    }

    /// Sends until something was too much.
    fn overdo(&mut self, mut send: impl FnMut()) {
        let before = self.dropped();
        while self.dropped() == before {
            self.send(&mut send);
        }
    }

    /// Sends a part of the flood, and waits until it has gone where it goes.
    fn send(&mut self, mut send: impl FnMut()) {
        (0..PART).for_each(|_| send());
        self.sent += PART;
        eventually("what was too much was dropped", || {
            (self.dropped() + self.allowed() >= self.sent).then_some(())
        });
    }
}

#[test]
fn a_flood_of_one_pods_questions_costs_another_none_of_its_own() {
    let (fabric, [flooder, other]) = scene();
    let node = &fabric.nodes[0];
    let mut flood = Flood::of(node, &flooder);
    for asked in RESOLVERS.map(ip) {
        let agent = patient(node, asked);
        let [loud, quiet] = [&flooder, &other].map(|pod| udp(speaking(pod, asked), 0));
        for _ in 0..ASKED {
            for _ in 0..PARTS {
                flood.send(|| {
                    loud.send_to(b"who?", (asked, 53)).unwrap();
                });
            }
            quiet.send_to(b"who?", (asked, 53)).unwrap();
        }
        let aliases = [&flooder, &other].map(|pod| alias(node, pod, asked));
        let heard = heard(&agent, aliases[1], ASKED);
        let of_flood = heard.get(&aliases[0]).copied().unwrap_or_default();
        assert!(of_flood <= flood.allowed(), "{of_flood} of the flood to {asked}");
    }
    assert_eq!(node.dropped(Some(other.network), DropReason::TooManyQuestions), 0);
}

#[test]
fn a_pod_that_has_asked_too_much_is_heard_again_a_moment_later() {
    let (fabric, [flooder, _]) = scene();
    let node = &fabric.nodes[0];
    let agent = patient(node, ip(RESOLVERS[0]));
    let asker = udp(flooder.v4(), 0);
    let mut flood = Flood::of(node, &flooder);
    flood.overdo(|| {
        asker.send_to(b"who?", "10.96.0.10:53").unwrap();
    });
    let first = heard(&agent, alias(node, &flooder, ip(RESOLVERS[0])), 1);
    assert!(first.values().sum::<u64>() <= flood.allowed());
    eventually("the pod is heard again", || {
        asker.send_to(b"and now?", "10.96.0.10:53").unwrap();
        let mut said = [0; 16];
        let length = agent.hear(&mut said).ok()?;
        (&said[..length] == b"and now?").then_some(())
    });
}

#[test]
fn as_many_questions_as_the_resolver_answers_pass_at_once() {
    const ANSWERED: u64 = 2_048;
    let (fabric, [acme, _]) = twins();
    let node = &fabric.nodes[0];
    let agent = patient(node, ip(RESOLVERS[0]));
    let (asker, acme_alias) = (udp(acme.v4(), 0), alias(node, &acme, ip(RESOLVERS[0])));
    let (mut sent, mut passed) = (0, 0);
    while sent < ANSWERED {
        (0..PART).for_each(|_| {
            asker.send_to(b"who?", "10.96.0.10:53").unwrap();
        });
        sent += PART;
        passed += heard(&agent, acme_alias, PART)[&acme_alias];
    }
    assert_eq!(passed, sent);
    assert_eq!(node.dropped(Some(acme.network), DropReason::TooManyQuestions), 0);
}

/// Questions that the kernel cuts apart only where they are read.
#[test]
fn questions_that_leave_in_one_piece_count_one_by_one() {
    const TOGETHER: u64 = 32;
    let (fabric, pods) = scene();
    let node = &fabric.nodes[0];
    for (flooder, asked) in pods.iter().zip(RESOLVERS.map(ip)) {
        let agent = patient(node, asked);
        let asker = udp(speaking(flooder, asked), 0);
        setsockopt(&asker, sockopt::UdpGsoSegment, &4).unwrap();
        let flood = Flood::of(node, flooder);
        let pieces = b"who?".repeat(TOGETHER as usize);
        eventually("some are too much", || {
            asker.send_to(&pieces, (asked, 53)).unwrap();
            (flood.dropped() > 0).then_some(())
        });
        let own = alias(node, flooder, asked);
        let passed = heard(&agent, own, 1)[&own];
        // What passes last may be more than what was left.
        assert!(passed <= flood.allowed() + TOGETHER, "{passed} pieces passed");
    }
}

#[test]
fn connections_to_a_resolver_are_opened_within_the_same_budget_and_those_that_are_open_go_on() {
    const SYN: u8 = 2;
    let (fabric, [flooder, _]) = scene();
    let node = &fabric.nodes[0];
    let sender = flooder.packets();
    for asked in RESOLVERS.map(ip) {
        let door = behind(Door::Cluster, asked);
        let listener = node.namespace.run(|| TcpListener::bind(door).unwrap());
        let resolver = SocketAddr::new(asked, 53);
        let open = || connect(speaking(&flooder, asked), 0, resolver, LIMIT).unwrap();
        let (mut ours, (mut theirs, _)) = (open(), listener.accept().unwrap());
        let mut flood = Flood::of(node, &flooder);
        let mut port = 1024..;
        flood.sent = flood.dropped();
        flood.overdo(|| {
            let segment = forge::tcp((port.next().unwrap(), 53), SYN);
            let frame = forge::packet(speaking(&flooder, asked), asked, 6, &segment);
            sender.send(&frame).unwrap();
        });
        theirs.write_all(b"still here").unwrap();
        ours.read_exact(&mut [0; 10]).unwrap();
        ours.write_all(b"so am I").unwrap();
        theirs.read_exact(&mut [0; 7]).unwrap();
        drop(open());
    }
}
