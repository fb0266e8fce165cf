//! What is common to all who hold addresses of the outside: from which ranges they come, how many a
//! tenant may have, which network each is for and which node answers for it.
//!
//! The rule: an address is only had by a claim, and a claim is only made of an address that a pool
//! gives to the tenant.

use std::collections::BTreeSet;
use std::net::IpAddr;

use atoll_api::{self as api, ClaimHolder, ConditionType, Reason};
use atoll_types::{Cidr, Label};
use atoll_vpc::Moment;

use super::wait::Complaint;
use crate::action::{Action, Decision, Seat, Target};
use crate::conditions::{Verdict, with_condition};
use crate::intent::{AddressPool, Claim, Kind, ObjectName, Slice};
use crate::outside::holder_among;
use crate::world::{Now, Place, World};

/// How long whoever may have no more waits before it asks again.
const PAUSE: Moment = Moment::from_secs(5);

impl World {
    /// The ranges that a tenant's addresses come from: those of pools that name it before those
    /// that are everybody's.
    pub(super) fn pool_ranges(&self, tenant: &str) -> Vec<Cidr> {
        let pools = self.address_pools.items().filter(|pool| pool.serves(tenant));
        let mut pools: Vec<&AddressPool> = pools.collect();
        pools.sort_by_key(|pool| (pool.tenants.is_none(), &pool.meta.name));
        pools.into_iter().flat_map(AddressPool::ranges).copied().collect()
    }

    /// The tenant that a holder of addresses of the outside belongs to.
    pub(crate) fn tenant_of_holder(&self, holder: &ClaimHolder) -> Option<Label> {
        match &holder.namespace {
            Some(namespace) => self.tenant_of_namespace(namespace),
            None => holder.name.split_once('.')?.0.parse().ok(),
        }
    }

    fn tenant_of_namespace(&self, namespace: &str) -> Option<Label> {
        self.namespaces.get(&ObjectName::cluster(namespace))?.tenant.as_ref()?.parse().ok()
    }

    /// How many addresses of the outside a tenant has.
    pub(super) fn outsides_of(&self, tenant: &str) -> usize {
        self.places_of(tenant).map(|place| self.outsides.held_in(&place)).sum()
    }

    /// Where holders of a tenant are.
    fn places_of(&self, tenant: &str) -> impl Iterator<Item = Place> {
        let namespaces = self.indexes.namespaces_of_tenant.of(tenant);
        let namespaces = namespaces.map(|namespace| Place::Namespace(namespace.name.clone()));
        namespaces.chain([Place::NetworksOf(tenant.to_owned())])
    }

    /// Refuses one more address where that would be too many.
    pub(super) fn check_outside_quota(&self, tenant: &str, now: &Now) -> Result<(), Complaint> {
        let quota = self.tenants.get(&ObjectName::cluster(tenant)).map(|tenant| &tenant.quota);
        let Some(limit) = quota.and_then(|quota| quota.outside_addresses) else { return Ok(()) };
        let coming = self.places_of(tenant).map(|place| self.outsides.coming_to(&place));
        let taken = self.outsides_of(tenant) + coming.sum::<usize>();
        if taken < usize::try_from(limit).unwrap_or(usize::MAX) {
            return Ok(());
        }
        let message =
            format!("tenant {tenant} may have {limit} addresses of the outside and has {taken}");
        Err(Complaint::new(Reason::QuotaExceeded, message).again_at(now.moment + PAUSE))
    }

    /// The network that an address is for: the one that holds it, or its service's.
    fn network_of_holder(&self, holder: &ClaimHolder) -> Option<String> {
        let Some(namespace) = &holder.namespace else { return Some(holder.name.clone()) };
        let tenant = self.tenant_of_namespace(namespace)?;
        let namespace = self.namespaces.get(&ObjectName::cluster(namespace))?;
        let network = namespace.network.as_deref().unwrap_or("default");
        Some(format!("{tenant}.{network}"))
    }

    /// Writes down which network an address is for and which node answers for it, where that is
    /// not what stands there.
    pub(super) fn seat(&self, claim: &Claim, ip: IpAddr) -> Decision {
        let node = self.node_to_answer(claim, ip);
        let seat = Seat {
            network: self.network_of_holder(&claim.holder),
            node: node.map(ToOwned::to_owned),
        };
        if (&seat.network, &seat.node) == (&claim.network, &claim.node) {
            return Decision::nothing();
        }
        Action::Seat(Target::new(Kind::Claim, &claim.meta), seat).into()
    }

