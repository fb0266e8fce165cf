//! What of the cluster concerns this node, and so must be watched.

use std::collections::{BTreeMap, BTreeSet};

use atoll_model::export::ServiceName;
use atoll_types::{Label, NetworkId};

use super::Seen;
use super::tenants::tenant_of;
use crate::policy::Ward;

/// A namespace as a part of a network, by the names of both. One that moves to another network is
/// another.
pub(crate) type Quarter = (String, String);

/// What of the cluster concerns this node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scope {
    /// The networks that have a pod here, by object name.
    pub(crate) networks: BTreeMap<String, Presence>,
    /// Those that have none, and that the outside reaches by this node.
    pub(crate) guests: BTreeMap<String, Presence>,
    /// All networks whose objects must be watched: these, and guests whose number is not known yet.
    pub(crate) names: BTreeSet<String>,
    /// The networks whose addresses of the outside must be watched: all these, and those of services that
    /// are open to one of them.
    pub(crate) holders: BTreeSet<String>,
    /// Networks that are not, of tenants that are: services lead to their pods, and theirs here.
    pub(crate) kin: BTreeMap<String, Presence>,
    /// The networks among both whose number is their tenant's alone.
    pub(crate) own: BTreeSet<String>,
    /// The tenants whose networks were not listed yet.
    pub(crate) unlisted: BTreeSet<Label>,
    /// Whether all namespaces have been seen.
    pub(crate) is_whole: bool,
    /// The services of the cluster's own whose slices must be watched.
    pub(crate) exports: BTreeSet<ServiceName>,
    /// The namespaces of every tenant that has a network here.
    pub(crate) wards: BTreeSet<Ward>,
}

impl Scope {
    /// The networks that are present here, with pods or as guests, and those that services lead to
    /// from them.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&String, &Presence)> {
        self.networks.iter().chain(&self.guests).chain(&self.kin)
    }

    /// All namespaces of all networks.
    pub(crate) fn quarters(&self) -> BTreeSet<Quarter> {
        let of = |(name, presence): (&String, &Presence)| {
            let namespaces = presence.namespaces.iter();
            namespaces.map(|namespace| (name.clone(), namespace.clone())).collect::<Vec<_>>()
        };
        self.all().flat_map(of).collect()
    }

    /// The namespaces of the other networks whose services are seen from this one.
    pub(crate) fn quarters_seen_from(&self, network: &str) -> BTreeSet<Quarter> {
        let tenant = tenant_of(network).filter(|_| self.own.contains(network));
        let is_kin = |(name, _): &Quarter| {
            name != network && self.own.contains(name) && tenant_of(name) == tenant
        };
        match tenant {
            Some(_) => self.quarters().into_iter().filter(is_kin).collect(),
            None => BTreeSet::new(),
        }
    }

    /// Whether it is known which networks the tenant of this one has.
    pub(crate) fn knows_kin_of(&self, network: &str) -> bool {
        tenant_of(network).is_none_or(|tenant| !self.unlisted.contains(&tenant))
    }

    /// The tenants that have a network here.
    pub(crate) fn tenants(&self) -> BTreeSet<Label> {
        self.networks.keys().filter_map(|network| tenant_of(network)).collect()
    }

    /// The numbers of each tenant's networks.
    pub(crate) fn networks_of_tenants(&self) -> BTreeMap<Label, BTreeSet<NetworkId>> {
        let mut of_tenants: BTreeMap<Label, BTreeSet<NetworkId>> = BTreeMap::new();
        for (name, presence) in self.all() {
            if let Some(tenant) = tenant_of(name) {
                of_tenants.entry(tenant).or_default().insert(presence.id);
            }
        }
        of_tenants
    }
}

/// A network that is present on this node. Others may have the same number: those of one VPC do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Presence {
    /// Its number.
    pub(crate) id: NetworkId,
    /// The namespaces whose services are in it.
    pub(crate) namespaces: BTreeSet<String>,
}

impl Seen {
    /// The networks whose ports must be watched, and the namespaces whose services must be.
    pub(crate) fn scope(&self) -> Scope {
        let networks = self.with_pods();
        let presence = |(name, id): (&str, NetworkId)| {
            let namespaces = self.quarters.get(name).cloned().unwrap_or_default();
            (name.to_owned(), Presence { id, namespaces })
        };
        let tenants: BTreeSet<Label> =
            networks.keys().filter_map(|network| tenant_of(network)).collect();
        let unlisted = self.siblings.iter().filter(|(_, listed)| listed.is_none());
        Scope {
            wards: tenants.iter().flat_map(|tenant| self.wards_of(tenant)).collect(),
            networks: networks.into_iter().map(presence).collect(),
            guests: self.guests().into_iter().map(presence).collect(),
            names: self.names(),
            holders: self.holders(),
            kin: self.kin().iter().map(|(name, id)| presence((name, *id))).collect(),
            own: self.unshared().into_keys().cloned().collect(),
            unlisted: unlisted.map(|(tenant, _)| tenant.clone()).collect(),
            is_whole: self.namespaces.is_some(),
            exports: self.exported().into_keys().cloned().collect(),
        }
    }

    fn wards_of(&self, tenant: &Label) -> impl Iterator<Item = Ward> {
        let namespaces = self.wards.get(tenant).into_iter().flatten();
        namespaces.map(|namespace| (tenant.clone(), namespace.clone()))
    }
}
