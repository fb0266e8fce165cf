//! An upstream's answer: checked, and written anew.
//!
//! Its rule: nothing is passed on as it came. The id and the question must be ours, only records
//! that the question leads to are taken, and names are written out in full.

use std::net::IpAddr;

use atoll_zones::{MAX_NAME, is_private};

use crate::cache::Foreign;
use crate::query::{HEAD, Rcode};

const A: u16 = 1;
const NS: u16 = 2;
const CNAME: u16 = 5;
const SOA: u16 = 6;
const PTR: u16 = 12;
const MX: u16 = 15;
const AAAA: u16 = 28;
const SRV: u16 = 33;
const ANY: u16 = 255;
const MOST_RECORDS: usize = 512;
const LONGEST_CHAIN: usize = 12;
const LONGEST_TTL: u32 = 86_400;
const LONGEST_NO: u32 = 3_600;

/// What an upstream is asked.
#[derive(Clone, Debug)]
pub(crate) struct Demand {
    pub(crate) id: [u8; 2],
    /// The name in wire form and lower case.
    pub(crate) name: Vec<u8>,
    pub(crate) kind: u16,
}

/// Why an upstream's packet is not an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unusable {
    /// Not the answer to this question: perhaps the true one is still on its way.
    Mismatch,
    /// It was cut: ask over TCP.
    Truncated,
    /// The upstream failed, or what it says makes no sense: ask another one.
    Failed,
    /// It points to a private address.
    Rebinding,
}

impl Demand {
    /// The packet that asks.
    pub(crate) fn packet(&self) -> Vec<u8> {
        let mut packet = self.id.to_vec();
        packet.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 1]);
        packet.extend(self.question());
        packet.extend([0, 0, 41, 0x04, 0xd0, 0, 0, 0, 0, 0, 0]);
        packet
    }

    fn question(&self) -> Vec<u8> {
        [&self.name[..], &self.kind.to_be_bytes(), &[0, 1]].concat()
    }

    /// Reads the answer to this demand.
    pub(crate) fn read(&self, packet: &[u8], refuse_private: bool) -> Result<Foreign, Unusable> {
        let head = packet.first_chunk::<HEAD>().ok_or(Unusable::Mismatch)?;
        let question = self.question();
        let asked = packet.get(HEAD..HEAD + question.len()).ok_or(Unusable::Mismatch)?;
        let ours = head[..2] == self.id
            && head[2] & 0xf8 == 0x80
            && head[4..6] == [0, 1]
            && asked.eq_ignore_ascii_case(&question);
        if !ours {
            return Err(Unusable::Mismatch);
        }
        let rcode = match head[3] & 0x0f {
            0 => Rcode::NoError,
            3 => Rcode::NxDomain,
            _ => return Err(Unusable::Failed),
        };
        if head[2] & 0x02 != 0 {
            return Err(Unusable::Truncated);
        }
        let records = Record::read_all(packet, HEAD + question.len()).ok_or(Unusable::Failed)?;
        let chosen = Chosen::from(self, &records);
        if refuse_private && chosen.answers.iter().any(|it| it.is_private()) {
            return Err(Unusable::Rebinding);
        }
        Ok(chosen.write(rcode))
    }
}

/// A record with its names written out.
#[derive(Clone, Debug)]
struct Record {
    owner: Vec<u8>,
    kind: u16,
    ttl: u32,
    data: Vec<u8>,
    answer: bool,
}

impl Record {
    /// The answers and the authority; what comes after them is not looked at.
    fn read_all(packet: &[u8], mut at: usize) -> Option<Vec<Record>> {
        let count = |at: usize| usize::from(u16::from_be_bytes([packet[at], packet[at + 1]]));
        let (answers, authority) = (count(6), count(8));
        if answers + authority > MOST_RECORDS {
            return None;
        }
        (0..answers + authority)
            .map(|n| {
                let (record, next) = Record::read(packet, at, n < answers)?;
                at = next;
                Some(record)
            })
            .collect()
    }

    fn read(packet: &[u8], at: usize, answer: bool) -> Option<(Record, usize)> {
        let (owner, at) = name(packet, at)?;
        let fixed = packet.get(at..)?.first_chunk::<10>()?;
        let len = usize::from(u16::from_be_bytes([fixed[8], fixed[9]]));
        let kind = u16::from_be_bytes([fixed[0], fixed[1]]);
        let internet = fixed[2..4] == [0, 1];
        let record = Record {
            owner,
            kind: if internet { kind } else { 0 },
            ttl: u32::from_be_bytes([fixed[4], fixed[5], fixed[6], fixed[7]]).min(LONGEST_TTL),
            data: data(packet, kind, at + 10, len)?,
            answer,
        };
        Some((record, at + 10 + len))
    }

