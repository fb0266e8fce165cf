//! Ports: ranges as policies write them, and the prefixes that a longest-prefix map can hold.

use crate::facts::Protocol;

/// A range of ports, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortRange {
    first: u16,
    last: u16,
}

impl PortRange {
    /// Every port.
    pub const ALL: PortRange = PortRange { first: 0, last: u16::MAX };

    /// The ports from `first` to `last`, or nothing where they are in the wrong order.
    pub const fn new(first: u16, last: u16) -> Option<Self> {
        if first <= last { Some(PortRange { first, last }) } else { None }
    }

    /// One port.
    pub const fn one(port: u16) -> Self {
        PortRange { first: port, last: port }
    }

    /// The first port of the range.
    pub const fn first(self) -> u16 {
        self.first
    }

    /// The last port of the range.
    pub const fn last(self) -> u16 {
        self.last
    }

    /// How many ports the range has.
    pub fn size(self) -> u32 {
        u32::from(self.last) - u32::from(self.first) + 1
    }

    /// The range cut into the fewest aligned prefixes, in order.
    pub fn prefixes(self) -> Vec<PortPrefix> {
        let mut prefixes = Vec::new();
        let (mut next, end) = (u32::from(self.first), u32::from(self.last) + 1);
        while next < end {
            let aligned = if next == 0 { 1 << 16 } else { next & next.wrapping_neg() };
            let fitting = 1 << (end - next).ilog2();
            let size: u32 = aligned.min(fitting);
            prefixes.push(PortPrefix { port: next as u16, bits: 16 - size.ilog2() as u8 });
            next += size;
        }
        prefixes
    }
}

/// An aligned block of ports: those whose first `bits` bits are those of `port`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortPrefix {
    /// The first port of the block.
    pub port: u16,
    /// How many bits are compared: 16 for one port, 0 for all.
    pub bits: u8,
}

impl PortPrefix {
    /// The block of `bits` compared bits that `port` is in.
    pub fn around(port: u16, bits: u8) -> Self {
        let mask = u32::from(u16::MAX) << (16 - u32::from(bits.min(16)));
        PortPrefix { port: port & mask as u16, bits }
    }
}

/// Which destination ports a rule matches.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PortMatch {
    /// Ports of a protocol by number.
    Numbers(Protocol, PortRange),
    /// The port that the receiving pod gives this name. Without a protocol, whichever it has.
    Named(Option<Protocol>, String),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covered(prefixes: &[PortPrefix]) -> Vec<u16> {
        let ports = 0..=u16::MAX;
        let inside = |port: &u16| {
            prefixes.iter().filter(|p| PortPrefix::around(*port, p.bits) == **p).count()
        };
        ports.flat_map(|port| vec![port; inside(&port)]).collect()
    }

    #[test]
    fn a_range_is_cut_into_prefixes_that_cover_each_of_its_ports_once() {
        for (first, last) in [(80, 80), (0, u16::MAX), (32768, 32770), (1, u16::MAX), (79, 8081)] {
            let range = PortRange::new(first, last).unwrap();
            assert_eq!(covered(&range.prefixes()), (first..=last).collect::<Vec<_>>());
        }
    }

    #[test]
    fn no_range_needs_more_than_thirty_prefixes() {
        assert_eq!(PortRange::new(1, u16::MAX - 1).unwrap().prefixes().len(), 30);
        assert_eq!(PortRange::ALL.prefixes(), [PortPrefix { port: 0, bits: 0 }]);
        assert_eq!(PortRange::new(8080, 8095).unwrap().prefixes().len(), 1);
    }

    #[test]
    fn a_range_in_the_wrong_order_is_none() {
        assert_eq!(PortRange::new(81, 80), None);
        assert!(PortRange::new(80, 80).is_some());
    }
}
