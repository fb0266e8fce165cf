//! Whose each namespace is, and which networks the tenants of this node have.

use std::collections::{BTreeMap, BTreeSet};

use atoll_policy::Labels;
use atoll_types::{Label, NetworkId, NetworkName};

use super::Seen;

/// A namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SeenNamespace {
    /// Whose it is.
    pub(crate) tenancy: Tenancy,
    /// Its labels.
    pub(crate) labels: Labels,
    /// Whether it is being deleted.
    pub(crate) is_ending: bool,
}

/// Whose pods a namespace has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Tenancy {
    /// A tenant's; its services are in this network, by object name.
    Tenant(String),
    /// No tenant's: they are none of our business.
    Nobody,
}

/// A network of a tenant, whether it is present here or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sibling {
    /// Its number.
    pub(crate) id: NetworkId,
    /// Whether networks of other tenants have the same.
    pub(crate) is_shared: bool,
}

impl Seen {
    /// A namespace, where it has been listed.
    pub(crate) fn namespace(&self, name: &str) -> Option<&SeenNamespace> {
        self.namespaces.as_ref()?.get(name)
    }

    /// The network of a namespace's services; none where it is no tenant's, or not known.
    pub(super) fn network_of_services(&self, namespace: &str) -> Option<&str> {
        match &self.namespace(namespace)?.tenancy {
            Tenancy::Tenant(network) => Some(network),
            Tenancy::Nobody => None,
        }
    }

    /// Every namespace that has been seen.
    pub(crate) fn namespaces(&self) -> impl Iterator<Item = (&String, &SeenNamespace)> {
        self.namespaces.iter().flatten()
    }

    /// Whether a namespace is known to be no tenant's. One that is not known may be anybody's.
    pub(crate) fn is_nobodys(&self, namespace: &str) -> bool {
        self.namespace(namespace).is_some_and(|known| known.tenancy == Tenancy::Nobody)
    }

    pub(super) fn follow_tenants(&mut self) {
        let with_pods = self.with_pods();
        let tenants: BTreeSet<Label> =
            with_pods.keys().filter_map(|network| tenant_of(network)).collect();
        self.siblings.retain(|tenant, _| tenants.contains(tenant));
        for tenant in tenants {
            self.siblings.entry(tenant).or_default();
        }
    }

    /// The networks of one tenant that services may lead between, and are not shared with others.
    pub(super) fn unshared(&self) -> BTreeMap<&String, NetworkId> {
        let all = self.siblings.values().flatten().flatten();
        all.filter(|(_, it)| !it.is_shared).map(|(name, it)| (name, it.id)).collect()
    }

    /// The networks that are not present here, of tenants that have one here that is not shared.
    pub(super) fn kin(&self) -> BTreeMap<String, NetworkId> {
        let (with_pods, guests, unshared) = (self.with_pods(), self.guests(), self.unshared());
        let here = unshared.keys().filter(|name| with_pods.contains_key(name.as_str()));
        let tenants: BTreeSet<Label> = here.filter_map(|name| tenant_of(name)).collect();
        let is_kin = |name: &str| {
            let is_present = with_pods.contains_key(name) || guests.contains_key(name);
            !is_present && tenant_of(name).is_some_and(|it| tenants.contains(&it))
        };
        let kin = unshared.iter().filter(|(name, _)| is_kin(name));
        kin.map(|(name, id)| ((*name).clone(), *id)).collect()
    }
}

pub(super) fn quarters<'a>(
    namespaces: impl Iterator<Item = (&'a String, &'a SeenNamespace)>,
) -> BTreeMap<String, BTreeSet<String>> {
    let mut quarters: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (namespace, seen) in namespaces {
        if let Tenancy::Tenant(network) = &seen.tenancy {
            quarters.entry(network.clone()).or_default().insert(namespace.clone());
        }
    }
    quarters
}

pub(super) fn wards<'a>(
    namespaces: impl Iterator<Item = (&'a String, &'a SeenNamespace)>,
) -> BTreeMap<Label, BTreeSet<String>> {
    let mut wards: BTreeMap<Label, BTreeSet<String>> = BTreeMap::new();
    for (namespace, seen) in namespaces {
        if let Tenancy::Tenant(network) = &seen.tenancy
            && let Some(tenant) = tenant_of(network)
        {
            wards.entry(tenant).or_default().insert(namespace.clone());
        }
    }
    wards
}

/// The tenant in the object name of a network.
pub(super) fn tenant_of(network: &str) -> Option<Label> {
    network.parse::<NetworkName>().ok().map(|name| name.tenant)
}
