//! Who answers the names of a network, and at which address.
//!
//! The rule: a network's DNS address follows from the ranges of its tenant's services, so there is
//! nothing to allocate and nothing to give back; no service gets it.

use std::net::IpAddr;

use atoll_api::{DnsMode, IsolationGrade, NetworkIsolation, TenantIsolation};
use atoll_types::Cidr;

use crate::intent::{NetworkPlan, ObjectName, Tenant, Vpc};
use crate::world::World;

/// The place of the DNS address in a range of services, as most clusters have it.
const PLACE: u128 = 10;

/// The address in a range of services that is kept for DNS. A range of few addresses has none.
pub(crate) fn dns_address(services: &Cidr) -> Option<IpAddr> {
    services.nth(PLACE)
}

/// That address as a range of one, to be kept out of what services get.
pub(crate) fn kept_for_dns(services: &Cidr) -> Option<Cidr> {
    services.part(if services.is_ipv4() { 32 } else { 128 }, PLACE)
}

impl World {
    /// The DNS addresses of a network. Open networks share one number whoever owns them, so they
    /// share the address too: that of the cluster's ranges.
    pub(super) fn dns_addresses(&self, plan: &NetworkPlan) -> Vec<IpAddr> {
        let tenant = self.tenants.get(&ObjectName::cluster(plan.name.tenant.as_str()));
        let ranges = match (plan.isolation(), tenant) {
            (NetworkIsolation::Isolated, Some(tenant)) => self.service_ranges(tenant),
            (NetworkIsolation::Open, _) | (_, None) => self.settings.service.clone(),
        };
        ranges.iter().filter_map(dns_address).collect()
    }

    /// Who answers the names of a network. Networks that share a number share the ways that
    /// questions take, so DNS of its own is for a network that has its VPC for itself.
    pub(super) fn dns_mode(&self, plan: &NetworkPlan) -> DnsMode {
        let asked = plan.dns.mode;
        match plan.vpc == Vpc::Open || self.vpcs.networks.of_vpc(&plan.vpc).len() > 1 {
            true => DnsMode::Shared,
            false => asked,
        }
    }

    /// How far a tenant is isolated, and what keeps it from more.
    pub(super) fn isolation(&self, tenant: &Tenant) -> TenantIsolation {
        let networks = self.indexes.networks_of_tenant.of(&tenant.meta.name.name);
        let plans: Vec<&NetworkPlan> =
            networks.filter_map(|name| self.networks.get(name)?.plan.as_ref().ok()).collect();
        let open = plans.iter().find(|plan| plan.isolation() == NetworkIsolation::Open);
        let foreign = plans.iter().find_map(|plan| Some((plan, plan.type_.foreign()?)));
        let shared = plans.iter().find(|plan| self.dns_mode(plan) == DnsMode::Shared);
        let soft = |reason| TenantIsolation { grade: IsolationGrade::Soft, reason };
        if let (None, Some((plan, type_))) = (open, foreign) {
            let name = &plan.name;
            return soft(format!(
                "network {name} is of type {type_}: how far it is isolated is its provider's matter"
            ));
        }
        match (open, shared) {
            (Some(plan), _) => {
                soft(format!("network {} is open: pods of other tenants reach it", plan.name))
            }
            (None, Some(plan)) => soft(self.shared_names(plan)),
            (None, None) if plans.is_empty() => soft("the tenant has no network".into()),
            (None, None) => {
                let reason = "its networks are isolated and have DNS of their own".into();
                TenantIsolation { grade: IsolationGrade::Hard, reason }
            }
        }
    }

    fn shared_names(&self, plan: &NetworkPlan) -> String {
        let name = &plan.name;
        match plan.dns.mode {
            DnsMode::Shared => {
                format!("network {name} has no DNS of its own: the agents of its nodes answer")
            }
            DnsMode::Dedicated | DnsMode::Tenant => format!(
                "network {name} shares its VPC {} with other networks, so the agents of its nodes \
                 answer its names",
                plan.vpc
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tenth_address_after_the_first_is_for_dns_where_there_is_one() {
        let of = |range: &str| dns_address(&range.parse().unwrap()).map(|ip| ip.to_string());
        assert_eq!(of("198.18.0.0/16").unwrap(), "198.18.0.10");
        assert_eq!(of("fd98::/108").unwrap(), "fd98::a");
        assert_eq!(of("198.18.0.0/29"), None);
        let kept = |range: &str| kept_for_dns(&range.parse().unwrap()).map(|it| it.to_string());
        assert_eq!(kept("198.18.0.0/16").unwrap(), "198.18.0.10/32");
        assert_eq!(kept("fd98::/108").unwrap(), "fd98::a/128");
        assert_eq!(kept("198.18.0.0/29"), None);
    }
}
