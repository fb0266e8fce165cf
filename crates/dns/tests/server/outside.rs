//! Names outside: asked of the network's own upstreams, kept for that network, and hard to forge.

use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use atoll_dns::{Answered, Config, Forwarding, Limits, Refused, Server};
use atoll_testkit::eventually;
use atoll_testkit::names::{Part, Upstream, add, reply, wire_name};
use hickory_proto::op::Message;

use crate::client::{Client, connect, question, read_framed, summary, write_framed};
use crate::shop::{ACME, UMBRELLA, config, network, open};

/// One that answers over UDP and TCP at the same port: what the kernel draws for UDP may be the port of
/// somebody's TCP connection.
fn over_both(answer: fn(&[u8]) -> Vec<u8>) -> (Upstream, TcpListener) {
    let tries = (0..20).map(|_| {
        let upstream = Upstream::on_loopback(move |packet, _| vec![answer(packet)]);
        let listener = TcpListener::bind(upstream.address);
        listener.map(|listener| (upstream, listener))
    });
    tries.flatten().next().expect("no port is free over both")
}

/// How often an upstream was asked.
fn asked(upstream: &Upstream) -> usize {
    upstream.asked().len()
}

fn public(packet: &[u8]) -> Vec<u8> {
    reply(packet, 0, &[(1, 300, &[93, 184, 216, 34])])
}

fn forward(server: &Server, to: &[SocketAddr]) {
    let upstreams = to.to_vec();
    server.forward(network(ACME), Forwarding { upstreams, refuse_private: true });
}

fn hasty() -> Config {
    Config { upstream_wait: Duration::from_millis(300), ..config() }
}

#[test]
fn a_name_outside_is_asked_once_and_then_known_to_that_network_only() {
    let upstream = Upstream::on_loopback(|packet, _| vec![public(packet)]);
    let (server, address) = open(config());
    forward(&server, &[upstream.address]);
    let client = Client::new(address, 1, 9);
    for _ in 0..5 {
        let answer = client.ask("www.example.com", "A");
        assert_eq!(summary(&answer), "93.184.216.34");
        assert!(answer.metadata.recursion_available && !answer.metadata.authoritative);
    }
    assert_eq!(asked(&upstream), 1);
    let counts = server.counts(network(ACME)).unwrap();
    assert_eq!((counts.answered(Answered::Forwarded), counts.answered(Answered::Cached)), (1, 4));
    let other = Client::new(address, 2, 9);
    assert_eq!(summary(&other.ask("www.example.com", "A")), "REFUSED");
    let upstreams = vec![upstream.address];
    server.forward(network(UMBRELLA), Forwarding { upstreams, refuse_private: true });
    assert_eq!(summary(&other.ask("www.example.com", "A")), "93.184.216.34");
    assert_eq!(asked(&upstream), 2, "what one network knows, another asks for itself");
}

