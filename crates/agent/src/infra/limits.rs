//! How many calls a pod and a tenant may have at a time on one node, so that nobody's calls use up
//! what others need.
//!
//! The rule of this file: a tenant has no more calls than it leaves to others. Alone on a node it can
//! have half of all that there can be, the next one a quarter, and so on.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Caller;
use super::turn_away::TurnAway;

/// Calls of one pod at a time.
pub(super) const PER_POD: usize = 256;

/// Calls of all pods of one tenant on this node at a time.
pub(super) const PER_TENANT: usize = 2048;

/// Who has how many calls.
#[derive(Clone)]
pub(super) struct Limits {
    /// Calls of all tenants at a time.
    most: usize,
    held: Arc<Mutex<Held>>,
}

#[derive(Default)]
struct Held {
    all: usize,
    by_pod: HashMap<Arc<str>, usize>,
    by_tenant: HashMap<Arc<str>, usize>,
}

/// The right to one call, given back with this value.
pub(super) struct Permit {
    limits: Limits,
    caller: Caller,
}

impl Limits {
    /// So many calls at a time, of all tenants together.
    pub(super) fn within(most: usize) -> Self {
        Limits { most, held: Arc::default() }
    }

    /// One more call of this caller, if it may have one.
    pub(super) fn take(&self, caller: &Caller) -> Result<Permit, TurnAway> {
        let mut held = self.held();
        let count = |of: &HashMap<Arc<str>, usize>, key| of.get(key).copied().unwrap_or_default();
        if count(&held.by_pod, &caller.pod_uid) >= PER_POD {
            return Err(TurnAway::PodLimit);
        }
        let free = self.most.saturating_sub(held.all);
        if count(&held.by_tenant, &caller.tenant) >= PER_TENANT.min(free) {
            return Err(TurnAway::TenantLimit);
        }
        held.all += 1;
        *held.by_pod.entry(caller.pod_uid.clone()).or_default() += 1;
        *held.by_tenant.entry(caller.tenant.clone()).or_default() += 1;
        Ok(Permit { limits: self.clone(), caller: caller.clone() })
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut held = self.limits.held();
        held.all -= 1;
        give_back(&mut held.by_pod, &self.caller.pod_uid);
        give_back(&mut held.by_tenant, &self.caller.tenant);
    }
}

fn give_back(held: &mut HashMap<Arc<str>, usize>, key: &Arc<str>) {
    match held.get_mut(key) {
        Some(count) if *count > 1 => *count -= 1,
        _ => drop(held.remove(key)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(pod: &str, tenant: &str) -> Caller {
        Caller { pod_uid: pod.into(), tenant: tenant.into() }
    }

    #[test]
    fn a_pod_has_its_share_and_its_neighbour_has_another() {
        let limits = Limits::within(4 * PER_TENANT);
        let web = caller("web", "acme");
        let held: Vec<_> = (0..PER_POD).map(|_| limits.take(&web).unwrap()).collect();
        assert_eq!(limits.take(&web).err(), Some(TurnAway::PodLimit));
        assert!(limits.take(&caller("db", "acme")).is_ok());
        drop(held);
        assert!(limits.take(&web).is_ok());
    }

    #[test]
    fn a_tenants_pods_share_its_limit_and_another_tenant_is_not_touched() {
        let limits = Limits::within(4 * PER_TENANT);
        let pods: Vec<String> = (0..=PER_TENANT / PER_POD).map(|pod| pod.to_string()).collect();
        let all = pods.iter().flat_map(|pod| std::iter::repeat_n(pod, PER_POD));
        let taken = all.map(|pod| limits.take(&caller(pod, "acme")));
        let (held, refused): (Vec<_>, Vec<_>) = taken.partition(Result::is_ok);
        assert_eq!(held.len(), PER_TENANT);
        assert!(refused.into_iter().all(|it| it.err() == Some(TurnAway::TenantLimit)));
        assert!(limits.take(&caller("other", "globex")).is_ok());
    }

    #[test]
    fn a_tenant_leaves_as_many_calls_to_others_as_it_has() {
        let limits = Limits::within(64);
        let all_of = |tenant: &str| {
            let web = caller(&format!("{tenant}-web"), tenant);
            std::iter::from_fn(|| limits.take(&web).ok()).collect::<Vec<_>>()
        };
        let acme = all_of("acme");
        assert_eq!((acme.len(), all_of("globex").len()), (32, 16));
        assert_eq!(limits.take(&caller("db", "acme")).err(), Some(TurnAway::TenantLimit));
        drop(acme);
        assert_eq!(all_of("globex").len(), 32, "what others gave back is there for everybody");
    }

    #[test]
    fn who_has_no_call_is_not_remembered() {
        let limits = Limits::within(4 * PER_TENANT);
        drop(limits.take(&caller("web", "acme")).unwrap());
        let held = limits.held();
        assert!(held.all == 0 && held.by_pod.is_empty() && held.by_tenant.is_empty());
    }
}
