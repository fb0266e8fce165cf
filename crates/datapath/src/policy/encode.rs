//! Policy's tables as map entries. Pure: no map is touched here.

use atoll_abi::{
    Address, PolicyColumnKey, PolicyEndKey, PolicyIdentity, PolicyOutside, PolicyPort,
    PolicyVerdict, SECOND_BANK,
};
use atoll_policy::{IdentityEntry, OutsideKey, PeerKey, PortKey, Protocol, Tier, Verdict};
use atoll_types::NetAddr;

use crate::trie::Prefix;

/// One of two whole sets of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bank {
    First,
    Second,
}

impl Bank {
    /// The bank of this number, if it is one.
    pub(super) fn from_number(number: u32) -> Option<Self> {
        match number {
            1 => Some(Bank::First),
            2 => Some(Bank::Second),
            _ => None,
        }
    }

    /// What stands in the map `policy_bank`.
    pub(super) fn number(self) -> u32 {
        match self {
            Bank::First => 1,
            Bank::Second => 2,
        }
    }

    /// The other one.
    pub(super) fn other(self) -> Self {
        match self {
            Bank::First => Bank::Second,
            Bank::Second => Bank::First,
        }
    }

    /// A number of the compiler as this bank has it. None stays none.
    fn mark(self, number: u32) -> u32 {
        match self {
            Bank::Second if number != 0 => number | SECOND_BANK,
            _ => number,
        }
    }

    /// Whether a number was written in this bank.
    pub(super) fn wrote(self, number: u32) -> bool {
        (number & SECOND_BANK != 0) == (self == Bank::Second)
    }

    pub(super) fn end(self, address: NetAddr) -> PolicyEndKey {
        PolicyEndKey {
            network: address.network.get(),
            address: address.ip.into(),
            bank: self.number(),
        }
    }

    pub(super) fn identity(self, identity: u32) -> u32 {
        self.mark(identity)
    }

    pub(super) fn subject_to(self, entry: &IdentityEntry) -> PolicyIdentity {
        PolicyIdentity {
            tenant: self.mark(entry.tenant),
            ingress: self.mark(entry.ingress),
            egress: self.mark(entry.egress),
        }
    }

    pub(super) fn outside(self, key: &OutsideKey) -> Prefix<PolicyOutside> {
        let before = if key.range.is_ipv4() { 32 + 96 } else { 32 };
        let data = PolicyOutside {
            tenant: self.mark(key.tenant).to_be_bytes(),
            address: Address::from(key.range.first()),
        };
        (before + u32::from(key.range.prefix_len()), data)
    }

    /// The row of every other end belongs to its set, which bears the bank.
    pub(super) fn row(self, key: PeerKey) -> PolicyColumnKey {
        PolicyColumnKey { set: self.mark(key.set), identity: self.mark(key.identity) }
    }

    pub(super) fn column(self, column: u32) -> u32 {
        self.mark(column)
    }

    pub(super) fn port(self, key: PortKey) -> Prefix<PolicyPort> {
        let data = PolicyPort {
            column: self.mark(key.column).to_be_bytes(),
            protocol: key.protocol.map_or(0, number),
            port: key.ports.port.to_be_bytes(),
            reserved: 0,
        };
        let compared = if key.protocol.is_some() { 40 + u32::from(key.ports.bits) } else { 32 };
        (compared, data)
    }

    pub(super) fn verdict(self, verdict: Verdict) -> PolicyVerdict {
        PolicyVerdict {
            rule: self.mark(verdict.rule),
            accept: verdict.accept.into(),
            tier: verdict.tier.map_or(0, tier),
            reserved: [0; 2],
        }
    }
}

/// The number of the rule that the compiler gave, where an entry of this bank bore it.
pub(super) fn rule(bank: Bank, number: u32) -> Option<u32> {
    let own = number & !SECOND_BANK;
    (own != 0 && bank.wrote(number)).then_some(own)
}

fn number(protocol: Protocol) -> u8 {
    match protocol {
        Protocol::Tcp => 6,
        Protocol::Udp => 17,
        Protocol::Sctp => 132,
        Protocol::Other => 0,
    }
}

fn tier(tier: Tier) -> u8 {
    match tier {
        Tier::ClusterAdmin => 1,
        Tier::TenantAdmin => 2,
        Tier::NetworkPolicy => atoll_abi::TIER_NETWORK_POLICY,
        Tier::TenantBaseline => 4,
        Tier::ClusterBaseline => 5,
    }
}

/// Whether an entry of a longest-prefix map was written in this bank, by its first number.
pub(super) fn wrote_prefix(bank: Bank, first: [u8; 4]) -> bool {
    bank.wrote(u32::from_be_bytes(first))
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use atoll_policy::PortPrefix;

    use super::*;

    #[test]
    fn numbers_of_both_banks_never_meet_and_none_stays_none() {
        assert_eq!(Bank::First.identity(7), 7);
        assert_ne!(Bank::Second.identity(7), 7);
        assert_eq!([Bank::First, Bank::Second].map(|bank| bank.identity(0)), [0, 0]);
        for bank in [Bank::First, Bank::Second] {
            assert!(bank.wrote(bank.identity(7)) && !bank.other().wrote(bank.identity(7)));
            assert_eq!(Bank::from_number(bank.number()), Some(bank));
            assert_eq!(rule(bank, bank.identity(7)), Some(7));
            assert_eq!(rule(bank.other(), bank.identity(7)), None);
        }
        assert_eq!(Bank::from_number(atoll_abi::NO_BANK), None);
    }

    #[test]
    fn a_range_of_ipv4_is_compared_behind_what_all_ipv4_addresses_share() {
        let key = |range: &str| OutsideKey { tenant: 3, range: range.parse().unwrap() };
        let (bits, data) = Bank::First.outside(&key("10.0.0.0/8"));
        assert_eq!((bits, data.tenant), (32 + 96 + 8, [0, 0, 0, 3]));
        assert_eq!(IpAddr::from(data.address), IpAddr::from([10, 0, 0, 0]));
        assert_eq!(Bank::First.outside(&key("0.0.0.0/0")).0, 32 + 96);
        assert_eq!(Bank::First.outside(&key("fd00::/8")).0, 32 + 8);
    }

    #[test]
    fn a_verdict_for_every_protocol_compares_the_column_alone() {
        let any = PortKey { column: 5, protocol: None, ports: PortPrefix { port: 0, bits: 0 } };
        assert_eq!(Bank::First.port(any).0, 32);
        let one = PortKey {
            column: 5,
            protocol: Some(Protocol::Tcp),
            ports: PortPrefix { port: 80, bits: 16 },
        };
        let (bits, data) = Bank::Second.port(one);
        assert_eq!((bits, data.protocol, data.port), (56, 6, [0, 80]));
        assert!(wrote_prefix(Bank::Second, data.column));
    }
}
