//! Which backend takes a connection, and what becomes of it when backends come and go.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use atoll_testkit::{Hears, eventually};

use crate::fabric::{Fabric, Pod, network};
use crate::services::{PORT, TARGET, Tenant, front, two_tenants, vip, voice, voices};
use crate::talk::{BRIEF, LIMIT, connect, listen, udp};

/// Pods that answer every question with their own address.
struct Crowd {
    pods: Vec<Pod>,
    sockets: Vec<UdpSocket>,
}

impl Crowd {
    fn new(fabric: &Fabric, number: u32, size: u8) -> Crowd {
        let pod = |last| fabric.planned_pod(0, network(number), &format!("10.0.1.{last}"));
        let pods: Vec<Pod> = (1..=size).map(pod).collect();
        fabric.converge();
        let sockets = pods.iter().map(|pod| udp(pod.v4(), TARGET)).collect();
        Crowd { pods, sockets }
    }

    fn all(&self) -> Vec<&Pod> {
        self.pods.iter().collect()
    }

    /// Everyone answers what it was asked so far.
    fn answer(&self) {
        for socket in &self.sockets {
            socket.set_nonblocking(true).unwrap();
            while let Ok((_, peer)) = socket.hear_from(&mut [0; 64]) {
                socket.send_to(socket.local_addr().unwrap().to_string().as_bytes(), peer).unwrap();
            }
        }
    }
}

/// Who answers a question to the service from each of these sockets.
fn led_to(askers: &[UdpSocket], crowd: &Crowd) -> Vec<SocketAddr> {
    let mut led = vec![];
    for askers in askers.chunks(32) {
        for asker in askers {
            let ip = asker.local_addr().unwrap().ip();
            asker.set_nonblocking(true).unwrap();
            asker.send_to(b"who?", (vip(ip), PORT)).unwrap();
        }
        for asker in askers {
            let mut buffer = [0; 64];
            let (length, from) = eventually("somebody answers", || {
                crowd.answer();
                asker.hear_from(&mut buffer).ok()
            });
            assert_eq!(from, front(from.ip()));
            led.push(std::str::from_utf8(&buffer[..length]).unwrap().parse().unwrap());
        }
    }
    led
}

fn askers(client: &Pod, count: u16) -> Vec<UdpSocket> {
    (0..count).map(|number| udp(client.v4(), 20_000 + number)).collect()
}

fn counts(led: &[SocketAddr]) -> BTreeMap<SocketAddr, f64> {
    let mut counts = BTreeMap::new();
    led.iter().for_each(|to| *counts.entry(*to).or_default() += 1.0);
    counts
}

/// What chi-square stays below in 999 of 1000 cases with this many backends.
fn unlikely(backends: usize) -> f64 {
    match backends {
        9 => 26.12,
        10 => 27.88,
        _ => panic!("look it up in a table"),
    }
}

fn assert_even(led: &[SocketAddr], backends: usize) {
    let expected = led.len() as f64 / backends as f64;
    let counts = counts(led);
    assert_eq!(counts.len(), backends);
    let square: f64 = counts.values().map(|seen| (seen - expected).powi(2) / expected).sum();
    assert!(square < unlikely(backends), "chi-square {square} of {counts:?}");
}

#[test]
fn connections_are_spread_evenly_and_only_those_of_a_backend_that_goes_move() {
    let fabric = Fabric::of(1);
    let client = fabric.pod(0, network(100), "10.0.0.1");
    let crowd = Crowd::new(&fabric, 100, 10);
    fabric.serve(network(100), &crowd.all(), None);
    let askers = askers(&client, 1000);
    let before = led_to(&askers, &crowd);
    assert_even(&before, 10);
    assert_eq!(led_to(&askers, &crowd), before, "a client's questions stay together");
    fabric.serve(network(100), &crowd.all()[1..], None);
    let after = led_to(&askers, &crowd);
    assert_even(&after, 9);
    let gone = SocketAddr::new(crowd.pods[0].ip.into(), TARGET);
    for (was, is) in before.iter().zip(&after) {
        assert!(was == is || *was == gone, "{was} is still there");
        assert_ne!(*is, gone, "UDP does not stick to who is gone");
    }
    fabric.serve(network(100), &crowd.all(), None);
    assert_eq!(led_to(&askers, &crowd), after, "who is led somewhere stays there");
}

