//! The list of threats from an attacker's pod, on three nodes, against pods on its own node and on
//! another: nothing reaches a victim, each drop is counted by name, also while agents come and go.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use atoll_cni::wire::{AgentReply, AgentRequest, DropReport, ask};
use atoll_datapath::DropReason;
use atoll_testkit::forge::{self, Face};
use atoll_testkit::threats::{Cast, Row};
use atoll_testkit::{Namespace, PacketSocket, Stops, eventually};
use serde_json::{Value, json};

use crate::documents::{nics, pod, tenant, yaml};
use crate::exchanged::Shelf;
use crate::fixture::{Lab, kill_agent_and_await_the_next};

pub(crate) const TUNNEL_PORT: u16 = 4789;
pub(crate) const NODES: [&str; 3] = ["node1", "node2", "node3"];
pub(crate) const NODES_IPV4: [&str; 3] = ["172.30.0.11", "172.30.0.12", "172.30.0.13"];
/// What the nodes of a stage have besides.
pub(crate) const NODES_IPV6: [&str; 3] = ["fd30::11", "fd30::12", "fd30::13"];
/// The addresses of the attacker's own tenant for its service.
const VIPS: [&str; 2] = ["198.18.0.20", "fd18::20"];

/// A pod of the lab, from the inside.
pub(crate) struct Player {
    pub(crate) face: Face,
    pub(crate) network: u32,
    pub(crate) namespace: Namespace,
}

/// The attacker, its neighbours near and far, and another tenant's pods, two of which have the near
/// one's and the far one's very addresses.
pub(crate) struct Stage {
    pub(crate) lab: Lab,
    pub(crate) attacker: Player,
    pub(crate) near: Player,
    pub(crate) far: Player,
    pub(crate) foreign: Player,
    pub(crate) double: Player,
    pub(crate) twin: Player,
    pub(crate) tunnel_port: u16,
}

/// A service of the attacker's own tenant, with the far one behind it.
fn service_of_acme() -> [Value; 2] {
    let spec = json!({"defaultNetwork": {"type": "vpc", "cidrs": ["10.0.0.0/16", "fd00::/64"]},
                      "serviceCIDRs": ["198.18.0.0/16", "fd18::/112"]});
    let tenant = json!({"apiVersion": "atoll.dev/v1alpha1", "kind": "Tenant",
                        "metadata": {"name": "acme"}, "spec": spec});
    let service = json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "far", "namespace": "acme",
                     "annotations": {"atoll.dev/vip": VIPS.join(",")}},
        "spec": {"selector": {"app": "far"}, "ipFamilyPolicy": "RequireDualStack",
                 "ports": [{"port": 80, "targetPort": 8080}]}});
    [tenant, service]
}

impl Player {
    pub(crate) fn find(lab: &Lab, namespace: &str, name: &str) -> Player {
        let port =
            lab.kubectl(&["get", "port", "-n", namespace, &format!("{name}.eth0"), "-o", "json"]);
        let spec = &port.json()["spec"];
        let address = |place: usize| spec["ips"][place].as_str().unwrap().to_owned();
        Player {
            face: Face {
                mac: spec["mac"].as_str().unwrap().parse().unwrap(),
                ip: address(0).parse().unwrap(),
                ipv6: spec["ips"]
                    .get(1)
                    .map_or(Ipv6Addr::UNSPECIFIED, |_| address(1).parse().unwrap()),
            },
            network: spec["networkID"].as_u64().unwrap().try_into().unwrap(),
            namespace: Namespace::at(&lab.sandbox(&format!("{namespace}/{name}"))),
        }
    }

    pub(crate) fn packets(&self) -> PacketSocket {
        self.namespace.run(|| PacketSocket::open("eth0").unwrap())
    }
}

impl Stage {
    pub(crate) fn set() -> Stage {
        Stage::set_in(Lab::up(3))
    }

    pub(crate) fn set_in(lab: Lab) -> Stage {
        ["acme", "globex"].iter().for_each(|name| drop(lab.apply(&tenant(name)).good()));
        lab.apply(&yaml(&service_of_acme())).good();
        let at = |name: &str, node: &str, last| {
            let app = json!({"app": name.split_once('/').unwrap().1});
            pod(name, node, &app, &nics("default", last))
        };
        let pods = [
            at("acme/attacker", "node1", 5),
            at("acme/near", "node1", 6),
            at("acme/far", "node2", 7),
            at("globex/foreign", "node1", 8),
            at("globex/double", "node1", 6),
            at("globex/twin", "node3", 7),
        ];
        lab.apply(&yaml(&pods)).good();
        for (node, address) in NODES.iter().zip(NODES_IPV6) {
            lab.node(
                node,
                &["ip", "address", "replace", &format!("{address}/64"), "dev", "eth0", "nodad"],
            )
            .good();
        }
        lab.wait_for_pods();
        for vip in VIPS {
            let to = SocketAddr::new(vip.parse().unwrap(), 80).to_string();
            lab.reach("acme/attacker", "tcp", &to).good();
        }
        let player = |namespace: &str, name: &str| Player::find(&lab, namespace, name);
        let (attacker, near, far) =
            (player("acme", "attacker"), player("acme", "near"), player("acme", "far"));
        let [foreign, double, twin] = ["foreign", "double", "twin"].map(|it| player("globex", it));
        let tunnel_port = TUNNEL_PORT;
        Stage { lab, attacker, near, far, foreign, double, twin, tunnel_port }
    }

