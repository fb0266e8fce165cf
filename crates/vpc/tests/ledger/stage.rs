//! A ledger to try things with: short names, and what the user of a ledger would write down.

use std::net::IpAddr;

use atoll_types::{Cidr, NetAddr, NetworkId};
use atoll_vpc::{
    Ask, Granted, Holder, Layout, Ledger, Moment, Names, Network, Refused, Space, Stage, Subnet,
};

/// Names that mean nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Short;

impl Names for Short {
    type Vpc = &'static str;
    type Network = &'static str;
    type Subnet = String;
    type Port = &'static str;
    type Incarnation = u8;
    type Age = u8;

    fn own_subnet(network: &&'static str, range: Cidr) -> String {
        format!("{network} {range}")
    }
}

pub(crate) type Books = Ledger<Short>;
pub(crate) type Answer = Result<Granted<String>, Refused<String>>;

pub(crate) const START: Moment = Moment::ZERO;
pub(crate) const REST: Moment = Moment::from_secs(30);
pub(crate) const RED: NetworkId = NetworkId::MIN;

pub(crate) fn cidr(text: &str) -> Cidr {
    text.parse().unwrap()
}

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(crate) fn address(text: &str) -> NetAddr {
    NetAddr::new(RED, ip(text))
}

pub(crate) fn port(name: &'static str, incarnation: u8) -> Holder<&'static str, u8> {
    Holder { name, incarnation }
}

pub(crate) fn network(vpc: &'static str, ranges: &[&str], age: u8) -> Network<Short> {
    let ranges = ranges.iter().map(|range| cidr(range)).collect();
    Network { vpc, space: Space::Declared(ranges), age }
}

/// A subnet that gives addresses: the network's own, if it has no other name.
pub(crate) fn subnet(network: &'static str, range: &str, stage: Stage) -> Subnet<Short> {
    Subnet { network, layout: Layout::whole(cidr(range)).into(), own: true, stage, age: 0 }
}

/// A network `web` of the VPC `red`, which has number 1, with a subnet for each of its ranges.
pub(crate) fn web(ranges: &[&str]) -> Books {
    let mut books = Books::default();
    books.numbers.claim(RED, Some("red"));
    books.numbers.give_right("red", RED);
    books.networks.put("web", network("red", ranges, 0));
    for range in ranges {
        give(&mut books, range, Stage::Giving);
    }
    books
}

/// Puts the own subnet of `web` for a range into its place.
pub(crate) fn give(books: &mut Books, range: &str, stage: Stage) {
    let own = Short::own_subnet(&"web", cidr(range));
    books.put_subnet(&own, Some(subnet("web", range, stage)));
}

/// What a port of `web` hears that asks for these addresses.
pub(crate) fn ask(books: &mut Books, holder: Holder<&'static str, u8>, ips: &[&str]) -> Answer {
    let ips: Vec<IpAddr> = ips.iter().map(|text| ip(text)).collect();
    let ask = Ask { holder, network: &"web", vpc: RED, subnets: &[], ips: &ips };
    books.grant(&ask, START)
}

/// The addresses that a port of `web` gets which asks for none.
pub(crate) fn any(books: &mut Books, name: &'static str) -> Vec<String> {
    let granted = ask(books, port(name, 1), &[]).unwrap();
    granted.ips.iter().map(ToString::to_string).collect()
}
