//! Packets at a steady pace while something happens to the nodes: of one connection, of ever new ones, and
//! forged ones beside them. None of the first may be lost, none of the last may arrive.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::RcvBufForce;

use crate::forge::{self, Face, Origin};
use crate::{Hears, Namespace, PacketSocket, Stops, bound, eventually};

/// Packets for each beat of a sender, and its length: ten thousand a second.
const BURST: u64 = 20;
const BEAT: Duration = Duration::from_millis(2);

/// What may be under way at once: less than the kernel's own queues hold, which drop what is more
/// when a machine is busy.
pub const UNDER_WAY: u64 = 200;

/// The ports of the one connection; new ones have others of the sender.
pub const PORTS: (u16, u16) = (1000, 2000);

/// What forged packets carry: nobody else does.
pub const FORGED: &[u8] = b"forged";

const UDP: u8 = 17;

/// What is counted on.
const SENDS: &str = "a pod can send what it likes";

/// A pod that takes part, with its addresses at `eth0`.
#[derive(Clone, Copy, Debug)]
pub struct Party<'a> {
    /// Where it is.
    pub namespace: &'a Namespace,
    /// Who it is.
    pub face: Face,
}

/// A sender and its receiver in one network, and who pretends to be the sender.
#[derive(Clone, Copy, Debug)]
pub struct Load<'a> {
    /// Sends packets that must arrive.
    pub sender: Party<'a>,
    /// Is sent to.
    pub receiver: Party<'a>,
    /// Sends to it under the sender's address, which must not arrive.
    pub forger: Party<'a>,
}

/// What was sent.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// Packets that were to arrive, and did.
    pub honest: u64,
    /// Packets that were not to, and did not.
    pub forged: u64,
}

impl Load<'_> {
    /// Sends all kinds, each at ten thousand a second, while `disturb` is done to the nodes.
    ///
    /// # Panics
    /// When a packet was lost or leaked, or too few were sent to say so.
    pub fn goes_on_while(&self, disturb: impl FnOnce()) -> Sent {
        let (stop, ended) = (AtomicBool::new(false), AtomicBool::new(false));
        let [sent, opened, forged, arrived, leaked] = [const { AtomicU64::new(0) }; 5];
        let client = self.sender.udp(PORTS.0);
        let server = roomy(self.receiver.udp(PORTS.1));
        let to = server.local_addr().expect("a bound socket has an address");
        let (fresh, raw) = (self.sender.packets(), self.forger.packets());
        let lie = self.lie();
        let go_on = |number: u64| {
            client.send_to(&number.to_be_bytes(), to).expect(SENDS);
        };
        let open = |number| fresh.send(&self.first_packet(number)).expect(SENDS);
        let forge = |_| raw.send(&lie).expect(SENDS);
        let under_way = || (count(&sent) + count(&opened)).saturating_sub(count(&arrived));
        let has_room = || under_way() < UNDER_WAY;
        thread::scope(|scope| {
            let _ended = Stops(&ended);
            scope.spawn(|| listen(&server, &ended, [&arrived, &leaked]));
            thread::scope(|flows| {
                let _stopped = Stops(&stop);
                flows.spawn(|| at_a_steady_pace(&stop, &sent, has_room, go_on));
                flows.spawn(|| at_a_steady_pace(&stop, &opened, has_room, open));
                flows.spawn(|| at_a_steady_pace(&stop, &forged, || true, forge));
                disturb();
            });
            eventually("every packet arrived", || (under_way() == 0).then_some(()));
        });
        let honest = count(&sent) + count(&opened);
        let forged = forged.into_inner();
        assert_eq!(leaked.into_inner(), 0, "packets of {forged} that leaked");
        assert!(forged > 1000 && honest > 2000, "{forged} forged, {honest} sent");
        Sent { honest, forged }
    }

    /// What the forger sends: under another's address.
    fn lie(&self) -> Vec<u8> {
        let pretended = Origin { face: self.forger.face, ip: self.sender.face.ip.into() };
        let content = forge::datagram(PORTS, FORGED);
        forge::packet(pretended, self.receiver.face.ip.into(), UDP, &content)
    }

    /// The packet of a connection that nobody has seen.
    fn first_packet(&self, number: u64) -> Vec<u8> {
        let port = 3000 + (number % 60_000) as u16;
        let content = forge::datagram((port, PORTS.1), b"fresh");
        forge::packet(self.sender.face.v4(), self.receiver.face.ip.into(), UDP, &content)
    }
}

impl Party<'_> {
    fn udp(&self, port: u16) -> UdpSocket {
        self.namespace.run(|| bound(|| UdpSocket::bind((self.face.ip, port))))
    }

    fn packets(&self) -> PacketSocket {
        self.namespace.run(|| PacketSocket::open("eth0").expect("a pod has its interface"))
    }
}

/// A socket with room for what comes while its reader is not scheduled, who looks up now and then.
///
/// # Panics
/// Without the right to have so much room.
pub fn roomy(socket: UdpSocket) -> UdpSocket {
    setsockopt(&socket, RcvBufForce, &(64 << 20)).expect("root may have large buffers");
    socket.set_read_timeout(Some(Duration::from_millis(20))).expect("a limit that can be");
    socket
}

/// Sends at a steady pace until told to stop, catching up when it was held up, and never more than
/// there is room for, be it in one beat.
pub fn at_a_steady_pace(
    stop: &AtomicBool,
    sent: &AtomicU64,
    has_room: impl Fn() -> bool,
    send: impl Fn(u64),
) {
    let start = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let due = start.elapsed().as_nanos() as u64 / BEAT.as_nanos() as u64 * BURST;
        let due = due.min(count(sent) + UNDER_WAY);
        while count(sent) < due && has_room() {
            send(sent.fetch_add(1, Ordering::Relaxed));
        }
        thread::sleep(BEAT);
    }
}

/// Counts what arrives until told to stop: what was sent honestly, and what was forged.
pub fn listen(socket: &UdpSocket, ended: &AtomicBool, [arrived, leaked]: [&AtomicU64; 2]) {
    let mut content = [0; 64];
    while !ended.load(Ordering::Relaxed) {
        if let Ok(length) = socket.hear(&mut content) {
            let counter = if &content[..length] == FORGED { leaked } else { arrived };
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// What a counter stands at.
pub fn count(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
