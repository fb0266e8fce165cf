//! A range of addresses written as `10.0.0.0/16`, with no bit set beyond its prefix.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// A network prefix whose host bits are all zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cidr(IpNet);

/// A text that is no CIDR.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CidrError {
    /// Not `address/length`.
    #[error("{0:?} is not a CIDR like 10.0.0.0/16")]
    Malformed(String),
    /// Bits beyond the prefix are set.
    #[error("{given} has bits set beyond its prefix; did you mean {meant}?")]
    HostBits {
        /// What was written.
        given: IpNet,
        /// The same range, written as it must be.
        meant: IpNet,
    },
}

impl Cidr {
    /// The first address of the range.
    pub fn first(&self) -> IpAddr {
        self.0.network()
    }

    /// The last address of the range (an IPv4 broadcast address counts).
    pub fn last(&self) -> IpAddr {
        self.0.broadcast()
    }

    /// The number of bits that are fixed.
    pub fn prefix_len(&self) -> u8 {
        self.0.prefix_len()
    }

    /// Whether `ip` lies in the range.
    pub fn contains(&self, ip: IpAddr) -> bool {
        self.0.contains(&ip)
    }

    /// Whether every address of `other` lies in this range.
    pub fn contains_cidr(&self, other: &Cidr) -> bool {
        self.0.contains(&other.0)
    }

    /// Whether the two ranges share an address.
    pub fn overlaps(&self, other: &Cidr) -> bool {
        self.contains_cidr(other) || other.contains_cidr(self)
    }

    /// Whether this is a range of IPv4 addresses.
    pub fn is_ipv4(&self) -> bool {
        self.0.network().is_ipv4()
    }

    /// How many addresses the range holds; as many as fit where there are more.
    pub fn size(&self) -> u128 {
        let host_bits = u32::from(self.0.max_prefix_len() - self.0.prefix_len());
        1_u128.checked_shl(host_bits).unwrap_or(u128::MAX)
    }

    /// The address `offset` places after the first, where the range has it.
    pub fn nth(&self, offset: u128) -> Option<IpAddr> {
        if offset >= self.size() {
            return None;
        }
        match self.first() {
            IpAddr::V4(first) => {
                let offset = u32::try_from(offset).ok()?;
                Some(IpAddr::V4((u32::from(first) + offset).into()))
            }
            IpAddr::V6(first) => Some(IpAddr::V6((u128::from(first) + offset).into())),
        }
    }

    /// The part number `nth` of those that the range has when it is cut to `prefix_len` bits.
    pub fn part(&self, prefix_len: u8, nth: u128) -> Option<Cidr> {
        let host_bits = u32::from(self.0.max_prefix_len().checked_sub(prefix_len)?);
        let first = match host_bits {
            128 => self.nth(0).filter(|_| nth == 0),
            _ => self.nth(nth.checked_mul(1 << host_bits)?),
        };
        let fits = prefix_len >= self.prefix_len();
        IpNet::new(first.filter(|_| fits)?, prefix_len).ok().map(Cidr)
    }

    /// How many places after the first address `ip` is, where it lies in the range.
    pub fn offset_of(&self, ip: IpAddr) -> Option<u128> {
        match (self.first(), ip) {
            (IpAddr::V4(first), IpAddr::V4(ip)) if self.contains(ip.into()) => {
                Some(u128::from(u32::from(ip) - u32::from(first)))
            }
            (IpAddr::V6(first), IpAddr::V6(ip)) if self.contains(ip.into()) => {
                Some(u128::from(ip) - u128::from(first))
            }
            _ => None,
        }
    }
}

impl FromStr for Cidr {
    type Err = CidrError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let given: IpNet = text.parse().map_err(|_| CidrError::Malformed(text.to_owned()))?;
        let meant = given.trunc();
        if given.addr() != meant.addr() {
            return Err(CidrError::HostBits { given, meant });
        }
        Ok(Cidr(given))
    }
}

impl TryFrom<String> for Cidr {
    type Error = CidrError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Cidr> for String {
    fn from(cidr: Cidr) -> String {
        cidr.to_string()
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cidr(text: &str) -> Cidr {
        text.parse().unwrap()
    }

    #[test]
    fn a_cidr_with_host_bits_is_refused_and_the_right_one_is_named() {
        let error = "10.0.0.5/16".parse::<Cidr>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "10.0.0.5/16 has bits set beyond its prefix; did you mean 10.0.0.0/16?"
        );
    }

    #[test]
    fn malformed_text_is_refused() {
        for text in ["", "10.0.0.0", "10.0.0.0/33", "10.0.0/8", "fd00::/129", "ten/8"] {
            assert!(matches!(text.parse::<Cidr>(), Err(CidrError::Malformed(_))), "{text}");
        }
    }

    #[test]
    fn ranges_overlap_exactly_when_one_holds_the_other() {
        assert!(cidr("10.0.0.0/8").overlaps(&cidr("10.1.0.0/16")));
        assert!(cidr("10.1.0.0/16").overlaps(&cidr("10.0.0.0/8")));
        assert!(!cidr("10.0.0.0/16").overlaps(&cidr("10.1.0.0/16")));
        assert!(!cidr("10.0.0.0/8").overlaps(&cidr("fd00::/8")));
    }

    #[test]
    fn every_place_leads_back_to_its_offset() {
        for range in ["10.0.0.0/24", "fd00::/64", "0.0.0.0/0", "10.0.0.7/32"] {
            let range = cidr(range);
            for offset in [0, 1, 255, u128::from(u32::MAX)] {
                let Some(ip) = range.nth(offset) else { continue };
                assert_eq!(range.offset_of(ip), Some(offset), "{range}");
            }
        }
    }

    #[test]
    fn a_range_is_cut_into_parts_of_one_length() {
        let part =
            |range: &str, length, nth| cidr(range).part(length, nth).map(|part| part.to_string());
        assert_eq!(part("100.64.0.0/10", 24, 1).as_deref(), Some("100.64.1.0/24"));
        assert_eq!(part("100.64.0.0/10", 24, 16_383).as_deref(), Some("100.127.255.0/24"));
        assert_eq!(part("100.64.0.0/10", 24, 16_384), None);
        assert_eq!(part("fd00::/48", 64, 2).as_deref(), Some("fd00:0:0:2::/64"));
        assert_eq!(part("::/0", 0, 0).as_deref(), Some("::/0"));
        assert_eq!(part("10.0.0.0/24", 16, 0), None);
        assert_eq!(part("10.0.0.0/24", 33, 0), None);
    }

    #[test]
    fn there_is_no_place_beyond_the_last() {
        assert_eq!(cidr("10.0.0.0/30").nth(4), None);
        assert_eq!(cidr("10.0.0.0/30").nth(3), Some("10.0.0.3".parse().unwrap()));
        assert_eq!(cidr("10.0.0.0/30").offset_of("10.0.0.4".parse().unwrap()), None);
        assert_eq!(cidr("10.0.0.0/30").offset_of("fd00::1".parse().unwrap()), None);
    }
}
