//! What to probe: a protocol, an address, a port. Parsed once from the command line.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// The port that `serve` answers on unless told otherwise.
pub const DEFAULT_PORT: u16 = 8080;

/// How a target is asked.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// A line over a TCP connection.
    Tcp,
    /// One UDP packet.
    Udp,
    /// One ICMP echo request.
    Icmp,
    /// The first word of an SCTP association.
    Sctp,
}

impl Protocol {
    /// Every protocol that each server answers, in the order of tables.
    pub const ALL: [Protocol; 3] = [Protocol::Tcp, Protocol::Udp, Protocol::Icmp];

    /// The protocol that targets call `name`.
    fn named(name: &str) -> Option<Protocol> {
        let all = Protocol::ALL.into_iter().chain([Protocol::Sctp]);
        all.into_iter().find(|protocol| protocol.name() == name)
    }

    /// The name as it is written in targets and tables.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
            Protocol::Icmp => "icmp",
            Protocol::Sctp => "sctp",
        }
    }
}

/// Whom to ask, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Target {
    /// How.
    pub protocol: Protocol,
    /// Whom; the port means nothing for ICMP.
    pub address: SocketAddr,
}

/// A text that names no target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetError(String);

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not an address such as 10.0.0.5 or 10.0.0.5:8080", self.0)
    }
}

impl std::error::Error for TargetError {}

impl Target {
    /// The target that `text`, an address with or without a port, means for `protocol`.
    pub fn new(protocol: Protocol, text: &str) -> Result<Self, TargetError> {
        let bare = || text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, DEFAULT_PORT));
        let address = text.parse().or_else(|_| bare()).map_err(|_| TargetError(text.to_owned()))?;
        Ok(Target { protocol, address })
    }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || TargetError(text.to_owned());
        let (name, address) = text.split_once('/').ok_or_else(wrong)?;
        Target::new(Protocol::named(name).ok_or_else(wrong)?, address)
    }
}

impl TryFrom<String> for Target {
    type Error = TargetError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Target> for String {
    fn from(target: Target) -> String {
        target.to_string()
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.protocol {
            Protocol::Icmp => write!(f, "icmp/{}", self.address.ip()),
            _ => write!(f, "{}/{}", self.protocol.name(), self.address),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_may_be_left_out() {
        let target = Target::new(Protocol::Tcp, "10.0.0.5").unwrap();
        assert_eq!(target.to_string(), "tcp/10.0.0.5:8080");
        assert_eq!(Target::new(Protocol::Udp, "[::1]:9").unwrap().to_string(), "udp/[::1]:9");
    }

    #[test]
    fn every_target_reads_back_as_itself() {
        for text in [
            "tcp/10.0.0.5:80",
            "udp/[fd00::5]:53",
            "icmp/10.0.0.5",
            "icmp/fd00::5",
            "sctp/10.0.0.5:80",
        ] {
            assert_eq!(text.parse::<Target>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn nonsense_is_named_in_the_refusal() {
        for text in ["10.0.0.5", "dccp/10.0.0.5", "tcp/web", "tcp/10.0.0.5:99999"] {
            let said = text.parse::<Target>().unwrap_err().to_string();
            assert!(said.contains("is not an address"), "{said}");
        }
    }
}