    fn is_private(&self) -> bool {
        let v4 = <[u8; 4]>::try_from(&self.data[..]).map(IpAddr::from);
        let v6 = <[u8; 16]>::try_from(&self.data[..]).map(IpAddr::from);
        match self.kind {
            A => v4.is_ok_and(is_private),
            AAAA => v6.is_ok_and(is_private),
            _ => false,
        }
    }

    fn is_sound(&self) -> bool {
        match self.kind {
            A => self.data.len() == 4,
            AAAA => self.data.len() == 16,
            _ => true,
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend(&self.owner);
        out.extend(self.kind.to_be_bytes());
        out.extend([0, 1]);
        out.extend(self.ttl.to_be_bytes());
        out.extend((self.data.len() as u16).to_be_bytes());
        out.extend(&self.data);
    }
}

/// The records that a question leads to.
struct Chosen<'r> {
    answers: Vec<&'r Record>,
    no: Option<&'r Record>,
}

impl<'r> Chosen<'r> {
    /// Follows the aliases from the name asked for; what does not belong to that way is left out.
    fn from(demand: &Demand, records: &'r [Record]) -> Self {
        let (mut name, mut answers) = (demand.name.clone(), vec![]);
        for _ in 0..LONGEST_CHAIN {
            let here = |it: &&Record| it.answer && it.owner == name && it.is_sound();
            let wanted = |it: &&Record| it.kind == demand.kind || demand.kind == ANY;
            let hits: Vec<_> = records.iter().filter(here).filter(wanted).collect();
            if !hits.is_empty() {
                answers.extend(hits);
                return Chosen { answers, no: None };
            }
            let Some(alias) = records.iter().filter(here).find(|it| it.kind == CNAME) else {
                break;
            };
            answers.push(alias);
            name = alias.data.clone();
        }
        let covers = |it: &&Record| !it.answer && it.kind == SOA && name.ends_with(&it.owner);
        Chosen { answers, no: records.iter().find(covers) }
    }

    fn write(&self, rcode: Rcode) -> Foreign {
        let (mut answers, mut authority, mut ttl_at) = (vec![], vec![], vec![]);
        for record in &self.answers {
            ttl_at.push((answers.len() + record.owner.len() + 4) as u16);
            record.write(&mut answers);
        }
        if let Some(no) = self.no {
            ttl_at.push((answers.len() + no.owner.len() + 4) as u16);
            no.write(&mut authority);
        }
        let count = self.answers.len() as u16;
        Foreign { rcode, answers, count, authority, ttl_at, ttl: self.ttl() }
    }

    /// How long all of it holds; a "no" without a zone's start is not kept.
    fn ttl(&self) -> u32 {
        let answers = self.answers.iter().map(|it| it.ttl).min();
        let no = self.no.map(|it| {
            let least = it.data.last_chunk::<4>().map_or(0, |bytes| u32::from_be_bytes(*bytes));
            it.ttl.min(least).min(LONGEST_NO)
        });
        let positive = self.answers.last().is_some_and(|it| it.kind != CNAME);
        match (positive, no) {
            (true, _) => answers.unwrap_or(0),
            (false, Some(no)) => no.min(answers.unwrap_or(no)),
            (false, None) => 0,
        }
    }
}

/// What a record says, with the names in it written out.
fn data(packet: &[u8], kind: u16, at: usize, len: usize) -> Option<Vec<u8>> {
    let whole = packet.get(at..at + len)?;
    let (before, names) = match kind {
        NS | CNAME | PTR => (0, 1),
        MX => (2, 1),
        SRV => (6, 1),
        SOA => (0, 2),
        _ => return Some(whole.to_vec()),
    };
    let mut out = whole.get(..before)?.to_vec();
    let mut next = at + before;
    for _ in 0..names {
        let (name, after) = name(packet, next)?;
        out.extend(name);
        next = after;
    }
    out.extend(packet.get(next..at + len)?);
    Some(out)
}

