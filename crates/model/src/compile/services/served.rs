//! What is served where on a node, and at which places that has changed since somebody looked.

use std::collections::{BTreeMap, BTreeSet};

use atoll_plan::{Service, ServiceKey};

#[derive(Debug, Default)]
pub(super) struct Served {
    pub(super) now: BTreeMap<ServiceKey, Service>,
    pub(super) touched: BTreeSet<ServiceKey>,
}

impl Served {
    /// From now on this is served there, or nothing.
    pub(super) fn put(&mut self, key: ServiceKey, service: Option<Service>) {
        if self.now.get(&key) == service.as_ref() {
            return;
        }
        match service {
            Some(service) => drop(self.now.insert(key, service)),
            None => drop(self.now.remove(&key)),
        }
        self.touched.insert(key);
    }
}
