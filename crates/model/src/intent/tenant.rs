//! A tenant: what it says of its default network and what was said of it.

use atoll_api as api;
use atoll_types::Cidr;

use super::Meta;

/// A tenant.
#[derive(Clone, Debug)]
pub struct Tenant {
    /// Metadata.
    pub meta: Meta,
    /// What it wants as its default network, instead of the template's.
    pub default_network: Option<api::DefaultNetwork>,
    /// The ranges that its services get addresses from, if it names some; what cannot be one is
    /// left out.
    pub service_ranges: Vec<Cidr>,
    /// How much it may have.
    pub quota: api::TenantQuota,
    /// The status as it stands.
    pub status: Option<api::TenantStatus>,
}

impl From<&api::Tenant> for Tenant {
    fn from(tenant: &api::Tenant) -> Self {
        let ranges = tenant.spec.service_cidrs.iter();
        Tenant {
            meta: Meta::from(&tenant.metadata),
            default_network: tenant.spec.default_network.clone(),
            service_ranges: ranges.filter_map(|range| range.parse().ok()).collect(),
            quota: tenant.spec.quota.clone().unwrap_or_default(),
            status: tenant.status.clone(),
        }
    }
}

impl Tenant {
    /// Whether the default network was made once.
    pub fn has_default_network(&self) -> bool {
        self.status.as_ref().is_some_and(|status| status.default_network_created)
    }
}
