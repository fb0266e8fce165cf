//! What one pod and one tenant may take, so that the others keep theirs.
//!
//! Its rule: every limit belongs to one pod or one tenant; nobody shares a bucket with a stranger.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::asker::{Asker, PodId, TenantId};
use crate::config::{Limits, Rate};
use crate::counters::Refused;
use crate::numbers::ByNumber;

const SHARDS: usize = 64;
/// Above this many buckets in a shard, those that are full again are forgotten.
const SWEEP: usize = 1024;
const SECOND: u64 = 1_000_000_000;

/// Whom a limit belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Whose {
    Pod(PodId),
    Tenant(TenantId),
}

impl Whose {
    fn shard(self) -> usize {
        let number = match self {
            Whose::Pod(PodId(number)) => number,
            Whose::Tenant(TenantId(number)) => number.wrapping_add(1),
        };
        (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize % SHARDS
    }
}

/// Lets questions in, as fast as each may ask. A bucket is kept as the moment at which it will be
/// full again.
pub(crate) struct Gate {
    limits: Limits,
    shards: Vec<Mutex<HashMap<Whose, u64, ByNumber>>>,
}

impl Gate {
    pub(crate) fn new(limits: Limits) -> Self {
        Gate { limits, shards: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }

    /// Whether the asker may ask at this moment, in nanoseconds of any steady clock.
    pub(crate) fn enter(&self, asker: &Asker, now: u64) -> Result<(), Refused> {
        if !self.take(Whose::Pod(asker.pod), self.limits.pod, now) {
            return Err(Refused::PodRate);
        }
        if !self.take(Whose::Tenant(asker.tenant), self.limits.tenant, now) {
            return Err(Refused::TenantRate);
        }
        Ok(())
    }

    fn take(&self, whose: Whose, rate: Rate, now: u64) -> bool {
        let one = SECOND / u64::from(rate.per_second.max(1));
        let most = one * u64::from(rate.burst.max(1));
        let mut shard = lock(&self.shards[whose.shard()]);
        if shard.len() > SWEEP && !shard.contains_key(&whose) {
            shard.retain(|_, full_at| *full_at > now);
        }
        let full_at = shard.entry(whose).or_insert(now);
        let next = (*full_at).max(now) + one;
        let fits = next - now <= most;
        if fits {
            *full_at = next;
        }
        fits
    }
}

/// How much there is of something, and how much of it one pod and one tenant may have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    pub(crate) pod: usize,
    pub(crate) tenant: usize,
    pub(crate) all: usize,
}

/// How much of something each has at this moment.
#[derive(Debug, Default)]
pub(crate) struct Tally(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    all: usize,
    counts: HashMap<Whose, usize>,
}

impl Held {
    fn of(&self, whose: Whose) -> usize {
        self.counts.get(&whose).copied().unwrap_or_default()
    }

    fn give_back(&mut self, whose: Whose) {
        match self.counts.get_mut(&whose) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(self.counts.remove(&whose)),
        }
    }
}

/// One of what is counted, given back when dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    tally: Arc<Tally>,
    asker: Asker,
}

impl Tally {
    /// One more for the asker, or whose limit is in the way. A tenant has no more than it leaves to
    /// others: alone it can have half of all, the next one a quarter, and so on.
    pub(crate) fn take(self: &Arc<Self>, asker: &Asker, share: Share) -> Result<Permit, Whose> {
        let [pod, tenant] = both(asker);
        let mut held = lock(&self.0);
        if held.of(pod) >= share.pod {
            return Err(pod);
        }
        let free = share.all.saturating_sub(held.all);
        if held.of(tenant) >= share.tenant.min(free) {
            return Err(tenant);
        }
        held.all += 1;
        for whose in [pod, tenant] {
            *held.counts.entry(whose).or_default() += 1;
        }
        Ok(Permit { tally: self.clone(), asker: *asker })
    }

