//! Openings, crashes, repairs and removal.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use atoll_datapath::{Datapath, DatapathError, DropReason, Tended};
use atoll_plan::{NodePlan, Step, diff};
use atoll_testkit::{Hears, Namespace, Stops, eventually};
use tokio::sync::mpsc::Receiver;

use crate::fabric::{Fabric, Node, Pod, State, attachments, network};
use crate::talk::{BRIEF, LIMIT, converse, udp};

/// Two pods on the first node and one on the second.
pub(crate) fn three_pods(fabric: &Fabric) -> [Pod; 3] {
    [(0, "10.0.0.1"), (0, "10.0.0.2"), (1, "10.0.0.3")]
        .map(|(place, ip)| fabric.pod(place, network(100), ip))
}

/// The kernel has exactly what the plan says.
pub(crate) fn is_as_planned(node: &Node) {
    assert_eq!(node.observe(), node.planned());
    assert_eq!(node.converge(), vec![]);
}

#[test]
fn what_was_applied_is_what_is_observed_also_after_opening_again() {
    for attachment in attachments() {
        let fabric = Fabric::attached_by(2, attachment);
        let _pods = three_pods(&fabric);
        for node in &fabric.nodes {
            is_as_planned(node);
            node.run(State::open);
            is_as_planned(node);
        }
    }
}

#[test]
fn every_step_is_repeatable() {
    for attachment in attachments() {
        let fabric = Fabric::attached_by(1, attachment);
        let pod = fabric.planned_pod(0, network(100), "10.0.0.1");
        let other = fabric.planned_pod(0, network(100), "10.0.0.2");
        let node = &fabric.nodes[0];
        let plan = node.plan.lock().unwrap().clone();
        let twice = move |desired: NodePlan| {
            node.run(move |state| {
                for step in diff(&desired, &state.observe()) {
                    state.apply(&step).unwrap();
                    state.apply(&step).unwrap();
                }
            });
        };
        twice(plan);
        is_as_planned(node);
        converse(&pod, &other);
        twice(NodePlan::default());
        assert_eq!(node.observe(), atoll_plan::Observed::default());
    }
}

