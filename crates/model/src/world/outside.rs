//! Addresses of the outside: who asks for them, what is held or on the way, and what is free.
//!
//! There is one outside for all tenants, so that an address alone is the key here, as nowhere else.
//! What is free of a range is worked out when it is first needed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use atoll_api::ClaimHolder;
use atoll_types::Cidr;
use atoll_vpc::{AddressPool, Exhausted, Moment, Refusal};

use super::groups::Groups;
use crate::action::Key;
use crate::intent::ObjectName;

/// Pools, holders and proposals of addresses of the outside.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outsides {
    pools: Vec<(Cidr, AddressPool)>,
    claimed: BTreeMap<IpAddr, ClaimHolder>,
    of_holder: Groups<ClaimHolder, IpAddr>,
    on_the_way: BTreeSet<IpAddr>,
    proposals: HashMap<ObjectName, Vec<IpAddr>>,
    askers: BTreeSet<Key>,
}

impl Outsides {
    /// Notes whether a service or a network asks for addresses.
    pub(super) fn ask(&mut self, key: Key, asks: bool) {
        match asks {
            true => self.askers.insert(key),
            false => self.askers.remove(&key),
        };
    }

    /// Whoever asks for addresses.
    pub(super) fn askers(&self) -> impl Iterator<Item = &Key> {
        self.askers.iter()
    }

    /// Every address that somebody holds.
    pub(crate) fn claimed(&self) -> impl Iterator<Item = IpAddr> {
        self.claimed.keys().copied()
    }

    /// How many addresses of these ranges somebody holds.
    pub(crate) fn used_of(&self, ranges: &[Cidr]) -> usize {
        let inside = |ip: &IpAddr| ranges.iter().any(|range| range.contains(*ip));
        self.claimed.keys().filter(|ip| inside(ip)).count()
    }

    /// Everybody who holds one, once for each.
    pub(crate) fn holders(&self) -> impl Iterator<Item = &ClaimHolder> {
        self.claimed.values()
    }

    /// What somebody holds, in order.
    pub(crate) fn held_by(&self, holder: &ClaimHolder) -> impl Iterator<Item = IpAddr> {
        self.of_holder.of(holder).copied()
    }

    /// What was proposed to a service.
    pub(crate) fn proposed_to(&self, service: &ObjectName) -> &[IpAddr] {
        self.proposals.get(service).map(Vec::as_slice).unwrap_or_default()
    }

    /// The services that are about to claim one, once for each.
    pub(crate) fn coming(&self) -> impl Iterator<Item = &ObjectName> {
        let unclaimed = |ip: &&IpAddr| !self.claimed.contains_key(*ip);
        let all = self.proposals.iter();
        all.flat_map(move |(name, ips)| ips.iter().filter(unclaimed).map(move |_| name))
    }

    /// Proposes any address of the first range that has a free one to a service.
    pub(crate) fn propose(
        &mut self,
        service: &ObjectName,
        ranges: &[Cidr],
        now: Moment,
    ) -> Option<Result<IpAddr, Exhausted>> {
        let mut last = None;
        for range in ranges {
            match self.pool(*range).propose(now) {
                Ok(ip) => {
                    self.note(service, ip);
                    return Some(Ok(ip));
                }
                Err(exhausted) => last = Some(Err(exhausted)),
            }
        }
        last
    }

    /// Proposes this address of a range to a service, if it can be had.
    pub(crate) fn propose_exactly(
        &mut self,
        service: &ObjectName,
        range: Cidr,
        ip: IpAddr,
    ) -> Result<(), Refusal> {
        self.pool(range).check(ip)?;
        self.note(service, ip);
        Ok(())
    }

    fn note(&mut self, service: &ObjectName, ip: IpAddr) {
        self.pools.iter_mut().for_each(|(_, pool)| pool.take(ip));
        self.on_the_way.insert(ip);
        self.proposals.entry(service.clone()).or_default().push(ip);
    }

    /// Takes back what was proposed to a service and not claimed.
    pub(crate) fn drop_proposals(&mut self, service: &ObjectName, until: Moment) {
        for ip in self.proposals.remove(service).unwrap_or_default() {
            self.on_the_way.remove(&ip);
            if !self.claimed.contains_key(&ip) {
                self.free(ip, until);
            }
        }
    }

    /// Notes that somebody claimed an address.
    pub(super) fn claim(&mut self, ip: IpAddr, holder: &ClaimHolder) {
        self.claimed.insert(ip, holder.clone());
        self.of_holder.add(holder.clone(), ip);
        self.pools.iter_mut().for_each(|(_, pool)| pool.take(ip));
    }

    /// Notes that the claim on an address is gone.
    pub(super) fn release(&mut self, ip: IpAddr, holder: &ClaimHolder, until: Moment) {
        self.claimed.remove(&ip);
        self.of_holder.remove(holder, &ip);
        if !self.on_the_way.contains(&ip) {
            self.free(ip, until);
        }
    }

    /// Forgets what is free of ranges that are in no pool any more.
    pub(super) fn keep(&mut self, ranges: &[Cidr]) {
        self.pools.retain(|(range, _)| ranges.contains(range));
    }

    fn free(&mut self, ip: IpAddr, until: Moment) {
        self.pools.iter_mut().for_each(|(_, pool)| pool.free(ip, until));
    }

    fn pool(&mut self, range: Cidr) -> &mut AddressPool {
        let place = self.pools.iter().position(|(known, _)| *known == range);
        let place = place.unwrap_or_else(|| {
            let mut pool = AddressPool::new(range, []);
            let taken = self.claimed.keys().chain(&self.on_the_way);
            taken.for_each(|ip| pool.take(*ip));
            self.pools.push((range, pool));
            self.pools.len() - 1
        });
        &mut self.pools[place].1
    }
}
