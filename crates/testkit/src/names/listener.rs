//! One that asks for a name without a pause and notes when it heard which version of it.
//!
//! Its rule: an answer is of one version, whole, and a version that gave way to another does not
//! come back. What breaks it is kept and told.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use hickory_proto::op::Message;

use super::records::{number, question};
use crate::{Hears, Namespace};

/// Between two questions: fewer than a pod may ask in a second.
const PAUSE: Duration = Duration::from_millis(1);
/// How long an answer is waited for before the question is asked again.
const ANSWERED_WITHIN: Duration = Duration::from_millis(500);
/// How long a version may stay away.
const PATIENCE: Duration = Duration::from_secs(60);

/// The addresses that a version of a name has, and no other version has any of them.
pub fn addresses(version: u16) -> [Ipv4Addr; 4] {
    let [high, low] = version.to_be_bytes();
    [1, 2, 3, 4].map(|last| Ipv4Addr::new(203, high, low, last))
}

/// What was heard.
#[derive(Debug, Default)]
struct Heard {
    /// Versions in the order in which they came, and when each was first heard.
    versions: Vec<(u16, Instant)>,
    /// What must not be.
    wrong: Option<String>,
}

impl Heard {
    fn note(&mut self, version: Result<Option<u16>>, now: Instant) {
        let last = self.versions.last().map(|(version, _)| *version);
        let wrong = match version {
            Ok(version) if version == last => return,
            Ok(Some(version)) if last.is_none_or(|last| last < version) => {
                self.versions.push((version, now));
                return;
            }
            Ok(version) => format!("after version {last:?} came {version:?}"),
            Err(error) => format!("{error:#}"),
        };
        self.wrong.get_or_insert(wrong);
    }
}

/// One that asks for a name without a pause, until this value goes.
pub struct Listener {
    heard: Arc<Mutex<Heard>>,
    ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// Asks `resolver` for the addresses of a name, from inside a namespace.
    ///
    /// # Panics
    /// When the namespace has no way to the resolver.
    pub fn start(namespace: &Namespace, resolver: SocketAddr, name: &str) -> Listener {
        let socket = namespace.run(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").expect("a port");
            socket.connect(resolver).expect("a way to the resolver");
            socket.set_read_timeout(Some(ANSWERED_WITHIN)).expect("a socket that can wait");
            socket
        });
        let (heard, ending) = (Arc::new(Mutex::default()), Arc::new(AtomicBool::new(false)));
        let (notes, over, asked) =
            (heard.clone(), ending.clone(), question(name, number("A"), Some(1232)));
        let thread = thread::spawn(move || {
            for id in (0..=u16::MAX).cycle() {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                if let Some(answer) = ask(&socket, id, &asked) {
                    lock(&notes).note(version(&answer), Instant::now());
                }
                thread::sleep(PAUSE);
            }
        });
        Listener { heard, ending, thread: Some(thread) }
    }

    /// When a version was first heard, where it was.
    ///
    /// # Errors
    /// Where something was heard that must not be.
    pub fn when(&self, wanted: u16) -> Result<Option<Instant>> {
        let heard = lock(&self.heard);
        if let Some(wrong) = &heard.wrong {
            bail!("{wrong}");
        }
        let first = heard.versions.iter().find(|(version, _)| *version >= wanted);
        Ok(first.map(|(_, at)| *at))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::Relaxed);
        if !thread::panicking() {
            let ended = self.thread.take().map(JoinHandle::join);
            assert!(ended.is_none_or(|end| end.is_ok()), "a listener failed");
        }
    }
}

fn lock(heard: &Mutex<Heard>) -> MutexGuard<'_, Heard> {
    heard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The answer with this id, where one comes in time; one that came late is passed over.
fn ask(socket: &UdpSocket, id: u16, question: &[u8]) -> Option<Vec<u8>> {
    let packet = [&id.to_be_bytes()[..], &question[2..]].concat();
    socket.send(&packet).ok()?;
    let mut answer = [0; 1500];
    loop {
        let len = socket.hear(&mut answer).ok()?;
        if len > 2 && answer[..2] == id.to_be_bytes() {
            return Some(answer[..len].to_vec());
        }
    }
}

