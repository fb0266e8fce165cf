//! A question, read by hand from a packet.
//!
//! Its rule: every byte is looked at once, nothing is allocated, and what is not understood gets a
//! named "no".

use atoll_zones::{Asked, Kind, MAX_NAME};

/// The length of a packet's head.
pub(crate) const HEAD: usize = 12;
const CLASS_IN: u16 = 1;
const OPT: u16 = 41;
/// No sound client sends more records after its question.
const MOST_EXTRAS: u16 = 4;

/// Response codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rcode {
    NoError = 0,
    FormErr = 1,
    ServFail = 2,
    NxDomain = 3,
    NotImp = 4,
    Refused = 5,
    BadVersion = 16,
}

/// A packet that holds no question we answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// Too short for a head, or an answer: an answer to it could start a loop.
    Silence,
    /// It can be told what is wrong.
    Say(Rcode),
}

/// A question. One is kept by each thread and filled again and again.
#[derive(Clone, Debug)]
pub(crate) struct Query {
    lower: [u8; MAX_NAME],
    len: usize,
    starts: [u8; 128],
    labels: usize,
    /// The type asked for.
    pub(crate) kind: u16,
    /// The largest UDP answer that the asker takes, where it says.
    pub(crate) edns: Option<u16>,
}

impl Query {
    pub(crate) fn new() -> Self {
        let (lower, starts) = ([0; MAX_NAME], [0; 128]);
        Query { lower, len: 0, starts, labels: 0, kind: 0, edns: None }
    }

    /// The name asked for, in lower case.
    pub(crate) fn name(&self) -> Asked<'_> {
        Asked::new(&self.lower[..self.len], &self.starts[..self.labels])
    }

    /// Where the question ends in its packet.
    pub(crate) fn end(&self) -> usize {
        HEAD + self.len + 4
    }

    /// The type asked for, where a network's own names can have it.
    pub(crate) fn known_kind(&self) -> Option<Kind> {
        Kind::of(self.kind)
    }

    /// Reads a packet.
    pub(crate) fn read(&mut self, packet: &[u8]) -> Result<(), Unfit> {
        self.edns = None;
        self.len = 0;
        let Some((head, body)) = packet.split_first_chunk::<HEAD>() else {
            return Err(Unfit::Silence);
        };
        if head[2] & 0x80 != 0 {
            return Err(Unfit::Silence);
        }
        if head[2] & 0x78 != 0 {
            return Err(Unfit::Say(Rcode::NotImp));
        }
        let counts = [4, 6, 8, 10].map(|at| u16::from_be_bytes([head[at], head[at + 1]]));
        let [1, 0, 0, extras @ 0..=MOST_EXTRAS] = counts else { return Err(WRONG) };
        let rest = self.question(body).ok_or(WRONG)?;
        self.extras(rest, extras)
    }

    /// Reads a name alone, in wire form.
    pub(crate) fn read_name(&mut self, wire: &[u8]) -> Option<()> {
        self.name_of(wire).map(|_| ())
    }

    fn question<'p>(&mut self, body: &'p [u8]) -> Option<&'p [u8]> {
        let after = self.name_of(body)?;
        let (numbers, rest) = after.split_first_chunk::<4>().or_else(|| {
            self.len = 0;
            None
        })?;
        self.kind = u16::from_be_bytes([numbers[0], numbers[1]]);
        if u16::from_be_bytes([numbers[2], numbers[3]]) != CLASS_IN {
            self.kind = 0;
        }
        Some(rest)
    }

    fn name_of<'p>(&mut self, body: &'p [u8]) -> Option<&'p [u8]> {
        let mut at = 0;
        self.labels = 0;
        loop {
            let len = usize::from(*body.get(at)?);
            if len > 63 || at + len + 2 > MAX_NAME && len != 0 {
                return None;
            }
            if len == 0 {
                break;
            }
            self.starts[self.labels] = at as u8;
            self.labels += 1;
            at += len + 1;
        }
        let (name, rest) = body.split_at_checked(at + 1)?;
        self.lower[..=at].copy_from_slice(name);
        self.lower[..=at].make_ascii_lowercase();
        self.len = at + 1;
        Some(rest)
    }

    fn extras(&mut self, mut rest: &[u8], count: u16) -> Result<(), Unfit> {
        for _ in 0..count {
            let (extra, next) = Extra::read(rest).ok_or(WRONG)?;
            rest = next;
            if extra.kind == OPT {
                self.opt(&extra)?;
            }
        }
        if rest.is_empty() { Ok(()) } else { Err(WRONG) }
    }

    fn opt(&mut self, extra: &Extra) -> Result<(), Unfit> {
        if self.edns.is_some() || !extra.at_root {
            return Err(WRONG);
        }
        self.edns = Some(extra.class);
        if extra.version == 0 { Ok(()) } else { Err(Unfit::Say(Rcode::BadVersion)) }
    }
}

