//! Ethernet addresses of pods: always unicast.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A unicast Ethernet address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MacAddr([u8; 6]);

/// A text or value that is no unicast Ethernet address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MacError {
    /// Not six pairs of hexadecimal digits.
    #[error("{0:?} is not a MAC address like 02:00:0a:00:00:05")]
    Malformed(String),
    /// The group bit is set, or all bits are zero.
    #[error("{0} is not a unicast MAC address")]
    NotUnicast(String),
}

impl MacAddr {
    /// The address that every pod sees as its gateway. It is the same in every network: the
    /// gateway exists only in the answers that the datapath gives.
    pub const GATEWAY: MacAddr = MacAddr([0x02, 0xa7, 0x00, 0x00, 0x00, 0x01]);

    /// Checks and takes the six bytes.
    pub fn new(bytes: [u8; 6]) -> Result<Self, MacError> {
        let mac = MacAddr(bytes);
        if bytes[0] & 1 == 1 || bytes == [0; 6] {
            return Err(MacError::NotUnicast(mac.to_string()));
        }
        Ok(mac)
    }

    /// The address that a pod's interface gets when none was asked for: locally administered, and a
    /// function of the IP alone. Two IPv6 addresses may share one, which harms nobody: every hop
    /// between pods goes through the gateway, and the datapath knows pods by [`crate::NetAddr`].
    pub fn for_ip(ip: IpAddr) -> Self {
        let tail = match ip {
            IpAddr::V4(v4) => v4.octets(),
            IpAddr::V6(v6) => fold(v6.octets()),
        };
        let family = if ip.is_ipv4() { 0x04 } else { 0x06 };
        MacAddr([0x0a, family, tail[0], tail[1], tail[2], tail[3]])
    }

    /// The six bytes.
    pub const fn octets(self) -> [u8; 6] {
        self.0
    }
}

/// Thirty-two bits out of an IPv6 address: the low word, stirred with the others.
fn fold(octets: [u8; 16]) -> [u8; 4] {
    let mut folded = [0; 4];
    for (position, byte) in octets.into_iter().enumerate() {
        folded[position % 4] ^= byte;
    }
    folded
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for MacAddr {
    type Err = MacError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let malformed = || MacError::Malformed(text.to_owned());
        let pairs: Vec<&str> = text.split(':').collect();
        let pairs: [&str; 6] = pairs.try_into().map_err(|_| malformed())?;
        let mut bytes = [0; 6];
        for (byte, pair) in bytes.iter_mut().zip(pairs) {
            if pair.len() != 2 || !pair.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return Err(malformed());
            }
            *byte = u8::from_str_radix(pair, 16).map_err(|_| malformed())?;
        }
        MacAddr::new(bytes)
    }
}

impl TryFrom<String> for MacAddr {
    type Error = MacError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<MacAddr> for String {
    fn from(mac: MacAddr) -> String {
        mac.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips() {
        let mac: MacAddr = "0a:04:0A:00:00:05".parse().unwrap();
        assert_eq!(mac.to_string(), "0a:04:0a:00:00:05");
        assert_eq!(mac, MacAddr::for_ip("10.0.0.5".parse().unwrap()));
    }

    #[test]
    fn malformed_text_is_refused() {
        for text in [
            "",
            "02:00",
            "02:00:00:00:00:00:00",
            "02:00:00:00:00:0g",
            "2:0:0:0:0:1",
            "+2:00:00:00:00:01",
        ] {
            assert!(matches!(text.parse::<MacAddr>(), Err(MacError::Malformed(_))), "{text}");
        }
    }

    #[test]
    fn group_and_empty_addresses_are_refused() {
        for text in ["ff:ff:ff:ff:ff:ff", "01:00:5e:00:00:01", "00:00:00:00:00:00"] {
            assert!(matches!(text.parse::<MacAddr>(), Err(MacError::NotUnicast(_))), "{text}");
        }
    }

    #[test]
    fn no_pod_gets_the_gateways_address() {
        let ip = "167.0.0.1".parse().unwrap();
        assert_ne!(MacAddr::for_ip(ip), MacAddr::GATEWAY);
    }
}
