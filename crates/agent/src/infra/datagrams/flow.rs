//! What a pod says from one port to one of those behind a service, and the answers.
//!
//! The rule of this file: an answer comes from whom the pod was led to, and goes to the pod by the socket
//! that heard it. The flow ends with this value, and its place in the pod's share is free.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket as StdUdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use socket2::SockRef;
use tokio::net::UdpSocket;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::{Caller, Permit};

/// The largest datagram that is passed on: larger than the packets of any pod.
pub(in crate::infra) const LARGEST: usize = 16 << 10;

/// How long a flow may be silent.
#[derive(Clone, Copy, Debug)]
pub(in crate::infra) struct Patience {
    /// While nobody has answered.
    pub(in crate::infra) unanswered: Duration,
    /// Once somebody has.
    pub(in crate::infra) answered: Duration,
    /// Before another of its pod may have its place.
    pub(in crate::infra) rest: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        let [unanswered, answered, rest] = [60, 180, 1].map(Duration::from_secs);
        Patience { unanswered, answered, rest }
    }
}

/// What is known of the two ends.
struct Ends {
    last_word: watch::Sender<Instant>,
    is_answered: AtomicBool,
    /// Whether there is nobody at the other end.
    is_refused: AtomicBool,
}

/// A flow.
pub(super) struct Flow {
    pub(super) target: SocketAddr,
    pub(super) caller: Caller,
    socket: Arc<UdpSocket>,
    ends: Arc<Ends>,
    answers: JoinHandle<()>,
    _permit: Permit,
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.answers.abort();
    }
}

/// A socket that speaks with this one alone; none where there is no way.
pub(super) fn connect(target: SocketAddr) -> Option<(UdpSocket, SocketAddr)> {
    let any: IpAddr = match target {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let opened = StdUdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect(target)?;
        socket.set_nonblocking(true)?;
        UdpSocket::from_std(socket)
    });
    opened
        .inspect_err(|error| tracing::debug!(%target, %error, "cannot be spoken to"))
        .ok()
        .map(|socket| (socket, target))
}

impl Flow {
    /// Answers of the target go to the pod behind this alias, by the listener that heard it.
    pub(super) fn new(
        (socket, target): (UdpSocket, SocketAddr),
        back: (Arc<UdpSocket>, SocketAddr),
        caller: Caller,
        permit: Permit,
    ) -> Flow {
        let ends = Arc::new(Ends {
            last_word: watch::Sender::new(Instant::now()),
            is_answered: AtomicBool::new(false),
            is_refused: AtomicBool::new(false),
        });
        let socket = Arc::new(socket);
        let answers = tokio::spawn(bring_answers(socket.clone(), back, ends.clone()));
        Flow { target, caller, socket, ends, answers, _permit: permit }
    }

    /// Passes a datagram on, without a look whether the socket has room: a new one would not know yet. An
    /// error says that nobody is there any more.
    pub(super) fn send(&self, said: &[u8]) -> io::Result<()> {
        if self.ends.is_refused.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        self.ends.last_word.send_replace(Instant::now());
        match SockRef::from(&*self.socket).send(said) {
            Err(error) if is_lost(&error) => Ok(()),
            sent => sent.map(|_| ()),
        }
    }

    /// When somebody spoke last.
    pub(super) fn last_word(&self) -> Instant {
        *self.ends.last_word.borrow()
    }

    /// Whether somebody may still speak.
    pub(super) fn is_on(&self, patience: Patience) -> bool {
        let patience = match self.ends.is_answered.load(Ordering::Relaxed) {
            true => patience.answered,
            false => patience.unanswered,
        };
        !self.ends.is_refused.load(Ordering::Relaxed) && self.last_word().elapsed() < patience
    }
}

/// Whether a datagram is lost and the next may arrive: there is no room at the moment, or it is too large
/// for the way.
fn is_lost(error: &io::Error) -> bool {
    let too_large = error.raw_os_error() == Some(nix::libc::EMSGSIZE);
    error.kind() == io::ErrorKind::WouldBlock || too_large
}

async fn bring_answers(
    socket: Arc<UdpSocket>,
    (listener, to): (Arc<UdpSocket>, SocketAddr),
    ends: Arc<Ends>,
) {
    while socket.readable().await.is_ok() && bring_answer(&socket, &listener, to, &ends) {}
}

/// Brings one answer, if there is one; says whether more may come.
fn bring_answer(socket: &UdpSocket, listener: &UdpSocket, to: SocketAddr, ends: &Ends) -> bool {
    let mut heard = [0; LARGEST + 1];
    match socket.try_recv(&mut heard) {
        Ok(length) if length <= LARGEST => {
            ends.last_word.send_replace(Instant::now());
            ends.is_answered.store(true, Ordering::Relaxed);
            let _may_be_lost = listener.try_send_to(&heard[..length], to);
            true
        }
        Ok(_) => true,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => true,
        Err(_) => {
            ends.is_refused.store(true, Ordering::Relaxed);
            false
        }
    }
}
