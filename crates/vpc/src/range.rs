//! A run of addresses written as `10.0.0.10-10.0.0.20`, or as one address.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use atoll_types::Cidr;

/// The addresses from a first to a last one, of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Range {
    first: IpAddr,
    last: IpAddr,
}

/// A text that is no range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// Not `address` and not `address-address`.
    #[error("{0:?} is not an address like 10.0.0.9 or a range like 10.0.0.10-10.0.0.20")]
    Malformed(String),
    /// The ends are of two families.
    #[error("{0:?} begins with an address of one family and ends with one of the other")]
    TwoFamilies(String),
    /// The last address comes before the first.
    #[error("{0:?} ends before it begins; did you mean {1}?")]
    Backwards(String, Range),
}

impl Range {
    /// The addresses between two of one family, in order.
    pub(crate) fn between(first: IpAddr, last: IpAddr) -> Self {
        Range { first, last }
    }

    /// The first address.
    pub fn first(&self) -> IpAddr {
        self.first
    }

    /// The last address.
    pub fn last(&self) -> IpAddr {
        self.last
    }

    /// Whether every address lies in `cidr`.
    pub fn lies_in(&self, cidr: &Cidr) -> bool {
        cidr.contains(self.first) && cidr.contains(self.last)
    }

    /// The places of its ends in `cidr`, as far as it lies there.
    pub(crate) fn offsets_in(&self, cidr: &Cidr) -> Option<(u128, u128)> {
        let first = cidr.offset_of(self.first.max(cidr.first()))?;
        let last = cidr.offset_of(self.last.min(cidr.last()))?;
        (first <= last).then_some((first, last))
    }
}

impl From<IpAddr> for Range {
    fn from(ip: IpAddr) -> Self {
        Range { first: ip, last: ip }
    }
}

impl From<Cidr> for Range {
    fn from(cidr: Cidr) -> Self {
        Range { first: cidr.first(), last: cidr.last() }
    }
}

impl FromStr for Range {
    type Err = RangeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let ip = |part: &str| part.parse().map_err(|_| RangeError::Malformed(text.to_owned()));
        let (first, last): (IpAddr, IpAddr) = (ip(first)?, ip(last)?);
        if first.is_ipv4() != last.is_ipv4() {
            return Err(RangeError::TwoFamilies(text.to_owned()));
        }
        if last < first {
            let meant = Range { first: last, last: first };
            return Err(RangeError::Backwards(text.to_owned(), meant));
        }
        Ok(Range { first, last })
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            return self.first.fmt(f);
        }
        write!(f, "{}-{}", self.first, self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str) -> Range {
        text.parse().unwrap()
    }

    #[test]
    fn a_range_is_written_as_it_is_read() {
        for text in ["10.0.0.9", "10.0.0.10-10.0.0.20", "fd00::1-fd00::ff"] {
            assert_eq!(range(text).to_string(), text);
        }
        assert_eq!(range("10.0.0.9-10.0.0.9").to_string(), "10.0.0.9");
    }

    #[test]
    fn a_range_that_cannot_be_is_named() {
        let error = |text: &str| text.parse::<Range>().unwrap_err().to_string();
        assert!(error("ten").starts_with("\"ten\" is not an address"));
        assert!(error("10.0.0.0/24").contains("is not an address"));
        assert!(error("10.0.0.1-").contains("is not an address"));
        assert!(error("10.0.0.1-fd00::1").contains("of the other"));
        assert_eq!(
            error("10.0.0.9-10.0.0.1"),
            "\"10.0.0.9-10.0.0.1\" ends before it begins; did you mean 10.0.0.1-10.0.0.9?"
        );
    }

    #[test]
    fn what_lies_outside_a_cidr_does_not_count_in_it() {
        let cidr: Cidr = "10.0.1.0/24".parse().unwrap();
        assert_eq!(range("10.0.0.250-10.0.1.4").offsets_in(&cidr), Some((0, 4)));
        assert_eq!(range("10.0.1.250-10.0.2.4").offsets_in(&cidr), Some((250, 255)));
        assert_eq!(range("10.0.0.0-10.255.0.0").offsets_in(&cidr), Some((0, 255)));
        assert_eq!(range("10.0.2.1-10.0.2.9").offsets_in(&cidr), None);
        assert_eq!(range("fd00::1").offsets_in(&cidr), None);
        assert!(range("10.0.1.7").lies_in(&cidr) && !range("10.0.1.7-10.0.2.7").lies_in(&cidr));
    }
}
