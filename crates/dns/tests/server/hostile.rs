//! What the hostile get: strangers nothing, the malformed a short "no", the greedy their share.

use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use atoll_dns::{Config, Forwarding, Limits, Rate, Refused, Server};
use atoll_testkit::eventually;
use atoll_testkit::names::{Part, Upstream, add, reply, wire_name};
use hickory_proto::op::Message;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use crate::client::{Client, connect, question, read_framed, summary, write_framed};
use crate::shop::{ACME, config, network, open};

const WEB: &str = "web.shop.svc.cluster.local";

fn refused(server: &Server, why: Refused) -> u64 {
    server.counts(network(ACME)).unwrap().refused(why)
}

fn is_answered(address: SocketAddr, who: u8) -> bool {
    summary(&Client::new(address, who, 200).ask(WEB, "A")) == "198.18.1.10"
}

#[test]
fn an_asker_that_nobody_knows_gets_no_answer_and_is_counted() {
    let (server, address) = open(config());
    let stranger = Client::new(address, 0, 1).impatient();
    assert_eq!(stranger.raw(&question(WEB, 1, None)), None);
    let count = || server.strangers().refused(Refused::UnknownAsker);
    eventually("it was counted", || (count() == 1).then_some(()));
    let mut stream = connect(address, 0, 1);
    assert_eq!(stream.read(&mut [0; 1]).unwrap_or(0), 0, "closed");
    assert!(is_answered(address, 1));
}

/// Packets that are wrong each in its own way.
fn corpus() -> Vec<Vec<u8>> {
    let good = question(WEB, 1, Some(1232));
    let head = |counts: [u8; 8], rest: &[u8]| [&[7, 7, 1, 0], &counts[..], rest].concat();
    let with = |at: usize, byte: u8| {
        let mut packet = good.clone();
        packet[at] = byte;
        packet
    };
    let one = [0, 1, 0, 0, 0, 0, 0, 0];
    let two_opts = [&good[..11], &[2], &good[12..], &good[good.len() - 11..]].concat();
    let mut all = vec![
        vec![],
        vec![7],
        good[..11].to_vec(),
        good[..12].to_vec(),
        head([255; 8], &[]),
        head([255; 8], &good[12..]),
        head(one, &[0xc0, 12, 0, 1, 0, 1]),
        head(one, &[0xc0, 0xff, 0, 1, 0, 1]),
        head(one, &[64; 100]),
        head(one, &[63; 600]),
        head(one, &[[1, b'a'].repeat(128), vec![0, 0, 1, 0, 1]].concat()),
        head(one, &[0]),
        head(one, &[0, 0, 1, 0]),
        head([0, 0, 0, 0, 0, 0, 0, 1], &[0, 0, 41, 0, 0, 0, 0, 0, 0, 0, 0]),
        head(
            [0, 1, 0, 0, 0, 0, 0, 1],
            &[&good[12..good.len() - 11], &[0, 0, 41, 0, 0, 0, 0, 0, 0, 255, 255]].concat(),
        ),
        two_opts,
        vec![0xff; 1000],
        vec![0; 1000],
        vec![0; 60_000],
        [&good[..], &[0; 900]].concat(),
        [&good[..], &[0; 9_000]].concat(),
    ];
    all.extend((0..good.len()).map(|len| good[..len].to_vec()));
    all.extend((0..good.len()).flat_map(|at| [0, 63, 64, 0x80, 0xc0, 0xff].map(|it| with(at, it))));
    all
}

#[test]
fn malformed_packets_are_told_so_or_get_nothing_and_never_stop_the_server() {
    let (server, address) = open(free());
    let client = Client::new(address, 1, 9);
    for packet in corpus() {
        client.send(&packet);
    }
    let mut runner = TestRunner::deterministic();
    let mutations = prop::collection::vec((any::<usize>(), any::<u8>()), 1..8);
    for _ in 0..3_000 {
        let changes = mutations.new_tree(&mut runner).unwrap().current();
        let mut packet = question(WEB, 1, Some(1232));
        let len = packet.len();
        changes.into_iter().for_each(|(at, byte)| packet[at % len] = byte);
        client.send(&packet);
    }
    assert!(is_answered(address, 1) && is_answered(address, 2));
    eventually("many were told so", || (refused(&server, Refused::Malformed) > 100).then_some(()));
    client.0.set_nonblocking(true).unwrap();
    while let Some(answer) = client.receive() {
        assert!(Message::from_vec(&answer).is_ok(), "an answer that cannot be read: {answer:?}");
    }
}

#[test]
fn malformed_questions_over_tcp_never_stop_the_server() {
    let (_server, address) = open(config());
    for packet in corpus().into_iter().filter(|packet| packet.len() < 2_000) {
        let mut stream = connect(address, 1, 9);
        write_framed(&mut stream, &packet).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut rest = vec![];
        let _ = stream.read_to_end(&mut rest);
    }
    let mut stream = connect(address, 1, 9);
    write_framed(&mut stream, &question(WEB, 1, None)).unwrap();
    let answer = Message::from_vec(&read_framed(&mut stream).unwrap()).unwrap();
    assert_eq!(summary(&answer), "198.18.1.10");
}

