//! What is counted for a pod, and what is told to whoever listens.

use std::net::{IpAddr, SocketAddr};

use atoll_datapath::{DropReason, Event, Events, Happening, Tended};
use atoll_testkit::{Hears, eventually};

use crate::fabric::{Fabric, Node, Pod, network};
use crate::talk::{LIMIT, connect, listen, udp};

fn two_pods(fabric: &Fabric) -> [Pod; 2] {
    let last = fabric.nodes.len() - 1;
    [(0, "10.0.0.1"), (last, "10.0.0.2")].map(|(at, ip)| fabric.pod(at, network(100), ip))
}

#[test]
fn what_a_pod_sends_receives_and_loses_is_counted_and_goes_with_it() {
    for nodes in [1, 2] {
        let fabric = Fabric::of(nodes);
        let [one, other] = two_pods(&fabric);
        let (here, there) = (&fabric.nodes[0], fabric.nodes.last().unwrap());
        let receiver = udp(other.v4(), 0);
        let before = there.traffic(&other).unwrap().counters;
        for _ in 0..10 {
            udp(one.v4(), 0).send_to(&[7; 100], receiver.local_addr().unwrap()).unwrap();
            receiver.hear(&mut [0; 200]).unwrap();
            udp(one.v4(), 0).send_to(&[7; 100], ("10.0.0.77", 9)).unwrap();
        }
        let sent = eventually("all was counted", || {
            let counters = here.traffic(&one)?.counters;
            (counters.dropped_packets >= 10).then_some(counters)
        });
        let bytes = 10 * (14 + 20 + 8 + 100);
        assert_eq!((sent.sent_packets, sent.sent_bytes), (10, bytes));
        // The pod's own kernel may have asked for a group, too.
        assert!(sent.dropped_bytes >= bytes, "{sent:?}");
        let received = there.traffic(&other).unwrap().counters;
        assert_eq!(received.received_packets, before.received_packets + 10);
        assert_eq!(received.received_bytes, before.received_bytes + bytes);
        fabric.remove(&one);
        assert_eq!(here.traffic(&one), None);
        assert!(there.traffic(&other).is_some());
    }
}

/// Listens on a node's own thread while `work` is done, until all of it was told, and gives that.
fn told_during(node: &Node, work: impl FnOnce(), is_all: impl Fn(&[Event]) -> bool) -> Vec<Event> {
    let mut events: Events = node.run(|state| state.datapath.as_ref().unwrap().events().unwrap());
    work();
    let mut told = vec![];
    eventually("all of it was told", || {
        told.extend(events.take());
        is_all(&told).then_some(())
    });
    told
}

#[test]
fn whoever_listens_hears_of_drops_and_connections() {
    let fabric = Fabric::of(2);
    let [one, other] = two_pods(&fabric);
    for (from, to) in [(one.v4(), other.v4()), (one.v6(), other.v6())] {
        let server = SocketAddr::new(to.ip, 80);
        let nobody: SocketAddr =
            if to.ip.is_ipv4() { "10.0.0.77:9" } else { "[fd00::77]:9" }.parse().unwrap();
        let work = || {
            let listener = listen(to, 80);
            let ours = connect(from, 5000, server, LIMIT).unwrap();
            let theirs = listener.accept().unwrap();
            drop((theirs, ours));
            udp(from, 5001).send_to(b"?", nobody).unwrap();
        };
        let find = |told: &[Event], what| {
            let is_it = |event: &&Event| {
                let ends = [event.source, event.destination];
                event.what == what && (ends.contains(&server) || ends.contains(&nobody))
            };
            told.iter().find(is_it).copied()
        };
        let dropped = Happening::Dropped(DropReason::NoEndpoint);
        let all = [Happening::Opened, Happening::Closed, dropped];
        let told = told_during(&fabric.nodes[0], work, |told| {
            all.iter().all(|what| find(told, *what).is_some())
        });
        let [opened, _closed, dropped] = all.map(|what| find(&told, what).unwrap());
        assert_eq!(opened.network, Some(network(100)));
        assert_eq!((opened.source.port(), opened.destination, opened.protocol), (5000, server, 6));
        assert_eq!(dropped.source, SocketAddr::new(from.ip, 5001));
        assert_eq!((dropped.destination, dropped.protocol), (nobody, 17));
        let link = fabric.nodes[0].namespace.ip(&format!("-o link show {}", one.host_side));
        assert!(link.starts_with(&format!("{}:", dropped.ifindex)), "{link}");
    }
}

#[test]
fn when_nobody_listens_nothing_is_told() {
    let fabric = Fabric::of(1);
    let [one, _other] = two_pods(&fabric);
    let node = &fabric.nodes[0];
    let nobody: IpAddr = [10, 0, 0, 77].into();
    let lose_one = |port: u16| {
        let dropped = || node.dropped(Some(one.network), DropReason::NoEndpoint);
        let before = dropped();
        udp(one.v4(), 0).send_to(b"?", (nobody, port)).unwrap();
        eventually("it was dropped", || (dropped() > before).then_some(()));
    };
    let ports = |told: Vec<Event>| -> Vec<u16> {
        let ours = told.iter().filter(|event| event.destination.ip() == nobody);
        ours.map(|event| event.destination.port()).collect()
    };
    let at = |port| move |told: &[Event]| told.iter().any(|it| it.destination.port() == port);
    assert_eq!(ports(told_during(node, || lose_one(1), at(1))), [1]);
    lose_one(2);
    assert_eq!(ports(told_during(node, || lose_one(3), at(3))), [3]);
}

#[test]
fn a_listener_goes_on_hearing_when_the_tunnel_is_put_right() {
    let fabric = Fabric::of(1);
    let [one, _other] = two_pods(&fabric);
    let node = &fabric.nodes[0];
    let work = || {
        node.namespace.ip("link delete atoll-vx");
        let tended = node.run(|state| {
            let datapath = state.datapath.as_mut().unwrap();
            state.runtime.block_on(datapath.tend()).unwrap()
        });
        assert_eq!(tended, Tended::OpenedAnew);
        udp(one.v4(), 0).send_to(b"?", ("10.0.0.77", 5)).unwrap();
    };
    let is_ours = |event: &&Event| event.destination.port() == 5;
    let told = told_during(node, work, |told| told.iter().any(|event| is_ours(&event)));
    let told = told.iter().find(is_ours).unwrap();
    assert!(told.at.elapsed().unwrap() < LIMIT, "by the clock on the wall");
}
