//! Addresses of services: what of a tenant's ranges is held or on the way, and what is free.
//!
//! The rule: the key is the tenant and the address, since two tenants may have the same. A pool is
//! built when it is first needed.

use std::collections::HashMap;
use std::net::IpAddr;

use atoll_types::{Cidr, Label};
use atoll_vpc::{AddressPool, Exhausted, Groups, Layout, Moment, Refusal};

use crate::decide::kept_for_dns;
use crate::intent::{ObjectName, Vip};

/// Pools and proposals of services' addresses.
#[derive(Clone, Debug, Default)]
pub(crate) struct Vips {
    pools: HashMap<Label, Vec<(Cidr, AddressPool)>>,
    claimed: Groups<Label, IpAddr>,
    on_the_way: Groups<Label, IpAddr>,
    proposals: HashMap<ObjectName, Vec<Vip>>,
}

impl Vips {
    /// How many addresses a tenant's services hold.
    pub(crate) fn held(&self, tenant: &Label) -> usize {
        self.claimed.of(tenant).len()
    }

    /// How many they hold or are about to.
    pub(crate) fn held_or_on_the_way(&self, tenant: &Label) -> usize {
        let coming = self.on_the_way.of(tenant);
        self.held(tenant) + coming.filter(|ip| !self.claimed.contains(tenant, ip)).count()
    }

    /// What was proposed to a service.
    pub(crate) fn proposed_to(&self, service: &ObjectName) -> &[Vip] {
        self.proposals.get(service).map(Vec::as_slice).unwrap_or_default()
    }

    /// Proposes any address of a range to a service.
    pub(crate) fn propose(
        &mut self,
        service: &ObjectName,
        tenant: &Label,
        range: Cidr,
        now: Moment,
    ) -> Result<IpAddr, Exhausted> {
        let ip = self.pool(tenant, range).propose(now)?;
        self.note(service, tenant, ip);
        Ok(ip)
    }

    /// Proposes this address of a range to a service, if it can be had.
    pub(crate) fn propose_exactly(
        &mut self,
        service: &ObjectName,
        tenant: &Label,
        range: Cidr,
        ip: IpAddr,
    ) -> Result<(), Refusal> {
        let pool = self.pool(tenant, range);
        pool.check(ip)?;
        pool.take(ip);
        self.note(service, tenant, ip);
        Ok(())
    }

    fn note(&mut self, service: &ObjectName, tenant: &Label, ip: IpAddr) {
        self.on_the_way.add(tenant.clone(), ip);
        let vip = Vip { tenant: tenant.clone(), ip };
        self.proposals.entry(service.clone()).or_default().push(vip);
    }

    /// Takes back what was proposed to a service and not claimed.
    pub(crate) fn drop_proposals(&mut self, service: &ObjectName, until: Moment) {
        for vip in self.proposals.remove(service).unwrap_or_default() {
            self.on_the_way.remove(&vip.tenant, &vip.ip);
            if !self.claimed.contains(&vip.tenant, &vip.ip) {
                self.free(&vip, until);
            }
        }
    }

    /// Notes that somebody claimed an address.
    pub(super) fn claim(&mut self, vip: &Vip) {
        self.claimed.add(vip.tenant.clone(), vip.ip);
        let pools = self.pools.get_mut(&vip.tenant).into_iter().flatten();
        pools.for_each(|(_, pool)| pool.take(vip.ip));
    }

    /// Notes that the claim on an address is gone.
    pub(super) fn release(&mut self, vip: &Vip, until: Moment) {
        self.claimed.remove(&vip.tenant, &vip.ip);
        if !self.on_the_way.contains(&vip.tenant, &vip.ip) {
            self.free(vip, until);
        }
    }

    /// Forgets what was free for a tenant that is gone.
    pub(super) fn forget(&mut self, tenant: &Label) {
        self.pools.remove(tenant);
    }

    fn free(&mut self, vip: &Vip, until: Moment) {
        let pools = self.pools.get_mut(&vip.tenant).into_iter().flatten();
        pools.for_each(|(_, pool)| pool.free(vip.ip, until));
    }

    fn pool(&mut self, tenant: &Label, range: Cidr) -> &mut AddressPool {
        let pools = self.pools.entry(tenant.clone()).or_default();
        let place = pools.iter().position(|(cidr, _)| *cidr == range).unwrap_or_else(|| {
            let mut pool = Layout::whole(range).pool(kept_for_dns(&range));
            let taken = self.claimed.of(tenant).chain(self.on_the_way.of(tenant));
            taken.for_each(|ip| pool.take(*ip));
            pools.push((range, pool));
            pools.len() - 1
        });
        &mut pools[place].1
    }
}
