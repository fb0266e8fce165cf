//! The transport protocols that have ports.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A transport protocol that has ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

impl Protocol {
    /// All of them.
    pub const ALL: [Protocol; 3] = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp];

    /// Reads what an API object calls it; nothing said means TCP.
    pub fn parse(text: Option<&str>) -> Option<Protocol> {
        let text = text.unwrap_or(Protocol::Tcp.name());
        Protocol::ALL.into_iter().find(|protocol| protocol.name() == text)
    }

    /// What API objects call it.
    pub const fn name(self) -> &'static str {
        match self {
            Protocol::Tcp => "TCP",
            Protocol::Udp => "UDP",
            Protocol::Sctp => "SCTP",
        }
    }

    /// Its number in an IP header.
    pub const fn number(self) -> u8 {
        match self {
            Protocol::Tcp => 6,
            Protocol::Udp => 17,
            Protocol::Sctp => 132,
        }
    }

    /// The protocol with this number.
    pub fn from_number(number: u8) -> Option<Protocol> {
        Protocol::ALL.into_iter().find(|protocol| protocol.number() == number)
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_protocol_is_read_by_its_name_and_by_its_number_and_nothing_said_is_tcp() {
        for protocol in Protocol::ALL {
            assert_eq!(Protocol::parse(Some(protocol.name())), Some(protocol));
            assert_eq!(Protocol::from_number(protocol.number()), Some(protocol));
        }
        assert_eq!(Protocol::parse(None), Some(Protocol::Tcp));
        assert_eq!(Protocol::parse(Some("tcp")), None);
        assert_eq!(Protocol::from_number(1), None);
    }
}