/// Sends a numbered question, waits for its answer, and so on, until told to stop.
pub(crate) fn lockstep(
    client: &UdpSocket,
    server: &UdpSocket,
    stop: &AtomicBool,
    count: &AtomicU64,
) {
    let to = server.local_addr().unwrap();
    let mut heard = [0; 8];
    while !stop.load(Ordering::Relaxed) {
        let asked = count.load(Ordering::Relaxed);
        client.send_to(&asked.to_be_bytes(), to).unwrap();
        let question = server.hear_from(&mut heard);
        let (_, from) = question.unwrap_or_else(|_| panic!("question {asked} to {to} was lost"));
        server.send_to(&heard, from).unwrap();
        let answer = client.hear_from(&mut heard);
        answer.unwrap_or_else(|_| panic!("answer {asked} from {to} was lost"));
        assert_eq!(heard, asked.to_be_bytes());
        count.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn opening_again_during_a_flow_loses_no_packet_and_keeps_the_maps() {
    for attachment in attachments() {
        let fabric = Fabric::attached_by(2, attachment);
        let pods = three_pods(&fabric);
        let sockets = pods.each_ref().map(|pod| [udp(pod.v4(), 0), udp(pod.v6(), 0)]);
        let stop = AtomicBool::new(false);
        let counts = [AtomicU64::new(0), AtomicU64::new(0)];
        thread::scope(|scope| {
            let _stopped = Stops(&stop);
            let (near, far) = (&sockets[1][0], &sockets[2][1]);
            scope.spawn(|| lockstep(&sockets[0][0], near, &stop, &counts[0]));
            scope.spawn(|| lockstep(&sockets[0][1], far, &stop, &counts[1]));
            for _ in 0..5 {
                fabric.nodes.iter().for_each(|node| node.run(State::open));
                let before = counts.each_ref().map(|count| count.load(Ordering::Relaxed));
                eventually("both flows went on", || {
                    let now = counts.each_ref().map(|count| count.load(Ordering::Relaxed));
                    (now[0] > before[0] + 50 && now[1] > before[1] + 50).then_some(())
                });
            }
        });
        fabric.nodes.iter().for_each(is_as_planned);
    }
}

#[test]
fn opening_again_changes_no_counter() {
    let fabric = Fabric::of(1);
    let [pod, _] = ["10.0.0.1", "10.0.0.2"].map(|ip| fabric.pod(0, network(100), ip));
    let node = &fabric.nodes[0];
    udp(pod.v4(), 0).send_to(b"?", ("10.0.0.9", 9)).unwrap();
    let dropped = || node.dropped(Some(pod.network), DropReason::NoEndpoint);
    eventually("the packet was counted", || (dropped() == 1).then_some(()));
    node.run(State::open);
    assert_eq!(dropped(), 1);
}

#[test]
fn a_link_deleted_by_hand_is_seen_and_made_again() {
    for attachment in attachments() {
        let fabric = Fabric::attached_by(2, attachment);
        let pods = three_pods(&fabric);
        let node = &fabric.nodes[0];
        node.namespace.ip(&format!("link delete {}", pods[0].host_side));
        let seen = node.observe();
        assert!(!seen.interfaces[&pods[0].host_side].exists);
        assert!(pods[0].addrs().iter().all(|addr| seen.endpoints[addr].is_none()));
        assert_ne!(node.converge(), vec![]);
        is_as_planned(node);
        converse(&pods[0], &pods[1]);
        converse(&pods[2], &pods[0]);
    }
}

#[test]
fn a_link_of_the_same_name_made_by_hand_is_not_taken_for_guarded() {
    let fabric = Fabric::of(2);
    let pods = three_pods(&fabric);
    let node = &fabric.nodes[0];
    let name = &pods[0].host_side;
    node.namespace.ip(&format!("link delete {name}"));
    node.namespace.ip(&format!("link add {name} type veth peer name byhand"));
    assert_eq!(node.observe().interfaces[name].guard, None);
}

fn take_off_by_hand(node: &Node, link: &str) {
    let arguments = ["qdisc", "delete", "dev", link, "clsact"];
    assert!(node.namespace.command("tc", &arguments).status.success());
}

fn remove_pin(state: &State, name: &str) {
    let pins = state.bpf.files();
    let pin = pins.iter().find(|pin| pin.ends_with(name)).unwrap();
    std::fs::remove_file(pin).unwrap();
}

#[test]
fn a_program_taken_off_by_hand_is_seen_and_put_back() {
    for attachment in attachments() {
        let fabric = Fabric::attached_by(2, attachment);
        let pods = three_pods(&fabric);
        let node = &fabric.nodes[0];
        take_off_by_hand(node, pods[0].host_side.as_str());
        assert_eq!(node.observe().interfaces[&pods[0].host_side].guard, None);
        assert_ne!(node.converge(), vec![]);
        is_as_planned(node);
        converse(&pods[0], &pods[2]);
    }
}

#[test]
fn a_map_whose_pin_was_removed_by_hand_is_filled_again_after_opening() {
    let fabric = Fabric::of(2);
    let pods = three_pods(&fabric);
    let node = &fabric.nodes[0];
    let maps = ["interfaces", "near_interfaces", "endpoints", "peers", "drops"];
    for map in maps.into_iter().chain([
        "networks",
        "connections",
        "turns",
        "rings",
        "traffic",
        "events",
        "watchers",
    ]) {
        node.run(move |state| {
            remove_pin(state, &format!("maps/{map}"));
            state.open();
        });
        node.converge();
        is_as_planned(node);
        converse(&pods[0], &pods[2]);
    }
}

#[test]
fn the_tunnel_device_deleted_by_hand_is_made_again_by_opening() {
    let fabric = Fabric::of(2);
    let pods = three_pods(&fabric);
    fabric.nodes[0].namespace.ip("link delete atoll-vx");
    fabric.nodes[0].run(State::open);
    converse(&pods[0], &pods[2]);
}

#[test]
fn an_interface_is_not_raised_before_it_is_guarded() {
    for attachment in attachments() {
        let fabric = Fabric::attached_by(1, attachment);
        let pod = fabric.planned_pod(0, network(100), "10.0.0.1");
        let (name, interface) = (pod.host_side.clone(), pod.interface());
        let error = fabric.nodes[0].run(move |state| {
            state.apply(&Step::CreateInterface(name.clone(), interface)).unwrap();
            state.apply(&Step::RaiseInterface(name)).unwrap_err()
        });
        assert!(matches!(error.source, DatapathError::NotGuarded(_)), "{error:?}");
        assert!(!fabric.nodes[0].observe().interfaces[&pod.host_side].up);
    }
}

/// The packets that a link of the node has received.
fn received(node: &Node, link: &str) -> u64 {
    let shown = node.namespace.ip(&format!("-s -o link show {link}"));
    let after = shown.split("RX:").nth(1).unwrap().split('\\').nth(1).unwrap();
    after.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn an_interface_raised_by_hand_without_a_guard_passes_nothing() {
    let fabric = Fabric::of(1);
    let neighbour = fabric.pod(0, network(100), "10.0.0.2");
    let pod = fabric.planned_pod(0, network(100), "10.0.0.1");
    let node = &fabric.nodes[0];
    let (name, interface) = (pod.host_side.clone(), pod.interface());
    node.run(move |state| state.apply(&Step::CreateInterface(name, interface)).unwrap());
    node.namespace.ip("link set lo up");
    node.namespace.ip(&format!("link set {} up", pod.host_side));
    let own_stack = node.namespace.run(|| UdpSocket::bind((node.underlay, 2222)).unwrap());
    own_stack.set_nonblocking(true).unwrap();
    let heard = neighbour.packets();
    let shown = node.namespace.ip(&format!("-o link show {}", pod.host_side));
    let mac = shown.split("link/ether ").nth(1).unwrap().split(' ').next().unwrap();
    let mac: atoll_types::MacAddr = mac.parse().unwrap();
    let before = received(node, pod.host_side.as_str());
    for to in [node.underlay, neighbour.ip] {
        let mut frame = crate::forge::udp(&pod, to);
        frame[..6].copy_from_slice(&mac.octets());
        pod.packets().send(&frame).unwrap();
    }
    eventually("the link received both frames", || {
        (received(node, pod.host_side.as_str()) >= before + 2).then_some(())
    });
    assert!(own_stack.hear(&mut [0; 64]).is_err(), "the node's stack took a pod's packet");
    assert_eq!(heard.received().unwrap(), Vec::<Vec<u8>>::new());
}

/// The names of all links, whose states may be behind what happened to them.
fn links(namespace: &Namespace) -> Vec<String> {
    let table = namespace.ip("-br link");
    let names = table.lines().filter_map(|line| line.split(['@', ' ']).next());
    names.map(str::to_owned).collect()
}

#[test]
fn a_pod_that_has_the_interface_already_is_refused_and_left_as_it_was() {
    let fabric = Fabric::of(1);
    let pod = fabric.planned_pod(0, network(100), "10.0.0.1");
    pod.namespace.ip("link add eth0 type veth peer name other");
    let (before, node) = (links(&pod.namespace), &fabric.nodes[0]);
    let on_node = links(&node.namespace);
    let (name, interface) = (pod.host_side.clone(), pod.interface());
    let error =
        node.run(move |state| state.apply(&Step::CreateInterface(name, interface)).unwrap_err());
    assert!(matches!(error.source, DatapathError::InterfaceTaken { .. }), "{error:?}");
    assert_eq!(links(&pod.namespace), before);
    assert_eq!(links(&node.namespace), on_node);
}

#[test]
fn a_pod_whose_namespace_is_gone_is_refused_by_its_path() {
    let fabric = Fabric::of(1);
    let pod = fabric.planned_pod(0, network(100), "10.0.0.1");
    let mut interface = pod.interface();
    interface.sandbox = "/run/netns/gone".into();
    let name = pod.host_side.clone();
    let error = fabric.nodes[0]
        .run(move |state| state.apply(&Step::CreateInterface(name, interface)).unwrap_err());
    assert_eq!(error.source.to_string(), "cannot open the pod's network namespace /run/netns/gone");
}

#[test]
fn a_pods_interface_is_as_planned() {
    let fabric = Fabric::of(1);
    let pod = fabric.pod(0, network(100), "10.0.0.1");
    let link = pod.namespace.ip("-o link show eth0");
    assert!(link.contains(&pod.mac.to_string()) && link.contains("mtu 1450"), "{link}");
    assert!(pod.namespace.ip("-o -4 address show eth0").contains("10.0.0.1/32"));
    let routes = pod.namespace.ip("route");
    assert!(routes.contains("default via 169.254.1.1 dev eth0"), "{routes}");
    assert!(routes.contains("169.254.1.1 dev eth0 proto static scope link"), "{routes}");
    let ipv6 = pod.namespace.ip("-6 -o address show eth0");
    assert!(ipv6.lines().count() == 1 && ipv6.contains("fd00::1/128"), "{ipv6}");
    let routes = pod.namespace.ip("-6 route");
    assert!(routes.contains("default via fe80::1 dev eth0"), "{routes}");
    let host_side = fabric.nodes[0].namespace.ip(&format!("link show {}", pod.host_side));
    assert!(host_side.contains("alias test/10.0.0.1 eth0"), "{host_side}");
}

#[test]
fn removal_leaves_nothing_and_is_repeatable() {
    for attachment in attachments() {
        let fabric = Fabric::attached_by(2, attachment);
        let pods = three_pods(&fabric);
        let node = &fabric.nodes[0];
        let traces = |state: &State| {
            state.runtime.block_on(Datapath::traces(&state.config.bpf_root)).unwrap()
        };
        let before = node.run(move |state| traces(state));
        for trace in ["link atoll-vx", "link atoll-node", &format!("link {}", pods[0].host_side)] {
            assert!(before.iter().any(|found| found == trace), "{trace} is not in {before:?}");
        }
        assert!(before.iter().any(|found| found.starts_with("pins in ")), "{before:?}");
        for _ in 0..2 {
            node.run(move |state| {
                state.datapath = None;
                state.runtime.block_on(Datapath::remove(&state.config.bpf_root)).unwrap();
                assert_eq!(state.bpf.files(), Vec::<std::path::PathBuf>::new());
                assert!(!state.config.bpf_root.exists());
                assert_eq!(traces(state), Vec::<String>::new());
            });
        }
        assert_eq!(links(&node.namespace), ["lo", "uplink"]);
        assert!(!pods[0].namespace.ip("-br link").contains("eth0"));
    }
}

#[test]
fn links_of_others_survive_removal() {
    let fabric = Fabric::of(1);
    let node = &fabric.nodes[0];
    node.namespace.ip("link add atlantic type veth peer name vethc0ffee");
    node.run(|state| {
        state.datapath = None;
        state.runtime.block_on(Datapath::remove(&state.config.bpf_root)).unwrap();
    });
    let left = node.namespace.ip("-br link");
    assert!(left.contains("atlantic") && left.contains("vethc0ffee"), "{left}");
}

#[test]
fn many_interfaces_go_together_and_leave_the_rest() {
    let fabric = Fabric::of(1);
    let node = &fabric.nodes[0];
    let pod = |ip| fabric.pod(0, network(100), ip);
    let [one, two, stays] = [pod("10.0.0.1"), pod("10.0.0.2"), pod("10.0.0.3")];
    let stranger = "link add stranger group 1635020652 type veth peer name its-peer";
    for other in ["", stranger] {
        fabric.converge();
        if !other.is_empty() {
            node.namespace.ip(other);
        }
        let gone = [one.host_side.clone(), two.host_side.clone()];
        let removal = Step::RemoveInterfaces(gone.clone().into());
        node.run(move |state| state.apply(&removal).unwrap());
        let left = node.namespace.ip("-br link");
        assert!(gone.iter().all(|name| !left.contains(name.as_str())), "{left}");
        for (pod, is_there) in [(&one, false), (&two, false), (&stays, true)] {
            assert_eq!(pod.namespace.ip("-br link").contains("eth0"), is_there);
        }
        assert!(left.contains(stays.host_side.as_str()), "{left}");
        assert!(other.is_empty() || left.contains("stranger"), "{left}");
        assert!(gone.iter().all(|name| !node.observe().interfaces.contains_key(name)));
    }
}

#[test]
fn opening_says_what_is_wrong_and_changes_nothing() {
    let fabric = Fabric::of(1);
    fabric.nodes[0].run(|state| {
        let open = |config| state.runtime.block_on(Datapath::open(&config)).unwrap_err();
        let mut elsewhere = state.config.clone();
        elsewhere.bpf_root = "/tmp/not-bpf".into();
        assert!(matches!(open(elsewhere), DatapathError::NotBpfFileSystem(_)));
        let mut unknown = state.config.clone();
        unknown.underlay = [203, 0, 113, 1].into();
        assert!(matches!(open(unknown), DatapathError::NoUplink(_)));
        let other = state.config.bpf_root.join("v4711");
        std::fs::create_dir(&other).unwrap();
        let error = open(state.config.clone());
        assert!(matches!(error, DatapathError::OtherLayout(found) if found == other));
    });
}

#[test]
fn preflight_passes_here_and_leaves_nothing_behind() {
    let fabric = Fabric::of(1);
    let namespace = &fabric.nodes[0].namespace;
    let before = links(namespace);
    namespace.run(|| Datapath::preflight().unwrap());
    assert_eq!(links(namespace), before);
}

#[test]
fn pods_get_the_underlays_mtu_less_the_tunnel() {
    let fabric = Fabric::of(1);
    let node = &fabric.nodes[0];
    let mtu = || node.run(|state| state.datapath.as_ref().unwrap().pod_mtu());
    assert_eq!(mtu(), 1450);
    node.namespace.ip("link set uplink mtu 9000");
    node.run(State::open);
    assert_eq!(mtu(), 8950);
}

fn tend(node: &Node) -> Tended {
    node.run(|state| state.runtime.block_on(state.datapath.as_mut().unwrap().tend()).unwrap())
}

#[test]
fn a_tunnel_device_deleted_or_changed_under_a_running_agent_is_put_right() {
    let fabric = Fabric::of(2);
    let pods = three_pods(&fabric);
    let node = &fabric.nodes[0];
    assert_eq!(tend(node), Tended::InOrder);
    let port = "link add atoll-vx type vxlan external dstport 4790";
    for harm in [
        &["link delete atoll-vx"][..],
        &["link set atoll-vx down"],
        &["link set atoll-vx mtu 1200"],
        &["link delete atoll-vx", port],
    ] {
        harm.iter().for_each(|command| drop(node.namespace.ip(command)));
        assert_eq!(tend(node), Tended::OpenedAnew, "{harm:?}");
        assert_eq!(tend(node), Tended::InOrder, "{harm:?}");
        is_as_planned(node);
        converse(&pods[0], &pods[2]);
    }
}

#[test]
fn the_tunnels_program_taken_off_under_a_running_agent_is_put_back() {
    let fabric = Fabric::attached_by(2, atoll_datapath::Attachment::Clsact);
    let pods = three_pods(&fabric);
    take_off_by_hand(&fabric.nodes[0], "atoll-vx");
    assert_eq!(tend(&fabric.nodes[0]), Tended::OpenedAnew);
    converse(&pods[0], &pods[2]);
}

#[test]
fn running_pods_follow_the_size_of_the_underlays_packets() {
    let fabric = Fabric::of(2);
    let pods = three_pods(&fabric);
    for (underlay, left) in [(9000, 8950), (1400, 1350)] {
        for node in &fabric.nodes {
            node.namespace.ip(&format!("link set uplink mtu {underlay}"));
            assert_eq!(tend(node), Tended::OpenedAnew);
            let mut plan = node.plan.lock().unwrap();
            plan.interfaces.values_mut().for_each(|interface| interface.mtu = left);
            drop(plan);
            node.converge();
            is_as_planned(node);
        }
        for pod in &pods {
            let link = pod.namespace.ip("-o link show eth0");
            assert!(link.contains(&format!("mtu {left} ")), "{link}");
        }
        converse(&pods[0], &pods[2]);
    }
}

/// Removes every pin of the node, and the folder of the links' pins with them.
fn lose_pins(state: &mut State) {
    state.datapath = None;
    state.bpf.files().iter().for_each(|pin| std::fs::remove_file(pin).unwrap());
    for layout in std::fs::read_dir(&state.config.bpf_root).unwrap() {
        std::fs::remove_dir(layout.unwrap().path().join("links")).unwrap();
    }
}

#[test]
fn half_a_pin_directory_is_completed_by_opening() {
    let fabric = Fabric::of(2);
    let pods = three_pods(&fabric);
    let node = &fabric.nodes[0];
    node.run(|state| {
        lose_pins(state);
        state.open();
    });
    node.converge();
    is_as_planned(node);
    converse(&pods[0], &pods[1]);
    converse(&pods[0], &pods[2]);
}

#[test]
fn after_a_reboot_everything_is_made_anew() {
    let fabric = Fabric::of(2);
    let pods = three_pods(&fabric);
    let node = &fabric.nodes[0];
    node.run(lose_pins);
    for link in [pods[0].host_side.as_str(), pods[1].host_side.as_str(), "atoll-vx"] {
        node.namespace.ip(&format!("link delete {link}"));
    }
    node.run(State::open);
    node.converge();
    is_as_planned(node);
    converse(&pods[0], &pods[2]);
}

/// Whether word of a change comes within `limit`.
fn word_comes(state: &State, news: &mut Receiver<()>, limit: Duration) -> bool {
    let word = async { tokio::time::timeout(limit, news.recv()).await.is_ok() };
    state.runtime.block_on(word)
}

#[test]
fn what_is_removed_by_our_own_hand_is_no_news_and_what_others_remove_is() {
    let fabric = Fabric::of(1);
    let pods = [1, 2, 3, 4].map(|last| fabric.pod(0, network(100), &format!("10.0.0.{last}")));
    let names = pods.each_ref().map(|pod| pod.host_side.clone());
    fabric.nodes[0].run(move |state| {
        let mut news = state.runtime.block_on(async { Datapath::news().unwrap() });
        while word_comes(state, &mut news, BRIEF) {}
        for together in [&names[..1], &names[1..3]] {
            let removal = Step::RemoveInterfaces(together.iter().cloned().collect());
            state.apply(&removal).unwrap();
            assert!(!word_comes(state, &mut news, BRIEF), "{together:?}");
        }
        let by_hand = ["link", "delete", names[3].as_str()];
        assert!(std::process::Command::new("ip").args(by_hand).status().unwrap().success());
        assert!(word_comes(state, &mut news, LIMIT));
    });
}
