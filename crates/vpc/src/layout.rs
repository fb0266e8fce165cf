//! What of a subnet's range can be given to interfaces.

use std::net::IpAddr;

use atoll_types::Cidr;

use crate::addresses::AddressPool;
use crate::range::{Range, RangeError};
use crate::spans::Spans;

/// A subnet's range and what of it is kept back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    cidr: Cidr,
    gateway: Option<IpAddr>,
    excluded: Vec<Range>,
    pools: Vec<Range>,
}

/// A part of a layout that cannot be. The text names the field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// No IP address.
    #[error("gateway: {0:?} is not an IP address")]
    GatewayMalformed(String),
    /// Not in the range.
    #[error("{field}: {what:?} lies outside {cidr}")]
    Outside {
        /// Which field.
        field: String,
        /// What was written.
        what: String,
        /// The subnet's range.
        cidr: Cidr,
    },
    /// No range of addresses.
    #[error("{0}: {1}")]
    Malformed(String, RangeError),
}

impl Layout {
    /// The layout of `cidr`. Without a gateway the second address is kept for it; where `pools`
    /// are named, addresses come from these alone.
    pub fn parse(
        cidr: Cidr,
        gateway: Option<&str>,
        excluded: &[String],
        pools: &[String],
    ) -> Result<Self, LayoutError> {
        Ok(Layout {
            cidr,
            gateway: parse_gateway(gateway, &cidr)?,
            excluded: parse_ranges("excluded", excluded, &cidr)?,
            pools: parse_ranges("pools", pools, &cidr)?,
        })
    }

    /// The layout of `cidr` with nothing said about it: the gateway's place is kept.
    pub fn whole(cidr: Cidr) -> Self {
        let gateway = default_gateway(&cidr);
        Layout { cidr, gateway, excluded: Vec::new(), pools: Vec::new() }
    }

    /// The range.
    pub fn cidr(&self) -> Cidr {
        self.cidr
    }

    /// The addresses that can be given: all but what is kept back and what smaller subnets took.
    pub fn pool(&self, carved: impl IntoIterator<Item = Cidr>) -> AddressPool {
        let carved = carved.into_iter().map(Range::from);
        let outside = self.outside_pools();
        AddressPool::new(self.cidr, self.reserved().chain(outside).chain(carved))
    }

    /// What nobody gets: the ends of an IPv4 range, the first address of an IPv6 range (it is
    /// every router's), the gateway, and what is excluded. A range of one or two addresses has no
    /// ends to spare.
    fn reserved(&self) -> impl Iterator<Item = Range> {
        let ends = (self.cidr.size() > 2).then(|| self.cidr.first());
        let last = (self.cidr.size() > 2 && self.cidr.is_ipv4()).then(|| self.cidr.last());
        let single = self.gateway.into_iter().chain(ends).chain(last).map(Range::from);
        single.chain(self.excluded.iter().copied())
    }

    /// The gaps between the pools, where there are pools.
    fn outside_pools(&self) -> Vec<Range> {
        if self.pools.is_empty() {
            return Vec::new();
        }
        let mut inside = Spans::default();
        for (first, last) in self.pools.iter().filter_map(|pool| pool.offsets_in(&self.cidr)) {
            inside.insert(first, last);
        }
        let gaps = inside.gaps(self.cidr.size() - 1);
        let range = |(first, last)| self.cidr.nth(first).zip(self.cidr.nth(last));
        gaps.filter_map(range).map(|(first, last)| Range::between(first, last)).collect()
    }
}

fn default_gateway(cidr: &Cidr) -> Option<IpAddr> {
    if cidr.size() > 2 { cidr.nth(1) } else { None }
}

fn parse_gateway(given: Option<&str>, cidr: &Cidr) -> Result<Option<IpAddr>, LayoutError> {
    let Some(text) = given else {
        return Ok(default_gateway(cidr));
    };
    let ip: IpAddr = text.parse().map_err(|_| LayoutError::GatewayMalformed(text.to_owned()))?;
    if cidr.contains(ip) { Ok(Some(ip)) } else { Err(outside("gateway".into(), text, cidr)) }
}

fn parse_ranges(field: &str, texts: &[String], cidr: &Cidr) -> Result<Vec<Range>, LayoutError> {
    let parse = |(position, text): (usize, &String)| {
        let field = format!("{field}[{position}]");
        match text.parse::<Range>() {
            Ok(range) if range.lies_in(cidr) => Ok(range),
            Ok(_) => Err(outside(field, text, cidr)),
            Err(error) => Err(LayoutError::Malformed(field, error)),
        }
    };
    texts.iter().enumerate().map(parse).collect()
}