/// The same packet with some bytes behind its id changed and some cut off, the same on every run.
fn broken(packet: &[u8], n: u32) -> Vec<u8> {
    let mut state = n.wrapping_mul(0x9e37_79b9) | 1;
    let mut draw = |below: usize| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as usize % below
    };
    let mut packet = packet.to_vec();
    for _ in 0..=draw(5) {
        let at = 2 + draw(packet.len() - 2);
        packet[at] = draw(256) as u8;
    }
    packet.truncate(packet.len() - draw(8));
    packet
}

#[test]
fn malformed_answers_of_an_upstream_never_stop_the_server_or_reach_an_asker_as_they_came() {
    let count = AtomicU32::new(0);
    let upstream = Upstream::on_loopback(move |packet, _| {
        let alias = wire_name("www.example.org");
        let mut answer = reply(packet, 0, &[(5, 60, &alias)]);
        add(&mut answer, Part::Answer, &alias, (1, 60, &[9, 9, 9, 9]));
        vec![broken(&answer, count.fetch_add(1, Ordering::Relaxed)), answer]
    });
    let (server, address) = open(Config { upstream_wait: Duration::from_millis(300), ..free() });
    let forwarding = Forwarding { upstreams: vec![upstream.address], refuse_private: true };
    server.forward(network(ACME), forwarding);
    let client = Client::new(address, 1, 9);
    let answers: Vec<String> =
        (0..400).map(|n| summary(&client.ask(&format!("n{n}.example.com"), "A"))).collect();
    let whole = answers.iter().filter(|it| *it == "9.9.9.9; www.example.org.").count();
    assert!(whole > 50, "{whole} of 400 were answered with the true records");
    assert!(server.counts(network(ACME)).unwrap().mismatched > 10);
    assert!(is_answered(address, 1) && is_answered(address, 2));
}

#[test]
fn an_answer_is_never_answered_and_other_operations_are_refused() {
    let (server, address) = open(config());
    let with = |at: usize, byte: u8| {
        let mut packet = question(WEB, 1, None);
        packet[at] = byte;
        packet
    };
    let silent = Client::new(address, 1, 9).impatient().raw(&with(2, 0x81));
    assert_eq!(silent, None, "an answer");
    let client = Client::new(address, 1, 9);
    let code = |at, byte| client.raw(&with(at, byte)).map(|answer| answer[3] & 0x0f);
    assert_eq!(code(2, 0x29), Some(4), "an update");
    let class = question(WEB, 1, None).len() - 1;
    assert_eq!(code(class, 3), Some(5), "the class of chaos");
    assert_eq!(code(class - 2, 252), Some(5), "a transfer");
    assert_eq!(code(class - 2, 1), Some(0));
    assert_eq!(refused(&server, Refused::NotOffered), 2);
}

/// No limit that a test could reach.
pub(crate) fn free() -> Config {
    limited(1_000_000, 1_000_000)
}

fn limited(pod: u32, tenant: u32) -> Config {
    let rate = |number| Rate { per_second: number, burst: number };
    let limits = Limits { pod: rate(pod), tenant: rate(tenant), ..Limits::default() };
    Config { limits, ..config() }
}

#[test]
fn a_pod_that_asks_too_often_is_not_answered_and_its_neighbour_is() {
    let (server, address) = open(limited(50, 1_000_000));
    let greedy = Client::new(address, 1, 9).impatient();
    (0..500).for_each(|_| greedy.send(&question(WEB, 1, None)));
    let count = || refused(&server, Refused::PodRate);
    let mut answers = 0;
    eventually("every question was answered or refused", || {
        answers += std::iter::from_fn(|| greedy.receive()).count() as u64;
        (answers + count() == 500).then_some(())
    });
    assert!(answers >= 50 && count() > 0, "{answers} of 500");
    assert!(is_answered(address, 1) && is_answered(address, 2));
}

#[test]
fn a_tenants_pods_share_its_limit_and_another_tenant_is_answered() {
    let (server, address) = open(limited(1_000_000, 50));
    for pod in 1..50 {
        let client = Client::new(address, 1, pod);
        (0..10).for_each(|_| client.send(&question(WEB, 1, None)));
    }
    assert!(is_answered(address, 2));
    let count = || refused(&server, Refused::TenantRate);
    eventually("most were too many", || (count() > 300).then_some(()));
}

