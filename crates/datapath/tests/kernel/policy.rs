//! Every case of network policy, played by two tenants with equal names, labels and addresses at
//! once, on the maps and the program of the real kernel: for every ordered pair of pods, port and
//! protocol, the first packet passes where a plain reading of the API lets it, and nowhere else.
//! The program is run by the kernel's own test run; nothing is sent.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};

use atoll_oracle::cases::{cluster_policy_cases, generated_cases, netpol_cases, own_cases};
use atoll_oracle::{Case, PORTS, PROTOCOLS, World, says};
use atoll_plan::{Endpoint, Place};
use atoll_policy::Compiler;
use atoll_types::{NetAddr, NetworkId};
use aya::Ebpf;

use crate::bridge::steps;
use crate::fabric::{Fabric, Pod};
use crate::forge::{datagram, icmp_of, packet, tcp};
use crate::talk::Voice;
use crate::verdicts::{REDIRECT, classifier, load, run};

const TENANTS: [&str; 2] = ["blue", "green"];

/// How many addresses an interface has at most.
const ADDRESSES: usize = 8;

/// A node with an interface for every address that a case uses, in the networks of both tenants.
struct Stage {
    fabric: Fabric,
    program: Arc<Mutex<Ebpf>>,
    pods: Vec<(Pod, u32)>,
    seats: BTreeMap<NetAddr, usize>,
}

/// One packet, and whether it must pass.
struct Cell {
    name: String,
    ifindex: u32,
    frame: Vec<u8>,
    passes: bool,
}

fn addresses(cases: &[Case]) -> BTreeMap<NetworkId, BTreeSet<IpAddr>> {
    let mut all: BTreeMap<NetworkId, BTreeSet<IpAddr>> = BTreeMap::new();
    let worlds = cases.iter().flat_map(|case| &case.scenes).map(|scene| scene.played_by(&TENANTS));
    for pod in worlds.flat_map(|world| world.pods) {
        for (_, address) in pod.addresses {
            all.entry(address.network).or_default().insert(address.ip);
        }
    }
    all
}

impl Stage {
    fn for_cases(cases: &[Case]) -> Stage {
        let fabric = Fabric::of(1);
        let program = Arc::new(Mutex::new(fabric.nodes[0].run(|state| load(state))));
        let mut stage = Stage { fabric, program, pods: Vec::new(), seats: BTreeMap::new() };
        for (network, ips) in addresses(cases) {
            let ips: Vec<IpAddr> = ips.into_iter().collect();
            ips.chunks(ADDRESSES).for_each(|ips| stage.seat(network, ips));
        }
        stage
    }

    /// An interface that has these addresses.
    fn seat(&mut self, network: NetworkId, ips: &[IpAddr]) {
        let place = u8::try_from(self.pods.len()).unwrap();
        let spare = Ipv4Addr::new(10, 99, 0, place).to_string();
        let pod = self.fabric.planned_pod(0, network, &spare);
        let node = &self.fabric.nodes[0];
        let mut plan = node.plan.lock().unwrap();
        pod.addrs().iter().for_each(|addr| drop(plan.endpoints.remove(addr)));
        plan.interfaces.get_mut(&pod.host_side).unwrap().guard.ips = ips.iter().copied().collect();
        for ip in ips {
            let addr = NetAddr::new(network, *ip);
            let place = Place::Here(pod.host_side.clone());
            plan.endpoints.insert(addr, Endpoint { mac: pod.mac, place });
            self.seats.insert(addr, self.pods.len());
        }
        drop(plan);
        node.converge();
        let link = node.namespace.ip(&format!("-o link show {}", pod.host_side));
        let ifindex = link.split(':').next().unwrap().parse().unwrap();
        self.pods.push((pod, ifindex));
    }

    /// The first packet from one address to another.
    fn cell(&self, world: &World, ends: (NetAddr, NetAddr), by: &str, port: u16) -> Cell {
        let (from, to) = ends;
        let (pod, ifindex) = &self.pods[self.seats[&from]];
        let ports = (40_000, port);
        let (protocol, content) = match by {
            "TCP" => (6, tcp(ports, 0x02)),
            "UDP" => (17, datagram(ports, b"")),
            "SCTP" => (132, sctp_init(ports)),
            _ => (icmp_of(from.ip), echo_request(from.ip)),
        };
        Cell {
            name: format!("{from} > {to} {by} {port}"),
            ifindex: *ifindex,
            frame: packet(Voice { pod, ip: from.ip }, to.ip, protocol, &content),
            passes: says(world, from, to, by, port).passes(),
        }
    }