/// The version that an answer is of; none where the name does not exist.
fn version(answer: &[u8]) -> Result<Option<u16>> {
    let message = Message::from_vec(answer).context("an answer that cannot be read")?;
    let mut found: Vec<Ipv4Addr> = vec![];
    for record in &message.answers {
        found.push(record.data.to_string().parse().context("an answer that is no address")?);
    }
    found.sort_unstable();
    let Some(first) = found.first() else { return Ok(None) };
    let [_, high, low, _] = first.octets();
    let version = u16::from_be_bytes([high, low]);
    ensure!(found == addresses(version), "an answer that is not one version whole: {found:?}");
    Ok(Some(version))
}

/// Makes each version in turn, each once every listener has heard the one before. Tells for each
/// listener how long after the beginning of a change it heard of it.
///
/// # Errors
/// Where a change fails, a version stays away, or something was heard that must not be.
pub fn hear(
    listeners: &[Listener],
    versions: impl IntoIterator<Item = u16>,
    mut change: impl FnMut(u16) -> Result<()>,
) -> Result<Vec<Vec<Duration>>> {
    let mut delays = vec![vec![]; listeners.len()];
    for version in versions {
        let start = Instant::now();
        change(version)?;
        for (listener, delays) in listeners.iter().zip(&mut delays) {
            delays.push(wait(listener, version)?.saturating_duration_since(start));
        }
    }
    Ok(delays)
}

fn wait(listener: &Listener, version: u16) -> Result<Instant> {
    let start = Instant::now();
    loop {
        if let Some(at) = listener.when(version)? {
            return Ok(at);
        }
        ensure!(start.elapsed() < PATIENCE, "version {version} was not heard in {PATIENCE:?}");
        thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU16;

    use super::*;
    use crate::names::{Upstream, reply};

    fn answer(packet: &[u8], addresses: &[Ipv4Addr]) -> Vec<Vec<u8>> {
        let data: Vec<[u8; 4]> = addresses.iter().map(Ipv4Addr::octets).collect();
        let records: Vec<(u16, u32, &[u8])> = data.iter().map(|it| (1, 5, &it[..])).collect();
        vec![reply(packet, 0, &records)]
    }

    /// A resolver of its own in a namespace of its own, at the version that the number says.
    fn stage(now: &Arc<AtomicU16>) -> (Namespace, Upstream) {
        let (namespace, now) = (Namespace::new(), now.clone());
        let socket = namespace.run(|| UdpSocket::bind("127.0.0.1:0").unwrap());
        let resolver = Upstream::at(socket, move |packet, _| {
            answer(packet, &addresses(now.load(Ordering::Relaxed)))
        });
        (namespace, resolver)
    }

    #[test]
    fn each_version_is_heard_after_it_was_made() {
        let now = Arc::new(AtomicU16::new(1));
        let (namespace, resolver) = stage(&now);
        let listener = Listener::start(&namespace, resolver.address, "a.example");
        let make = |version| {
            now.store(version, Ordering::Relaxed);
            Ok(())
        };
        let delays = hear(&[listener], 300..310, make).unwrap();
        assert_eq!(delays[0].len(), 10);
    }

    #[test]
    fn a_version_that_comes_back_is_told() {
        let now = Arc::new(AtomicU16::new(2));
        let (namespace, resolver) = stage(&now);
        let listener = Listener::start(&namespace, resolver.address, "a.example");
        wait(&listener, 2).unwrap();
        now.store(1, Ordering::Relaxed);
        let wrong = hear(&[listener], [3], |_| Ok(())).unwrap_err().to_string();
        assert!(wrong.contains("after version Some(2) came Some(1)"), "{wrong}");
    }

    #[test]
    fn half_an_answer_and_a_mixed_one_are_no_version() {
        let packet = question("a.example", 1, None);
        let read = |addresses: &[Ipv4Addr]| version(&answer(&packet, addresses)[0]);
        let (one, two) = (addresses(1), addresses(2));
        assert_eq!(read(&one).unwrap(), Some(1));
        assert_eq!(read(&[]).unwrap(), None);
        for wrong in [&one[..3], &[one[0], one[1], two[2], two[3]]] {
            assert!(read(wrong).unwrap_err().to_string().contains("not one version whole"));
        }
    }

    #[test]
    fn a_name_that_is_gone_after_it_was_there_is_wrong() {
        let (mut heard, now) = (Heard::default(), Instant::now());
        for version in [None, Some(1), Some(1), Some(4)] {
            heard.note(Ok(version), now);
        }
        assert_eq!(heard.wrong, None);
        heard.note(Ok(None), now);
        assert_eq!(heard.wrong.as_deref(), Some("after version Some(4) came None"));
    }
}
