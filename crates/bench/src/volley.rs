//! Datagrams that are sent steadily, each from a port of its own, and what was answered to each: by
//! them is told when a change holds for packets.
//!
//! The rule: a change holds since the first datagram after which none was answered otherwise, by
//! the time at which it was sent.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use atoll_testkit::Namespace;

/// Between two datagrams.
const BEAT: Duration = Duration::from_millis(2);
/// How often one who answers, and is asked nothing, looks whether it is over.
const AT_EASE: Duration = Duration::from_millis(50);
/// What is answered later than this was not answered.
const LATE: Duration = Duration::from_millis(300);
/// So many answers alike, one after the other, are no chance.
const ENOUGH: usize = 30;
/// How long a change may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A datagram: when it was sent, and the word that it was answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shot {
    sent: Instant,
    answer: Option<u8>,
}

/// Datagrams to one target until this value goes.
pub(crate) struct Volley {
    landed: Arc<Mutex<Vec<Shot>>>,
    _firing: Going,
}

/// A thread that ends with this value.
struct Going {
    ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Going {
    /// Repeats `step` inside a namespace.
    fn start(namespace: &Namespace, mut step: impl FnMut() + Send + 'static) -> Self {
        let ending = Arc::new(AtomicBool::new(false));
        let over = ending.clone();
        let going = move || {
            while !over.load(Ordering::Relaxed) {
                step();
            }
        };
        let thread = namespace.run(|| thread::spawn(going));
        Going { ending, thread: Some(thread) }
    }
}

impl Drop for Going {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It has nothing to tell that was not told by what it left undone.
            let _ = thread.join();
        }
    }
}

impl Volley {
    /// Sends to `target` from inside a namespace.
    pub(crate) fn start(namespace: &Namespace, target: SocketAddr) -> Self {
        Volley::in_turns(namespace, vec![target])
    }

    /// Sends to each target in its turn, from inside a namespace.
    pub(crate) fn in_turns(namespace: &Namespace, targets: Vec<SocketAddr>) -> Self {
        let landed = Arc::new(Mutex::new(vec![]));
        let (notes, mut flying, mut due) = (landed.clone(), VecDeque::new(), Instant::now());
        let mut targets = targets.into_iter().cycle();
        let firing = Going::start(namespace, move || {
            flying.push_back((Instant::now(), targets.next().and_then(send)));
            while flying.front().is_some_and(|(sent, _)| sent.elapsed() > LATE) {
                lock(&notes).extend(flying.pop_front().map(land));
            }
            due += BEAT;
            thread::sleep(due.saturating_duration_since(Instant::now()));
        });
        Volley { landed, _firing: firing }
    }

    /// How long after `since` answers were as wanted for good. Waits until it can be told.
    pub(crate) fn settles(
        &self,
        since: Instant,
        wanted: impl Fn(Option<u8>) -> bool,
    ) -> Result<Duration> {
        let begun = Instant::now();
        loop {
            if let Some(settled) = settled(&lock(&self.landed), since, &wanted) {
                return Ok(settled.duration_since(since));
            }
            let last = lock(&self.landed).last().map(|shot| shot.answer);
            ensure!(begun.elapsed() < PATIENCE, "packets never were as wanted; the last: {last:?}");
            thread::sleep(BEAT);
        }
    }
}

/// When the first of the last datagrams in a row that are as wanted was sent, where these are enough.
fn settled(
    shots: &[Shot],
    since: Instant,
    wanted: &impl Fn(Option<u8>) -> bool,
) -> Option<Instant> {
    let shots = &shots[shots.partition_point(|shot| shot.sent < since)..];
    let right = shots.iter().rev().take_while(|shot| wanted(shot.answer)).count();
    (right >= ENOUGH).then(|| shots[shots.len() - right].sent)
}

fn lock(shots: &Mutex<Vec<Shot>>) -> MutexGuard<'_, Vec<Shot>> {
    shots.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A socket from which a datagram was sent; none where there is no way.