    /// The node that is to answer for an address: by lot, unless where pods are matters. Then one that
    /// has such a pod, and the one that answers already if it has.
    fn node_to_answer(&self, claim: &Claim, ip: IpAddr) -> Option<&str> {
        let able = self.nodes.items().filter(|node| node.can_hold);
        let able = able.map(|node| node.meta.name.name.as_str());
        let holder = claim.service_holder().and_then(|(name, _)| self.services.get(&name));
        let Some(service) = holder.filter(|service| service.is_local_outside()) else {
            return holder_among(ip, able);
        };
        let best = self.nearest_to_pods(&service.meta.name, ip.is_ipv4(), &able.collect());
        let stays = claim.node.as_deref().and_then(|node| best.get(node).copied());
        stays.or_else(|| holder_among(ip, best.into_iter()))
    }

    /// Of these nodes, those that have a pod of a service that takes connections; else those that have
    /// one that still answers while it ends; else all of them.
    fn nearest_to_pods<'a>(
        &self,
        service: &ObjectName,
        is_ipv4: bool,
        nodes: &BTreeSet<&'a str>,
    ) -> BTreeSet<&'a str> {
        let slices = self.indexes.slices_of_service.of(service);
        let slices = slices.filter_map(|name| self.slices.get(name));
        let slices: Vec<&Slice> = slices.filter(|slice| slice.is_ipv4 == is_ipv4).collect();
        let with = |has: fn(&Slice) -> &BTreeSet<String>| -> BTreeSet<&'a str> {
            let has_one = |node: &&str| slices.iter().any(|slice| has(slice).contains(*node));
            nodes.iter().copied().filter(has_one).collect()
        };
        let mut choices =
            [with(|slice| &slice.ready_on), with(|slice| &slice.ending_on)].into_iter();
        choices.find(|choice| !choice.is_empty()).unwrap_or_else(|| nodes.clone())
    }

    /// If whoever holds an address of the outside does not want it: what to look at to be sure.
    pub(super) fn proof_of_lost_outside(&self, claim: &Claim, ip: IpAddr) -> Option<Vec<Action>> {
        if let Some((service, _)) = claim.service_holder() {
            let found = self.services.get(&service)?;
            let wants = found.balancer.is_some() && self.tenant_of_service(found).is_some();
            return (!wants).then(|| vec![self.confirm(Kind::Service, &service)]);
        }
        let (network, uid) = claim.network_holder()?;
        let found = self.networks.get(&network).filter(|found| found.meta.uid == uid);
        let plan = found.and_then(|found| found.plan.as_ref().ok());
        let wants = plan.is_some_and(|plan| plan.egress.contains(&ip));
        (!wants).then(|| vec![self.confirm(Kind::Network, &network)])
    }

    /// What a pool says of itself.
    pub(crate) fn decide_pool(&mut self, name: &ObjectName, now: &Now) -> Decision {
        let Some(pool) = self.address_pools.get(name) else { return Decision::nothing() };
        let used = self.outsides.used_of(pool.ranges());
        let verdict = match &pool.ranges {
            Err(malformed) => Verdict::from(malformed),
            Ok(ranges) => room(ranges, used),
        };
        let standing = pool.status.clone().unwrap_or_default();
        let kind = ConditionType::HasRoom;
        let status = api::AddressPoolStatus {
            used: i32::try_from(used).unwrap_or(i32::MAX),
            conditions: with_condition(kind, &verdict, &pool.meta, &standing.conditions, &now.time),
        };
        if pool.status.as_ref() == Some(&status) {
            return Decision::nothing();
        }
        Action::SetPoolStatus(Target::new(Kind::AddressPool, &pool.meta), Box::new(status)).into()
    }
}

fn room(ranges: &[Cidr], used: usize) -> Verdict {
    let all = ranges.iter().fold(0_u128, |sum, range| sum.saturating_add(range.size()));
    let message = format!("{used} of {all} addresses are in use");
    match u128::try_from(used).is_ok_and(|used| used < all) {
        true => Verdict::ready(message),
        false => Verdict::not_ready(Reason::PoolExhausted, message),
    }
}
