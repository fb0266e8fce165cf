//! A virtual machine as far as its network can tell: raw frames through a tap.

use std::fs::File;
use std::io::{Read, Write};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use atoll_types::GATEWAY_V4;
use etherparse::{PacketBuilder, SlicedPacket, TcpSlice, TransportSlice};

use crate::eventually;
use crate::forge::{self, Face, GATEWAY, IP};
use crate::uninterrupted;

/// A machine behind a pod's tap. It has the pod's addresses and answers what machines answer.
#[derive(Debug)]
pub struct Machine {
    tap: File,
    frames: Receiver<Vec<u8>>,
    /// Who it is.
    pub face: Face,
}

/// The machine's end of a TCP connection over IPv4, which goes along when the machine moves.
#[derive(Clone, Copy, Debug)]
pub struct Talk {
    peer: [u8; 4],
    ports: (u16, u16),
    said: u32,
    heard: u32,
}

/// A machine's choice of its first number.
const FIRST: u32 = 4711;
const WINDOW: u16 = 8192;

fn is_arp(frame: &[u8]) -> bool {
    frame[12..14] == [8, 6]
}

/// What TCP says in a frame of IPv4.
fn tcp_of(frame: &[u8]) -> Option<TcpSlice<'_>> {
    let packet = SlicedPacket::from_ethernet(frame).ok().filter(|_| frame[12..14] == [8, 0])?;
    match packet.transport? {
        TransportSlice::Tcp(tcp) => Some(tcp),
        _ => None,
    }
}

/// What comes out of a tap, read by a thread that ends when the tap's namespace does.
fn frames_of(mut tap: File) -> Receiver<Vec<u8>> {
    let (sender, frames) = channel();
    thread::spawn(move || {
        let mut frame = [0; 2000];
        while let Ok(length) = uninterrupted(|| tap.read(&mut frame)) {
            if sender.send(frame[..length].to_vec()).is_err() {
                return;
            }
        }
    });
    frames
}

impl Machine {
    /// Starts with an open tap, and asks for its gateway until it is answered, as machines do: a tap has no carrier
    /// before it is open, and the kernel takes a moment to notice.
    pub fn boot(tap: File, face: Face) -> Machine {
        let frames = frames_of(tap.try_clone().expect("another descriptor"));
        let machine = Machine { tap, frames, face };
        let mac = face.mac.octets();
        let question = forge::arp(face, 1, (mac, face.ip), GATEWAY_V4);
        let answer = eventually("its question was answered", || {
            machine.send(&question);
            machine.receive(Duration::from_millis(10)).filter(|it| is_arp(it))
        });
        assert_eq!((&answer[..6], &answer[22..28]), (&mac[..], &GATEWAY[..]));
        machine
    }

    /// Whether nothing came but late answers to what it asked itself.
    pub fn has_heard_nothing(&self) -> bool {
        std::iter::from_fn(|| self.receive(Duration::ZERO)).all(|frame| is_arp(&frame))
    }

    /// Sends one frame.
    pub fn send(&self, frame: &[u8]) {
        (&self.tap).write_all(frame).expect("a tap takes the frame");
    }

    /// The next frame, if one comes within `limit`.
    pub fn receive(&self, limit: Duration) -> Option<Vec<u8>> {
        self.frames.recv_timeout(limit).ok()
    }

    /// The next frame of which this holds.
    pub fn await_frame(&self, what: &str, is_it: impl Fn(&[u8]) -> bool) -> Vec<u8> {
        eventually(what, || self.receive(Duration::from_millis(10)).filter(|frame| is_it(frame)))
    }

    /// Accepts the next connection.
    pub fn accept(&self) -> Talk {
        eventually("a connection was opened", || {
            let frame = self.receive(Duration::from_millis(10))?;
            let asked = tcp_of(&frame).filter(|asked| asked.syn() && !asked.ack())?;
            let talk = Talk {
                peer: frame[IP + 12..IP + 16].try_into().expect("four bytes"),
                ports: (asked.destination_port(), asked.source_port()),
                said: FIRST,
                heard: asked.sequence_number().wrapping_add(1),
            };
            self.say(&talk, true, &[]);
            Some(Talk { said: FIRST + 1, ..talk })
        })
    }

    /// Awaits the next word of a connection, and says it back.
    pub fn say_back(&self, talk: &mut Talk) {
        let word = eventually("a word came", || {
            let frame = self.receive(Duration::from_millis(10))?;
            let told = tcp_of(&frame).filter(|told| {
                (told.destination_port(), told.source_port()) == talk.ports
                    && frame[IP + 12..IP + 16] == talk.peer
                    && told.sequence_number() == talk.heard
            })?;
            Some(told.payload().to_vec()).filter(|word| !word.is_empty())
        });
        let length = u32::try_from(word.len()).expect("a frame that can be");
        talk.heard = talk.heard.wrapping_add(length);
        self.say(talk, false, &word);
        talk.said = talk.said.wrapping_add(length);
    }

    fn say(&self, talk: &Talk, is_first: bool, word: &[u8]) {
        let (own, peer) = talk.ports;
        let builder = PacketBuilder::ethernet2(self.face.mac.octets(), GATEWAY)
            .ipv4(self.face.ip.octets(), talk.peer, 64)
            .tcp(own, peer, talk.said, WINDOW)
            .ack(talk.heard);
        let builder = if is_first { builder.syn() } else { builder };
        let mut frame = vec![];
        builder.write(&mut frame, word).expect("a frame that can be");
        self.send(&frame);
    }

    /// Answers one datagram of IPv4 with its own content.
    pub fn echo(&self) {
        let is_udp = |frame: &[u8]| frame[12..14] == [8, 0] && frame[IP + 9] == 17;
        let asked = self.await_frame("a question came", is_udp);
        assert_eq!(asked[..6], self.face.mac.octets());
        let port = |at: usize| u16::from_be_bytes([asked[at], asked[at + 1]]);
        let to: [u8; 4] = asked[IP + 12..IP + 16].try_into().expect("four bytes");
        let content = forge::datagram((port(IP + 22), port(IP + 20)), &asked[IP + 28..]);
        self.send(&forge::packet(self.face.v4(), to.into(), 17, &content));
    }
}
