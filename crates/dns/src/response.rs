//! An upstream's answer: checked, and written anew.
//!
//! Its rule: nothing is passed on as it came. The id and the question must be ours, only records
//! that the question leads to are taken, and names are written out in full. Of the network's own
//! names the outside has nothing to say.

use std::sync::Arc;

use atoll_zones::{Found, ZoneSet};

use crate::cache::Foreign;
use crate::query::{HEAD, Query, Rcode};
use crate::record::{CNAME, Record, SOA};

const ANY: u16 = 255;
const LONGEST_CHAIN: usize = 12;
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
    /// It points to a private address, or to a name of the network's own.
    Rebinding,
}

/// What of the network itself is kept apart from what the outside says.
#[derive(Clone, Default)]
pub(crate) struct Guard {
    /// Whether an answer that points inside is refused.
    pub(crate) refuse_private: bool,
    /// The network's own names, where it has any yet.
    pub(crate) zones: Option<Arc<ZoneSet>>,
}

impl Guard {
    /// Whether a name is the network's own, and not for others to answer.
    fn is_own(&self, name: &[u8]) -> bool {
        let mut query = Query::new();
        let Some(zones) = &self.zones else { return false };
        query.read_name(name).is_none() || zones.find(&query.name(), None) != Found::Outside
    }
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
    pub(crate) fn read(&self, packet: &[u8], guard: &Guard) -> Result<Foreign, Unusable> {
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
        let chosen = Chosen::from(self, &records, guard);
        if guard.refuse_private && chosen.points_inside() {
            return Err(Unusable::Rebinding);
        }
        Ok(chosen.write(rcode))
    }
}

/// The records that a question leads to.
struct Chosen<'r> {
    answers: Vec<&'r Record>,
    no: Option<&'r Record>,
    /// An alias leads to a name of the network's own; nothing behind it is taken.
    ends_inside: bool,
}

impl<'r> Chosen<'r> {
    /// Follows the aliases from the name asked for; what does not belong to that way is left out.
    fn from(demand: &Demand, records: &'r [Record], guard: &Guard) -> Self {
        let (mut name, mut answers) = (demand.name.clone(), vec![]);
        for _ in 0..LONGEST_CHAIN {
            let here = |it: &&Record| it.answer && it.owner == name && it.is_sound();
            let wanted = |it: &&Record| it.kind == demand.kind || demand.kind == ANY;
            let hits: Vec<_> = records.iter().filter(here).filter(wanted).collect();
            if !hits.is_empty() {
                answers.extend(hits);
                return Chosen { answers, no: None, ends_inside: false };
            }
            let Some(alias) = records.iter().filter(here).find(|it| it.kind == CNAME) else {
                break;
            };
            answers.push(alias);
            name = alias.data.clone();
            if guard.is_own(&name) {
                return Chosen { answers, no: None, ends_inside: true };
            }
        }
        let covers = |it: &&Record| !it.answer && it.kind == SOA && name.ends_with(&it.owner);
        Chosen { answers, no: records.iter().find(covers), ends_inside: false }
    }

    fn points_inside(&self) -> bool {
        self.ends_inside || self.answers.iter().any(|it| it.is_private())
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

#[cfg(test)]
mod tests {
    use atoll_zones::{DomainName, Settings};
    use proptest::prelude::*;

    use super::*;
    use crate::record::{A, MOST_RECORDS};

    /// Of a network whose names end in `corp.com`, and that wants nobody to point inside.
    fn strict() -> Guard {
        let zone = DomainName::parse("corp.com").unwrap();
        let zones = ZoneSet::new(Settings { zone, cidrs: vec![], resolver: vec![], ttl: 5 });
        Guard { refuse_private: true, zones: Some(Arc::new(zones)) }
    }

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
        let answer = demand().read(&packet(OK, &[alias, alien, good], &[]), &strict()).unwrap();
        assert_eq!((answer.count, answer.ttl), (2, 30));
        assert!(answer.answers.ends_with(&[9, 9, 9, 9]));
        assert!(!answer.answers.windows(4).any(|bytes| bytes == [6, 6, 6, 6]));
    }

    #[test]
    fn another_id_or_question_is_no_answer() {
        let good = packet(OK, &[record(ASKED, A, 9, &[9, 9, 9, 9])], &[]);
        assert!(demand().read(&good, &strict()).is_ok());
        for (at, byte) in [(0, 9), (1, 9), (2, 0x01), (13, b'x'), (20, 28)] {
            let mut bad = good.clone();
            bad[at] = byte;
            assert_eq!(demand().read(&bad, &strict()), Err(Unusable::Mismatch), "byte {at}");
        }
        let mut upper = good.clone();
        upper[13] = b'A';
        assert!(demand().read(&upper, &strict()).is_ok(), "letters may differ in case");
    }

    #[test]
    fn a_private_address_from_outside_is_refused_where_the_network_wants_that() {
        let packet = packet(OK, &[record(ASKED, A, 9, &[10, 0, 0, 1])], &[]);
        assert_eq!(demand().read(&packet, &strict()), Err(Unusable::Rebinding));
        assert!(demand().read(&packet, &Guard::default()).is_ok());
    }

    #[test]
    fn what_the_outside_says_of_the_networks_own_names_is_not_taken() {
        let inside = b"\x03web\x04corp\xc0\x0e";
        let alias = record(ASKED, CNAME, 60, inside);
        let lie = record(inside, A, 30, &[6, 6, 6, 6]);
        let packet = packet(OK, &[alias, lie], &[]);
        assert_eq!(demand().read(&packet, &strict()), Err(Unusable::Rebinding));
        let lenient = Guard { refuse_private: false, ..strict() };
        let answer = demand().read(&packet, &lenient).unwrap();
        assert_eq!((answer.count, answer.ttl), (1, 0), "the alias alone, and it is not kept");
        assert!(!answer.answers.windows(4).any(|bytes| bytes == [6, 6, 6, 6]));
        let answer = demand().read(&packet, &Guard::default()).unwrap();
        assert_eq!(answer.count, 2, "where it is somebody else's name");
    }

    #[test]
    fn a_no_is_kept_as_long_as_its_zone_says_and_only_with_it() {
        let soa = [b"\x00\x00".as_slice(), &[0; 16], &[0, 0, 0, 7]].concat();
        let zone = record(b"\x03com\x00", SOA, 60, &soa);
        let other = record(b"\x03net\x00", SOA, 60, &soa);
        let read =
            |authority: &[Vec<u8>]| demand().read(&packet([0x81, 0x83], &[], authority), &strict());
        assert_eq!(read(&[zone]).map(|it| (it.rcode, it.ttl)), Ok((Rcode::NxDomain, 7)));
        assert_eq!(read(&[other]).map(|it| it.ttl), Ok(0), "another zone's start");
        assert_eq!(read(&[]).map(|it| it.ttl), Ok(0));
    }

    #[test]
    fn names_that_point_forward_or_at_themselves_are_refused() {
        for owner in [[0xc0, 23], [0xc0, 24], [0xff, 0xff]] {
            let packet = packet(OK, &[record(&owner, A, 9, &[9, 9, 9, 9])], &[]);
            assert_eq!(demand().read(&packet, &strict()), Err(Unusable::Failed));
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
            if let Ok(answer) = demand().read(&bytes, &strict()) {
                prop_assert!(usize::from(answer.count) <= LONGEST_CHAIN + MOST_RECORDS);
            }
        }
    }
}
