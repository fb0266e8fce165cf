//! Questions over UDP: a thread with a socket of its own, many questions with each system call.
//!
//! Its rule: nothing here waits for anything but the next question, and nothing is allocated for
//! one that the network itself can answer.

use std::io::{IoSlice, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Instant;

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, MultiHeaders, SockaddrStorage, recvmmsg, sendmmsg};
use tokio::sync::mpsc;

use crate::answer::{Question, Step, answer};
use crate::asker::Asker;
use crate::counters::Refused;
use crate::network::Network;
use crate::query::{Query, Unfit};
use crate::reply::{self, UDP_BUFFER, Way};
use crate::server::Shared;
use crate::slow::{self, Job};

const BATCH: usize = 32;
/// Longer packets are no questions; what is behind is not read.
const LONGEST: usize = 1024;

type Sender = Option<SockaddrStorage>;

/// One thread's work.
pub(crate) struct Worker {
    pub(crate) shared: Arc<Shared>,
    pub(crate) socket: Arc<UdpSocket>,
    pub(crate) jobs: mpsc::Sender<Job>,
}

/// What came in and what goes out, used again for each batch.
struct Batch {
    questions: Box<[[u8; LONGEST]; BATCH]>,
    lens: [usize; BATCH],
    from: [Sender; BATCH],
    answers: Box<[[u8; UDP_BUFFER]; BATCH]>,
    answer_lens: [usize; BATCH],
    to: [Sender; BATCH],
}

impl Batch {
    fn new() -> Self {
        Batch {
            questions: Box::new([[0; LONGEST]; BATCH]),
            lens: [0; BATCH],
            from: [None; BATCH],
            answers: Box::new([[0; UDP_BUFFER]; BATCH]),
            answer_lens: [0; BATCH],
            to: [None; BATCH],
        }
    }

    fn receive(
        &mut self,
        socket: &UdpSocket,
        headers: &mut MultiHeaders<SockaddrStorage>,
    ) -> nix::Result<usize> {
        let mut slices = self.questions.each_mut().map(|space| [IoSliceMut::new(space)]);
        let flags = MsgFlags::MSG_WAITFORONE;
        let received = recvmmsg(socket.as_raw_fd(), headers, slices.iter_mut(), flags, None)?;
        let mut count = 0;
        for message in received {
            self.lens[count] = message.bytes;
            self.from[count] = message.address;
            count += 1;
        }
        Ok(count)
    }

    /// What cannot be sent is lost as any packet can be: the asker asks again.
    fn send(&self, socket: &UdpSocket, headers: &mut MultiHeaders<SockaddrStorage>, count: usize) {
        let slices: [_; BATCH] =
            std::array::from_fn(|n| [IoSlice::new(&self.answers[n][..self.answer_lens[n]])]);
        let mut sent = 0;
        while sent < count {
            let flags = MsgFlags::empty();
            let (slices, to) = (&slices[sent..count], &self.to[sent..count]);
            let result = sendmmsg(socket.as_raw_fd(), headers, slices.iter(), to, [], flags);
            sent += result.map_or(1, |results| results.count().max(1));
        }
    }
}

impl Worker {
    /// Answers until the server stops.
    pub(crate) fn run(&self) {
        let (mut batch, mut query) = (Batch::new(), Query::new());
        let mut receiving = MultiHeaders::preallocate(BATCH, None);
        let mut sending = MultiHeaders::preallocate(BATCH, None);
        let mut turn = 0;
        while !self.shared.is_stopped() {
            match batch.receive(&self.socket, &mut receiving) {
                Ok(count) => {
                    let answers = self.work(&mut batch, &mut query, count, turn);
                    batch.send(&self.socket, &mut sending, answers);
                    turn = turn.wrapping_add(count);
                }
                Err(Errno::EINTR | Errno::ECONNREFUSED | Errno::EAGAIN) => {}
                Err(error) => {
                    tracing::error!(%error, "cannot receive DNS questions; trying again");
                    std::thread::sleep(std::time::Duration::from_millis(100));
                }
            }
        }
    }

    fn work(&self, batch: &mut Batch, query: &mut Query, count: usize, turn: usize) -> usize {
        let now = self.shared.nanos(Instant::now());
        let mut answers = 0;
        for n in 0..count {
            let packet = &batch.questions[n][..batch.lens[n].min(LONGEST)];
            let Some(from) = batch.from[n].as_ref().and_then(address) else { continue };
            let Some(asker) = self.shared.askers.asker(from) else {
                self.shared.counters.refused(Refused::UnknownAsker);
                continue;
            };
            let out = &mut batch.answers[answers];
            let asked = Received { asker, from, packet, now, turn: turn.wrapping_add(n) };
            if let Some(len) = self.one(&asked, query, out) {
                batch.answer_lens[answers] = len;
                batch.to[answers] = batch.from[n];
                answers += 1;
            }
        }
        answers
    }

    /// The length of the answer that was written, where there is one to send.
    fn one(&self, asked: &Received<'_>, query: &mut Query, out: &mut [u8]) -> Option<usize> {
        let answered = self.shared.networks.with(asked.asker.network, |network| {
            network.counters.query();
            if let Err(why) = self.shared.gate.enter(&asked.asker, asked.now) {
                network.counters.refused(why);
                return None;
            }
            match query.read(asked.packet) {
                Ok(()) => self.answer(asked, network, query, out),
                Err(unfit) => {
                    network.counters.refused(Refused::Malformed);
                    match unfit {
                        Unfit::Silence => None,
                        Unfit::Say(rcode) => Some(reply::unfit(query, asked.packet, rcode, out)),
                    }
                }
            }
        });
        answered.unwrap_or_else(|| {
            self.shared.counters.refused(Refused::NoView);
            None
        })
    }

    fn answer(
        &self,
        asked: &Received<'_>,
        network: &Arc<Network>,
        query: &Query,
        out: &mut [u8],
    ) -> Option<usize> {
        let (packet, turn) = (asked.packet, asked.turn);
        let question = Question { query, packet, way: Way::Udp, turn };
        match answer(network, question, out) {
            Step::Done(len) => Some(len),
            Step::Ask => {
                let job = Job {
                    asker: asked.asker,
                    network: network.clone(),
                    packet: packet.to_vec(),
                    socket: self.socket.clone(),
                    from: asked.from,
                };
                self.jobs.try_send(job).err().map(|_| slow::busy(network, question, out))
            }
        }
    }
}

/// A packet, and who sent it when.
struct Received<'a> {
    asker: Asker,
    from: SocketAddr,
    packet: &'a [u8],
    now: u64,
    turn: usize,
}

fn address(from: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = from.as_sockaddr_in().map(|it| SocketAddr::V4((*it).into()));
    v4.or_else(|| from.as_sockaddr_in6().map(|it| SocketAddr::V6((*it).into())))
}
