//! A pod with interfaces in two networks: each leads to its own network, and nothing passes between
//! them through the pod.

use std::net::IpAddr;

use atoll_datapath::DropReason;
use atoll_plan::{Endpoint, Guard, HostInterface, Place, PodInterface, Reach};
use atoll_types::{MacAddr, NetAddr};

use crate::fabric::{Fabric, Pod, State, network};
use crate::forge;
use crate::talk::{LIMIT, Voice, converse_udp, ping};

const FIRST: u32 = 100;
const FURTHER: u32 = 200;

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

/// A pod with two interfaces in one network, and a neighbour of it there.
fn scene_of_one_network() -> (Fabric, Pod, Pod) {
    let fabric = Fabric::of(1);
    let pod = fabric.planned_pod(0, network(FURTHER), "10.1.0.1");
    plan_further(&fabric, &pod);
    reach(&fabric, &[]);
    let neighbour = fabric.pod(0, network(FURTHER), "10.1.0.2");
    (fabric, pod, neighbour)
}

/// Plans what the pod reaches through its further interface.
fn reach(fabric: &Fabric, ranges: &[&str]) {
    let mut plan = fabric.nodes[0].plan.lock().unwrap();
    let further = plan.interfaces.values_mut().find(|interface| interface.name == "net1").unwrap();
    further.reach = Reach::Only(ranges.iter().map(|range| range.parse().unwrap()).collect());
}

#[test]
fn each_interface_in_the_same_network_answers_for_itself() {
    let (_fabric, pod, neighbour) = &scene_of_one_network();
    let [further, further_ipv6] = further_ips();
    for (ip, asker) in [
        (further, IpAddr::from(neighbour.ip)),
        (further_ipv6, neighbour.ipv6.into()),
        (pod.ip.into(), neighbour.ip.into()),
        (pod.ipv6.into(), neighbour.ipv6.into()),
    ] {
        assert!(ping(voice(neighbour, asker), ip, LIMIT), "{ip} answers");
        let seen = converse_udp(voice(pod, ip), voice(neighbour, asker));
        assert_eq!(seen, ip, "what starts with {ip} leaves with it");
    }
}

#[test]
fn the_routes_of_a_running_pod_follow_the_plan_and_those_of_others_stay() {
    let Scene { fabric, pod, .. } = &scene();
    let node = &fabric.nodes[0];
    pod.namespace.ip("route add 10.9.0.0/16 dev net1");
    reach(fabric, &["10.2.0.0/16", "fd02::/64"]);
    let steps = node.converge();
    assert!(matches!(steps[..], [atoll_plan::Step::RouteInterface(..)]), "{steps:?}");
    let routes =
        ["-4 route show dev net1", "-6 route show dev net1"].map(|it| pod.namespace.ip(it));
    assert!(routes[0].contains("10.2.0.0/16 via") && routes[1].contains("fd02::/64 via"));
    assert!(!routes[0].contains("10.1.0.0/16") && !routes[1].contains("fd00::/64"), "{routes:?}");
    assert!(routes[0].contains("10.9.0.0/16"), "a route of somebody else: {routes:?}");
    assert_eq!(node.converge(), vec![]);
}

#[test]
fn a_datapath_opened_anew_makes_sure_of_the_routes_of_pods_with_several_interfaces() {
    let Scene { fabric, pod, .. } = &scene();
    for family in ["-4", "-6"] {
        pod.namespace.ip(&format!("{family} rule flush"));
        pod.namespace.ip(&format!("{family} rule add table main"));
    }
    fabric.nodes[0].run(State::open);
    let steps = fabric.nodes[0].converge();
    let routed = |step: &atoll_plan::Step| matches!(step, atoll_plan::Step::RouteInterface(..));
    assert!(steps.len() == 2 && steps.iter().all(routed), "{steps:?}");
    assert_eq!(rules(pod), 4);
    remake_further(fabric);
    assert_eq!(rules(pod), 4, "a link made anew leaves no rule of the former one");
}

/// How many rules lead packets by the address that they start with.
fn rules(pod: &Pod) -> usize {
    let all = ["-4 rule", "-6 rule"].map(|family| pod.namespace.ip(family));
    all.iter().flat_map(|rules| rules.lines()).filter(|rule| rule.starts_with("1000:")).count()
}

/// Deletes the further interface by hand and has it made again.
fn remake_further(fabric: &Fabric) {
    let node = &fabric.nodes[0];
    let interfaces = node.plan.lock().unwrap().interfaces.clone();
    let further = interfaces.iter().find(|(_, interface)| interface.name == "net1").unwrap().0;
    node.namespace.ip(&format!("link delete {further}"));
    node.converge();
    assert_eq!(node.observe(), node.planned());
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
