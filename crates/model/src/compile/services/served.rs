//! What is served where on a node, and at which places that has changed since somebody looked.

use std::collections::{BTreeMap, BTreeSet};

use atoll_plan::{Service, ServiceKey, Side};

#[derive(Debug, Default)]
pub(super) struct Served {
    pub(super) now: BTreeMap<ServiceKey, Service>,
    pub(super) touched: BTreeSet<ServiceKey>,
    /// At how many places it is for clients from outside.
    pub(super) outside: usize,
}

impl Served {
    /// From now on this is served there, or nothing.
    pub(super) fn put(&mut self, key: ServiceKey, service: Option<Service>) {
        if self.now.get(&key) == service.as_ref() {
            return;
        }
        let is_there = service.is_some();
        let was_there = match service {
            Some(service) => self.now.insert(key, service),
            None => self.now.remove(&key),
        };
        if key.side == Side::Outside {
            self.outside += usize::from(is_there);
            self.outside -= usize::from(was_there.is_some());
        }
        self.touched.insert(key);
    }
}
