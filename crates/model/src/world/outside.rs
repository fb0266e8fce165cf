//! Addresses of the outside: who asks for them, what is held or on the way, and what is free.
//!
//! There is one outside for all tenants, so that an address alone is the key here, as nowhere else.
//! What is free of a range is worked out when it is first needed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use atoll_api::ClaimHolder;
use atoll_types::Cidr;
use atoll_vpc::{AddressPool, Exhausted, Groups, Moment, Refusal};

use crate::action::Key;
use crate::intent::ObjectName;

/// Pools, holders and proposals of addresses of the outside.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outsides {
    pools: Vec<(Cidr, AddressPool)>,
    claimed: BTreeMap<IpAddr, ClaimHolder>,
    of_holder: Groups<ClaimHolder, IpAddr>,
    claimed_in: Groups<Place, IpAddr>,
    on_the_way: BTreeSet<IpAddr>,
    on_the_way_to: Groups<Place, IpAddr>,
    proposals: HashMap<ObjectName, Vec<IpAddr>>,
    askers: BTreeSet<Key>,
}

/// What tells whose a holder is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    /// A service's namespace, which a tenant has by its label.
    Namespace(String),
    /// The tenant in a network's name.
    NetworksOf(String),
}

impl Place {
    fn of(holder: &ClaimHolder) -> Self {
        match &holder.namespace {
            Some(namespace) => Place::Namespace(namespace.clone()),
            None => {
                let tenant = holder.name.split_once('.').map_or("", |(tenant, _)| tenant);
                Place::NetworksOf(tenant.to_owned())
            }
        }
    }
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

    /// How many addresses are held in a place.
    pub(crate) fn held_in(&self, place: &Place) -> usize {
        self.claimed_in.of(place).len()
    }

    /// How many somebody in a place is about to claim.
    pub(crate) fn coming_to(&self, place: &Place) -> usize {
        let coming = self.on_the_way_to.of(place);
        coming.filter(|ip| !self.claimed.contains_key(*ip)).count()
    }

    /// What somebody holds, in order.
    pub(crate) fn held_by(&self, holder: &ClaimHolder) -> impl Iterator<Item = IpAddr> {
        self.of_holder.of(holder).copied()
    }

    /// What was proposed to a service.
    pub(crate) fn proposed_to(&self, service: &ObjectName) -> &[IpAddr] {
        self.proposals.get(service).map(Vec::as_slice).unwrap_or_default()
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
        self.on_the_way_to.add(Place::Namespace(service.namespace.clone()), ip);
        self.proposals.entry(service.clone()).or_default().push(ip);
    }

    /// Takes back what was proposed to a service and not claimed.
    pub(crate) fn drop_proposals(&mut self, service: &ObjectName, until: Moment) {
        for ip in self.proposals.remove(service).unwrap_or_default() {
            self.on_the_way.remove(&ip);
            self.on_the_way_to.remove(&Place::Namespace(service.namespace.clone()), &ip);
            if !self.claimed.contains_key(&ip) {
                self.free(ip, until);
            }
        }
    }

    /// Notes that somebody claimed an address.
    pub(super) fn claim(&mut self, ip: IpAddr, holder: &ClaimHolder) {
        self.claimed.insert(ip, holder.clone());
        self.of_holder.add(holder.clone(), ip);
        self.claimed_in.add(Place::of(holder), ip);
        self.pools.iter_mut().for_each(|(_, pool)| pool.take(ip));
    }

    /// Notes that the claim on an address is gone.
    pub(super) fn release(&mut self, ip: IpAddr, holder: &ClaimHolder, until: Moment) {
        self.claimed.remove(&ip);
        self.of_holder.remove(holder, &ip);
        self.claimed_in.remove(&Place::of(holder), &ip);
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NAMESPACES: [&str; 2] = ["shop", "back"];

    fn ip(number: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, number])
    }

    fn service(number: u8) -> ObjectName {
        ObjectName::inside(NAMESPACES[usize::from(number % 2)], format!("svc-{number}"))
    }

    /// Services of two namespaces, and networks of two tenants.
    fn holder(number: u8) -> ClaimHolder {
        let holder = |kind: &str, namespace: Option<String>, name| ClaimHolder {
            kind: kind.into(),
            namespace,
            name,
            uid: None,
        };
        match number {
            0..4 => {
                let ObjectName { namespace, name } = service(number);
                holder("Service", Some(namespace), name)
            }
            number => holder("Network", None, format!("t-{}.out", number % 2)),
        }
    }

    fn places() -> Vec<Place> {
        let namespaces = NAMESPACES.map(|name| Place::Namespace(name.into()));
        let tenants = ["t-0", "t-1"].map(|name| Place::NetworksOf(name.into()));
        namespaces.into_iter().chain(tenants).collect()
    }

    fn counted(all: &Outsides, place: &Place) -> (usize, usize) {
        let held = all.claimed.values().filter(|holder| Place::of(holder) == *place).count();
        let here = |name: &ObjectName| Place::Namespace(name.namespace.clone()) == *place;
        let proposed = all.proposals.iter().filter(|(name, _)| here(name));
        let coming = proposed.flat_map(|(_, ips)| ips).filter(|ip| !all.claimed.contains_key(*ip));
        (held, coming.count())
    }

    proptest! {
        #[test]
        fn what_is_told_of_a_place_is_what_counting_everything_gives(
            steps in prop::collection::vec((0..4_u8, 0..8_u8, 0..6_u8), 0..80)
        ) {
            let mut all = Outsides::default();
            for (step, number, who) in steps {
                match step {
                    0 if !all.claimed.contains_key(&ip(number)) => {
                        all.claim(ip(number), &holder(who));
                    }
                    1 => if let Some(holder) = all.claimed.get(&ip(number)).cloned() {
                        all.release(ip(number), &holder, Moment::ZERO);
                    },
                    2 => drop(all.propose(
                        &service(who % 4),
                        &["192.0.2.0/29".parse().unwrap()],
                        Moment::ZERO,
                    )),
                    _ => all.drop_proposals(&service(who % 4), Moment::ZERO),
                }
                for place in places() {
                    let told = (all.held_in(&place), all.coming_to(&place));
                    prop_assert_eq!(told, counted(&all, &place), "{:?}", place);
                }
            }
        }
    }
}
