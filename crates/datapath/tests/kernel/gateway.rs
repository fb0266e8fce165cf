//! The gateway that exists only in answers: it can be pinged, and it says when a packet is too big.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use atoll_datapath::DropReason;
use atoll_testkit::{Hears, eventually};

use crate::fabric::{Fabric, Pod, State, network};
use crate::services::{TARGET, vip, voice, voices};
use crate::talk::{LIMIT, converse_tcp, listen, ping, udp};

const V4: IpAddr = IpAddr::V4(Ipv4Addr::new(169, 254, 1, 1));
const V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1));

fn two_pods(fabric: &Fabric) -> [Pod; 2] {
    two_pods_of(fabric, 100)
}

fn two_pods_of(fabric: &Fabric, number: u32) -> [Pod; 2] {
    let last = fabric.nodes.len() - 1;
    [(0, "10.0.0.1"), (last, "10.0.0.2")].map(|(at, ip)| fabric.pod(at, network(number), ip))
}

#[test]
fn the_gateway_answers_pings_of_both_families() {
    let fabric = Fabric::of(1);
    let [pod, _] = two_pods(&fabric);
    assert!(ping(pod.v4(), V4, LIMIT), "no answer from {V4}");
    assert!(ping(pod.v6(), V6, LIMIT), "no answer from {V6}");
}

#[test]
fn a_time_to_live_of_one_reaches_every_pod() {
    for nodes in [1, 2] {
        let fabric = Fabric::of(nodes);
        let [one, other] = two_pods(&fabric);
        let (asker, answerer) = (udp(one.v4(), 0), udp(other.v4(), 0));
        asker.set_ttl(1).unwrap();
        asker.send_to(b"near?", answerer.local_addr().unwrap()).unwrap();
        assert_eq!(answerer.hear(&mut [0; 8]).unwrap(), 5);
    }
}

/// The largest packet that the pod's kernel believes fits to `to`.
fn path_mtu(pod: &Pod, to: IpAddr) -> Option<u32> {
    let route = pod.namespace.ip(&format!("route get {to}"));
    let mut words = route.split_whitespace().skip_while(|word| *word != "mtu");
    words.nth(1)?.parse().ok()
}

/// Pods that think more fits than does, since the underlay became narrower.
fn two_pods_on_a_narrowed_underlay(nodes: u8) -> (Fabric, [Pod; 2]) {
    let fabric = Fabric::of(nodes);
    let pods = two_pods(&fabric);
    narrow(&fabric);
    (fabric, pods)
}

fn narrow(fabric: &Fabric) {
    for node in &fabric.nodes {
        node.namespace.ip("link set uplink mtu 1400");
        node.run(State::open);
    }
}

#[test]
fn a_packet_too_big_for_the_tunnel_is_answered_with_what_fits() {
    let (fabric, [one, other]) = two_pods_on_a_narrowed_underlay(2);
    for (from, to) in [(one.v4(), other.v4()), (one.v6(), other.v6())] {
        let dropped = || fabric.nodes[0].dropped(Some(one.network), DropReason::TooBig);
        let before = dropped();
        udp(from, 0).send_to(&[7; 1400], (to.ip, 9)).unwrap();
        eventually("the sender learned what fits", || {
            (path_mtu(&one, to.ip) == Some(1350)).then_some(())
        });
        assert_eq!(dropped(), before + 1);
    }
}

#[test]
fn tcp_with_too_big_segments_shrinks_them_and_goes_on() {
    let (_fabric, [one, other]) = two_pods_on_a_narrowed_underlay(2);
    assert_eq!(converse_tcp(one.v4(), other.v4(), 500_000), one.ip);
    assert_eq!(converse_tcp(one.v6(), other.v6(), 500_000), one.ipv6);
    assert_eq!(path_mtu(&one, other.ip.into()), Some(1350));
    assert_eq!(path_mtu(&one, other.ipv6.into()), Some(1350));
}

#[test]
fn what_is_too_big_through_a_service_is_answered_by_the_gateway_about_the_service() {
    let fabric = Fabric::of(2);
    let tenants = [100, 200].map(|number| two_pods_of(&fabric, number));
    narrow(&fabric);
    for [one, other] in &tenants {
        fabric.serve(one.network, &[other], None);
    }
    for [one, other] in &tenants {
        for client in voices(one) {
            assert_ne!(path_mtu(one, vip(client.ip)), Some(1350), "what others learned is theirs");
            crate::services::converse_tcp(client, &listen(voice(client, other), TARGET), 500_000);
            assert_eq!(path_mtu(one, vip(client.ip)), Some(1350), "of what the client sent");
            assert_eq!(path_mtu(other, client.ip), Some(1350), "of the answers");
        }
    }
}

#[test]
fn on_one_node_nothing_is_too_big() {
    let (_fabric, pods) = two_pods_on_a_narrowed_underlay(1);
    let answerer = udp(pods[1].v4(), 0);
    udp(pods[0].v4(), 0).send_to(&[7; 1400], answerer.local_addr().unwrap()).unwrap();
    assert_eq!(answerer.hear(&mut [0; 2000]).unwrap(), 1400);
}