/// A name in lower case, and where it ends. Pointers go only backwards, so they end.
fn name(packet: &[u8], start: usize) -> Option<(Vec<u8>, usize)> {
    let (mut out, mut at, mut end, mut before) = (vec![], start, None, start);
    loop {
        let len = *packet.get(at)?;
        match len {
            0 => break,
            1..=63 => {
                let label = packet.get(at..=at + usize::from(len))?;
                out.extend(label.iter().map(u8::to_ascii_lowercase));
                at += usize::from(len) + 1;
            }
            192.. => {
                let to = usize::from(u16::from_be_bytes([len & 0x3f, *packet.get(at + 1)?]));
                end = end.or(Some(at + 2));
                if to >= before {
                    return None;
                }
                (at, before) = (to, to);
            }
            _ => return None,
        }
        if out.len() >= MAX_NAME {
            return None;
        }
    }
    out.push(0);
    Some((out, end.unwrap_or(at + 1)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn demand() -> Demand {
        Demand { id: [1, 2], name: b"\x01a\x03com\x00".to_vec(), kind: A }
    }

    fn record(owner: &[u8], kind: u16, ttl: u8, data: &[u8]) -> Vec<u8> {
        let fixed = [kind.to_be_bytes(), [0, 1], [0, 0], [0, ttl], [0, data.len() as u8]];
        [owner, &fixed.concat(), data].concat()
    }

    fn packet(flags: [u8; 2], answers: &[Vec<u8>], authority: &[Vec<u8>]) -> Vec<u8> {
        let counts = [0, 1, 0, answers.len() as u8, 0, authority.len() as u8, 0, 0];
        let question = demand().question();
        [&[1, 2], &flags[..], &counts, &question, &answers.concat(), &authority.concat()].concat()
    }

    const OK: [u8; 2] = [0x81, 0x80];
    const ASKED: &[u8] = &[0xc0, 12];

    #[test]
    fn an_answer_is_taken_with_its_aliases_and_nothing_else() {
        let alias = record(ASKED, CNAME, 60, b"\x01b\xc0\x0e");
        let good = record(b"\x01b\xc0\x0e", A, 30, &[9, 9, 9, 9]);
        let alien = record(b"\x04bank\xc0\x0e", A, 99, &[6, 6, 6, 6]);
        let answer = demand().read(&packet(OK, &[alias, alien, good], &[]), true).unwrap();
        assert_eq!((answer.count, answer.ttl), (2, 30));
        assert!(answer.answers.ends_with(&[9, 9, 9, 9]));
        assert!(!answer.answers.windows(4).any(|bytes| bytes == [6, 6, 6, 6]));
    }

    #[test]
    fn another_id_or_question_is_no_answer() {
        let good = packet(OK, &[record(ASKED, A, 9, &[9, 9, 9, 9])], &[]);
        assert!(demand().read(&good, true).is_ok());
        for (at, byte) in [(0, 9), (1, 9), (2, 0x01), (13, b'x'), (20, 28)] {
            let mut bad = good.clone();
            bad[at] = byte;
            assert_eq!(demand().read(&bad, true), Err(Unusable::Mismatch), "byte {at}");
        }
        let mut upper = good.clone();
        upper[13] = b'A';
        assert!(demand().read(&upper, true).is_ok(), "letters may differ in case");
    }

    #[test]
    fn a_private_address_from_outside_is_refused_where_the_network_wants_that() {
        let packet = packet(OK, &[record(ASKED, A, 9, &[10, 0, 0, 1])], &[]);
        assert_eq!(demand().read(&packet, true), Err(Unusable::Rebinding));
        assert!(demand().read(&packet, false).is_ok());
    }

    #[test]
    fn a_no_is_kept_as_long_as_its_zone_says_and_only_with_it() {
        let soa = [b"\x00\x00".as_slice(), &[0; 16], &[0, 0, 0, 7]].concat();
        let zone = record(b"\x03com\x00", SOA, 60, &soa);
        let other = record(b"\x03net\x00", SOA, 60, &soa);
        let read =
            |authority: &[Vec<u8>]| demand().read(&packet([0x81, 0x83], &[], authority), true);
        assert_eq!(read(&[zone]).map(|it| (it.rcode, it.ttl)), Ok((Rcode::NxDomain, 7)));
        assert_eq!(read(&[other]).map(|it| it.ttl), Ok(0), "another zone's start");
        assert_eq!(read(&[]).map(|it| it.ttl), Ok(0));
    }

    #[test]
    fn names_that_point_forward_or_at_themselves_are_refused() {
        for owner in [[0xc0, 23], [0xc0, 24], [0xff, 0xff]] {
            let packet = packet(OK, &[record(&owner, A, 9, &[9, 9, 9, 9])], &[]);
            assert_eq!(demand().read(&packet, true), Err(Unusable::Failed));
        }
    }

    proptest! {
        #[test]
        fn no_answer_stops_the_reader(
            changes in prop::collection::vec((any::<usize>(), any::<u8>()), 1..8),
            cut in any::<usize>(),
        ) {
            let alias = record(ASKED, CNAME, 60, b"\x01b\xc0\x0e");
            let good = record(b"\x01b\xc0\x0e", A, 30, &[9, 9, 9, 9]);
            let mut bytes = packet(OK, &[alias, good], &[]);
            let len = bytes.len();
            changes.into_iter().for_each(|(at, byte)| bytes[22 + at % (len - 22)] = byte);
            bytes.truncate(len - cut % 8);
            if let Ok(answer) = demand().read(&bytes, true) {
                prop_assert!(usize::from(answer.count) <= LONGEST_CHAIN + MOST_RECORDS);
            }
        }
    }
}