#[test]
fn with_affinity_a_client_is_led_to_one_backend_and_others_to_theirs() {
    let fabric = Fabric::of(1);
    let clients: Vec<Pod> = (1..=8)
        .map(|last| fabric.planned_pod(0, network(100), &format!("10.0.0.{last}")))
        .collect();
    let crowd = Crowd::new(&fabric, 100, 10);
    fabric.serve(network(100), &crowd.all(), Some(Duration::from_secs(3600)));
    let mut seen = BTreeMap::new();
    for client in &clients {
        let led = counts(&led_to(&askers(client, 40), &crowd));
        assert_eq!(led.len(), 1, "one client, one backend");
        *seen.entry(*led.keys().next().unwrap()).or_insert(0) += 1;
    }
    assert!(seen.len() > 1, "not all clients have the same backend");
    let (client, first) = (&clients[0], led_to(&askers(&clients[0], 1), &crowd)[0]);
    let others: Vec<&Pod> =
        crowd.pods.iter().filter(|pod| IpAddr::from(pod.ip) != first.ip()).collect();
    fabric.serve(network(100), &others, Some(Duration::from_secs(3600)));
    let led = counts(&led_to(&askers(client, 40), &crowd));
    assert_eq!(led.len(), 1, "another one takes all of them");
    assert!(!led.contains_key(&first));
}

#[test]
fn affinity_ends_when_nothing_was_opened_for_its_time() {
    let fabric = Fabric::of(1);
    let tenants = [100, 200].map(|number| {
        let client = fabric.pod(0, network(number), "10.0.0.1");
        let crowd = Crowd::new(&fabric, number, 10);
        fabric.serve(network(number), &crowd.all(), Some(Duration::from_secs(1)));
        (askers(&client, 30), client, crowd)
    });
    let mut led = [vec![], vec![]];
    for turn in 0..30 {
        for ((askers, _, crowd), led) in tenants.iter().zip(&mut led) {
            led.extend(led_to(&askers[turn..=turn], crowd));
        }
        if led.iter().all(|led| counts(led).len() > 1) {
            return;
        }
        std::thread::sleep(Duration::from_millis(1100));
    }
    panic!("thirty connections, each after the time, all had one backend: {led:?}");
}

/// A TCP connection through the service to `server`, that was used once.
fn opened(tenant: &Tenant, family: usize, server: &Pod) -> (TcpStream, TcpStream) {
    let client = voices(&tenant.client)[family];
    let listener = listen(voice(client, server), TARGET);
    let mut ours = connect(client, 0, front(client.ip), LIMIT).unwrap();
    let (mut theirs, _) = listener.accept().unwrap();
    theirs.set_read_timeout(Some(LIMIT)).unwrap();
    pass(&mut ours, &mut theirs).unwrap();
    (ours, theirs)
}

/// A word there and one back.
fn pass(ours: &mut TcpStream, theirs: &mut TcpStream) -> io::Result<()> {
    ours.write_all(b"word")?;
    theirs.read_exact(&mut [0; 4])?;
    theirs.write_all(b"back")?;
    ours.read_exact(&mut [0; 4])
}

#[test]
fn a_tcp_connection_stays_with_a_backend_that_was_taken_out_and_is_reset_when_it_is_gone() {
    let fabric = Fabric::of(2);
    let tenants = two_tenants(&fabric);
    for (tenant, place) in [(&tenants[0], 0), (&tenants[0], 1), (&tenants[1], 0), (&tenants[1], 1)]
    {
        let server = tenant.backends()[place];
        fabric.serve(tenant.network(), &[server], None);
        let mut open: Vec<_> = [0, 1].map(|family| opened(tenant, family, server)).into();
        fabric.serve(tenant.network(), &[], None);
        for (ours, theirs) in &mut open {
            pass(ours, theirs).unwrap();
        }
        let client = tenant.client.v4();
        let refused = connect(client, 0, front(client.ip), LIMIT).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused, "new ones are refused");
        fabric.remove(server);
        for (ours, _) in &mut open {
            let outcome = ours.write_all(b"word").and_then(|()| ours.read_exact(&mut [0; 4]));
            assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
        }
    }
}