    fn cast(&self) -> Cast {
        Cast {
            attacker: self.attacker.face,
            near: self.near.face,
            far: self.far.face,
            foreign: self.foreign.face,
            foreign_network: self.foreign.network,
            nodes: NODES_IPV4.iter().chain(&NODES_IPV6).map(|ip| ip.parse().unwrap()).collect(),
            services: VIPS
                .iter()
                .chain(&["10.96.0.1", "fd96::1"])
                .map(|ip| ip.parse().unwrap())
                .collect(),
            tunnel_port: self.tunnel_port,
        }
    }

    pub(crate) fn victims(&self) -> [&Player; 5] {
        [&self.near, &self.far, &self.foreign, &self.double, &self.twin]
    }

    /// Checksums and segments are made by who sends, in every pod and on every node.
    pub(crate) fn switch_offloads_off(&self) {
        switch_offloads_off(&self.lab, self.victims().into_iter().chain([&self.attacker]));
    }

    /// Every row, against each victim of the attacker's network, in both families.
    fn rows<'a>(&'a self) -> Vec<(&'a Player, Row)> {
        let cast = self.cast();
        let against = |victim: &'a Player| {
            let encounters = cast.encounters(&victim.face);
            let rows = encounters.into_iter().flat_map(|(own, other)| cast.rows(own, other));
            rows.map(|row| (victim, row)).collect::<Vec<_>>()
        };
        [&self.near, &self.far].into_iter().flat_map(against).collect()
    }

    pub(crate) fn every_row_holds(&self) {
        self.rows().iter().for_each(|(victim, row)| self.holds(row, victim));
    }

    pub(crate) fn socket(&self, node: &str) -> PathBuf {
        self.lab.agent_socket(node)
    }

    /// Packets dropped on a node, of one network where it is given.
    pub(crate) fn dropped(&self, node: &str, network: Option<&str>, reason: &str) -> u64 {
        dropped(&self.lab, node, network, reason)
    }

    fn holds(&self, row: &Row, victim: &Player) {
        let others = self.victims().into_iter().filter(|player| !std::ptr::eq(*player, victim));
        let all: Vec<&Player> = [victim].into_iter().chain(others).collect();
        row.holds(
            &self.attacker.packets(),
            || all.iter().map(|player| player.packets()).collect(),
            |reason| self.dropped("node1", Some("acme.default"), reason.name()),
        );
    }
}

/// Checksums and segments are made by who sends, in these pods and on every node.
pub(crate) fn switch_offloads_off<'a>(lab: &Lab, pods: impl IntoIterator<Item = &'a Player>) {
    pods.into_iter().for_each(|player| player.namespace.switch_offloads_off("eth0"));
    for node in NODES {
        let node = Namespace::at(&lab.place(node));
        ["eth0", "atoll-vx"].iter().for_each(|link| node.switch_offloads_off(link));
    }
}

/// Packets dropped on a node, of one network where it is given.
pub(crate) fn dropped(lab: &Lab, node: &str, network: Option<&str>, reason: &str) -> u64 {
    let drops = eventually("the agent gives its counters", || {
        match ask(&lab.agent_socket(node), &AgentRequest::Drops) {
            Ok(AgentReply::Drops(drops)) => Some(drops),
            _ => None,
        }
    });
    let is_it = |drop: &&DropReport| {
        drop.reason == reason && (network.is_none() || drop.network.as_deref() == network)
    };
    drops.iter().filter(is_it).map(|drop| drop.packets).sum()
}

pub(crate) fn assert_silence(heard: &PacketSocket, when: &str) {
    let heard = heard.received().unwrap();
    assert!(heard.is_empty(), "{when}: {} frames, the first {:?}", heard.len(), heard[0]);
}

#[test]
fn every_row_of_the_threats_holds_from_a_pod_on_three_nodes_also_with_offloads_off() {
    let stage = Stage::set();
    stage.every_row_holds();
    stage.switch_offloads_off();
    stage.every_row_holds();
}

/// Sends every frame in turn until told to stop, and counts the rounds.
pub(crate) fn attack(
    socket: &PacketSocket,
    frames: &[Vec<u8>],
    stop: &AtomicBool,
    rounds: &AtomicU64,
) {
    while !stop.load(Ordering::Relaxed) {
        frames.iter().for_each(|frame| socket.send(frame).unwrap());
        rounds.fetch_add(1, Ordering::Relaxed);
        thread::sleep(Duration::from_millis(1));
    }
}

/// All that must be dropped whatever went before. A fragment that overwrites is a lie only beside
/// the first one of its datagram.
fn forged_at_any_time(stage: &Stage) -> Vec<(DropReason, Vec<u8>)> {
    let forged = stage.rows().into_iter().flat_map(|(_, row)| row.forged);
    forged.filter(|(reason, _)| *reason != DropReason::OverlappingFragment).collect()
}

