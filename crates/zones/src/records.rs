//! Records as they stand in an answer, ready to be copied.
//!
//! Its rule: the owner of every record here is the name that was asked for, so it is written as
//! the two bytes that point at the question.

use std::net::IpAddr;

use crate::packed::Packed;

/// Types of records that a network's own names have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u16)]
pub enum Kind {
    /// An IPv4 address.
    A = 1,
    /// The servers of a zone.
    Ns = 2,
    /// Another name for this one.
    Cname = 5,
    /// The start of a zone.
    Soa = 6,
    /// The name of an address.
    Ptr = 12,
    /// Text.
    Txt = 16,
    /// An IPv6 address.
    Aaaa = 28,
    /// Where a service is.
    Srv = 33,
    /// Any of them.
    Any = 255,
}

impl Kind {
    /// The kind with this number, where a network's names can have it.
    pub fn of(number: u16) -> Option<Kind> {
        match number {
            1 => Some(Kind::A),
            2 => Some(Kind::Ns),
            5 => Some(Kind::Cname),
            6 => Some(Kind::Soa),
            12 => Some(Kind::Ptr),
            16 => Some(Kind::Txt),
            28 => Some(Kind::Aaaa),
            33 => Some(Kind::Srv),
            255 => Some(Kind::Any),
            _ => None,
        }
    }
}

impl std::str::FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.to_ascii_uppercase().as_str() {
            "A" => Ok(Kind::A),
            "AAAA" => Ok(Kind::Aaaa),
            "CNAME" => Ok(Kind::Cname),
            "NS" => Ok(Kind::Ns),
            "PTR" => Ok(Kind::Ptr),
            "SOA" => Ok(Kind::Soa),
            "SRV" => Ok(Kind::Srv),
            "TXT" => Ok(Kind::Txt),
            _ => Err(format!("{text:?} is no type of our records: ask for A, AAAA, SRV, PTR, TXT")),
        }
    }
}

/// More of one kind do not fit any answer.
const MOST: usize = 4095;
const A_LEN: usize = 16;
const AAAA_LEN: usize = 28;
/// The bytes of three IPv4 addresses, or of one name of usual length.
const HERE: usize = 54;
const OWNER: [u8; 2] = [0xc0, 12];

/// Records of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Records<'a> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// How many records they are.
    pub count: u16,
    /// The length of each, where all have the same.
    pub stride: Option<usize>,
}

/// All records of one name, in one piece of memory: IPv4 addresses, IPv6 addresses, the rest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rrsets {
    bytes: Packed<HERE>,
    v4: u16,
    v6: u16,
    others: u16,
    other: u16,
}

impl Rrsets {
    /// The records of a name with these addresses, and others of one kind.
    pub(crate) fn new(addresses: &[IpAddr], other: Kind, others: &[Vec<u8>], ttl: u32) -> Self {
        let mut bytes = vec![];
        let v4 = addresses.iter().filter(|ip| ip.is_ipv4()).take(MOST);
        let v6 = addresses.iter().filter(|ip| ip.is_ipv6()).take(MOST);
        v4.clone().chain(v6.clone()).for_each(|ip| push_address(&mut bytes, *ip, ttl));
        let others = &others[..others.len().min(MOST)];
        others.iter().for_each(|data| push(&mut bytes, other, ttl, data));
        Rrsets {
            bytes: bytes.as_slice().into(),
            v4: v4.count() as u16,
            v6: v6.count() as u16,
            others: others.len() as u16,
            other: other as u16,
        }
    }

    /// The records of a name with addresses only.
    pub(crate) fn addresses(addresses: &[IpAddr], ttl: u32) -> Self {
        Rrsets::new(addresses, Kind::Any, &[], ttl)
    }

    /// The records of a kind; none is an answer too.
    pub fn of(&self, kind: Kind) -> Records<'_> {
        let (v4, v6) = (usize::from(self.v4) * A_LEN, usize::from(self.v6) * AAAA_LEN);
        match kind {
            Kind::A => self.part(0, v4, self.v4, Some(A_LEN)),
            Kind::Aaaa => self.part(v4, v4 + v6, self.v6, Some(AAAA_LEN)),
            Kind::Any => self.part(0, self.bytes.len(), self.v4 + self.v6 + self.others, None),
            kind if kind as u16 == self.other => {
                self.part(v4 + v6, self.bytes.len(), self.others, None)
            }
            _ => self.part(0, 0, 0, None),
        }
    }

    fn part(&self, from: usize, to: usize, count: u16, stride: Option<usize>) -> Records<'_> {
        Records { bytes: &self.bytes[from..to], count, stride }
    }

    /// What the other records say, without their heads.
    pub(crate) fn others(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest =
            &self.bytes[usize::from(self.v4) * A_LEN + usize::from(self.v6) * AAAA_LEN..];
        std::iter::from_fn(move || {
            let len = u16::from_be_bytes([*rest.get(10)?, *rest.get(11)?]);
            let (record, next) = rest.split_at_checked(12 + usize::from(len))?;
            rest = next;
            Some(&record[12..])
        })
    }

    /// Its addresses.
    pub(crate) fn ips(&self) -> impl Iterator<Item = IpAddr> {
        let v4 = self.of(Kind::A).bytes.chunks_exact(A_LEN);
        let v6 = self.of(Kind::Aaaa).bytes.chunks_exact(AAAA_LEN);
        let first = v4.filter_map(|it| <[u8; 4]>::try_from(&it[12..]).ok().map(IpAddr::from));
        first.chain(v6.filter_map(|it| <[u8; 16]>::try_from(&it[12..]).ok().map(IpAddr::from)))
    }

    /// Whether this name is another name for something.
    pub(crate) fn alias(&self) -> Option<&[u8]> {
        (self.other == Kind::Cname as u16).then(|| self.others().next()).flatten()
    }
}

/// Writes a record whose owner is the name asked for.
pub(crate) fn push(bytes: &mut Vec<u8>, kind: Kind, ttl: u32, data: &[u8]) {
    bytes.extend(OWNER);
    bytes.extend((kind as u16).to_be_bytes());
    bytes.extend([0, 1]);
    bytes.extend(ttl.to_be_bytes());
    bytes.extend((data.len() as u16).to_be_bytes());
    bytes.extend(data);
}

fn push_address(bytes: &mut Vec<u8>, ip: IpAddr, ttl: u32) {
    match ip {
        IpAddr::V4(ip) => push(bytes, Kind::A, ttl, &ip.octets()),
        IpAddr::V6(ip) => push(bytes, Kind::Aaaa, ttl, &ip.octets()),
    }
}
