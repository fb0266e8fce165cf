//! Every case of network policy, played by two tenants with equal names, labels and addresses at
//! once, on the maps and the program of the real kernel: for every ordered pair of pods, port and
//! protocol, the first packet passes where a plain reading of the API lets it, and nowhere else.
//! Beside the cases, a sample of random worlds. The program is run by the kernel's own test run;
//! nothing is sent.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};

use atoll_oracle::cases::{cluster_policy_cases, generated_cases, netpol_cases, own_cases};
use atoll_oracle::{Case, PORTS, PROTOCOLS, Scene, World, says};
use atoll_plan::{Endpoint, Place};
use atoll_policy::Compiler;
use atoll_types::{NetAddr, NetworkId};
use aya::Ebpf;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

use crate::bridge::steps;
use crate::fabric::{Fabric, Pod};
use crate::forge::{datagram, icmp_of, packet, tcp};
use crate::random;
use crate::talk::Voice;
use crate::verdicts::{REDIRECT, classifier, load, run};

const TENANTS: [&str; 2] = ["blue", "green"];

/// Where addresses begin that no scene uses.
const SPARE: u8 = 100;

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
struct Packet {
    name: String,
    ifindex: u32,
    frame: Vec<u8>,
    passes: bool,
}

fn addresses<'a>(scenes: impl Iterator<Item = &'a Scene>) -> BTreeMap<NetworkId, BTreeSet<IpAddr>> {
    let mut all: BTreeMap<NetworkId, BTreeSet<IpAddr>> = BTreeMap::new();
    for pod in scenes.flat_map(|scene| scene.played_by(&TENANTS).pods) {
        for (_, address) in pod.addresses {
            all.entry(address.network).or_default().insert(address.ip);
        }
    }
    all
}

impl Stage {
    /// A stage on which these can be played.
    fn for_scenes<'a>(scenes: impl Iterator<Item = &'a Scene>) -> Stage {
        let fabric = Fabric::of(1);
        let program = Arc::new(Mutex::new(fabric.nodes[0].run(|state| load(state))));
        let mut stage = Stage { fabric, program, pods: Vec::new(), seats: BTreeMap::new() };
        for (network, ips) in addresses(scenes) {
            let ips: Vec<IpAddr> = ips.into_iter().collect();
            ips.chunks(ADDRESSES).for_each(|ips| stage.seat(network, ips));
        }
        stage
    }

    /// An interface that has these addresses.
    fn seat(&mut self, network: NetworkId, ips: &[IpAddr]) {
        let place = SPARE + u8::try_from(self.pods.len()).unwrap();
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
    fn cell(&self, world: &World, ends: (NetAddr, NetAddr), by: &str, port: u16) -> Packet {
        let (from, to) = ends;
        let (pod, ifindex) = &self.pods[self.seats[&from]];
        let ports = (40_000, port);
        let (protocol, content) = match by {
            "TCP" => (6, tcp(ports, 0x02)),
            "UDP" => (17, datagram(ports, b"")),
            "SCTP" => (132, sctp_init(ports)),
            _ => (icmp_of(from.ip), echo_request(from.ip)),
        };
        Packet {
            name: format!("{from} > {to} {by} {port}"),
            ifindex: *ifindex,
            frame: packet(Voice { pod, ip: from.ip }, to.ip, protocol, &content),
            passes: says(world, from, to, by, port).passes(),
        }
    }

    /// Every packet that a pod of the world may send to another of its network.
    fn cells(&self, world: &World) -> Vec<Packet> {
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

    /// Plays scenes one after the other, and compares after every step. Gives how many packets
    /// passed and how many did not, or those of the first scene that fared otherwise than they must.
    fn play(&self, scenes: &[Scene]) -> Result<(usize, usize), String> {
        let (mut passed, mut refused) = (0, 0);
        let mut compiler = Compiler::new();
        let mut before = World::default();
        for (position, scene) in scenes.iter().enumerate() {
            let world = scene.played_by(&TENANTS);
            self.program(&mut compiler, &before, &world, position == 0);
            let cells = self.cells(&world);
            let expected = cells.iter().filter(|cell| cell.passes).count();
            (passed, refused) = (passed + expected, refused + cells.len() - expected);
            let wrong = self.wrong(cells);
            if !wrong.is_empty() {
                return Err(format!("scene {position}: {}", wrong.join("\n")));
            }
            before = world;
        }
        Ok((passed, refused))
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
    fn wrong(&self, cells: Vec<Packet>) -> Vec<String> {
        let object = self.program.clone();
        self.fabric.nodes[0].run(move |_| {
            let mut object = object.lock().unwrap();
            let program = classifier(&mut object, "from_pod");
            let judge = |cell: Packet| {
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
    let stage = Stage::for_scenes(cases.iter().flat_map(|case| &case.scenes));
    let (mut passed, mut refused) = (0, 0);
    for case in cases {
        let played = stage.play(&case.scenes);
        let (more, less) = played.unwrap_or_else(|wrong| panic!("{}, {wrong}", case.name));
        (passed, refused) = (passed + more, refused + less);
    }
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

/// How many random sequences of scenes are played.
const SAMPLE: u32 = 40;

/// A source of chance that begins where `$ATOLL_SEED` says, or anywhere.
fn chance() -> (u64, TestRng) {
    let told = std::env::var("ATOLL_SEED").ok();
    let seed = told.map_or_else(rand_seed, |text| text.parse().expect("ATOLL_SEED is a number"));
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    (seed, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
}

fn rand_seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[test]
fn a_sample_of_random_worlds_holds_on_the_kernel() {
    let (seed, rng) = chance();
    println!("ATOLL_SEED={seed}");
    let config = Config { cases: SAMPLE, max_shrink_iters: 400, ..Config::default() };
    let config = Config { failure_persistence: None, ..config };
    let stage = Stage::for_scenes([random::everybody()].iter());
    let told = Cell::new((0, 0));
    let scenes = proptest::collection::vec(random::scene(), 1..=3);
    let outcome = TestRunner::new_with_rng(config, rng).run(&scenes, |scenes| {
        let (passed, refused) = stage.play(&scenes).map_err(TestCaseError::fail)?;
        let (before, and) = told.get();
        told.set((before + passed, and + refused));
        Ok(())
    });
    if let Err(TestError::Fail(wrong, scenes)) = outcome {
        let words: Vec<String> = scenes.iter().map(random::in_words).collect();
        panic!("ATOLL_SEED={seed} fails, {wrong}\nwith scenes\n{}", words.join("then\n"));
    }
    outcome.unwrap();
    let (passed, refused) = told.get();
    assert!(passed > 1000 && refused > 1000, "{passed} passed, {refused} did not");
}