#[test]
fn a_flood_of_one_tenant_leaves_999_of_1000_answers_to_another() {
    let (server, address) = open(limited(1_000, 1_000));
    let stop = AtomicBool::new(false);
    let lost = thread::scope(|scope| {
        scope.spawn(|| {
            let greedy = Client::new(address, 1, 9);
            while !stop.load(Ordering::Relaxed) {
                greedy.send(&question(WEB, 1, None));
            }
        });
        let quiet = Client::new(address, 2, 9);
        quiet.0.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let ask = |_: &u32| {
            thread::sleep(Duration::from_millis(1));
            quiet.raw(&question(WEB, 1, None)).is_none()
        };
        let lost = (0..1_000).filter(ask).take(2).count();
        stop.store(true, Ordering::Relaxed);
        lost
    });
    let flood = refused(&server, Refused::PodRate);
    assert!(flood > 10_000, "the flood was only {flood} questions");
    assert!(lost <= 1, "more than 1 of 1000 lost while {flood} were refused");
}

#[test]
fn connections_that_say_nothing_hold_only_their_own_pods_places_and_are_closed() {
    let limits = Limits { pod_connections: 4, ..Limits::default() };
    let idle = Duration::from_secs(2);
    let (_server, address) = open(Config { limits, tcp_idle: idle, ..config() });
    let mut silent: Vec<_> = (0..4).map(|_| connect(address, 1, 9)).collect();
    write_half(&mut silent[0]);
    let mut fifth = connect(address, 1, 9);
    assert_eq!(fifth.read(&mut [0; 1]).unwrap_or(0), 0, "one too many is closed");
    let mut other = connect(address, 1, 10);
    write_framed(&mut other, &question(WEB, 1, None)).unwrap();
    assert!(read_framed(&mut other).is_ok(), "another pod is answered");
    assert!(is_answered(address, 1), "and so is UDP");
    for stream in &mut silent {
        assert_eq!(stream.read(&mut [0; 1]).unwrap_or(0), 0, "closed for its silence");
    }
    let mut again = connect(address, 1, 9);
    write_framed(&mut again, &question(WEB, 1, None)).unwrap();
    assert!(read_framed(&mut again).is_ok(), "the places are free again");
}

#[test]
fn a_tenant_whose_pods_hold_all_connections_that_they_can_get_leaves_as_many_to_others() {
    let limits = Limits { pod_connections: 4, ..Limits::default() };
    let idle = Duration::from_secs(600);
    let scarce = Config { limits, tcp_idle: idle, tcp_connections: 16, ..config() };
    let (server, address) = open(scarce);
    let pods = (1..=4).flat_map(|pod| [pod; 5]);
    let mut held: Vec<_> = pods.map(|pod| connect(address, 1, pod)).collect();
    let whys = [Refused::PodConnections, Refused::TenantConnections];
    let counts = || whys.map(|why| refused(&server, why));
    eventually("two pods have all of theirs, and two have none", || {
        (counts() == [2, 10]).then_some(())
    });
    let asks = |stream: &mut TcpStream| {
        write_framed(stream, &question(WEB, 1, None)).is_ok() && read_framed(stream).is_ok()
    };
    assert!(asks(&mut connect(address, 2, 9)), "another tenant is answered");
    let answered: Vec<bool> = held.iter_mut().map(asks).collect();
    assert_eq!(answered.iter().filter(|it| **it).count(), 8, "and so are those who came first");
    drop(held);
    let again = || asks(&mut connect(address, 1, 5)).then_some(());
    eventually("the places are free again", again);
}

#[test]
fn a_connection_that_announces_more_than_a_question_is_closed_at_once() {
    let (_server, address) = open(config());
    let mut stream = connect(address, 1, 9);
    std::io::Write::write_all(&mut stream, &[0xff, 0xff, 7, 7]).unwrap();
    assert_eq!(stream.read(&mut [0; 1]).unwrap_or(0), 0, "closed");
    let mut other = connect(address, 1, 9);
    write_framed(&mut other, &question(WEB, 1, Some(1232))).unwrap();
    assert!(read_framed(&mut other).is_ok());
}

/// The start of a question that never ends.
fn write_half(stream: &mut TcpStream) {
    use std::io::Write;
    stream.write_all(&[0, 40, 7, 7, 1]).unwrap();
}

#[test]
fn who_comes_by_another_link_than_pods_do_is_not_heard() {
    const ELSEWHERE: u32 = 0x7fff_fff0;
    let (server, address) = open(config());
    server.hear(ELSEWHERE).unwrap();
    let client = Client::new(address, 1, 9).impatient();
    assert_eq!(client.raw(&question(WEB, 1, None)), None);
    let brief = Duration::from_millis(300);
    assert!(TcpStream::connect_timeout(&address, brief).is_err());
    let asked = || server.counts(network(ACME)).unwrap().queries;
    assert_eq!(asked(), 0, "nor is it counted for whom it pretends to be");
    server.hear(nix::net::if_::if_nametoindex("lo").unwrap()).unwrap();
    assert!(is_answered(address, 1));
    let mut stream = connect(address, 1, 9);
    write_framed(&mut stream, &question(WEB, 1, None)).unwrap();
    assert!(read_framed(&mut stream).is_ok());
    assert_eq!(asked(), 2);
}