    /// Every packet that a pod of the world may send to another of its network.
    fn cells(&self, world: &World) -> Vec<Cell> {
        let ends = ends(world);
        let pairs = ends.iter().flat_map(|from| ends.iter().map(move |to| (*from, *to)));
        let meeting = pairs.filter(|(from, to)| {
            from.network == to.network && from.ip.is_ipv4() == to.ip.is_ipv4()
        });
        let kinds = PROTOCOLS.iter().flat_map(|by| PORTS.iter().map(move |port| (*by, *port)));
        let kinds: Vec<_> = kinds.filter(|(by, port)| *by != "ICMP" || *port == PORTS[0]).collect();
        let all = meeting.flat_map(|ends| kinds.iter().map(move |kind| (ends, *kind)));
        all.map(|(ends, (by, port))| self.cell(world, ends, by, port)).collect()
    }

    /// Plays cases one after the other, each step by step, and compares after every step. Gives how
    /// many packets passed and how many did not.
    fn play(&self, cases: &[Case]) -> (usize, usize) {
        let (mut passed, mut refused) = (0, 0);
        for case in cases {
            let mut compiler = Compiler::new();
            let mut before = World::default();
            for (position, scene) in case.scenes.iter().enumerate() {
                let world = scene.played_by(&TENANTS);
                self.program(&mut compiler, &before, &world, position == 0);
                let cells = self.cells(&world);
                let expected = cells.iter().filter(|cell| cell.passes).count();
                (passed, refused) = (passed + expected, refused + cells.len() - expected);
                let wrong = self.wrong(cells);
                assert_eq!(wrong, Vec::<String>::new(), "{}, scene {position}", case.name);
                before = world;
            }
        }
        (passed, refused)
    }

    /// Brings the kernel from one world to the next: a first one whole, others change by change.
    fn program(&self, compiler: &mut Compiler, before: &World, world: &World, is_first: bool) {
        let changes: Vec<_> =
            steps(before, world).into_iter().map(|event| compiler.apply(event)).collect();
        let tables = compiler.tables().clone();
        let networks = self.seats.keys().map(|address| address.network).collect();
        self.fabric.nodes[0].run(move |state| {
            let datapath = state.datapath.as_mut().unwrap();
            if is_first {
                datapath.replace_policy(&tables).unwrap();
            } else {
                changes.iter().for_each(|changes| datapath.change_policy(changes).unwrap());
            }
            datapath.decide_anew(&networks).unwrap();
        });
    }

    /// The packets that did not fare as they must.
    fn wrong(&self, cells: Vec<Cell>) -> Vec<String> {
        let object = self.program.clone();
        self.fabric.nodes[0].run(move |_| {
            let mut object = object.lock().unwrap();
            let program = classifier(&mut object);
            let judge = |cell: Cell| {
                let passes = run(program, cell.ifindex, &cell.frame).0 == REDIRECT;
                (passes != cell.passes).then(|| format!("{}: {passes}", cell.name))
            };
            cells.into_iter().filter_map(judge).collect()
        })
    }
}

/// The addresses of pods. One that two pods have is served to neither, and so has no packets.
fn ends(world: &World) -> BTreeSet<NetAddr> {
    let pods = world.pods.iter().filter(|pod| !pod.host_network);
    let all: Vec<NetAddr> =
        pods.flat_map(|pod| pod.addresses.iter().map(|(_, address)| *address)).collect();
    let is_its_own = |address: &&NetAddr| all.iter().filter(|it| it == address).count() == 1;
    all.iter().filter(is_its_own).copied().collect()
}

fn sctp_init(ports: (u16, u16)) -> Vec<u8> {
    let (from, to) = (ports.0.to_be_bytes(), ports.1.to_be_bytes());
    [&from[..], &to, &[0; 8], &[1, 0, 0, 4]].concat()
}

/// Everybody asks with one id.
fn echo_request(of: IpAddr) -> Vec<u8> {
    vec![if of.is_ipv4() { 8 } else { 128 }, 0, 0, 0, 0, 7, 0, 1]
}

/// Plays all, and holds that both answers were given many times.
fn holds_on_the_kernel(cases: &[Case]) {
    let (passed, refused) = Stage::for_cases(cases).play(cases);
    assert!(passed > 1000 && refused > 1000, "{passed} passed, {refused} did not");
}

#[test]
fn the_cases_of_kubernetes_hold_on_the_kernel() {
    holds_on_the_kernel(&netpol_cases());
}

#[test]
fn the_generated_cases_hold_on_the_kernel() {
    holds_on_the_kernel(&generated_cases());
}

#[test]
fn the_cases_of_cluster_network_policy_hold_on_the_kernel() {
    holds_on_the_kernel(&cluster_policy_cases());
}

#[test]
fn the_cases_of_atoll_hold_on_the_kernel() {
    holds_on_the_kernel(&own_cases());
}
