//! The decisions of `from_pod` as a table: a packet in, a verdict and a packet out, by the real
//! program, run by the kernel's own test run. Nothing is sent.

use std::net::{IpAddr, Ipv4Addr};

use atoll_abi::Connection as Entry;
use atoll_datapath::{ConnectionState, DropReason};
use aya::programs::{SchedClassifier, TestRun, TestRunOptions};
use aya::{Ebpf, EbpfLoader, include_bytes_aligned};

use crate::decisions::change_entries;
use crate::fabric::{Fabric, Node, Pod, State, network};
use crate::forge::{self, GATEWAY, IP, datagram, packet, tcp};
use crate::talk::Voice;

static FROM_POD: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/from_pod.o"));

/// The kernel's numbers for a packet that is dropped, and one that is sent elsewhere.
const SHOT: u32 = 2;
pub(crate) const REDIRECT: u32 = 7;

/// The offset of the interface's index in what the kernel gives a program, and the size of that.
const IFINDEX_AT: usize = 40;
const CONTEXT_SIZE: usize = 192;

/// What should become of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// Dropped, under this reason.
    Drop(DropReason),
    /// To a pod, with this MAC in place of the gateway's and the packet as it was.
    To([u8; 6]),
    /// Back to the sender, as another packet.
    Answer,
}

