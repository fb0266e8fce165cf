//! What most packets are takes a path of its own (usual.h). Here: it does what the longer path does.
//! Packets in, verdict and packet out, by the real program, run by the kernel's own test run.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use atoll_abi::{CONNECTION_DENIED, Connection as Entry, Traffic as Counters};
use atoll_datapath::ConnectionState;
use aya::Ebpf;

use crate::decisions::{change_entries, entries, let_time_pass};
use crate::fabric::{Fabric, Node, Pod};
use crate::forge::{datagram, packet, tcp};
use crate::services::{PORT, TARGET, Tenant, two_tenants, vip, voice, voices};
use crate::talk::Voice;
use crate::verdicts::{REDIRECT, classifier, load, run};

const TCP: u8 = 6;
const UDP: u8 = 17;
const ACK: u8 = 0x10;
const OWN_PORT: u16 = 5000;
/// In seconds.
const HOUR: u64 = 3600;

/// A client and pods that it speaks with, and the program that its node has.
struct Scene {
    fabric: Fabric,
    tenant: Tenant,
    program: Arc<Mutex<Ebpf>>,
}

fn scene() -> Scene {
    let fabric = Fabric::of(2);
    let [tenant, _alike] = two_tenants(&fabric);
    fabric.serve(tenant.network(), &[&tenant.near], None);
    let program = Arc::new(Mutex::new(fabric.nodes[0].run(|state| load(state))));
    Scene { fabric, tenant, program }
}

/// A packet of some content between two ports, right in its checksums.
fn speak(from: Voice, to: IpAddr, protocol: u8, ports: (u16, u16)) -> Vec<u8> {
    let (mut content, at) = match protocol {
        TCP => ([tcp(ports, ACK), vec![7; 100]].concat(), 16),
        _ => (datagram(ports, &[7; 100]), 6),
    };
    let ends = [from.ip, to].map(|ip| match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    });
    let size = u16::try_from(content.len()).unwrap().to_be_bytes();
    let covered = [&ends.concat()[..], &[0, protocol], &size, &content].concat();
    content[at..at + 2].copy_from_slice(&checksum(&covered).to_be_bytes());
    packet(from, to, protocol, &content)
}