#[test]
fn what_is_known_grows_old_and_is_asked_for_again() {
    let upstream =
        Upstream::on_loopback(|packet, _| vec![reply(packet, 0, &[(1, 2, &[9, 9, 9, 9])])]);
    let (server, address) = open(config());
    forward(&server, &[upstream.address]);
    let client = Client::new(address, 1, 9);
    let mut seen = vec![];
    let start = Instant::now();
    while asked(&upstream) < 2 && start.elapsed() < Duration::from_secs(20) {
        seen.push(client.ask("www.example.com", "A").answers[0].ttl);
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(asked(&upstream), 2);
    assert!(seen.contains(&2) && seen.contains(&1), "{seen:?}");
}

#[test]
fn a_no_from_outside_is_known_too() {
    let soa = [b"\x00\x00".as_slice(), &[0; 16], &[0, 0, 0, 60]].concat();
    let upstream = Upstream::on_loopback(move |packet, _| vec![reply(packet, 3, &[(6, 60, &soa)])]);
    let (server, address) = open(config());
    forward(&server, &[upstream.address]);
    let client = Client::new(address, 1, 9);
    for _ in 0..3 {
        let answer = client.ask("no.example.com", "A");
        assert_eq!((summary(&answer).as_str(), answer.authorities.len()), ("NXDOMAIN", 1));
    }
    assert_eq!(asked(&upstream), 1);
}

#[test]
fn the_networks_own_names_are_never_asked_outside() {
    let upstream = Upstream::on_loopback(|packet, _| vec![public(packet)]);
    let (server, address) = open(config());
    forward(&server, &[upstream.address]);
    let client = Client::new(address, 1, 9);
    for name in ["no.shop.svc.cluster.local", "vault.secret.svc.cluster.local", "x.cluster.local"] {
        assert_eq!(summary(&client.ask(name, "A")), "NXDOMAIN", "{name}");
    }
    for name in ["9.9.9.10.in-addr.arpa", "7.114.0.203.in-addr.arpa", "1.0.0.127.in-addr.arpa"] {
        assert_eq!(summary(&client.ask(name, "PTR")), "NXDOMAIN", "{name}");
    }
    assert_eq!(asked(&upstream), 0);
    client.ask("8.8.8.8.in-addr.arpa", "PTR");
    assert_eq!(asked(&upstream), 1, "an address of others is");
}

#[test]
fn an_upstream_that_is_silent_or_fails_is_followed_by_the_next() {
    let silent = Upstream::on_loopback(|_, _| vec![]);
    let failing = Upstream::on_loopback(|packet, _| vec![reply(packet, 2, &[])]);
    let good = Upstream::on_loopback(|packet, _| vec![public(packet)]);
    let (server, address) = open(config());
    forward(&server, &[silent.address, failing.address, good.address]);
    let client = Client::new(address, 1, 9);
    assert_eq!(summary(&client.ask("www.example.com", "A")), "93.184.216.34");
    assert_eq!((asked(&silent), asked(&failing), asked(&good)), (1, 1, 1));
    forward(&server, &[silent.address, failing.address]);
    assert_eq!(summary(&client.ask("www.example.com", "A")), "SERVFAIL");
    assert_eq!(server.counts(network(ACME)).unwrap().refused(Refused::UpstreamFailed), 1);
}

#[test]
fn an_answer_that_points_inside_is_refused_where_the_network_wants_that() {
    let upstream = Upstream::on_loopback(|packet, _| {
        let kind = packet[packet.len() - 11 - 3];
        let mapped = "::ffff:10.0.0.1".parse::<std::net::Ipv6Addr>().unwrap().octets();
        let data: &[u8] = if kind == 28 { &mapped } else { &[10, 96, 0, 1] };
        vec![reply(packet, 0, &[(kind.into(), 60, data)])]
    });
    let (server, address) = open(config());
    forward(&server, &[upstream.address]);
    let upstreams = vec![upstream.address];
    server.forward(network(UMBRELLA), Forwarding { upstreams, refuse_private: false });
    let (strict, open) = (Client::new(address, 1, 9), Client::new(address, 2, 9));
    assert_eq!(summary(&strict.ask("evil.example.com", "A")), "REFUSED");
    assert_eq!(summary(&strict.ask("evil.example.com", "AAAA")), "REFUSED");
    assert_eq!(summary(&open.ask("evil.example.com", "A")), "10.96.0.1");
    assert_eq!(server.counts(network(ACME)).unwrap().refused(Refused::Rebinding), 2);
}

#[test]
fn an_answer_that_names_the_networks_own_is_refused_or_ends_before_it() {
    let inside = wire_name("web.shop.svc.cluster.local");
    let upstream = Upstream::on_loopback(move |packet, _| {
        let mut answer = reply(packet, 0, &[(5, 60, &inside)]);
        add(&mut answer, Part::Answer, &inside, (1, 60, &[6, 6, 6, 6]));
        vec![answer]
    });
    let (server, address) = open(config());
    forward(&server, &[upstream.address]);
    let upstreams = vec![upstream.address];
    server.forward(network(UMBRELLA), Forwarding { upstreams, refuse_private: false });
    let (strict, open) = (Client::new(address, 1, 9), Client::new(address, 2, 9));
    assert_eq!(summary(&strict.ask("evil.example.com", "A")), "REFUSED");
    assert_eq!(server.counts(network(ACME)).unwrap().refused(Refused::Rebinding), 1);
    assert_eq!(summary(&open.ask("evil.example.com", "A")), "web.shop.svc.cluster.local.");
    for client in [&strict, &open] {
        assert_eq!(summary(&client.ask("web.shop.svc.cluster.local", "A")), "198.18.1.10");
    }
}

#[test]
fn what_was_under_way_when_the_rules_changed_is_known_to_nobody_who_asks_afterwards() {
    let (open_gate, gate) = mpsc::channel::<()>();
    let upstream = Upstream::on_loopback(move |packet, _| {
        // The first question is held up until the rules have changed; later ones are not.
        let _ = gate.recv();
        vec![reply(packet, 0, &[(1, 300, &[10, 0, 0, 1])])]
    });
    let (server, address) = open(config());
    let rules = |refuse_private| {
        let upstreams = vec![upstream.address];
        server.forward(network(ACME), Forwarding { upstreams, refuse_private });
    };
    rules(false);
    let (early, late) = (Client::new(address, 1, 9), Client::new(address, 1, 10));
    early.send(&question("www.example.com", 1, None));
    upstream.wait_for_names(1);
    rules(true);
    drop(open_gate);
    let answer = Message::from_vec(&early.receive().unwrap()).unwrap();
    assert_eq!(summary(&answer), "10.0.0.1", "asked for under the rules before");
    assert_eq!(summary(&late.ask("www.example.com", "A")), "REFUSED");
    rules(false);
    assert_eq!(summary(&late.ask("www.example.com", "A")), "10.0.0.1");
}

#[test]
fn forged_answers_are_passed_over_until_the_true_one_comes() {
    let upstream = Upstream::on_loopback(|packet, _| {
        let forged = reply(packet, 0, &[(1, 300, &[6, 6, 6, 6])]);
        let (mut id, mut question) = (forged.clone(), forged.clone());
        id[0] ^= 0xff;
        question[13] ^= 0x01;
        vec![id, question, forged[..9].to_vec(), public(packet)]
    });
    let (server, address) = open(config());
    forward(&server, &[upstream.address]);
    let client = Client::new(address, 1, 9);
    assert_eq!(summary(&client.ask("www.example.com", "A")), "93.184.216.34");
    assert_eq!(server.counts(network(ACME)).unwrap().mismatched, 3);
}

#[test]
fn an_answer_from_another_address_is_not_heard() {
    let forger = UdpSocket::bind("127.0.0.2:0").unwrap();
    let upstream = Upstream::on_loopback(|_, _| vec![]);
    let (server, address) = open(hasty());
    forward(&server, &[upstream.address]);
    let client = Client::new(address, 1, 9);
    client.send(&question("www.example.com", 1, None));
    let (packet, from) = eventually("the upstream was asked", || upstream.asked().first().cloned());
    forger.send_to(&public(&packet), from).unwrap();
    let answer = Message::from_vec(&client.receive().unwrap()).unwrap();
    assert_eq!(summary(&answer), "SERVFAIL");
}

#[test]
fn each_question_outside_has_a_random_id_and_port() {
    let upstream = Upstream::on_loopback(|packet, _| vec![public(packet)]);
    let (server, address) = open(config());
    forward(&server, &[upstream.address]);
    let client = Client::new(address, 1, 9);
    (0..100).for_each(|n| drop(client.ask(&format!("n{n}.example.com"), "A")));
    let seen = upstream.asked();
    let distinct = |mut all: Vec<u16>| {
        all.sort_unstable();
        all.dedup();
        all.len()
    };
    let ids = seen.iter().map(|(packet, _)| u16::from_be_bytes([packet[0], packet[1]])).collect();
    let ports: Vec<u16> = seen.iter().map(|(_, from)| from.port()).collect();
    let steps = ports.windows(2).filter(|two| two[0].abs_diff(two[1]) < 4).count();
    assert!(distinct(ids) > 90 && distinct(ports) > 90 && steps < 10, "{steps} steps");
}

#[test]
fn the_same_question_of_many_pods_is_asked_outside_once() {
    let upstream = Upstream::on_loopback(|packet, _| {
        thread::sleep(Duration::from_millis(200));
        vec![public(packet)]
    });
    let (server, address) = open(config());
    forward(&server, &[upstream.address]);
    let clients: Vec<Client> = (1..30).map(|pod| Client::new(address, 1, pod)).collect();
    clients.iter().for_each(|client| client.send(&question("www.example.com", 1, None)));
    for client in &clients {
        let answer = Message::from_vec(&client.receive().unwrap()).unwrap();
        assert_eq!(summary(&answer), "93.184.216.34");
    }
    assert_eq!(asked(&upstream), 1);
}

#[test]
fn questions_that_wait_outside_are_limited_by_pod_and_stop_nobody_else() {
    let silent = Upstream::on_loopback(|_, _| vec![]);
    let limits = Limits { pod_forwards: 2, ..Limits::default() };
    let (server, address) =
        open(Config { limits, upstream_wait: Duration::from_secs(2), ..config() });
    forward(&server, &[silent.address]);
    let greedy = Client::new(address, 1, 9);
    (0..5).for_each(|n| greedy.send(&question(&format!("n{n}.example.com"), 1, None)));
    for _ in 0..3 {
        let answer = Message::from_vec(&greedy.receive().unwrap()).unwrap();
        assert_eq!(summary(&answer), "SERVFAIL");
    }
    assert_eq!(server.counts(network(ACME)).unwrap().refused(Refused::PodForwards), 3);
    silent.wait_for_names(2);
    assert_eq!(silent.names().len(), 2);
    let own = Client::new(address, 1, 9).ask("web.shop.svc.cluster.local", "A");
    assert_eq!(summary(&own), "198.18.1.10", "its own names are answered meanwhile");
    Client::new(address, 1, 10).send(&question("other.example.com", 1, None));
    silent.wait_for_names(3);
}

#[test]
fn the_pods_of_a_tenant_share_its_places_outside_and_another_tenant_has_its_own() {
    let silent = Upstream::on_loopback(|_, _| vec![]);
    let limits = Limits { tenant_forwards: 2, ..Limits::default() };
    let (server, address) =
        open(Config { limits, upstream_wait: Duration::from_secs(2), ..config() });
    forward(&server, &[silent.address]);
    let upstreams = vec![silent.address];
    server.forward(network(UMBRELLA), Forwarding { upstreams, refuse_private: true });
    let pods: Vec<Client> = (1..=5).map(|pod| Client::new(address, 1, pod)).collect();
    for (n, pod) in pods.iter().enumerate() {
        pod.send(&question(&format!("n{n}.example.com"), 1, None));
    }
    let refused = || server.counts(network(ACME)).unwrap().refused(Refused::TenantForwards);
    eventually("three had no place", || (refused() == 3).then_some(()));
    silent.wait_for_names(2);
    assert_eq!(silent.names().len(), 2);
    Client::new(address, 2, 9).send(&question("other.example.com", 1, None));
    silent.wait_for_names(3);
}

#[test]
fn an_answer_that_was_cut_is_fetched_over_tcp() {
    let (upstream, listener) = over_both(|packet| {
        let mut cut = reply(packet, 0, &[]);
        cut[2] |= 0x02;
        cut
    });
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let packet = read_framed(&mut stream).unwrap();
            write_framed(&mut stream, &public(&packet)).unwrap();
        }
    });
    let (server, address) = open(config());
    forward(&server, &[upstream.address]);
    let client = Client::new(address, 1, 9);
    assert_eq!(summary(&client.ask("big.example.com", "A")), "93.184.216.34");
    let mut stream = connect(address, 1, 9);
    write_framed(&mut stream, &question("bigger.example.com", 1, None)).unwrap();
    let answer = Message::from_vec(&read_framed(&mut stream).unwrap()).unwrap();
    assert_eq!(summary(&answer), "93.184.216.34");
}

#[test]
fn a_service_that_is_a_name_outside_is_followed_there() {
    let upstream = Upstream::on_loopback(|packet, _| vec![public(packet)]);
    let (server, address) = open(config());
    let client = Client::new(address, 1, 9);
    let name = "outside.shop.svc.cluster.local";
    assert_eq!(summary(&client.ask(name, "A")), "www.example.com.", "without upstreams");
    forward(&server, &[upstream.address]);
    for _ in 0..2 {
        assert_eq!(summary(&client.ask(name, "A")), "93.184.216.34; www.example.com.");
    }
    assert_eq!(asked(&upstream), 1);
}
