//! A record in an upstream's answer: read with its names written out, and what it leads to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use atoll_zones::{MAX_NAME, is_private};

pub(crate) const A: u16 = 1;
const NS: u16 = 2;
pub(crate) const CNAME: u16 = 5;
pub(crate) const SOA: u16 = 6;
const PTR: u16 = 12;
const MX: u16 = 15;
const AAAA: u16 = 28;
const SRV: u16 = 33;
const SVCB: u16 = 64;
const HTTPS: u16 = 65;
/// Keys of addresses among what a service offers.
const HINT_V4: u16 = 4;
const HINT_V6: u16 = 6;
pub(crate) const MOST_RECORDS: usize = 512;
const LONGEST_TTL: u32 = 86_400;

/// A record with its names written out.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) owner: Vec<u8>,
    pub(crate) kind: u16,
    pub(crate) ttl: u32,
    pub(crate) data: Vec<u8>,
    pub(crate) answer: bool,
}

impl Record {
    /// The answers and the authority; what comes after them is not looked at.
    pub(crate) fn read_all(packet: &[u8], mut at: usize) -> Option<Vec<Record>> {
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

    /// Whether it leads to an address of which nobody outside can say anything true.
    pub(crate) fn is_private(&self) -> bool {
        self.addresses().iter().flatten().any(|ip| is_private(*ip))
    }

    /// Whether it can be read: where not, nobody knows what an asker would read.
    pub(crate) fn is_sound(&self) -> bool {
        self.addresses().is_some()
    }

    /// The addresses that it leads to; none where it cannot be read.
    fn addresses(&self) -> Option<Vec<IpAddr>> {
        match self.kind {
            A => all::<4, Ipv4Addr>(&self.data).filter(|all| all.len() == 1),
            AAAA => all::<16, Ipv6Addr>(&self.data).filter(|all| all.len() == 1),
            SVCB | HTTPS => hints(&self.data),
            _ => Some(vec![]),
        }
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.extend(&self.owner);
        out.extend(self.kind.to_be_bytes());
        out.extend([0, 1]);
        out.extend(self.ttl.to_be_bytes());
        out.extend((self.data.len() as u16).to_be_bytes());
        out.extend(&self.data);
    }
}

/// Addresses of one family, one after the other.
fn all<const N: usize, T: From<[u8; N]> + Into<IpAddr>>(data: &[u8]) -> Option<Vec<IpAddr>> {
    let (whole, rest) = data.as_chunks::<N>();
    rest.is_empty().then(|| whole.iter().map(|octets| T::from(*octets).into()).collect())
}

/// The addresses among what a service offers (RFC 9460). Its name is never compressed: one that is
/// would be read in two ways.
fn hints(data: &[u8]) -> Option<Vec<IpAddr>> {
    let mut at = 2;
    while let len @ 1.. = usize::from(*data.get(at)?) {
        at += if len < 64 { len + 1 } else { return None };
    }
    let (mut offers, mut found) = (&data[at + 1..], vec![]);
    while !offers.is_empty() {
        let ([k0, k1, l0, l1], rest) = offers.split_first_chunk::<4>()?;
        let (value, next) = rest.split_at_checked(u16::from_be_bytes([*l0, *l1]).into())?;
        found.extend(match u16::from_be_bytes([*k0, *k1]) {
            HINT_V4 => all::<4, Ipv4Addr>(value)?,
            HINT_V6 => all::<16, Ipv6Addr>(value)?,
            _ => vec![],
        });
        offers = next;
    }
    Some(found)
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
    use super::*;

    fn record(kind: u16, data: &[u8]) -> Record {
        Record { owner: vec![0], kind, ttl: 1, data: data.to_vec(), answer: true }
    }

    /// What a service offers: `.` at priority 1, with these keys and values.
    fn offer(offers: &[(u16, &[u8])]) -> Vec<u8> {
        let mut data = vec![0, 1, 0];
        for (key, value) in offers {
            data.extend(key.to_be_bytes());
            data.extend((value.len() as u16).to_be_bytes());
            data.extend(*value);
        }
        data
    }

    #[test]
    fn an_address_is_private_wherever_it_stands() {
        let unique_local = "fd00::1".parse::<Ipv6Addr>().unwrap().octets();
        let public = "2001:4860::1".parse::<Ipv6Addr>().unwrap().octets();
        for (kind, data, wanted) in [
            (A, vec![10, 0, 0, 1], true),
            (A, vec![9, 9, 9, 9], false),
            (AAAA, unique_local.to_vec(), true),
            (AAAA, public.to_vec(), false),
            (HTTPS, offer(&[(1, b"\x02h2"), (HINT_V4, &[9, 9, 9, 9, 10, 0, 0, 1])]), true),
            (SVCB, offer(&[(HINT_V6, &unique_local)]), true),
            (HTTPS, offer(&[(1, b"\x02h2"), (HINT_V4, &[9, 9, 9, 9]), (HINT_V6, &public)]), false),
            (HTTPS, offer(&[]), false),
            (16, vec![10, 0, 0, 1], false),
        ] {
            let record = record(kind, &data);
            assert!(record.is_sound(), "{kind} {data:?}");
            assert_eq!(record.is_private(), wanted, "{kind} {data:?}");
        }
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_not_sound() {
        let offered = offer(&[(HINT_V4, &[9, 9, 9, 9])]);
        for (kind, data) in [
            (A, vec![]),
            (A, vec![9, 9, 9]),
            (A, vec![9; 8]),
            (AAAA, vec![9; 4]),
            (HTTPS, vec![]),
            (HTTPS, vec![0, 1]),
            (HTTPS, [&[0, 1, 0xc0, 12][..], &offered[3..]].concat()),
            (HTTPS, offered[..offered.len() - 1].to_vec()),
            (HTTPS, offer(&[(HINT_V4, &[9, 9, 9])])),
            (SVCB, [&offered[..], &[0]].concat()),
        ] {
            assert!(!record(kind, &data).is_sound(), "{kind} {data:?}");
        }
    }
}
