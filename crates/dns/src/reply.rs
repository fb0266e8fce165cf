//! An answer, written straight into the bytes that are sent.
//!
//! Its rule: the question comes back as it was asked, letter by letter; records go in whole or not
//! at all, and what did not fit is told.

use std::net::IpAddr;

use atoll_zones::{Negative, Records};

use crate::query::{HEAD, Query, Rcode};

/// What is promised to fit any path, and what is never exceeded over UDP.
const UDP_LEAST: usize = 512;
const UDP_MOST: usize = 1232;
/// The size of a reply's buffer that any UDP answer fits.
pub(crate) const UDP_BUFFER: usize = UDP_MOST;
/// The size of a reply's buffer that any TCP answer fits.
pub(crate) const TCP_BUFFER: usize = u16::MAX as usize;
const OPT_LEN: usize = 11;
const ASKED: u16 = 0xc000 | HEAD as u16;

const AUTHORITATIVE: u8 = 0x04;
const TRUNCATED: u8 = 0x02;
const RESPONSE: u8 = 0x80;
const RECURSION: u8 = 0x80;
const CHECKING_DISABLED: u8 = 0x10;

/// The way that an answer goes, and so how long it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Udp,
    Tcp,
}

/// An answer that is being written.
pub(crate) struct Reply<'b> {
    out: &'b mut [u8],
    at: usize,
    limit: usize,
    counts: [u16; 3],
    edns: bool,
    owner: u16,
}

impl<'b> Reply<'b> {
    /// Starts the answer to the question that `packet` holds.
    pub(crate) fn new(query: &Query, packet: &[u8], way: Way, out: &'b mut [u8]) -> Self {
        let room = match (way, query.edns) {
            (Way::Tcp, _) => TCP_BUFFER,
            (Way::Udp, None) => UDP_LEAST,
            (Way::Udp, Some(size)) => usize::from(size).clamp(UDP_LEAST, UDP_MOST),
        };
        let end = query.end();
        out[..end].copy_from_slice(&packet[..end]);
        let edns = query.edns.is_some();
        let limit = room.min(out.len()) - if edns { OPT_LEN } else { 0 };
        let mut reply = Reply { out, at: end, limit, counts: [0; 3], edns, owner: ASKED };
        reply.flags();
        reply
    }

    fn flags(&mut self) {
        self.out[2] = RESPONSE | self.out[2] & 0x01;
        self.out[3] &= CHECKING_DISABLED;
        self.out[4..HEAD].copy_from_slice(&[0, 1, 0, 0, 0, 0, 0, 0]);
    }

    /// The answer comes from the network's own zones.
    pub(crate) fn authoritative(&mut self) {
        self.out[2] |= AUTHORITATIVE;
    }

    /// Names outside can be asked for.
    pub(crate) fn recursion(&mut self) {
        self.out[3] |= RECURSION;
    }

    /// Adds records whose owner is the name asked for, starting with number `turn` where they can
    /// be turned.
    pub(crate) fn records(&mut self, records: &Records<'_>, turn: usize) {
        let first = match records.stride {
            Some(stride) if records.count > 1 => stride * (turn % usize::from(records.count)),
            _ => 0,
        };
        let (late, early) = records.bytes.split_at(first);
        let from = self.at;
        if self.at + records.bytes.len() <= self.limit {
            self.put(early);
            self.put(late);
            self.counts[0] += records.count;
        } else {
            self.cut(early);
            self.cut(late);
            self.out[2] |= TRUNCATED;
        }
        if self.owner != ASKED {
            self.rename(from);
        }
    }

    /// Adds an address of the name asked for.
    pub(crate) fn address(&mut self, ip: IpAddr, ttl: u32) {
        let mut record = [0; 28];
        let (kind, len) = match ip {
            IpAddr::V4(ip) => {
                record[12..16].copy_from_slice(&ip.octets());
                (1, 4)
            }
            IpAddr::V6(ip) => {
                record[12..28].copy_from_slice(&ip.octets());
                (28, 16)
            }
        };
        record[..2].copy_from_slice(&ASKED.to_be_bytes());
        record[3] = kind;
        record[5] = 1;
        record[6..10].copy_from_slice(&ttl.to_be_bytes());
        record[11] = len;
        let bytes = &record[..12 + usize::from(len)];
        self.records(&Records { bytes, count: 1, stride: None }, 0);
    }

