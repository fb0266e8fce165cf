//! The addresses of one subnet, and why one may be refused.

use std::net::IpAddr;

use atoll_types::Cidr;

use crate::circle::{Circle, Dry, Moment};
use crate::range::Range;
use crate::spans::Spans;

/// The addresses of one subnet that ports may have.
#[derive(Clone, Debug)]
pub struct AddressPool {
    cidr: Cidr,
    circle: Circle,
}

/// No address can be proposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Exhausted {
    /// Every address is in use.
    #[error("every address of {0} is in use or reserved")]
    Full(Cidr),
    /// Some are free, but were freed a moment ago.
    #[error("every free address of {cidr} was in use a moment ago and is not given again yet")]
    Resting {
        /// The range.
        cidr: Cidr,
        /// When the first of them may be given.
        until: Moment,
    },
}

/// Why an address that was asked for by name cannot be had from this subnet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is not in the range.
    Outside,
    /// It is the network's, the gateway's or the broadcast address, or in an excluded range.
    Reserved,
    /// Somebody has it.
    InUse,
}

impl AddressPool {
    /// All of `cidr` but what is `reserved`. A reserved range counts where it lies in `cidr`.
    pub fn new(cidr: Cidr, reserved: impl IntoIterator<Item = Range>) -> Self {
        let mut spans = Spans::default();
        for (first, last) in reserved.into_iter().filter_map(|range| range.offsets_in(&cidr)) {
            spans.insert(first, last);
        }
        AddressPool { cidr, circle: Circle::new(0, cidr.size() - 1, spans) }
    }

    /// Takes an address that is probably free.
    pub fn propose(&mut self, now: Moment) -> Result<IpAddr, Exhausted> {
        let full = Exhausted::Full(self.cidr);
        let offset = self.circle.next(now).map_err(|dry| match dry {
            Dry::Full => full,
            Dry::Resting(until) => Exhausted::Resting { cidr: self.cidr, until },
        })?;
        self.cidr.nth(offset).ok_or(full)
    }

    /// Whether `ip` can be had by name. One that rests after use can.
    pub fn check(&self, ip: IpAddr) -> Result<(), Refusal> {
        let offset = self.cidr.offset_of(ip).ok_or(Refusal::Outside)?;
        if self.circle.is_reserved(offset) {
            Err(Refusal::Reserved)
        } else if self.circle.is_taken(offset) {
            Err(Refusal::InUse)
        } else {
            Ok(())
        }
    }

    /// Marks `ip` as taken; one outside the range is nothing to this pool.
    pub fn take(&mut self, ip: IpAddr) {
        if let Some(offset) = self.cidr.offset_of(ip) {
            self.circle.take(offset);
        }
    }

    /// Marks `ip` as free again; it is not proposed before `until`.
    pub fn free(&mut self, ip: IpAddr, until: Moment) {
        if let Some(offset) = self.cidr.offset_of(ip) {
            self.circle.free(offset, until);
        }
    }

    /// Goes on where `old` stopped: what rested there rests here.
    pub fn go_on_from(&mut self, old: AddressPool) {
        if self.cidr == old.cidr {
            self.circle.go_on_from(old.circle);
        }
    }

    /// How many addresses are taken.
    pub fn used(&self) -> u128 {
        self.circle.taken()
    }

    /// How many addresses could still be given.
    pub fn available(&self) -> u128 {
        self.circle.free_count()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn small() -> AddressPool {
        let ends = ["10.0.0.0-10.0.0.1", "10.0.0.7"];
        AddressPool::new("10.0.0.0/29".parse().unwrap(), ends.map(|range| range.parse().unwrap()))
    }

    #[test]
    fn addresses_are_proposed_in_order_without_the_reserved_ones() {
        let mut pool = small();
        let all: Vec<IpAddr> = (2..=6).map(|last| ip(&format!("10.0.0.{last}"))).collect();
        let proposed: Vec<IpAddr> = (2..=6).map(|_| pool.propose(Moment::ZERO).unwrap()).collect();
        assert_eq!(proposed, all);
        let error = pool.propose(Moment::ZERO).unwrap_err();
        assert_eq!(error.to_string(), "every address of 10.0.0.0/29 is in use or reserved");
    }

    #[test]
    fn each_refusal_has_its_name() {
        let mut pool = small();
        pool.take(ip("10.0.0.5"));
        assert_eq!(pool.check(ip("10.0.0.5")), Err(Refusal::InUse));
        assert_eq!(pool.check(ip("10.0.0.1")), Err(Refusal::Reserved));
        assert_eq!(pool.check(ip("10.0.0.8")), Err(Refusal::Outside));
        assert_eq!(pool.check(ip("fd00::5")), Err(Refusal::Outside));
        assert_eq!(pool.check(ip("10.0.0.4")), Ok(()));
    }

    #[test]
    fn an_address_asked_for_by_name_need_not_rest() {
        let mut pool = small();
        pool.take(ip("10.0.0.2"));
        pool.free(ip("10.0.0.2"), Moment::from_secs(30));
        assert_eq!(pool.check(ip("10.0.0.2")), Ok(()));
        assert_eq!(pool.propose(Moment::ZERO), Ok(ip("10.0.0.3")));
    }

    #[test]
    fn a_range_of_all_ipv6_addresses_can_be_a_pool() {
        let mut pool = AddressPool::new("::/0".parse().unwrap(), []);
        assert_eq!(pool.propose(Moment::ZERO), Ok(ip("::")));
        assert_eq!(pool.used(), 1);
    }

    #[test]
    fn a_pool_with_other_reservations_goes_on_where_the_old_one_stopped() {
        let mut old = small();
        let first = old.propose(Moment::ZERO).unwrap();
        old.free(first, Moment::from_secs(30));
        let carved = [Range::from(ip("10.0.0.3"))];
        let mut pool = AddressPool::new("10.0.0.0/29".parse().unwrap(), carved);
        pool.go_on_from(old);
        assert_eq!(pool.propose(Moment::ZERO), Ok(ip("10.0.0.4")));
        assert_eq!(pool.propose(Moment::from_secs(30)), Ok(ip("10.0.0.5")));
        assert_eq!(pool.check(first), Ok(()));
    }

    proptest! {
        #[test]
        fn no_address_is_out_twice_and_the_counts_are_true(
            steps in prop::collection::vec(prop::option::of(0_usize..8), 1..80)
        ) {
            let (mut pool, mut out) = (small(), BTreeSet::new());
            for (time, step) in steps.into_iter().enumerate() {
                let now = Moment::from_secs(time as u64);
                let returned = step.and_then(|position| out.iter().nth(position).copied());
                match returned {
                    Some(address) => {
                        out.remove(&address);
                        pool.free(address, now + Moment::from_secs(3));
                    }
                    None => {
                        if let Ok(address) = pool.propose(now) {
                            prop_assert!(out.insert(address), "{} is out twice", address);
                        }
                    }
                }
                prop_assert_eq!(pool.used(), out.len() as u128);
                prop_assert_eq!(pool.available(), 5 - out.len() as u128);
            }
        }
    }
}