const WRONG: Unfit = Unfit::Say(Rcode::FormErr);

/// A record after the question.
struct Extra {
    at_root: bool,
    kind: u16,
    class: u16,
    version: u8,
}

impl Extra {
    fn read(bytes: &[u8]) -> Option<(Extra, &[u8])> {
        let mut at = 0;
        let head = loop {
            match *bytes.get(at)? {
                0 => break at + 1,
                len @ 1..=63 => at += usize::from(len) + 1,
                192.. => break at + 2,
                _ => return None,
            }
        };
        let (fixed, data) = bytes.get(head..)?.split_first_chunk::<10>()?;
        let len = u16::from_be_bytes([fixed[8], fixed[9]]);
        let rest = data.get(usize::from(len)..)?;
        let extra = Extra {
            at_root: head == 1,
            kind: u16::from_be_bytes([fixed[0], fixed[1]]),
            class: u16::from_be_bytes([fixed[2], fixed[3]]),
            version: fixed[5],
        };
        Some((extra, rest))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn packet(name: &[u8], kind: u16) -> Vec<u8> {
        let mut packet = vec![7, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        packet.extend(name);
        packet.extend(kind.to_be_bytes());
        packet.extend([0, 1]);
        packet
    }

    #[test]
    fn a_question_is_read_in_lower_case() {
        let mut query = Query::new();
        assert_eq!(query.read(&packet(b"\x03WeB\x01a\x00", 28)), Ok(()));
        assert_eq!((query.name().wire(), query.kind), (b"\x03web\x01a\x00".as_slice(), 28));
        assert_eq!((query.end(), query.edns), (12 + 7 + 4, None));
    }

    #[test]
    fn the_longest_name_is_read_and_a_longer_one_is_not() {
        let label = [[63u8].as_slice(), &[b'a'; 63]].concat();
        let longest = [&label[..], &label, &label, &[61], &[b'a'; 61], &[0]].concat();
        let longer = [&label[..], &label, &label, &[62], &[b'a'; 62], &[0]].concat();
        assert_eq!(longest.len(), 255);
        assert_eq!(Query::new().read(&packet(&longest, 1)), Ok(()));
        assert_eq!(Query::new().read(&packet(&longer, 1)), Err(WRONG));
        let most = [[1u8, b'a'].repeat(127), vec![0]].concat();
        assert_eq!(Query::new().read(&packet(&most, 1)), Ok(()));
    }

    #[test]
    fn what_is_no_question_is_refused_by_name() {
        let good = packet(b"\x01a\x00", 1);
        let with = |at: usize, byte: u8| {
            let mut bad = good.clone();
            bad[at] = byte;
            Query::new().read(&bad)
        };
        assert_eq!(Query::new().read(&good), Ok(()));
        assert_eq!(with(2, 0x80), Err(Unfit::Silence), "an answer");
        assert_eq!(with(2, 0x20), Err(Unfit::Say(Rcode::NotImp)), "an update");
        assert_eq!(with(5, 2), Err(WRONG), "two questions");
        assert_eq!(with(7, 1), Err(WRONG), "an answer inside");
        assert_eq!(with(12, 0xc0), Err(WRONG), "a pointer in the question");
        assert_eq!(with(11, 1), Err(WRONG), "a record that is not there");
        assert_eq!(Query::new().read(&good[..11]), Err(Unfit::Silence), "half a head");
        assert_eq!(Query::new().read(&[&good[..], &[0]].concat()), Err(WRONG), "more behind");
    }

    proptest! {
        #[test]
        fn no_packet_stops_the_reader(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let _ = Query::new().read(&bytes);
        }

        #[test]
        fn no_mutation_stops_the_reader(changes in prop::collection::vec((any::<usize>(), any::<u8>()), 1..6)) {
            let mut bytes = packet(b"\x03web\x04shop\x03svc\x07cluster\x05local\x00", 1);
            bytes[11] = 1;
            bytes.extend([0, 0, 41, 4, 0xd0, 0, 0, 0, 0, 0, 0]);
            let len = bytes.len();
            changes.into_iter().for_each(|(at, byte)| bytes[at % len] = byte);
            let mut query = Query::new();
            if query.read(&bytes).is_ok() {
                prop_assert!(query.end() <= bytes.len());
            }
        }
    }
}