    /// Adds an alias; records that follow belong to the name that it stands for.
    pub(crate) fn alias(&mut self, record: &Records<'_>) {
        let from = self.at;
        self.records(record, 0);
        self.owner = 0xc000 | (from + 12) as u16;
    }

    /// Adds the start of the zone that says no.
    pub(crate) fn negative(&mut self, negative: &Negative<'_>) {
        if self.at + 2 + negative.soa.len() > self.limit {
            return;
        }
        self.put(&(self.owner + negative.zone_at as u16).to_be_bytes());
        self.put(negative.soa);
        self.counts[1] += 1;
    }

    /// Adds records that carry their owners themselves: answers, and those that say no.
    pub(crate) fn foreign(&mut self, answers: &[u8], count: u16, authority: &[u8]) {
        if self.at + answers.len() + authority.len() > self.limit {
            self.out[2] |= TRUNCATED;
            return;
        }
        self.put(answers);
        self.put(authority);
        self.counts[0] += count;
        self.counts[1] += u16::from(!authority.is_empty());
    }

    /// Where the next record goes.
    pub(crate) fn place(&self) -> usize {
        self.at
    }

    /// The bytes that were written.
    pub(crate) fn bytes(&mut self, from: usize) -> &mut [u8] {
        &mut self.out[from..self.at]
    }

    /// Whether something did not fit.
    pub(crate) fn truncated(&self) -> bool {
        self.out[2] & TRUNCATED != 0
    }

    /// Ends the answer, and says how long it is.
    pub(crate) fn end(mut self, rcode: Rcode) -> usize {
        let code = rcode as u8;
        self.out[3] |= code & 0x0f;
        if self.edns {
            self.limit += OPT_LEN;
            let size = (UDP_MOST as u16).to_be_bytes();
            self.put(&[0, 0, 41, size[0], size[1], code >> 4, 0, 0, 0, 0, 0]);
            self.counts[2] += 1;
        }
        for (place, count) in self.counts.iter().enumerate() {
            self.out[6 + 2 * place..8 + 2 * place].copy_from_slice(&count.to_be_bytes());
        }
        self.at
    }

    fn put(&mut self, bytes: &[u8]) {
        self.out[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    /// As many whole records as fit.
    fn cut(&mut self, mut bytes: &[u8]) {
        while let Some(len) = record_len(bytes) {
            if self.at + len > self.limit {
                return;
            }
            self.put(&bytes[..len]);
            self.counts[0] += 1;
            bytes = &bytes[len..];
        }
    }

    fn rename(&mut self, from: usize) {
        let (owner, mut at) = (self.owner.to_be_bytes(), from);
        while let Some(len) = record_len(&self.out[at..self.at]) {
            self.out[at..at + 2].copy_from_slice(&owner);
            at += len;
        }
    }
}

/// The length of the first record, whose owner is written in two bytes.
fn record_len(bytes: &[u8]) -> Option<usize> {
    let len = u16::from_be_bytes([*bytes.get(10)?, *bytes.get(11)?]);
    Some(12 + usize::from(len)).filter(|len| *len <= bytes.len())
}

/// The answer to a packet whose question could not be read: its head alone.
pub(crate) fn unfit(query: &Query, packet: &[u8], rcode: Rcode, out: &mut [u8]) -> usize {
    out[..HEAD].copy_from_slice(&packet[..HEAD]);
    out[2] = RESPONSE | out[2] & 0x79;
    out[3] = rcode as u8 & 0x0f;
    out[4..HEAD].fill(0);
    if query.edns.is_none() {
        return HEAD;
    }
    out[11] = 1;
    let opt = [0, 0, 41, 0x04, 0xd0, rcode as u8 >> 4, 0, 0, 0, 0, 0];
    out[HEAD..HEAD + OPT_LEN].copy_from_slice(&opt);
    HEAD + OPT_LEN
}
