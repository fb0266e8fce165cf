//! A tenant has no more than it may have.
//!
//! Limits count what is there and what is on the way. What was there before a limit stays.

use atoll_api::{ConditionType, Reason, TenantQuota};
use atoll_types::{Label, NetworkName};
use atoll_vpc::Moment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::wait::Complaint;
use crate::conditions::{Verdict, named, with_condition};
use crate::intent::{Network, ObjectName, Tenant};
use crate::world::{Now, World};

/// How long a pod waits before it asks again whether its tenant has room.
const PAUSE: Moment = Moment::from_secs(5);

impl World {
    /// How many addresses a tenant's services hold.
    pub(super) fn vips_of(&self, tenant: &Tenant) -> usize {
        let tenant = tenant.meta.name.name.parse();
        tenant.map_or(0, |tenant| self.vips.held(&tenant))
    }

    /// A tenant's conditions with one that tells whether its quota leaves room, if it has one: for
    /// its networks, ports and VIPs, of which it has so many, and for addresses of the outside.
    pub(super) fn with_room(
        &self,
        tenant: &Tenant,
        has: [usize; 4],
        standing: &[Condition],
        now: &Time,
    ) -> Vec<Condition> {
        let TenantQuota { networks, ports, vips, outside_addresses } = tenant.quota;
        let outside = ("addresses of the outside", outside_addresses);
        let limits = [("networks", networks), ("ports", ports), ("VIPs", vips), outside];
        if limits.iter().all(|(_, limit)| limit.is_none()) {
            let kind = ConditionType::HasRoom.to_string();
            return standing.iter().filter(|it| it.type_ != kind).cloned().collect();
        }
        let reached: Vec<String> = limits
            .into_iter()
            .zip(has)
            .filter_map(|((what, limit), has)| Some((what, usize::try_from(limit?).ok()?, has)))
            .filter(|(_, limit, has)| has >= limit)
            .map(|(what, limit, has)| format!("{has} of {limit} {what}"))
            .collect();
        let verdict = match reached.is_empty() {
            true => Verdict::ready("the quota leaves room for more"),
            false => {
                Verdict::not_ready(Reason::QuotaExceeded, format!("has {}", reached.join(", ")))
            }
        };
        with_condition(ConditionType::HasRoom, &verdict, &tenant.meta, standing, now)
    }

    fn quota_of(&self, tenant: &str) -> Option<&TenantQuota> {
        self.tenants.get(&ObjectName::cluster(tenant)).map(|tenant| &tenant.quota)
    }

    /// Why a network is one too many, if it is. Those that have their place, by a number or with a
    /// provider, come first, then the older.
    pub(super) fn over_network_quota(&self, network: &Network, tenant: &Label) -> Option<Verdict> {
        let limit = usize::try_from(self.quota_of(tenant.as_str())?.networks?).ok()?;
        let has_place = |network: &Network| network.id().is_some() || network.is_provided();
        let rank = |network: &Network| (!has_place(network), network.meta.created);
        let networks = self.indexes.networks_of_tenant.of(tenant.as_str());
        let before: Vec<String> = networks
            .filter_map(|name| self.networks.get(name))
            .filter(|other| (rank(other), &other.meta.name) < (rank(network), &network.meta.name))
            .map(|other| other.meta.name.to_string())
            .collect();
        (!has_place(network) && before.len() >= limit).then(|| {
            let has = if before.is_empty() { "none".into() } else { named(before.into_iter()) };
            let message = format!("tenant {tenant} may have {limit} networks and has: {has}");
            Verdict::not_ready(Reason::QuotaExceeded, message)
        })
    }

    /// Refuses one more address of a tenant's services where that would be too many.
    pub(super) fn check_vip_quota(&self, tenant: &Label, now: &Now) -> Result<(), Complaint> {
        let limit = self.quota_of(tenant.as_str()).and_then(|quota| quota.vips);
        let taken = self.vips.held_or_on_the_way(tenant);
        match limit {
            Some(limit) if taken >= usize::try_from(limit).unwrap_or(usize::MAX) => {
                let message = format!("tenant {tenant} may have {limit} VIPs and has {taken}");
                let complaint = Complaint::new(Reason::QuotaExceeded, message);
                Err(complaint.again_at(now.moment + PAUSE))
            }
            Some(_) | None => Ok(()),
        }
    }

    pub(super) fn check_port_quota(
        &self,
        tenant: &Label,
        port: &ObjectName,
        network: &NetworkName,
        now: &Now,
    ) -> Result<(), Complaint> {
        let limit = self.quota_of(tenant.as_str()).and_then(|quota| quota.ports);
        let seats = &self.indexes.seats_of_tenant;
        let Some(limit) = limit.filter(|_| !seats.contains(tenant.as_str(), port)) else {
            return Ok(());
        };
        let taken = seats.of(tenant.as_str()).len();
        if taken < usize::try_from(limit).unwrap_or(usize::MAX) {
            return Ok(());
        }
        let message = format!("tenant {tenant} may have {limit} ports and has {taken}");
        let complaint = Complaint::new(Reason::QuotaExceeded, message);
        Err(complaint.waiting_for(network, None).again_at(now.moment + PAUSE))
    }

    /// A port on the way counts until it is there or given up.
    pub(super) fn take_seat(&mut self, tenant: &Label, port: &ObjectName) {
        self.indexes.tenant_of_seat.insert(port.clone(), tenant.clone());
        self.indexes.seats_of_tenant.add(tenant.to_string(), port.clone());
    }
}
