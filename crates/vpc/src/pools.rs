//! The pools of many subnets, by name. A pool is built when it is first needed, and built anew
//! when what lies in its subnet changed; then it goes on where it stopped.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;

use atoll_types::{Cidr, NetworkId};

use crate::addresses::AddressPool;
use crate::circle::Moment;
use crate::layout::Layout;

/// Pools by the names of their subnets, each with the number of its VPC.
#[derive(Clone, Debug)]
pub struct Pools<S>(HashMap<S, (NetworkId, AddressPool)>);

impl<S> Default for Pools<S> {
    fn default() -> Self {
        Pools(HashMap::new())
    }
}

impl<S: Hash + Eq> Pools<S> {
    /// The pool of a subnet, if it was built.
    pub fn get(&mut self, subnet: &S) -> Option<&mut AddressPool> {
        self.0.get_mut(subnet).map(|(_, pool)| pool)
    }

    /// The number of the VPC for which the pool of a subnet was built.
    pub fn vpc_of(&self, subnet: &S) -> Option<NetworkId> {
        self.0.get(subnet).map(|(vpc, _)| *vpc)
    }

    /// Builds the pool of a subnet: without what the `siblings` inside it have, and with what is
    /// `taken`.
    pub fn build(
        &mut self,
        subnet: S,
        vpc: NetworkId,
        layout: &Layout,
        siblings: impl IntoIterator<Item = Cidr>,
        taken: impl IntoIterator<Item = IpAddr>,
    ) {
        let own = layout.cidr();
        let inside = |cidr: &Cidr| own.contains_cidr(cidr) && *cidr != own;
        let mut pool = layout.pool(siblings.into_iter().filter(inside));
        taken.into_iter().for_each(|ip| pool.take(ip));
        if let Some((_, old)) = self.0.remove(&subnet) {
            pool.go_on_from(old);
        }
        self.0.insert(subnet, (vpc, pool));
    }

    /// Forgets the pool of a subnet that is gone.
    pub fn remove(&mut self, subnet: &S) {
        self.0.remove(subnet);
    }

    /// Marks an address as taken in each of these subnets.
    pub fn take<'a>(&mut self, subnets: impl IntoIterator<Item = &'a S>, ip: IpAddr)
    where
        S: 'a,
    {
        for subnet in subnets {
            if let Some(pool) = self.get(subnet) {
                pool.take(ip);
            }
        }
    }

    /// Marks an address as free in each of these subnets; it is not proposed before `until`.
    pub fn free<'a>(&mut self, subnets: impl IntoIterator<Item = &'a S>, ip: IpAddr, until: Moment)
    where
        S: 'a,
    {
        for subnet in subnets {
            if let Some(pool) = self.get(subnet) {
                pool.free(ip, until);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(cidr: &str) -> Layout {
        Layout::parse(cidr.parse().unwrap(), None, &[], &[]).unwrap()
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_pool_gives_nothing_of_a_subnet_inside_its_own_and_nothing_that_is_taken() {
        let mut pools = Pools::default();
        let siblings = ["10.0.0.4/30", "10.0.0.0/28", "10.0.0.0/24"].map(|it| it.parse().unwrap());
        let taken = [ip("10.0.0.2")];
        pools.build("web", NetworkId::MIN, &layout("10.0.0.0/28"), siblings, taken);
        let pool = pools.get(&"web").unwrap();
        assert_eq!(pool.propose(Moment::ZERO), Ok(ip("10.0.0.3")));
        assert_eq!(pool.propose(Moment::ZERO), Ok(ip("10.0.0.8")));
        assert_eq!(pools.vpc_of(&"web"), Some(NetworkId::MIN));
    }

    #[test]
    fn a_pool_that_is_built_anew_goes_on_where_it_stopped() {
        let mut pools = Pools::default();
        let (web, subnet) = ("web", layout("10.0.0.0/28"));
        pools.build(web, NetworkId::MIN, &subnet, [], []);
        assert_eq!(pools.get(&web).unwrap().propose(Moment::ZERO), Ok(ip("10.0.0.2")));
        pools.free([&web], ip("10.0.0.2"), Moment::ZERO);
        pools.take([&web, &"unknown"], ip("10.0.0.3"));
        pools.build(web, NetworkId::MIN, &subnet, [], [ip("10.0.0.3")]);
        assert_eq!(pools.get(&web).unwrap().propose(Moment::ZERO), Ok(ip("10.0.0.4")));
        pools.remove(&web);
        assert!(pools.get(&web).is_none());
    }
}
