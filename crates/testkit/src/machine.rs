//! A virtual machine as far as its network can tell: raw frames through a tap.

use std::fs::File;
use std::io::{Read, Write};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use atoll_types::GATEWAY_V4;

use crate::eventually;
use crate::forge::{self, Face, GATEWAY, IP};

/// A machine behind a pod's tap. It has the pod's addresses and answers what machines answer.
#[derive(Debug)]
pub struct Machine {
    tap: File,
    frames: Receiver<Vec<u8>>,
    /// Who it is.
    pub face: Face,
}

fn is_arp(frame: &[u8]) -> bool {
    frame[12..14] == [8, 6]
}

/// What comes out of a tap, read by a thread that ends when the tap's namespace does.
fn frames_of(mut tap: File) -> Receiver<Vec<u8>> {
    let (sender, frames) = channel();
    thread::spawn(move || {
        let mut frame = [0; 2000];
        while let Ok(length) = tap.read(&mut frame) {
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
