//! What the outside is told of load balancers at this node.
//!
//! The rule: nothing is said before everything has been seen once, and nothing new of a service before
//! everything of its network has been. Who is told to come is led by then.

use std::collections::BTreeMap;
use std::num::NonZeroU16;

use atoll_model::compile::ServiceName;

use super::Reconciler;
use crate::health_ports::{Asked, Health};
use crate::kernel::Kernel;

impl<K: Kernel, F> Reconciler<K, F> {
    /// Says at each port how its service fares here.
    pub(super) fn answer_health(&mut self) {
        if !self.complete || self.attendants.health.is_none() {
            return;
        }
        let asked = self.asked();
        let at = self.kernel.own_addresses();
        self.attendants.health.iter_mut().for_each(|health| health.answer(&at, &asked));
    }

    fn asked(&self) -> BTreeMap<NonZeroU16, Asked> {
        let asked = self.seen.health_ports().map(|(service, port)| {
            let tenant = service.network.split('.').next().map(ToOwned::to_owned);
            let uid = port.uid.clone();
            (port.port, Asked { tenant, uid, health: self.health_of(service) })
        });
        asked.collect()
    }

    fn health_of(&self, service: ServiceName) -> Option<Health> {
        let ready = self.services.ready_here(&service)?;
        let there = self.observed.as_ref().map(|observed| &observed.services);
        let is_led = there.is_some_and(|there| self.services.is_led(&service, there));
        Some(Health { service: (service.namespace, service.name), ready, is_led })
    }
}