fn outside(field: String, text: &str, cidr: &Cidr) -> LayoutError {
    LayoutError::Outside { field, what: text.to_owned(), cidr: *cidr }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::circle::Moment;

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(ToString::to_string).collect()
    }

    fn layout(cidr: &str, gateway: Option<&str>, excluded: &[&str], pools: &[&str]) -> Layout {
        let cidr = cidr.parse().unwrap();
        Layout::parse(cidr, gateway, &texts(excluded), &texts(pools)).unwrap()
    }

    fn given(layout: &Layout, carved: &[&str]) -> Vec<String> {
        let mut pool = layout.pool(carved.iter().map(|cidr| cidr.parse().unwrap()));
        std::iter::from_fn(|| pool.propose(Moment::ZERO).ok()).map(|ip| ip.to_string()).collect()
    }

    #[test]
    fn ends_and_gateway_are_kept_back() {
        let last = |ips: &[&str]| ips.iter().map(|ip| format!("10.0.0.{ip}")).collect::<Vec<_>>();
        let plain = layout("10.0.0.0/29", None, &[], &[]);
        assert_eq!(given(&plain, &[]), last(&["2", "3", "4", "5", "6"]));
        let chosen = layout("10.0.0.0/29", Some("10.0.0.4"), &[], &[]);
        assert_eq!(given(&chosen, &[]), last(&["1", "2", "3", "5", "6"]));
        assert_eq!(given(&layout("fd00::/126", None, &[], &[]), &[]), ["fd00::2", "fd00::3"]);
    }

    #[test]
    fn a_range_of_one_or_two_addresses_keeps_nothing_back() {
        let two = layout("10.0.0.4/31", None, &[], &[]);
        assert_eq!(given(&two, &[]), ["10.0.0.4", "10.0.0.5"]);
        assert_eq!(given(&layout("10.0.0.4/32", None, &[], &[]), &[]), ["10.0.0.4"]);
    }

    #[test]
    fn excluded_ranges_and_carved_subnets_are_kept_back_and_pools_are_all_there_is() {
        let excluded = layout("10.0.0.0/28", None, &["10.0.0.3-10.0.0.12", "10.0.0.14"], &[]);
        assert_eq!(given(&excluded, &[]), ["10.0.0.2", "10.0.0.13"]);
        let pooled = layout("10.0.0.0/28", None, &["10.0.0.9"], &["10.0.0.8-10.0.0.10"]);
        assert_eq!(given(&pooled, &[]), ["10.0.0.8", "10.0.0.10"]);
        let carved = layout("10.0.0.0/28", None, &[], &["10.0.0.2-10.0.0.9"]);
        assert_eq!(
            given(&carved, &["10.0.0.4/30"]),
            ["10.0.0.2", "10.0.0.3", "10.0.0.8", "10.0.0.9"]
        );
    }

    #[test]
    fn what_cannot_be_is_named_with_its_field() {
        let error = |gateway, excluded: &[&str], pools: &[&str]| {
            let cidr = "10.0.0.0/24".parse().unwrap();
            Layout::parse(cidr, gateway, &texts(excluded), &texts(pools)).unwrap_err().to_string()
        };
        let outside = "gateway: \"10.0.1.1\" lies outside 10.0.0.0/24";
        assert_eq!(error(Some("10.0.1.1"), &[], &[]), outside);
        assert_eq!(error(Some("gw"), &[], &[]), "gateway: \"gw\" is not an IP address");
        let second = error(None, &["10.0.0.9", "10.0.1.0-10.0.1.9"], &[]);
        assert_eq!(second, "excluded[1]: \"10.0.1.0-10.0.1.9\" lies outside 10.0.0.0/24");
        assert!(error(None, &[], &["ten"]).starts_with("pools[0]: \"ten\" is not an address"));
    }

    proptest! {
        #[test]
        fn an_address_is_given_exactly_when_nothing_keeps_it_back(
            excluded in prop::collection::vec((0_u8..32, 0_u8..8), 0..3),
            pools in prop::collection::vec((0_u8..32, 0_u8..8), 0..3),
        ) {
            let ends = |(first, length): &(u8, u8)| (*first, (*first + *length).min(31));
            let text = |run: &(u8, u8)| { let (a, b) = ends(run); format!("10.0.0.{a}-10.0.0.{b}") };
            let of = |runs: &[(u8, u8)]| runs.iter().map(text).collect::<Vec<_>>();
            let cidr = "10.0.0.0/27".parse().unwrap();
            let layout = Layout::parse(cidr, None, &of(&excluded), &of(&pools)).unwrap();
            let within = |runs: &[(u8, u8)], number: u8| {
                runs.iter().map(ends).any(|(a, b)| (a..=b).contains(&number))
            };
            let wanted: Vec<String> = (2..31_u8)
                .filter(|it| !within(&excluded, *it) && (pools.is_empty() || within(&pools, *it)))
                .map(|it| format!("10.0.0.{it}"))
                .collect();
            prop_assert_eq!(layout.pool([]).available(), wanted.len() as u128);
            prop_assert_eq!(given(&layout, &[]), wanted);
        }
    }
}
