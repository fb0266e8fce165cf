//! What became of a packet, read from what the program said, the packet out, and the counters.
//!
//! The rule: what makes no sense is no verdict, and no row expects it. A packet that is rewritten must be
//! right in its checksums, where it was before.

use std::net::{IpAddr, SocketAddr};

use atoll_datapath::DropReason;

use super::Verdict;
use crate::forge::{GATEWAY, IP};
use crate::isolation::checksums;

/// The kernel's numbers for a packet that is dropped, one that is sent elsewhere, and one that is left to
/// whoever is next.
const SHOT: u32 = 2;
pub(crate) const REDIRECT: u32 = 7;
const UNSPEC: u32 = u32::MAX;

/// What a program said of a packet.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub(super) code: u32,
    pub(super) out: Vec<u8>,
    pub(super) counted: Vec<DropReason>,
}

/// What became of a frame; none if it makes no sense.
pub(super) fn found(frame: &[u8], outcome: &Outcome) -> Option<Verdict> {
    let Outcome { code, out, counted } = outcome;
    match (*code, counted.as_slice()) {
        (SHOT, [reason]) => Some(Verdict::Drop(*reason)),
        (UNSPEC, []) if out == frame => Some(Verdict::Pass),
        (UNSPEC, []) => led(frame, out).map(|(from, to)| Verdict::PassLed(from, to)),
        (REDIRECT, counted) if is_answer(frame, out) && counted.len() < 2 => {
            Some(Verdict::Answer(counted.first().copied()))
        }
        (REDIRECT, []) => sent_on(frame, out),
        _ => None,
    }
}

/// By the gateway, or by whom the frame was sent to.
fn is_answer(frame: &[u8], out: &[u8]) -> bool {
    out[..6] == frame[6..12] && (out[6..12] == GATEWAY || out[6..12] == frame[..6])
}

fn sent_on(frame: &[u8], out: &[u8]) -> Option<Verdict> {
    let to: [u8; 6] = out.get(..6)?.try_into().ok()?;
    let is_to_pod = out[6..12] == GATEWAY;
    match is_to_pod {
        true if out[IP..] == frame[IP..] => Some(Verdict::To(to)),
        true => led(frame, out).map(|(from, at)| Verdict::Led(to, from, at)),
        false => led(frame, out).map(|(from, at)| Verdict::Leaves(from, at)),
    }
}

/// Between whom a packet with other ends than before goes on.
fn led(frame: &[u8], out: &[u8]) -> Option<(IpAddr, SocketAddr)> {
    let is_right = |frame| checksums(frame).iter().all(|(found, right)| found == right);
    if is_right(frame) && !is_right(out) {
        return None;
    }
    ends(out)
}

fn ends(out: &[u8]) -> Option<(IpAddr, SocketAddr)> {
    let (from, to, protocol, content) = if out.get(IP)? >> 4 == 4 {
        let at = |at| <[u8; 4]>::try_from(out.get(IP + at..IP + at + 4)?).ok();
        (at(12)?.into(), at(16)?.into(), out[IP + 9], IP + 20)
    } else {
        let at = |at| <[u8; 16]>::try_from(out.get(IP + at..IP + at + 16)?).ok();
        (at(8)?.into(), at(24)?.into(), out[IP + 6], IP + 40)
    };
    let port = out.get(content + 2..content + 4)?;
    let has_ports = [6, 17, 132].contains(&protocol);
    let port = if has_ports { u16::from_be_bytes(port.try_into().ok()?) } else { 0 };
    Some((from, SocketAddr::new(to, port)))
}
