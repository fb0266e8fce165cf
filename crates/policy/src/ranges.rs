//! The ranges of addresses that a tenant's policies name, and the narrowest one around an address.
//!
//! The rule kept here: the narrowest named range around an address says everything about which named
//! ranges hold it. So addresses with the same narrowest range are alike for every policy.

use std::collections::BTreeMap;
use std::net::IpAddr;

use atoll_types::Cidr;

/// Named ranges, with how many policies name each.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ranges {
    by_length: BTreeMap<(bool, u8), BTreeMap<u128, Named>>,
}

#[derive(Clone, Debug)]
struct Named {
    range: Cidr,
    holders: usize,
}

impl Ranges {
    /// A policy names a range. True where it is the first.
    pub(crate) fn hold(&mut self, range: Cidr) -> bool {
        let named = self.by_length.entry(length(&range)).or_default();
        let named = named.entry(bits(range.first())).or_insert(Named { range, holders: 0 });
        named.holders += 1;
        named.holders == 1
    }

    /// A policy names a range no longer. True where it was the last.
    pub(crate) fn release(&mut self, range: Cidr) -> bool {
        let (length, first) = (length(&range), bits(range.first()));
        let Some(of_length) = self.by_length.get_mut(&length) else { return false };
        let Some(named) = of_length.get_mut(&first) else { return false };
        named.holders -= 1;
        if named.holders > 0 {
            return false;
        }
        of_length.remove(&first);
        if of_length.is_empty() {
            self.by_length.remove(&length);
        }
        true
    }

    /// The narrowest named range around an address.
    pub(crate) fn around(&self, ip: IpAddr) -> Option<Cidr> {
        let (first, last) = ((ip.is_ipv4(), 0), (ip.is_ipv4(), u8::MAX));
        let narrowest_first = self.by_length.range(first..=last).rev();
        narrowest_first
            .filter_map(|((_, length), named)| named.get(&masked(ip, *length)))
            .map(|named| named.range)
            .next()
    }
}

fn length(range: &Cidr) -> (bool, u8) {
    (range.is_ipv4(), range.prefix_len())
}

fn bits(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(v4) => u128::from(u32::from(v4)) << 96,
        IpAddr::V6(v6) => u128::from(v6),
    }
}

fn masked(ip: IpAddr, length: u8) -> u128 {
    let host_bits = 128 - u32::from(length);
    bits(ip) & u128::MAX.checked_shl(host_bits).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(texts: &[&str]) -> Ranges {
        let mut ranges = Ranges::default();
        for text in texts {
            ranges.hold(text.parse().unwrap());
        }
        ranges
    }

    fn around(ranges: &Ranges, ip: &str) -> Option<String> {
        ranges.around(ip.parse().unwrap()).map(|range| range.to_string())
    }

    #[test]
    fn the_narrowest_range_around_an_address_counts() {
        let ranges = ranges(&["0.0.0.0/0", "10.0.0.0/8", "10.0.0.0/24", "10.0.0.7/32", "fd00::/8"]);
        assert_eq!(around(&ranges, "10.0.0.7").as_deref(), Some("10.0.0.7/32"));
        assert_eq!(around(&ranges, "10.0.0.8").as_deref(), Some("10.0.0.0/24"));
        assert_eq!(around(&ranges, "10.1.0.8").as_deref(), Some("10.0.0.0/8"));
        assert_eq!(around(&ranges, "192.0.2.1").as_deref(), Some("0.0.0.0/0"));
        assert_eq!(around(&ranges, "fd00::1").as_deref(), Some("fd00::/8"));
        assert_eq!(around(&ranges, "2001:db8::1"), None);
    }

    #[test]
    fn a_range_is_named_until_the_last_policy_lets_go() {
        let mut ranges = ranges(&["10.0.0.0/8", "10.0.0.0/8"]);
        let range = "10.0.0.0/8".parse().unwrap();
        assert!(!ranges.release(range));
        assert_eq!(around(&ranges, "10.0.0.1").as_deref(), Some("10.0.0.0/8"));
        assert!(ranges.release(range));
        assert_eq!(around(&ranges, "10.0.0.1"), None);
    }
}
