//! What of this node is not as it should be, for Prometheus.
//!
//! The rule of this file: it says how many, and names nobody.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use atoll_metrics::Page;

/// Numbers that the actor keeps and others read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gauges(Arc<Numbers>);

#[derive(Debug, Default)]
struct Numbers {
    held_services: AtomicUsize,
    failed_steps: AtomicUsize,
}

impl Gauges {
    /// So many services have no room, and so many steps have failed and wait.
    pub(crate) fn set(&self, held_services: usize, failed_steps: usize) {
        self.0.held_services.store(held_services, Ordering::Relaxed);
        self.0.failed_steps.store(failed_steps, Ordering::Relaxed);
    }

    /// Writes all of it.
    pub(crate) fn write(&self, page: &mut Page) {
        let read = |number: &AtomicUsize| number.load(Ordering::Relaxed);
        let help = "Services of which not all has room on this node.";
        page.gauge("atoll_held_services", help);
        page.value("atoll_held_services", &[], read(&self.0.held_services));
        let help = "Changes to the kernel that failed and are tried again.";
        page.gauge("atoll_failed_steps", help);
        page.value("atoll_failed_steps", &[], read(&self.0.failed_steps));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_room_and_what_failed_is_counted_and_nobody_is_named() {
        let gauges = Gauges::default();
        gauges.clone().set(3, 2);
        let mut page = Page::default();
        gauges.write(&mut page);
        let text = page.text();
        assert!(text.contains("\natoll_held_services 3\n"), "{text}");
        assert!(text.contains("\natoll_failed_steps 2\n"), "{text}");
    }
}