#[test]
fn a_tcp_connection_survives_its_service() {
    let fabric = Fabric::of(1);
    let tenants = two_tenants(&fabric);
    for tenant in &tenants {
        fabric.serve(tenant.network(), &[&tenant.near], None);
    }
    let mut open: Vec<_> = tenants
        .iter()
        .flat_map(|tenant| [0, 1].map(|family| opened(tenant, family, &tenant.near)))
        .collect();
    for node in &fabric.nodes {
        node.plan.lock().unwrap().services.clear();
    }
    fabric.converge();
    for (ours, theirs) in &mut open {
        pass(ours, theirs).unwrap();
    }
    for tenant in &tenants {
        let client = tenant.client.v4();
        connect(client, 0, front(client.ip), BRIEF).unwrap_err();
    }
}

#[test]
fn two_connections_never_have_the_same_ends() {
    let fabric = Fabric::of(1);
    let [tenant, _other] = two_tenants(&fabric);
    let client = tenant.client.v4();
    fabric.serve(tenant.network(), &[&tenant.near], None);
    let listener = listen(tenant.near.v4(), TARGET);
    let mut direct =
        connect(client, 30_000, SocketAddr::new(tenant.near.ip.into(), TARGET), LIMIT).unwrap();
    let (mut theirs, _) = listener.accept().unwrap();
    let refused = connect(client, 30_000, front(client.ip), LIMIT).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    pass(&mut direct, &mut theirs).unwrap();
    let far = listen(tenant.far.v4(), TARGET);
    fabric.serve(tenant.network(), &tenant.backends(), None);
    for number in 30_001..30_020 {
        let direct = SocketAddr::new(tenant.near.ip.into(), TARGET);
        let mut direct = connect(client, number, direct, LIMIT).unwrap();
        let (mut theirs, _) = listener.accept().unwrap();
        let Ok(mut served) = connect(client, number, front(client.ip), LIMIT) else { continue };
        let (mut other, _) = far.accept().unwrap();
        pass(&mut served, &mut other).unwrap();
        pass(&mut direct, &mut theirs).unwrap();
    }
}

#[test]
fn datagrams_from_one_port_go_the_way_that_was_taken_last_and_their_answers_come_back_by_it() {
    let fabric = Fabric::of(2);
    let tenants = two_tenants(&fabric);
    for tenant in &tenants {
        for backend in tenant.backends() {
            fabric.serve(tenant.network(), &[backend], None);
            for client in voices(&tenant.client) {
                let server = udp(voice(client, backend), TARGET);
                let asker = udp(client, 5300);
                let straight = server.local_addr().unwrap();
                for to in [straight, front(client.ip), straight, front(client.ip)] {
                    asker.send_to(b"?", to).unwrap();
                    let (_, seen) = server.hear_from(&mut [0; 8]).unwrap();
                    assert_eq!(seen, asker.local_addr().unwrap());
                    server.send_to(b"!", seen).unwrap();
                    assert_eq!(asker.hear_from(&mut [0; 8]).unwrap(), (1, to));
                }
            }
        }
    }
}

#[test]
fn who_asked_before_anybody_was_there_is_led_on_from_the_same_port_once_somebody_is() {
    let fabric = Fabric::of(2);
    let tenants = two_tenants(&fabric);
    for tenant in &tenants {
        fabric.serve(tenant.network(), &[], None);
    }
    for tenant in &tenants {
        for client in voices(&tenant.client) {
            let asker = udp(client, 5353);
            asker.set_read_timeout(Some(BRIEF)).unwrap();
            asker.send_to(b"anybody?", front(client.ip)).unwrap();
            asker.hear(&mut [0; 8]).unwrap_err();
        }
        fabric.serve(tenant.network(), &[&tenant.far], None);
        for client in voices(&tenant.client) {
            let (asker, answerer) = (udp(client, 5353), udp(voice(client, &tenant.far), TARGET));
            asker.send_to(b"anybody?", front(client.ip)).unwrap();
            let (_, peer) = answerer.hear_from(&mut [0; 8]).unwrap();
            assert_eq!(peer, asker.local_addr().unwrap());
        }
    }
}