/// The checksum of IP over an even number of bytes.
fn checksum(bytes: &[u8]) -> u16 {
    let halves = bytes.chunks(2).map(|half| u32::from(u16::from_be_bytes([half[0], half[1]])));
    let sum: u32 = halves.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

impl Scene {
    fn node(&self) -> &Node {
        &self.fabric.nodes[0]
    }

    /// What becomes of a frame of a pod.
    fn send(&self, pod: &Pod, frame: &[u8]) -> (u32, Vec<u8>) {
        let link = self.node().namespace.ip(&format!("-o link show {}", pod.host_side));
        let ifindex: u32 = link.split(':').next().unwrap().parse().unwrap();
        let (program, frame) = (self.program.clone(), frame.to_vec());
        self.node().run(move |_| {
            let mut object = program.lock().unwrap();
            run(classifier(&mut object, "from_pod"), ifindex, &frame)
        })
    }

    /// What a pod has sent and received so far.
    fn counted(&self, pod: &Pod) -> Counters {
        self.node().traffic(pod).unwrap().counters
    }

    /// Makes as if every connection had been answered.
    fn answer_all(&self) {
        change_entries(self.node(), |entry| {
            Some(Entry { state: ConnectionState::Established as u8, ..entry })
        });
    }

    /// A packet of a connection that is known is made the same of by both paths; gives what.
    fn is_alike(&self, pod: &Pod, frame: &[u8]) -> Vec<u8> {
        let_time_pass::<2>(self.node());
        let longer = self.send(pod, frame);
        assert_eq!(longer.0, REDIRECT);
        // However slow this machine is, the next packet comes within the second.
        change_entries(self.node(), |entry| {
            Some(Entry { last_seen: entry.last_seen + HOUR * 1_000_000_000, ..entry })
        });
        let before = (entries(self.node()), self.counted(pod));
        assert_eq!(self.send(pod, frame), longer, "the usual path and the longer one");
        let after = (entries(self.node()), self.counted(pod));
        assert_eq!(sorted(before.0), sorted(after.0), "nothing is written down");
        let_time_pass::<HOUR>(self.node());
        let size = frame.len() as u64;
        assert_eq!(after.1.sent_packets, before.1.sent_packets + 1);
        assert_eq!(after.1.sent_bytes, before.1.sent_bytes + size);
        longer.1
    }
}

/// In an order of their own: a map has none.
fn sorted<K: bytemuck::NoUninit, V: bytemuck::NoUninit>(all: Vec<(K, V)>) -> Vec<Vec<u8>> {
    let bytes =
        |(key, value): (K, V)| [bytemuck::bytes_of(&key), bytemuck::bytes_of(&value)].concat();
    let mut all: Vec<Vec<u8>> = all.into_iter().map(bytes).collect();
    all.sort();
    all
}

#[test]
fn a_usual_packet_between_pods_is_sent_as_by_the_longer_path() {
    let scene = scene();
    let client = &scene.tenant.client;
    for (from, protocol) in voices(client).into_iter().flat_map(|it| [(it, TCP), (it, UDP)]) {
        for to in scene.tenant.backends().map(|pod| voice(from, pod)) {
            let frame = speak(from, to.ip, protocol, (OWN_PORT, TARGET));
            assert_eq!(scene.send(client, &frame).0, REDIRECT);
            scene.answer_all();
            let out = scene.is_alike(client, &frame);
            assert_eq!((&out[..6], &out[14..]), (&to.pod.mac.octets()[..], &frame[14..]));
        }
    }
}

#[test]
fn what_a_pod_receives_by_the_usual_path_is_counted() {
    let scene = scene();
    let (client, near) = (&scene.tenant.client, &scene.tenant.near);
    let frame = speak(client.v4(), near.ip.into(), UDP, (OWN_PORT, TARGET));
    scene.send(client, &frame);
    scene.answer_all();
    let before = scene.counted(near);
    scene.is_alike(client, &frame);
    let after = scene.counted(near);
    assert_eq!(after.received_packets, before.received_packets + 2);
    assert_eq!(after.received_bytes, before.received_bytes + 2 * frame.len() as u64);
}

#[test]
fn a_usual_packet_through_a_service_is_translated_as_by_the_longer_path() {
    let scene = scene();
    let (client, near) = (&scene.tenant.client, &scene.tenant.near);
    for (from, protocol) in voices(client).into_iter().flat_map(|it| [(it, TCP), (it, UDP)]) {
        let (backend, service) = (voice(from, near), vip(from.ip));
        let asked = speak(from, service, protocol, (OWN_PORT, PORT));
        assert_eq!(scene.send(client, &asked).0, REDIRECT);
        scene.answer_all();
        let out = scene.is_alike(client, &asked);
        let sent = speak(from, backend.ip, protocol, (OWN_PORT, TARGET));
        assert_eq!(out[14..], sent[14..], "with the checksums of one to the backend");
        let answer = speak(backend, from.ip, protocol, (TARGET, OWN_PORT));
        let out = scene.is_alike(near, &answer);
        let said = speak(Voice { pod: near, ip: service }, from.ip, protocol, (PORT, OWN_PORT));
        assert_eq!(out[14..], said[14..], "with the checksums of one from the service");
    }
}

/// What an entry is made into.
type Becomes = fn(Entry) -> Option<Entry>;

#[test]
fn a_usual_packet_is_decided_anew_where_it_is_denied_or_its_network_changed() {
    let scene = scene();
    let (client, near) = (&scene.tenant.client, &scene.tenant.near);
    let frame = speak(client.v4(), near.ip.into(), UDP, (OWN_PORT, TARGET));
    let states: [(&str, Becomes); 2] = [
        ("decided at another generation", |it| Some(Entry { generation: 7777, ..it })),
        ("refused", |it| Some(Entry { flags: it.flags | CONNECTION_DENIED, ..it })),
    ];
    for (what, becomes) in states {
        scene.send(client, &frame);
        scene.answer_all();
        let settled = entries(scene.node());
        change_entries(scene.node(), becomes);
        assert_eq!(scene.send(client, &frame).0, REDIRECT, "{what}");
        let now = entries(scene.node());
        assert_eq!(now.len(), settled.len(), "{what}");
        assert!(now.iter().all(|(_, it)| it.generation == settled[0].1.generation), "{what}");
        assert!(now.iter().all(|(_, it)| it.flags & CONNECTION_DENIED == 0), "{what}");
    }
}
