//! What a network says about a name, in words for people.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::name::{Asked, DomainName};
use crate::records::{Kind, Records};
use crate::set::{Found, ZoneSet};

/// What a network says about a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// These records.
    Answer(Vec<String>),
    /// The name exists and has nothing of the kind asked for.
    NoData,
    /// There is no such name.
    NoName,
    /// The name is for others to answer.
    Outside,
}

impl ZoneSet {
    /// What it says about a name.
    pub fn tell(&self, name: &DomainName, kind: Kind) -> Told {
        let starts = starts(name.wire());
        match self.find(&Asked::new(name.wire(), &starts), Some(kind)) {
            Found::Records(records) => Told::Answer(lines(records)),
            Found::Alias { record, .. } => Told::Answer(lines(record)),
            Found::Address(ip, _) if ip.is_ipv4() => Told::Answer(vec![format!("A {ip}")]),
            Found::Address(ip, _) => Told::Answer(vec![format!("AAAA {ip}")]),
            Found::NoData(_) => Told::NoData,
            Found::NoName(_) => Told::NoName,
            Found::Outside => Told::Outside,
        }
    }
}

/// Where the labels of a name start.
fn starts(wire: &[u8]) -> Vec<u8> {
    let length = |at: usize| wire.get(at).map(|len| usize::from(*len)).filter(|len| *len > 0);
    let next = |at: &usize| Some(at + 1 + length(*at)?);
    let all = std::iter::successors(Some(0), next).filter(|at| length(*at).is_some());
    all.map(|at| at as u8).collect()
}

fn lines(records: Records<'_>) -> Vec<String> {
    let mut rest = records.bytes;
    let mut lines = vec![];
    while let Some((head, after)) = rest.split_at_checked(12) {
        let kind = u16::from_be_bytes([head[2], head[3]]);
        let length = usize::from(u16::from_be_bytes([head[10], head[11]]));
        let Some((data, next)) = after.split_at_checked(length) else { break };
        lines.push(line(kind, data));
        rest = next;
    }
    lines
}

fn line(number: u16, data: &[u8]) -> String {
    match (Kind::of(number), data) {
        (Some(Kind::A), &[a, b, c, d]) => format!("A {}", Ipv4Addr::new(a, b, c, d)),
        (Some(Kind::Aaaa), data) if data.len() == 16 => {
            let ip = <[u8; 16]>::try_from(data).map(Ipv6Addr::from);
            ip.map_or_else(|_| "AAAA".to_owned(), |ip| format!("AAAA {ip}"))
        }
        (Some(Kind::Cname), name) => format!("CNAME {}", dotted(name)),
        (Some(Kind::Ns), name) => format!("NS {}", dotted(name)),
        (Some(Kind::Ptr), name) => format!("PTR {}", dotted(name)),
        (Some(Kind::Srv), &[p, q, w, x, a, b, ref name @ ..]) => {
            let [priority, weight, port] = [[p, q], [w, x], [a, b]].map(u16::from_be_bytes);
            format!("SRV {priority} {weight} {port} {}", dotted(name))
        }
        (Some(Kind::Txt), &[_, ref text @ ..]) => format!("TXT {}", String::from_utf8_lossy(text)),
        _ => format!("TYPE{number} of {} bytes", data.len()),
    }
}

fn dotted(wire: &[u8]) -> String {
    let starts = starts(wire).into_iter().map(usize::from);
    let label = |at: usize| wire.get(at + 1..at + 1 + usize::from(wire[at])).unwrap_or_default();
    starts.map(|at| format!("{}.", String::from_utf8_lossy(label(at)))).collect()
}
