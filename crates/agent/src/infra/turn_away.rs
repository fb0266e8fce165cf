//! How calls end that were not passed on, and how many did.

use std::sync::atomic::{AtomicU64, Ordering};

/// Why a call was not passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TurnAway {
    /// Nobody knows who calls.
    UnknownCaller,
    /// The service is not exported to the caller's tenant.
    NotExported,
    /// The pod has as many calls as it may have.
    PodLimit,
    /// The tenant has, on this node.
    TenantLimit,
    /// Nobody is behind the service, or nobody answers.
    NoTarget,
}

impl TurnAway {
    const COUNT: usize = 5;
}

/// Calls since the agent started.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    passed_on: AtomicU64,
    turned_away: [AtomicU64; TurnAway::COUNT],
}

impl Counters {
    /// One more that was passed on.
    pub(super) fn passed_on(&self) {
        self.passed_on.fetch_add(1, Ordering::Relaxed);
    }

    /// One more that was not.
    pub(super) fn turned_away(&self, why: TurnAway) {
        self.turned_away[why as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How many were passed on.
    #[cfg(test)]
    pub(super) fn all_passed_on(&self) -> u64 {
        self.passed_on.load(Ordering::Relaxed)
    }

    /// How many were not, for this reason.
    #[cfg(test)]
    pub(super) fn all_turned_away(&self, why: TurnAway) -> u64 {
        self.turned_away[why as usize].load(Ordering::Relaxed)
    }
}
