//! Restarts and upgrades under ten thousand packets a second: nothing is lost, nothing leaks.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use atoll_datapath::DropReason;
use atoll_testkit::{Hears, Stops, eventually};
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::RcvBufForce;

use crate::fabric::{Fabric, Pod, State, attachments, network};
use crate::forge;
use crate::talk::{Voice, udp};
use crate::upgrade::turn_back;

/// Packets for each beat of a sender, and its length: ten thousand a second.
const BURST: u64 = 20;
const BEAT: Duration = Duration::from_millis(2);

/// What may be under way at once: less than the kernel's own queues hold, which drop what is more
/// when a machine is busy.
const UNDER_WAY: u64 = 200;

/// Sends at a steady pace until told to stop, catching up when it was held up, and never more than
/// there is room for, be it in one beat.
fn at_a_steady_pace(
    stop: &AtomicBool,
    sent: &AtomicU64,
    has_room: impl Fn() -> bool,
    send: impl Fn(u64),
) {
    let start = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let due = start.elapsed().as_nanos() as u64 / BEAT.as_nanos() as u64 * BURST;
        let due = due.min(sent.load(Ordering::Relaxed) + UNDER_WAY);
        while sent.load(Ordering::Relaxed) < due && has_room() {
            send(sent.fetch_add(1, Ordering::Relaxed));
        }
        thread::sleep(BEAT);
    }
}

/// A receiver with room for what comes while it is not scheduled.
fn receiver(voice: Voice, port: u16) -> UdpSocket {
    let socket = udp(voice, port);
    setsockopt(&socket, RcvBufForce, &(64 << 20)).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    socket
}

/// Counts what arrives until told to stop.
fn count(socket: &UdpSocket, stop: &AtomicBool, arrived: &AtomicU64) {
    let mut buffer = [0; 64];
    while !stop.load(Ordering::Relaxed) {
        if socket.hear(&mut buffer).is_ok() {
            arrived.fetch_add(1, Ordering::Relaxed);
        }
    }
}

pub(crate) struct Scene {
    pub(crate) fabric: Fabric,
    pub(crate) sender: Pod,
    pub(crate) far: Pod,
    attacker: Pod,
    outsider: Pod,
}

pub(crate) fn scene(attachment: atoll_datapath::Attachment) -> Scene {
    let fabric = Fabric::attached_by(2, attachment);
    let pod = |at, number, ip| fabric.pod(at, network(number), ip);
    let (sender, far) = (pod(0, 100, "10.0.0.1"), pod(1, 100, "10.0.0.2"));
    let (attacker, outsider) = (pod(0, 200, "10.0.0.3"), pod(0, 300, "10.0.0.4"));
    Scene { fabric, sender, far, attacker, outsider }
}

/// Every packet of one connection, the first packets of ever new ones, and what must not pass, all
/// at the same time while `disturb` is done to the nodes. Gives how many were forged.
pub(crate) fn nothing_is_lost_and_nothing_leaks(scene: &Scene, disturb: impl Fn()) -> u64 {
    let Scene { sender, far, attacker, outsider, .. } = scene;
    let (stop, ended) = (AtomicBool::new(false), AtomicBool::new(false));
    let [sent, opened, forged, arrived] = [const { AtomicU64::new(0) }; 4];
    let (client, server) = (udp(sender.v4(), 1000), receiver(far.v4(), 2000));
    let to = server.local_addr().unwrap();
    let fresh = sender.packets();
    let (raw, heard) = (attacker.packets(), outsider.packets());
    let under_way = || {
        let all = sent.load(Ordering::Relaxed) + opened.load(Ordering::Relaxed);
        all.saturating_sub(arrived.load(Ordering::Relaxed))
    };
    let has_room = || under_way() < UNDER_WAY;
    let foreign = forge::udp_from(attacker.mac.octets(), outsider.ip, outsider.ip);
    thread::scope(|scope| {
        let _ended = Stops(&ended);
        scope.spawn(|| count(&server, &ended, &arrived));
        let flows = thread::scope(|flows| {
            let _stopped = Stops(&stop);
            flows.spawn(|| {
                at_a_steady_pace(&stop, &sent, has_room, |n| {
                    client.send_to(&n.to_be_bytes(), to).unwrap();
                });
            });
            flows.spawn(|| {
                at_a_steady_pace(&stop, &opened, has_room, |n| open_one(&fresh, sender, far, n));
            });
            flows.spawn(|| {
                at_a_steady_pace(&stop, &forged, || true, |_| raw.send(&foreign).unwrap());
            });
            disturb();
            forged.load(Ordering::Relaxed)
        });
        let all = sent.load(Ordering::Relaxed) + opened.load(Ordering::Relaxed);
        assert!(flows > 1000 && all > 2000, "{flows} forged, {all} sent");
        eventually(&format!("all {all} packets arrived"), || (under_way() == 0).then_some(()));
    });
    assert_eq!(heard.received().unwrap().len(), 0, "packets that leaked");
    forged.into_inner()
}

impl Scene {
    /// At least so many of the forged packets come to be counted.
    pub(crate) fn await_counted(&self, count: u64) {
        let network = Some(self.attacker.network);
        self.fabric.nodes[0].await_dropped(network, DropReason::SpoofedAddress, count);
    }
}

/// One packet of a connection that nobody has seen, to the same receiver.
fn open_one(socket: &atoll_testkit::PacketSocket, from: &Pod, to: &Pod, number: u64) {
    let port = 3000 + (number % 60_000) as u16;
    let content = forge::datagram((port, 2000), b"fresh");
    socket.send(&forge::packet(from.v4(), to.ip.into(), 17, &content)).unwrap();
}

#[test]
fn restarts_under_ten_thousand_packets_a_second_lose_and_leak_nothing() {
    for attachment in attachments() {
        let scene = scene(attachment);
        let forged = nothing_is_lost_and_nothing_leaks(&scene, || {
            for _ in 0..3 {
                scene.fabric.nodes.iter().for_each(|node| node.run(State::open));
            }
        });
        scene.await_counted(forged);
    }
}

#[test]
fn an_upgrade_under_ten_thousand_packets_a_second_loses_and_leaks_nothing() {
    let scene = scene(attachments()[0]);
    nothing_is_lost_and_nothing_leaks(&scene, || {
        for _ in 0..3 {
            scene.fabric.nodes[0].run(|state| {
                turn_back(state);
                state.open();
            });
        }
    });
    // What the former programs count while they are replaced goes with their counters.
    scene.await_counted(1);
}
