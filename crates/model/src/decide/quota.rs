//! A tenant has no more than it may have.
//!
//! Limits count what is there and what is on the way. What was there before a limit stays.

use atoll_api::{Reason, TenantQuota};
use atoll_types::{Label, NetworkName};
use atoll_vpc::Moment;

use super::wait::Complaint;
use crate::conditions::{Verdict, named};
use crate::intent::{Network, ObjectName};
use crate::world::{Now, World};

/// How long a pod waits before it asks again whether its tenant has room.
const PAUSE: Moment = Moment::from_secs(5);

impl World {
    fn quota_of(&self, tenant: &str) -> Option<&TenantQuota> {
        self.tenants.get(&ObjectName::cluster(tenant)).map(|tenant| &tenant.quota)
    }

    /// Why a network is one too many, if it is. Those that have a number come first, then the
    /// older.
    pub(super) fn over_network_quota(&self, network: &Network, tenant: &Label) -> Option<Verdict> {
        let limit = usize::try_from(self.quota_of(tenant.as_str())?.networks?).ok()?;
        let rank = |network: &Network| (network.id().is_none(), network.meta.created);
        let networks = self.indexes.networks_of_tenant.of(tenant.as_str());
        let before: Vec<String> = networks
            .filter_map(|name| self.networks.get(name))
            .filter(|other| (rank(other), &other.meta.name) < (rank(network), &network.meta.name))
            .map(|other| other.meta.name.to_string())
            .collect();
        (network.id().is_none() && before.len() >= limit).then(|| {
            let has = if before.is_empty() { "none".into() } else { named(before.into_iter()) };
            let message = format!("tenant {tenant} may have {limit} networks and has: {has}");
            Verdict::not_ready(Reason::QuotaExceeded, message)
        })
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
        self.numbers.seats.insert(port.clone(), tenant.clone());
        self.indexes.seats_of_tenant.add(tenant.to_string(), port.clone());
    }
}
