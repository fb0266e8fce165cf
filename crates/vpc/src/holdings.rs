//! Which addresses ports hold, and which are on the way to them.
//!
//! The rule: an address that is held is on the way to nobody.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

use atoll_types::{Cidr, NetAddr, NetworkId};

use crate::family::Family;
use crate::groups::Groups;
use crate::holder::Holder;
use crate::names::Name;
use crate::proposals::Proposals;

/// The addresses of ports that are named by `P`, whose incarnations are told apart by `I`.
#[derive(Clone, Debug)]
pub struct Holdings<P, I> {
    held: HashMap<NetworkId, BTreeSet<IpAddr>>,
    held_by: Groups<P, (NetAddr, I)>,
    proposals: Proposals<P, NetAddr>,
}

impl<P, I> Default for Holdings<P, I> {
    fn default() -> Self {
        Holdings {
            held: HashMap::new(),
            held_by: Groups::default(),
            proposals: Proposals::default(),
        }
    }
}

impl<P: Name, I: Name> Holdings<P, I> {
    /// An address is held: by a port, or by somebody who is none.
    pub(crate) fn claim(&mut self, address: NetAddr, holder: Option<Holder<P, I>>) {
        self.proposals.remove(address);
        self.held.entry(address.network).or_default().insert(address.ip);
        if let Some(Holder { name, incarnation }) = holder {
            self.held_by.add(name, (address, incarnation));
        }
    }

    /// An address is not held any more by whom it was; says whether it was held.
    pub(crate) fn release(&mut self, address: NetAddr, holder: Option<Holder<P, I>>) -> bool {
        if let Some(Holder { name, incarnation }) = holder {
            self.held_by.remove(&name, &(address, incarnation));
        }
        let Some(held) = self.held.get_mut(&address.network) else { return false };
        let was_held = held.remove(&address.ip);
        if held.is_empty() {
            self.held.remove(&address.network);
        }
        was_held
    }

    /// Notes that an address is on the way to a port.
    pub(crate) fn propose(&mut self, port: &P, address: NetAddr) {
        self.proposals.add(port.clone(), address);
    }

    /// Nothing of these families is on the way to a port any more; tells what was.
    pub(crate) fn drop_proposals(&mut self, port: &P, families: &[Family]) -> Vec<NetAddr> {
        let mut dropped: Vec<NetAddr> = self.proposals.of(port).copied().collect();
        dropped.retain(|address| families.contains(&Family::of(address.ip)));
        dropped.retain(|address| self.proposals.remove(*address));
        dropped
    }

    /// The port that an address is on the way to.
    pub fn on_the_way_to(&self, address: NetAddr) -> Option<&P> {
        self.proposals.holder(address)
    }

    /// Whether an address is this holder's: it holds it, or it is on the way to it.
    pub(crate) fn is_of(&self, address: NetAddr, holder: &Holder<P, I>) -> bool {
        let mut held = self.held_by.of(&holder.name);
        held.any(|(own, incarnation)| *own == address && *incarnation == holder.incarnation)
            || self.on_the_way_to(address) == Some(&holder.name)
    }

    /// The addresses that are this holder's: first those it holds, then those on the way.
    pub(crate) fn of(&self, holder: &Holder<P, I>) -> impl Iterator<Item = NetAddr> {
        let held = self.held_by.of(&holder.name);
        let held = held.filter(|(_, incarnation)| *incarnation == holder.incarnation);
        held.map(|(address, _)| *address).chain(self.proposals.of(&holder.name).copied())
    }

    /// The addresses that some incarnation of a port holds.
    pub fn held_by(&self, port: &P) -> impl Iterator<Item = NetAddr> {
        self.held_by.of(port).map(|(address, _)| *address)
    }

    /// How many addresses of a VPC are held.
    pub fn count(&self, vpc: NetworkId) -> usize {
        self.held.get(&vpc).map_or(0, BTreeSet::len)
    }

    /// The addresses of a range that are held, in order.
    pub fn held_in(&self, vpc: NetworkId, range: Cidr) -> impl Iterator<Item = IpAddr> {
        let held = self.held.get(&vpc).into_iter();
        held.flat_map(move |held| held.range(range.first()..=range.last())).copied()
    }

    /// The addresses of a VPC that are on the way to somebody.
    pub(crate) fn on_the_way_in(&self, vpc: NetworkId) -> impl Iterator<Item = IpAddr> {
        let coming = self.proposals.things().filter(move |address| address.network == vpc);
        coming.map(|address| address.ip)
    }
}