    #[cfg(test)]
    fn is_empty(&self) -> bool {
        let held = lock(&self.0);
        held.all == 0 && held.counts.is_empty()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut held = lock(&self.tally.0);
        held.all -= 1;
        both(&self.asker).into_iter().for_each(|whose| held.give_back(whose));
    }
}

/// Those whose limits an asker is under.
fn both(asker: &Asker) -> [Whose; 2] {
    [Whose::Pod(asker.pod), Whose::Tenant(asker.tenant)]
}

/// A thread that panicked leaves a map of numbers that are still numbers.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asker::NetworkKey;

    fn gate() -> Gate {
        let pod = Rate { per_second: 10, burst: 5 };
        let tenant = Rate { per_second: 100, burst: 8 };
        Gate::new(Limits { pod, tenant, ..Limits::default() })
    }

    fn asker(pod: u64, tenant: u64) -> Asker {
        Asker { network: NetworkKey(1), pod: PodId(pod), tenant: TenantId(tenant) }
    }

    #[test]
    fn a_pod_has_its_burst_and_then_its_rate() {
        let gate = gate();
        let allowed =
            |from: u64| (0..50).filter(|n| gate.enter(&asker(1, 1), from + n).is_ok()).count();
        assert_eq!(allowed(SECOND), 5, "the burst");
        assert_eq!(allowed(SECOND + SECOND / 10), 1, "a tenth of a second later");
        assert_eq!(allowed(100 * SECOND), 5, "after a pause the burst, not more");
    }

    #[test]
    fn the_pods_of_a_tenant_share_its_limit_and_another_tenant_does_not() {
        let gate = gate();
        let first = (0..20).filter(|pod| gate.enter(&asker(*pod, 1), SECOND).is_ok()).count();
        assert_eq!(first, 8);
        assert_eq!(gate.enter(&asker(30, 1), SECOND), Err(Refused::TenantRate));
        assert_eq!(gate.enter(&asker(31, 2), SECOND), Ok(()));
    }

    #[test]
    fn buckets_that_are_full_again_are_forgotten() {
        let gate = gate();
        (0..200_000).for_each(|pod| assert!(gate.enter(&asker(pod, 1), SECOND * pod).is_ok()));
        let kept: usize = gate.shards.iter().map(|shard| lock(shard).len()).sum();
        assert!(kept <= SHARDS * (SWEEP + 2), "{kept} buckets are kept");
    }

    #[test]
    fn a_permit_that_is_dropped_can_be_taken_again() {
        let tally = Arc::new(Tally::default());
        let share = Share { pod: 1, tenant: 8, all: 100 };
        let first = tally.take(&asker(1, 1), share);
        assert!(first.is_ok());
        assert_eq!(tally.take(&asker(1, 1), share).unwrap_err(), Whose::Pod(PodId(1)));
        assert!(tally.take(&asker(2, 1), share).is_ok());
        drop(first);
        assert!(tally.take(&asker(1, 1), share).is_ok());
        assert!(tally.is_empty());
    }

    #[test]
    fn a_tenant_has_its_limit_and_no_more_than_it_leaves_to_others() {
        let tally = Arc::new(Tally::default());
        let all_of = |tenant, share: Share| {
            let taken = (0..100).map(|pod| tally.take(&asker(1000 * tenant + pod, tenant), share));
            let (held, refused): (Vec<_>, Vec<_>) = taken.partition(Result::is_ok);
            let mut refused = refused.into_iter().map(|it| it.unwrap_err());
            assert!(refused.all(|whose| whose == Whose::Tenant(TenantId(tenant))));
            held
        };
        assert_eq!(all_of(1, Share { pod: 1, tenant: 8, all: 100 }).len(), 8);
        let scarce = Share { pod: 1, tenant: 90, all: 64 };
        let first = all_of(1, scarce);
        assert_eq!((first.len(), all_of(2, scarce).len()), (32, 16));
        drop(first);
        assert!(tally.is_empty());
    }
}
