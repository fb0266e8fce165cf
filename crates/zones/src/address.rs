//! Addresses inside names: `10-0-0-1`, and the reversed form under `in-addr.arpa` and `ip6.arpa`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::name::Asked;

/// `in-addr.arpa.`
pub(crate) const REVERSE_V4: &[u8] = b"\x07in-addr\x04arpa\x00";
/// `ip6.arpa.`
pub(crate) const REVERSE_V6: &[u8] = b"\x03ip6\x04arpa\x00";

/// Whether nobody outside can say anything true about the address: private, shared, loopback,
/// link-local, unspecified, or of a range that is not routed (`198.18.0.0/15`, where services of
/// tenants are, and `240.0.0.0/4`), also when an IPv4 address is written inside an IPv6 one.
pub fn is_private(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => is_private_v4(ip),
        IpAddr::V6(ip) => is_private_v6(ip),
    }
}

fn is_private_v4(ip: Ipv4Addr) -> bool {
    let [a, b, ..] = ip.octets();
    let shared = a == 100 && b & 0xc0 == 64;
    let unrouted = a == 198 && b & 0xfe == 18 || a >= 240 || a == 0;
    ip.is_private() || ip.is_loopback() || ip.is_link_local() || shared || unrouted
}

fn is_private_v6(ip: Ipv6Addr) -> bool {
    let embedded = match ip.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some([high, low]),
        [0x2002, high, low, ..] => Some([high, low]),
        _ => None,
    };
    let embedded = embedded.map(|[high, low]| u32::from(high) << 16 | u32::from(low));
    ip.is_unique_local()
        || ip.is_unicast_link_local()
        || ip.is_loopback()
        || ip.is_unspecified()
        || embedded.is_some_and(|ip| is_private_v4(Ipv4Addr::from_bits(ip)))
}

/// An address as one label: `10-0-0-1`, `fd00--1`.
pub(crate) fn dashed(ip: IpAddr) -> String {
    ip.to_string().replace(['.', ':'], "-")
}

/// Reads [`dashed`] back, in any way an address can be written.
pub(crate) fn undashed(label: &[u8]) -> Option<IpAddr> {
    let mut text = [0; 40];
    let text = text.get_mut(..label.len())?;
    text.copy_from_slice(label);
    let dashes = label.iter().filter(|byte| **byte == b'-').count();
    let v4 = dashes == 3 && label.iter().all(|byte| *byte == b'-' || byte.is_ascii_digit());
    let mark = if v4 { b'.' } else { b':' };
    text.iter_mut().filter(|byte| **byte == b'-').for_each(|byte| *byte = mark);
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// What a name under a reverse zone stands for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reverse {
    /// A whole address.
    Address(IpAddr),
    /// The first part of one: the rest is zero here.
    Part(IpAddr),
    /// A name that no address has, under this one.
    Nothing(IpAddr),
}

/// Reads the labels before `in-addr.arpa`.
pub(crate) fn reverse_v4(asked: &Asked<'_>, labels: usize) -> Reverse {
    let mut octets = [0; 4];
    let mut sound = labels <= 4;
    for (place, octet) in octets.iter_mut().enumerate().take(labels.min(4)) {
        match decimal(asked.label(labels - 1 - place)) {
            Some(number) => *octet = number,
            None => {
                sound = false;
                break;
            }
        }
    }
    whole(octets.into(), sound, labels == 4)
}

/// Reads the labels before `ip6.arpa`.
pub(crate) fn reverse_v6(asked: &Asked<'_>, labels: usize) -> Reverse {
    let mut octets = [0u8; 16];
    let mut sound = labels <= 32;
    for place in 0..labels.min(32) {
        match nibble(asked.label(labels - 1 - place)) {
            Some(number) => octets[place / 2] |= number << (4 * (1 - place % 2)),
            None => {
                sound = false;
                break;
            }
        }
    }
    whole(octets.into(), sound, labels == 32)
}

fn whole(ip: IpAddr, sound: bool, complete: bool) -> Reverse {
    match (sound, complete) {
        (true, true) => Reverse::Address(ip),
        (true, false) => Reverse::Part(ip),
        (false, _) => Reverse::Nothing(ip),
    }
}

/// A number from 0 to 255 without zeros before it.
fn decimal(label: &[u8]) -> Option<u8> {
    let plain = label.len() == 1 || label.first().is_some_and(|digit| *digit != b'0');
    let add = |sum: u16, digit: &u8| match digit {
        b'0'..=b'9' => Some(sum * 10 + u16::from(digit - b'0')),
        _ => None,
    };
    let fits = plain && (1..=3).contains(&label.len());
    if fits { label.iter().try_fold(0, add)?.try_into().ok() } else { None }
}

fn nibble(label: &[u8]) -> Option<u8> {
    match label {
        [digit @ b'0'..=b'9'] => Some(digit - b'0'),
        [letter @ b'a'..=b'f'] => Some(letter - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dashes_stand_for_dots_and_colons() {
        for ip in ["10.0.0.1", "fd00::1", "2001:db8:1:2:3:4:5:6"] {
            let ip: IpAddr = ip.parse().unwrap();
            assert_eq!(undashed(dashed(ip).as_bytes()), Some(ip));
        }
        for bad in ["10-0-0", "10-0-0-256", "web", "", "a-b-c-d-e", &"1".repeat(60)] {
            assert_eq!(undashed(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn private_addresses_are_known_in_every_dress() {
        for private in [
            "10.1.2.3",
            "172.31.0.1",
            "192.168.1.1",
            "127.0.0.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "198.18.0.1",
            "198.19.255.255",
            "240.0.0.7",
            "255.255.255.255",
            "::1",
            "::",
            "fd00::1",
            "fe80::1",
            "::ffff:10.0.0.1",
            "64:ff9b::a00:1",
            "2002:a00:1::1",
        ] {
            assert!(is_private(private.parse().unwrap()), "{private}");
        }
        for public in [
            "1.1.1.1",
            "172.32.0.1",
            "100.128.0.1",
            "198.17.0.1",
            "198.20.0.1",
            "239.9.9.9",
            "2001:4860::1",
            "2002:101:101::1",
        ] {
            assert!(!is_private(public.parse().unwrap()), "{public}");
        }
    }
}