/// The attack goes on while `moment` happens to one node after the other, nobody hears of it, and all of it is
/// counted.
fn no_forged_frame_passes_while(stage: &Stage, moment: impl Fn(&Lab, &str)) {
    let forged = forged_at_any_time(stage);
    let frames: Vec<Vec<u8>> = forged.iter().map(|(_, frame)| frame.clone()).collect();
    let reasons: BTreeSet<_> = forged.iter().map(|(reason, _)| *reason).collect();
    let count = |reason: &DropReason| stage.dropped("node1", Some("acme.default"), reason.name());
    let before: Vec<u64> = reasons.iter().map(count).collect();
    let heard = stage.victims().map(Player::packets);
    let (stop, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    let socket = stage.attacker.packets();
    thread::scope(|scope| {
        let _stopped = Stops(&stop);
        let attacker = scope.spawn(|| attack(&socket, &frames, &stop, &rounds));
        for node in ["node1", "node2", "node1", "node3"] {
            moment(&stage.lab, node);
            let now = rounds.load(Ordering::Relaxed);
            eventually("the attack went on", || {
                (attacker.is_finished() || rounds.load(Ordering::Relaxed) > now + 20).then_some(())
            });
        }
    });
    heard.iter().for_each(|heard| assert_silence(heard, "agents come and go"));
    let rounds = rounds.load(Ordering::Relaxed);
    for (reason, before) in reasons.iter().zip(before) {
        let sent = forged.iter().filter(|(one, _)| one == reason).count() as u64 * rounds;
        eventually(&format!("every {reason} was counted"), || {
            (count(reason) >= before + sent).then_some(())
        });
    }
}

#[test]
fn no_forged_frame_passes_while_agents_are_killed_and_restarted() {
    no_forged_frame_passes_while(&Stage::set(), kill_agent_and_await_the_next);
}

#[test]
fn no_forged_frame_passes_while_agents_are_upgraded() {
    let shelf = Shelf::new();
    let stage = Stage::set_in(Lab::up_from(&shelf.program(), 3));
    no_forged_frame_passes_while(&stage, |lab, node| {
        shelf.put_another();
        shelf.exchange(lab, node, "-KILL");
    });
}

/// The addresses of a machine that is no node.
pub(crate) const STRANGERS: [&str; 2] = ["172.30.0.99", "fd30::99"];

/// A machine on the nodes' own wire that is no node.
pub(crate) fn stranger(lab: &Lab) -> Namespace {
    let wire = Namespace::at(&lab.place("fabric"));
    let stranger = Namespace::new();
    wire.ip("link add stranger type veth peer name uplink");
    wire.ip("link set stranger master fabric0 up");
    wire.ip(&format!("link set uplink netns {}", stranger.path().display()));
    stranger.ip(&format!("addr add {}/24 dev uplink", STRANGERS[0]));
    stranger.ip(&format!("addr add {}/64 dev uplink nodad", STRANGERS[1]));
    stranger.ip("link set uplink up");
    stranger.await_links();
    stranger
}

/// A tunnel packet with a datagram of one pod for another.
pub(crate) fn tunnelled(from: &Player, to: &Player) -> Vec<u8> {
    let datagram = forge::datagram((1, 2), b"?");
    let packet = forge::packet(from.face.v4(), to.face.ip.into(), 17, &datagram);
    forge::vxlan(to.network, &packet)
}

/// What the stranger says by this address into the tunnel is dropped by each node, at this address of it.
pub(crate) fn a_stranger_is_dropped(
    stage: &Stage,
    machine: &Namespace,
    from: &str,
    nodes: [&str; 3],
) {
    let from: IpAddr = from.parse().unwrap();
    let socket = machine.run(|| std::net::UdpSocket::bind((from, 0)).unwrap());
    let packets = [
        tunnelled(&stage.far, &stage.near),
        tunnelled(&stage.near, &stage.far),
        tunnelled(&stage.foreign, &stage.twin),
    ];
    for ((node, address), packet) in NODES.iter().zip(nodes).zip(packets) {
        let to = SocketAddr::new(address.parse().unwrap(), stage.tunnel_port);
        let dropped = || stage.dropped(node, None, "overlay-stranger");
        let before = dropped();
        // Said again where the wire was not there yet.
        eventually("it was dropped as a stranger's", || {
            socket.send_to(&packet, to).unwrap();
            (dropped() > before).then_some(())
        });
    }
}

#[test]
fn a_tunnel_packet_of_a_machine_that_is_no_node_reaches_nobody_also_with_offloads_off() {
    let stage = Stage::set();
    let machine = stranger(&stage.lab);
    let heard = stage.victims().map(Player::packets);
    for with_offloads in [true, false] {
        if !with_offloads {
            stage.switch_offloads_off();
            machine.switch_offloads_off("uplink");
        }
        a_stranger_is_dropped(&stage, &machine, STRANGERS[0], NODES_IPV4);
    }
    heard.iter().for_each(|heard| assert_silence(heard, "row 5"));
}
