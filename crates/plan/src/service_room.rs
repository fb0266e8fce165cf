//! How many entries services have in the kernel's maps, or can have.
//!
//! The rule kept here: a tenant grows in a map only while it has no more there than it leaves free. So
//! whatever one tenant takes, as much again is there for the others, and nobody has to know how many
//! there are.

use std::ops::{AddAssign, SubAssign};

/// Entries of each map that services fill: as many as there can be, or as many as somebody has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServiceRoom {
    /// Addresses and ports.
    pub services: usize,
    /// Pages of slots.
    pub slots: usize,
    /// Pages of backends.
    pub backends: usize,
    /// Ranges of clients that are let in from outside.
    pub sources: usize,
}

impl ServiceRoom {
    fn each(self) -> [usize; 4] {
        [self.services, self.slots, self.backends, self.sources]
    }

    /// What of this is more than `other`.
    #[must_use]
    pub fn beyond(self, other: ServiceRoom) -> ServiceRoom {
        ServiceRoom {
            services: self.services.saturating_sub(other.services),
            slots: self.slots.saturating_sub(other.slots),
            backends: self.backends.saturating_sub(other.backends),
            sources: self.sources.saturating_sub(other.sources),
        }
    }

    /// Whether one who has `own` may have so much `more` of all this, of which `all` is taken. What needs
    /// no more of a map is not refused because of it.
    pub fn fits(self, all: ServiceRoom, own: ServiceRoom, more: ServiceRoom) -> bool {
        let maps =
            self.each().into_iter().zip(all.each()).zip(own.each().into_iter().zip(more.each()));
        maps.into_iter().all(|((whole, all), (own, more))| {
            more == 0 || own + more <= whole.saturating_sub(all + more)
        })
    }
}

impl AddAssign for ServiceRoom {
    fn add_assign(&mut self, more: ServiceRoom) {
        self.services += more.services;
        self.slots += more.slots;
        self.backends += more.backends;
        self.sources += more.sources;
    }
}

impl SubAssign for ServiceRoom {
    fn sub_assign(&mut self, less: ServiceRoom) {
        *self = self.beyond(less);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn services(services: usize) -> ServiceRoom {
        ServiceRoom { services, ..ServiceRoom::default() }
    }

    const WHOLE: ServiceRoom =
        ServiceRoom { services: 100, slots: 100, backends: 100, sources: 100 };

    #[test]
    fn a_tenant_has_half_of_a_map_and_the_next_one_half_of_the_rest() {
        assert!(WHOLE.fits(services(49), services(49), services(1)));
        assert!(!WHOLE.fits(services(50), services(50), services(1)));
        assert!(WHOLE.fits(services(50), services(0), services(25)));
        assert!(!WHOLE.fits(services(50), services(0), services(26)));
    }

    #[test]
    fn what_needs_no_more_is_never_refused() {
        assert!(WHOLE.fits(services(100), services(60), services(0)));
        let slots = ServiceRoom { slots: 1, ..ServiceRoom::default() };
        assert!(WHOLE.fits(services(100), services(60), slots), "of another map there is enough");
    }
}
