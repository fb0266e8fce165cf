//! The pools of many subnets, by name. A pool is built when it is first needed, and built anew
//! when what lies in its subnet changed; then it goes on where it stopped.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;

use atoll_types::{Cidr, NetAddr, NetworkId};

use crate::addresses::AddressPool;
use crate::circle::Moment;
use crate::groups::Groups;
use crate::layout::Layout;

/// Pools by the names of their subnets, each with the number of its VPC.
#[derive(Clone, Debug)]
pub(crate) struct Pools<S> {
    all: HashMap<S, (NetworkId, AddressPool)>,
    of_vpc: Groups<NetworkId, S>,
}

impl<S> Default for Pools<S> {
    fn default() -> Self {
        Pools { all: HashMap::new(), of_vpc: Groups::default() }
    }
}

impl<S: Clone + Ord + Hash> Pools<S> {
    /// The pool of a subnet, if it was built.
    pub(crate) fn get(&mut self, subnet: &S) -> Option<&mut AddressPool> {
        self.all.get_mut(subnet).map(|(_, pool)| pool)
    }

    /// The number of the VPC for which the pool of a subnet was built.
    pub(crate) fn vpc_of(&self, subnet: &S) -> Option<NetworkId> {
        self.all.get(subnet).map(|(vpc, _)| *vpc)
    }

    /// Builds the pool of a subnet: without what the `siblings` inside it have, and with what is
    /// `taken`.
    pub(crate) fn build(
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
        if let Some(old) = self.remove(&subnet) {
            pool.go_on_from(old);
        }
        self.of_vpc.add(vpc, subnet.clone());
        self.all.insert(subnet, (vpc, pool));
    }

    /// Forgets the pool of a subnet that is gone.
    pub(crate) fn remove(&mut self, subnet: &S) -> Option<AddressPool> {
        let (vpc, pool) = self.all.remove(subnet)?;
        self.of_vpc.remove(&vpc, subnet);
        Some(pool)
    }

    /// Marks an address as taken, in whichever subnets of its VPC it lies.
    pub(crate) fn take(&mut self, address: NetAddr) {
        self.each_of(address.network, |pool| pool.take(address.ip));
    }

    /// Marks an address as free, in whichever subnets of its VPC it lies; it is not proposed before
    /// `until`.
    pub(crate) fn free(&mut self, address: NetAddr, until: Moment) {
        self.each_of(address.network, |pool| pool.free(address.ip, until));
    }

    fn each_of(&mut self, vpc: NetworkId, change: impl Fn(&mut AddressPool)) {
        for subnet in self.of_vpc.of(&vpc) {
            if let Some((_, pool)) = self.all.get_mut(subnet) {
                change(pool);
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

    fn address(text: &str) -> NetAddr {
        NetAddr::new(NetworkId::MIN, ip(text))
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
        pools.free(address("10.0.0.2"), Moment::ZERO);
        pools.take(address("10.0.0.3"));
        pools.build(web, NetworkId::MIN, &subnet, [], [ip("10.0.0.3")]);
        assert_eq!(pools.get(&web).unwrap().propose(Moment::ZERO), Ok(ip("10.0.0.4")));
        pools.remove(&web);
        assert!(pools.get(&web).is_none());
    }

    #[test]
    fn what_is_taken_in_one_vpc_is_free_in_another() {
        let mut pools = Pools::default();
        let other = NetworkId::MAX;
        pools.build("web", NetworkId::MIN, &layout("10.0.0.0/28"), [], []);
        pools.build("db", other, &layout("10.0.0.0/28"), [], []);
        pools.take(address("10.0.0.2"));
        assert_eq!(pools.get(&"web").unwrap().used(), 1);
        assert_eq!(pools.get(&"db").unwrap().used(), 0);
        pools.build("web", other, &layout("10.0.0.0/28"), [], []);
        pools.take(NetAddr::new(other, ip("10.0.0.3")));
        assert_eq!(pools.get(&"web").unwrap().used(), 1);
        pools.take(address("10.0.0.4"));
        assert_eq!(pools.get(&"web").unwrap().used(), 1, "it is the other's now");
    }
}