fn send(target: SocketAddr) -> Option<UdpSocket> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.set_nonblocking(true).ok()?;
    socket.connect(target).ok()?;
    socket.send(b"?").ok()?;
    Some(socket)
}

fn land((sent, socket): (Instant, Option<UdpSocket>)) -> Shot {
    let mut word = [0];
    let heard = socket.and_then(|socket| socket.recv(&mut word).ok());
    Shot { sent, answer: heard.map(|_| word[0]) }
}

/// One that answers every datagram with a word, until this value goes.
pub(crate) struct Answers {
    _answering: Going,
}

impl Answers {
    /// Answers at a port inside a namespace; the word may hang on who asks.
    pub(crate) fn start(
        namespace: &Namespace,
        port: u16,
        word: impl Fn(IpAddr) -> u8 + Send + 'static,
    ) -> Result<Self> {
        let socket = namespace.run(|| UdpSocket::bind(("0.0.0.0", port)));
        let socket = socket.with_context(|| format!("cannot answer at port {port}"))?;
        socket.set_read_timeout(Some(AT_EASE))?;
        let mut question = [0; 16];
        let answering = Going::start(namespace, move || {
            if let Ok((_, from)) = socket.recv_from(&mut question) {
                // Who asked finds out by itself.
                let _ = socket.send_to(&[word(from.ip())], from);
            }
        });
        Ok(Answers { _answering: answering })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shots(begun: Instant, answers: &[(Option<u8>, usize)]) -> Vec<Shot> {
        let answers = answers.iter().flat_map(|(answer, count)| vec![*answer; *count]);
        let times = (0..).map(|number| begun + BEAT * number);
        times.zip(answers).map(|(sent, answer)| Shot { sent, answer }).collect()
    }

    #[test]
    fn a_change_holds_since_the_datagram_after_the_last_that_was_answered_otherwise() {
        let begun = Instant::now();
        let all = shots(begun, &[(Some(1), 10), (Some(2), 5), (None, 1), (Some(2), ENOUGH)]);
        let since = |sent| settled(&all, sent, &|answer| answer == Some(2));
        assert_eq!(since(begun), Some(begun + BEAT * 16));
        assert_eq!(since(begun + BEAT * 16), Some(begun + BEAT * 16));
        assert_eq!(since(begun + BEAT * 17), None, "too few came after that");
    }

    #[test]
    fn silence_can_be_what_is_wanted() {
        let begun = Instant::now();
        let all = shots(begun, &[(Some(1), 3), (None, ENOUGH)]);
        assert_eq!(settled(&all, begun, &|it| it.is_none()), Some(begun + BEAT * 3));
        assert_eq!(settled(&all, begun, &|it| it.is_some()), None);
    }

    #[test]
    fn every_target_has_its_turn() {
        let namespace = Namespace::new();
        let _answers =
            [(7, b'a'), (8, b'b')].map(|(port, it)| Answers::start(&namespace, port, move |_| it));
        let targets = [7, 8, 9].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let volley = Volley::in_turns(&namespace, targets.into());
        for word in [Some(b'a'), Some(b'b'), None] {
            let start = Instant::now();
            while !lock(&volley.landed).iter().any(|shot| shot.answer == word) {
                assert!(start.elapsed() < PATIENCE, "nobody said {word:?}");
                thread::sleep(BEAT);
            }
        }
    }

    #[test]
    fn who_answers_is_heard_and_who_does_not_is_missed() {
        let namespace = Namespace::new();
        let loopback = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let answers = Answers::start(&namespace, 7, |from| from.is_loopback().into()).unwrap();
        let answered = Volley::start(&namespace, loopback(7));
        let missed = Volley::start(&namespace, loopback(8));
        answered.settles(Instant::now(), |it| it == Some(1)).unwrap();
        missed.settles(Instant::now(), |it| it.is_none()).unwrap();
        drop(answers);
        answered.settles(Instant::now(), |it| it.is_none()).unwrap();
    }
}
