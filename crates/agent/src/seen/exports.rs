//! The services of the cluster's own that tenants may call.

use std::collections::BTreeMap;

use atoll_model::export::{Export, ServiceName};
use atoll_zones::Service;

use super::Seen;
use crate::infra::Backed;

/// A service of the cluster's own, as callers and as askers of names know it.
#[derive(Clone, Debug)]
pub(crate) struct Exported {
    /// Who may call it, and where.
    pub(crate) export: Export,
    /// What its name stands for.
    pub(crate) named: Service,
}

impl Seen {
    /// The services that tenants may call: the cluster's API, and those that are exported from
    /// namespaces known to be no tenant's.
    pub(crate) fn exported(&self) -> BTreeMap<&ServiceName, &Exported> {
        let exports = self.exports.iter().flatten();
        let infra = exports.filter(|(name, _)| self.is_nobodys(&name.0));
        infra.chain(self.api.iter().flatten()).collect()
    }

    /// Whether all of them have been seen.
    pub(crate) fn has_seen_exports(&self) -> bool {
        self.api.is_some() && self.exports.is_some() && self.namespaces.is_some()
    }

    /// They, and who stands behind each.
    pub(crate) fn backed(&self) -> BTreeMap<ServiceName, Backed<'_>> {
        self.exported()
            .into_iter()
            .map(|(name, exported)| {
                let slices = self.targets.get(name).into_iter().flat_map(BTreeMap::values);
                let slices = slices.collect();
                (name.clone(), Backed { export: &exported.export, slices })
            })
            .collect()
    }
}