/// One row: what it is, the packet, and what becomes of it.
type Row = (&'static str, Vec<u8>, Verdict);

struct Scene {
    fabric: Fabric,
    sender: Pod,
    near: Pod,
    far: Pod,
}

fn scene() -> Scene {
    let fabric = Fabric::of(2);
    let pod = |at, ip| fabric.pod(at, network(100), ip);
    let (sender, near, far) = (pod(0, "10.0.0.1"), pod(0, "10.0.0.2"), pod(1, "10.0.0.3"));
    // Their own kernels have nothing to say, which would be counted beside what a test runs.
    [&sender, &near].iter().for_each(|pod| drop(pod.namespace.ip("link set eth0 down")));
    Scene { fabric, sender, near, far }
}

/// The program, loaded a second time on the node's own maps.
pub(crate) fn load(state: &State) -> Ebpf {
    let mut loader = EbpfLoader::new();
    loader
        .default_map_pin_directory(state.config.bpf_root.join("v5/maps"))
        .override_global("OVERLAY_IFINDEX", &1_u32, false)
        .override_global("POD_MTU", &1450_u32, false);
    let mut object = loader.load(FROM_POD).unwrap();
    classifier(&mut object).load().unwrap();
    object
}

pub(crate) fn classifier(object: &mut Ebpf) -> &mut SchedClassifier {
    object.program_mut("from_pod").unwrap().try_into().unwrap()
}

/// What the program says of a frame from the interface, and what it made of it.
pub(crate) fn run(program: &SchedClassifier, ifindex: u32, frame: &[u8]) -> (u32, Vec<u8>) {
    let mut context = vec![0; CONTEXT_SIZE];
    context[IFINDEX_AT..IFINDEX_AT + 4].copy_from_slice(&ifindex.to_ne_bytes());
    let mut out = vec![0; 4096];
    let mut options = TestRunOptions::new();
    options.data_in = Some(frame);
    options.data_out = Some(&mut out);
    options.ctx_in = Some(&context);
    let result = program.test_run(options).unwrap();
    let size = result.data_size_out as usize;
    out.truncate(size);
    (result.return_value, out)
}

impl Scene {
    fn voices(&self) -> [[Voice<'_>; 3]; 2] {
        let pods = [&self.sender, &self.near, &self.far];
        [pods.map(Pod::v4), pods.map(Pod::v6)]
    }

    /// Runs every row on the first node, in order, and says which went wrong.
    fn hold(&self, rows: Vec<Row>) {
        let node: &Node = &self.fabric.nodes[0];
        let link = node.namespace.ip(&format!("-o link show {}", self.sender.host_side));
        let ifindex: u32 = link.split(':').next().unwrap().parse().unwrap();
        let wrong = node.run(move |state| {
            let mut object = load(state);
            let program = classifier(&mut object);
            let judge = |(name, frame, expected): Row| {
                let before = counts(state);
                let (code, out) = run(program, ifindex, &frame);
                let found = verdict(code, &frame, &out, &before, &counts(state));
                (found != Some(expected)).then(|| format!("{name}: {found:?}, not {expected:?}"))
            };
            rows.into_iter().filter_map(judge).collect::<Vec<_>>()
        });
        assert_eq!(wrong, Vec::<String>::new());
    }
}

/// The drops of every reason, by number.
fn counts(state: &State) -> Vec<u64> {
    let drops = state.datapath.as_ref().unwrap().drops().unwrap();
    let of = |reason: &DropReason| {
        let own = drops.iter().filter(|drop| drop.reason == *reason);
        own.map(|drop| drop.packets).sum()
    };
    DropReason::ALL.iter().map(of).collect()
}

/// What became of a frame; none if it makes no sense.
fn verdict(code: u32, frame: &[u8], out: &[u8], before: &[u64], after: &[u64]) -> Option<Verdict> {
    let changed = DropReason::ALL.iter().zip(before.iter().zip(after));
    let counted: Vec<_> = changed.filter(|(_, (was, is))| is > was).map(|(it, _)| *it).collect();
    let to: [u8; 6] = out.get(..6)?.try_into().ok()?;
    match (code, counted.as_slice()) {
        (SHOT, [reason]) => Some(Verdict::Drop(*reason)),
        (REDIRECT, _) if out[6..12] != GATEWAY => None,
        (REDIRECT, _) if to[..] == frame[6..12] => Some(Verdict::Answer),
        (REDIRECT, []) if out[IP..] == frame[IP..] => Some(Verdict::To(to)),
        _ => None,
    }
}

fn with(mut frame: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    frame
}

#[test]
fn who_sends_and_who_receives() {
    use DropReason::{Malformed, Multicast, NoEndpoint, SpoofedAddress, SpoofedMac};
    let scene = scene();
    for [sender, near, far] in scene.voices() {
        let v4 = sender.ip.is_ipv4();
        let udp = |to: IpAddr| packet(sender, to, 17, &datagram((1, 2), b"x"));
        let ip = |v4: &str, v6: &str| if sender.ip.is_ipv4() { v4 } else { v6 }.parse().unwrap();
        let source = IP + if v4 { 12 } else { 8 };
        let drop = Verdict::Drop;
        scene.hold(vec![
            ("to a pod of this node", udp(near.ip), Verdict::To(near.pod.mac.octets())),
            ("to a pod of another node", udp(far.ip), Verdict::To(far.pod.mac.octets())),
            ("to nobody", udp(ip("10.0.0.77", "fd00::77")), drop(NoEndpoint)),
            ("to the gateway", udp(ip("169.254.1.1", "fe80::1")), drop(NoEndpoint)),
            ("to a group", udp(ip("224.0.0.1", "ff02::1")), drop(Multicast)),
            ("to a group's MAC", with(udp(near.ip), 0, &[1]), drop(Multicast)),
            ("from another MAC", with(udp(near.ip), 11, &[0xee]), drop(SpoofedMac)),
            ("from another address", with(udp(near.ip), source + 3, &[9]), drop(SpoofedAddress)),
            ("of another version", with(udp(near.ip), IP, &[0x55]), drop(Malformed)),
        ]);
    }
}

#[test]
fn a_packet_in_the_middle_of_a_connection_is_looked_at_like_its_first() {
    use DropReason::{Malformed, Multicast, SpoofedAddress, SpoofedMac};
    let scene = scene();
    for [sender, near, far] in scene.voices() {
        let (source, length) = if sender.ip.is_ipv4() { (12, 2) } else { (8, 4) };
        let udp = |to: Voice| packet(sender, to.ip, 17, &datagram((1, 2), &[7; 40]));
        let arrives = |to: Voice| Verdict::To(to.pod.mac.octets());
        let drop = Verdict::Drop;
        scene.hold([near, far].map(|to| ("a first one", udp(to), arrives(to))).into());
        change_entries(&scene.fabric.nodes[0], |entry| {
            Some(Entry { state: ConnectionState::Established as u8, ..entry })
        });
        let rows = |to: Voice| {
            [
                ("one like it", udp(to), arrives(to)),
                ("to a group's MAC", with(udp(to), 0, &[1]), drop(Multicast)),
                ("from another MAC", with(udp(to), 11, &[0xee]), drop(SpoofedMac)),
                (
                    "from another address",
                    with(udp(to), IP + source + 3, &[9]),
                    drop(SpoofedAddress),
                ),
                ("of another version", with(udp(to), IP, &[0x55]), drop(Malformed)),
                ("shorter than it says", with(udp(to), IP + length, &[0xff; 2]), drop(Malformed)),
                ("without its ports", with(udp(to), IP + length, &[0, 4]), drop(Malformed)),
                ("another like it", udp(to), arrives(to)),
            ]
        };
        scene.hold([near, far].into_iter().flat_map(rows).collect());
    }
}

#[test]
fn what_it_carries() {
    use DropReason::{Malformed, NoConnection, Protocol, UnrelatedIcmp, UnwantedNd};
    let scene = scene();
    for [sender, near, _] in scene.voices() {
        let carry = |protocol, content: &[u8]| packet(sender, near.ip, protocol, content);
        let arrives = Verdict::To(near.pod.mac.octets());
        let drop = Verdict::Drop;
        let (icmp, ping) = if sender.ip.is_ipv4() { (1, 8) } else { (58, 128) };
        let echo = |kind| carry(icmp, &[kind, 0, 0, 0, 0, 7, 0, 1]);
        let mut rows = vec![
            ("a first word of TCP", carry(6, &tcp((1, 2), 0x02)), arrives),
            ("a later word of TCP", carry(6, &tcp((3, 4), 0x10)), arrives),
            ("TCP that breaks off nothing", carry(6, &tcp((5, 6), 0x04)), arrives),
            ("TCP without a flag", carry(6, &tcp((7, 8), 0)), drop(NoConnection)),
            ("TCP that opens and ends", carry(6, &tcp((9, 10), 0x03)), drop(NoConnection)),
            ("TCP cut off", carry(6, &tcp((1, 2), 2)[..12]), drop(Malformed)),
            ("UDP", carry(17, &datagram((1, 2), b"")), arrives),
            ("UDP cut off", carry(17, &[0, 1, 0, 2]), drop(Malformed)),
            ("SCTP", carry(132, &[0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 4]), arrives),
            ("a ping", echo(ping), arrives),
            ("an error about nothing", echo(3), drop(UnrelatedIcmp)),
            ("IPv4 inside", carry(4, &[0x45; 40]), drop(Protocol)),
            ("IPv6 inside", carry(41, &[0x60; 60]), drop(Protocol)),
            ("GRE", carry(47, &[0; 40]), drop(Protocol)),
            ("ESP", carry(50, &[0; 40]), drop(Protocol)),
        ];
        if sender.ip.is_ipv6() {
            rows.push(("a router's message", echo(134), drop(UnwantedNd)));
            rows.push(("a redirect", echo(137), drop(UnwantedNd)));
        } else {
            rows.push(("a redirect", echo(5), drop(DropReason::IcmpRedirect)));
        }
        scene.hold(rows);
    }
}

#[test]
fn what_the_gateway_answers() {
    let scene = scene();
    let sender = &scene.sender;
    let own = (sender.mac.octets(), sender.ip);
    let asked = Ipv4Addr::new(10, 0, 0, 2);
    let lie = forge::arp(sender, 1, (own.0, asked), asked);
    let ping = |voice: Voice, to: &str, kind| {
        let icmp = forge::icmp_of(voice.ip);
        packet(voice, to.parse().unwrap(), icmp, &[kind, 0, 0, 0, 0, 7, 0, 1])
    };
    let question = forge::nd(135, scene.near.ipv6, own.0);
    let solicitation = forge::icmp6(sender, (sender.ipv6, scene.near.ipv6), &question);
    let claim = forge::nd(136, scene.near.ipv6, own.0);
    let advertisement = forge::icmp6(sender, (sender.ipv6, scene.near.ipv6), &claim);
    let big = packet(sender.v4(), scene.far.ip.into(), 17, &datagram((1, 2), &[0; 1500]));
    scene.hold(vec![
        ("who has", forge::arp(sender, 1, own, asked), Verdict::Answer),
        ("who has, in another's name", lie, Verdict::Drop(DropReason::SpoofedArp)),
        ("is at", forge::arp(sender, 2, own, asked), Verdict::Drop(DropReason::UnwantedArp)),
        ("a solicitation", solicitation, Verdict::Answer),
        ("an advertisement", advertisement, Verdict::Drop(DropReason::UnwantedNd)),
        ("a ping", ping(sender.v4(), "169.254.1.1", 8), Verdict::Answer),
        ("a ping of IPv6", ping(sender.v6(), "fe80::1", 128), Verdict::Answer),
        ("more than the tunnel carries", big, Verdict::Answer),
        ("LLDP", forge::other(sender, 0x88cc, &[0; 50]), Verdict::Drop(DropReason::NotIp)),
    ]);
}
