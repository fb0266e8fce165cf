//! A pod with interfaces in two networks: each leads to its own network, and nothing passes between
//! them through the pod.

use std::net::IpAddr;
use std::time::Duration;

use atoll_datapath::DropReason;
use atoll_plan::{Endpoint, Guard, HostInterface, Place, PodInterface, Reach};
use atoll_types::{MacAddr, NetAddr};

use crate::fabric::{Fabric, Pod, network};
use crate::forge;
use crate::talk::{Voice, converse_udp, ping};

const FIRST: u32 = 100;
const FURTHER: u32 = 200;
const LIMIT: Duration = Duration::from_secs(5);

/// A pod in both networks, and a neighbour of it in each.
struct Scene {
    fabric: Fabric,
    pod: Pod,
    in_first: Pod,
    in_further: Pod,
}

fn further_ips() -> [IpAddr; 2] {
    ["10.1.0.7", "fd01::7"].map(|ip| ip.parse().unwrap())
}

/// The pod's further interface, planned on its node.
fn plan_further(fabric: &Fabric, pod: &Pod) {
    let name = HostInterface::for_attachment(&format!("further-{}", pod.host_side), "net1");
    let mac = MacAddr::for_ip(further_ips()[0]);
    let mut plan = fabric.nodes[0].plan.lock().unwrap();
    plan.interfaces.get_mut(&pod.host_side).unwrap().has_siblings = true;
    for ip in further_ips() {
        let endpoint = Endpoint { mac, place: Place::Here(name.clone()) };
        plan.endpoints.insert(NetAddr::new(network(FURTHER), ip), endpoint);
    }
    let guard = Guard { network: network(FURTHER), mac, ips: further_ips().into() };
    let ranges = ["10.1.0.0/16", "fd00::/64"].map(|range| range.parse().unwrap());
    let interface = PodInterface {
        name: "net1".into(),
        description: "test further".into(),
        guard,
        reach: Reach::Only(ranges.into()),
        has_siblings: true,
        ..pod.interface()
    };
    plan.interfaces.insert(name, interface);
}

fn scene() -> Scene {
    let fabric = Fabric::of(1);
    let pod = fabric.planned_pod(0, network(FIRST), "10.0.0.1");
    pod.namespace.command("sysctl", &["-qw", "net.ipv4.ip_forward=1"]);
    plan_further(&fabric, &pod);
    let in_first = fabric.planned_pod(0, network(FIRST), "10.0.0.2");
    let in_further = fabric.pod(0, network(FURTHER), "10.1.0.2");
    Scene { fabric, pod, in_first, in_further }
}

fn voice(pod: &Pod, ip: impl Into<IpAddr>) -> Voice<'_> {
    Voice { pod, ip: ip.into() }
}

#[test]
fn a_pod_in_two_networks_reaches_both_each_with_its_own_address() {
    let Scene { pod, in_first, in_further, .. } = &scene();
    let seen = converse_udp(voice(pod, pod.ip), voice(in_first, in_first.ip));
    assert_eq!(seen, IpAddr::from(pod.ip));
    let [further, further_ipv6] = further_ips();
    assert_eq!(converse_udp(voice(pod, further), voice(in_further, in_further.ip)), further);
    let ipv6 = converse_udp(voice(pod, further_ipv6), voice(in_further, in_further.ipv6));
    assert_eq!(ipv6, further_ipv6);
    assert!(ping(voice(in_further, in_further.ip), further, LIMIT));
}

#[test]
fn only_the_first_interface_has_default_routes_and_ipv6_works_at_once() {
    let Scene { pod, .. } = &scene();
    for family in ["-4", "-6"] {
        let routes = pod.namespace.ip(&format!("{family} route"));
        let defaults: Vec<_> = routes.lines().filter(|line| line.starts_with("default")).collect();
        assert!(defaults.len() == 1 && defaults[0].contains("dev eth0"), "{routes}");
    }
    let routes = pod.namespace.ip("route show dev net1");
    assert!(
        routes.contains("10.1.0.0/16 via 169.254.1.1") && routes.contains("onlink"),
        "{routes}"
    );
    assert!(pod.namespace.ip("-4 -o address show net1").contains("10.1.0.7/32"));
    let ipv6 = pod.namespace.ip("-6 -o address show");
    assert!(ipv6.contains("fd01::7/128") && !ipv6.contains("tentative"), "{ipv6}");
}

#[test]
fn a_pod_in_two_networks_forwards_nothing_between_them() {
    let Scene { fabric, pod, in_first, in_further } = &scene();
    let heard = in_further.packets();
    let frame = forge::udp(in_first, in_further.ip);
    let dropped = || fabric.nodes[0].dropped(Some(network(FIRST)), DropReason::NoEndpoint);
    let before = dropped();
    in_first.packets().send(&frame).unwrap();
    atoll_testkit::eventually("the first network knows no such address", || {
        (dropped() > before).then_some(())
    });
    let through = forwarded(pod);
    let mut relayed = frame.clone();
    relayed[..6].copy_from_slice(&pod.mac.octets());
    deliver_to_pod(fabric, pod, &relayed);
    assert_eq!(forwarded(pod), through, "the pod's stack forwarded");
    assert_eq!(heard.received().unwrap(), Vec::<Vec<u8>>::new());
    for interface in ["eth0", "net1"] {
        let setting = format!("net.ipv4.conf.{interface}.forwarding");
        let said = pod.namespace.command("sysctl", &["-n", &setting]);
        assert_eq!(said.stdout, b"0\n", "{setting}");
    }
}

/// Sends a frame out of the host side, so that the pod's stack takes it in.
fn deliver_to_pod(fabric: &Fabric, pod: &Pod, frame: &[u8]) {
    let name = pod.host_side.to_string();
    let open = || atoll_testkit::PacketSocket::open(&name).unwrap();
    let received = || counter(pod, "InReceives");
    let before = received();
    fabric.nodes[0].namespace.run(open).send(frame).unwrap();
    atoll_testkit::eventually("the pod's stack took the frame", || {
        (received() > before).then_some(())
    });
}

fn forwarded(pod: &Pod) -> u64 {
    counter(pod, "ForwDatagrams")
}

/// A counter of the pod's IPv4 stack.
fn counter(pod: &Pod, name: &str) -> u64 {
    let table =
        pod.namespace.run(|| std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap());
    let mut lines = table.lines().filter(|line| line.starts_with("Ip:"));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let place = names.split_whitespace().position(|found| found == name).unwrap();
    values.split_whitespace().nth(place).unwrap().parse().unwrap()
}
