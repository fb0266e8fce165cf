//! A server of names outside: it says what a test makes of each question, be it true or not.

use std::collections::BTreeSet;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::{Hears, eventually};

/// How long the server does not look whether it is to end.
const GLANCE: Duration = Duration::from_millis(50);
/// The start of authority, which stands with the authority of a reply.
const SOA: u16 = 6;
/// The place of the question's name, as a pointer.
const ASKED: [u8; 2] = [0xc0, 12];

/// A question that reached the server: the packet, and where it came from.
pub type Asked = (Vec<u8>, SocketAddr);

type Questions = Arc<Mutex<Vec<Asked>>>;

/// A server of names outside. It ends with this value.
pub struct Upstream {
    /// Where it is asked.
    pub address: SocketAddr,
    asked: Questions,
    ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Upstream {
    /// At a port of loopback.
    ///
    /// # Panics
    /// When none is free.
    pub fn on_loopback<F>(answer: F) -> Self
    where
        F: Fn(&[u8], SocketAddr) -> Vec<Vec<u8>> + Send + 'static,
    {
        Upstream::at(UdpSocket::bind("127.0.0.1:0").expect("a port of loopback"), answer)
    }

    /// Answers each question that comes to `socket` with the packets that `answer` makes of it and
    /// of who asked.
    ///
    /// # Panics
    /// When the socket is none that can be listened at.
    pub fn at<F>(socket: UdpSocket, answer: F) -> Self
    where
        F: Fn(&[u8], SocketAddr) -> Vec<Vec<u8>> + Send + 'static,
    {
        socket.set_read_timeout(Some(GLANCE)).expect("a socket that can wait");
        let address = socket.local_addr().expect("a socket with an address");
        let (asked, ending) = (Questions::default(), Arc::new(AtomicBool::new(false)));
        let (told, over) = (asked.clone(), ending.clone());
        let thread = thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                serve(&socket, &told, &answer);
            }
        });
        Upstream { address, asked, ending, thread: Some(thread) }
    }

    /// Every question up to now.
    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The names that it was asked for, however often for each.
    pub fn names(&self) -> BTreeSet<String> {
        self.asked().iter().map(|(packet, _)| asked_name(packet)).collect()
    }

    /// Waits until it was asked for so many names.
    ///
    /// # Panics
    /// When it is not.
    pub fn wait_for_names(&self, count: usize) {
        let what = format!("an upstream was asked for {count} names");
        eventually(&what, || (self.names().len() >= count).then_some(()));
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::Relaxed);
        if !thread::panicking() {
            let ended = self.thread.take().map(JoinHandle::join);
            assert!(ended.is_none_or(|end| end.is_ok()), "an upstream failed");
        }
    }
}

fn serve(
    socket: &UdpSocket,
    asked: &Questions,
    answer: impl Fn(&[u8], SocketAddr) -> Vec<Vec<u8>>,
) {
    let mut packet = [0; 1024];
    // Nothing may have come, or word that an answer before had nobody left to hear it.
    let Ok((len, from)) = socket.hear_from(&mut packet) else { return };
    let packet = &packet[..len];
    asked.lock().unwrap_or_else(PoisonError::into_inner).push((packet.to_vec(), from));
    for reply in answer(packet, from) {
        // Who asked may have gone.
        let _ = socket.send_to(&reply, from);
    }
}

/// The name in a question, in lower case.
pub fn asked_name(packet: &[u8]) -> String {
    let (mut labels, mut at) = (vec![], 12);
    while let Some(len) = packet.get(at).map(|len| usize::from(*len)).filter(|len| *len > 0) {
        let label = packet.get(at + 1..=at + len).unwrap_or_default();
        labels.push(String::from_utf8_lossy(label).to_ascii_lowercase());
        at += len + 1;
    }
    labels.join(".")
}

/// The answer to a packet, with records (type, time, data) of the name asked for.
pub fn reply(packet: &[u8], code: u8, records: &[(u16, u32, &[u8])]) -> Vec<u8> {
    let end = 12 + packet[12..].iter().position(|byte| *byte == 0).unwrap_or_default() + 5;
    let mut reply = packet[..end].to_vec();
    reply[2..4].copy_from_slice(&[0x81, 0x80 | code]);
    reply[6..12].fill(0);
    for record in records {
        let part = if record.0 == SOA { Part::Authority } else { Part::Answer };
        add(&mut reply, part, &ASKED, *record);
    }
    reply
}

/// A part of a reply, in the order in which they stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// What was asked for.
    Answer,
    /// Whose word it is.
    Authority,
    /// What was not asked for.
    Additional,
}

/// Adds a record (type, time, data) of `owner` at the end of a reply.
pub fn add(reply: &mut Vec<u8>, part: Part, owner: &[u8], record: (u16, u32, &[u8])) {
    let (kind, ttl, data) = record;
    reply[7 + 2 * part as usize] += 1;
    reply.extend(owner);
    reply.extend(kind.to_be_bytes());
    reply.extend([0, 1]);
    reply.extend(ttl.to_be_bytes());
    reply.extend((data.len() as u16).to_be_bytes());
    reply.extend(data);
}

#[cfg(test)]
mod tests {
    use hickory_proto::op::Message;

    use super::*;
    use crate::names::{question, summary, wire_name};

    #[test]
    fn an_upstream_answers_what_it_is_told_to_and_remembers_who_asked_what() {
        let upstream =
            Upstream::on_loopback(|packet, _| vec![reply(packet, 0, &[(1, 5, &[9, 9, 9, 9])])]);
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(&question("Www.Example.com", 1, None), upstream.address).unwrap();
        let mut packet = [0; 512];
        let len = socket.hear(&mut packet).unwrap();
        assert_eq!(summary(&Message::from_vec(&packet[..len]).unwrap()), "9.9.9.9");
        assert_eq!(upstream.asked()[0].1, socket.local_addr().unwrap());
        assert_eq!(upstream.names(), ["www.example.com".to_owned()].into());
    }

    #[test]
    fn each_part_of_a_reply_is_read_where_it_was_put() {
        let asked = question("a.example", 1, Some(1232));
        let mut packet = reply(&asked, 3, &[(6, 60, &[0; 22])]);
        add(&mut packet, Part::Additional, &wire_name("b.example"), (1, 9, &[6, 6, 6, 6]));
        let message = Message::from_vec(&packet).unwrap();
        assert_eq!(summary(&message), "NXDOMAIN");
        assert_eq!((message.authorities.len(), message.additionals.len()), (1, 1));
        assert_eq!(message.additionals[0].name.to_string(), "b.example.");
    }
}
