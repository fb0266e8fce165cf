//! What is served of what services want, where a node has only so much room.
//!
//! The rules: what is served stays served, and stays in its own room while there is no more; what has no
//! room is held, and comes in by itself once there is some. The kernel's own come first, then the order
//! of keys: not the order in which they were seen.

use std::collections::{BTreeMap, BTreeSet};

use atoll_plan::{Service, ServiceKey, ServiceRoom};

use super::across::tenant_prefix;
use super::book::ServiceName;
use super::served::Served;
use super::share::Share;

/// Of so many services of a tenant that have no room, people hear one by one.
const MOST_TOLD: usize = 100;

/// Services, some of them served.
#[derive(Debug, Default)]
pub(super) struct Rationed {
    pub(super) served: Served,
    /// None where there is no end of room.
    share: Option<Share>,
    /// What is not served as it should be.
    wishes: BTreeMap<ServiceKey, (ServiceName, Service)>,
    /// The wishes that nobody has decided about yet.
    unsettled: BTreeSet<ServiceKey>,
    /// The others, which have no room, by tenant.
    held: BTreeMap<String, BTreeMap<ServiceName, BTreeSet<ServiceKey>>>,
    /// The services among them that people hear of.
    told: BTreeMap<String, BTreeSet<ServiceName>>,
}

impl Rationed {
    /// There is only so much room.
    pub(super) fn within(&mut self, whole: ServiceRoom) {
        self.share = Some(Share::of(whole));
    }

    /// From now on this is wanted there, or nothing.
    pub(super) fn put(&mut self, key: ServiceKey, wish: Option<(&ServiceName, &Service)>) {
        let Some(share) = &mut self.share else {
            return self.served.put(key, wish.map(|(_, service)| service.clone()));
        };
        match wish {
            Some((who, service)) => self.wish(key, who, service),
            None => {
                share.release(key);
                self.forget_wish(key);
                self.served.put(key, None);
            }
        }
    }

    fn wish(&mut self, key: ServiceKey, who: &ServiceName, service: &Service) {
        if self.wishes.get(&key).is_some_and(|(former, _)| former != who) {
            self.forget_wish(key);
        }
        self.wishes.insert(key, (who.clone(), service.clone()));
        self.unsettled.insert(key);
    }

    /// Whether it is wanted there and nobody has said no.
    pub(super) fn is_led(&self, key: &ServiceKey) -> bool {
        self.served.now.contains_key(key) || self.unsettled.contains(key)
    }

    /// Whether it is wanted there and not served.
    pub(super) fn is_missing(&self, key: &ServiceKey) -> bool {
        self.wishes.contains_key(key) && !self.served.now.contains_key(key)
    }

    /// How many services have no room for all that they want.
    pub(super) fn count_held(&self) -> usize {
        self.held.values().map(BTreeMap::len).sum()
    }

    /// Whether people are to hear that a service has no room.
    pub(super) fn is_told(&self, who: &ServiceName) -> bool {
        self.told.get(tenant_prefix(&who.network)).is_some_and(|told| told.contains(who))
    }

    /// The kernel has this.
    pub(super) fn look(&mut self, there: &BTreeMap<ServiceKey, Service>) {
        self.share.iter_mut().for_each(|share| share.look(there));
    }

    /// The kernel has nothing there any more.
    pub(super) fn gone(&mut self, key: ServiceKey) {
        self.share.iter_mut().for_each(|share| share.gone(key));
    }

    /// Decides about all wishes that `is_due`, and about those that had no room. Says of whom something
    /// else may be true than before.
    pub(super) fn settle(
        &mut self,
        is_due: impl Fn(&ServiceKey) -> bool,
        is_there: impl Fn(&ServiceKey) -> bool,
    ) -> BTreeSet<ServiceName> {
        let due = self.unsettled.extract_if(.., |key| is_due(key));
        let (there, new): (Vec<_>, Vec<_>) = due.partition(is_there);
        let mut touched = BTreeSet::new();
        for key in there.into_iter().chain(new) {
            touched.extend(self.wishes.get(&key).map(|(who, _)| who.clone()));
            self.decide(key);
        }
        for tenant in self.held.keys().cloned().collect::<Vec<_>>() {
            touched.extend(self.decide_again(&tenant));
        }
        touched
    }

    /// In the order of names, up to the first that still has no room: a tenant without room costs no
    /// more work than one that has.
    fn decide_again(&mut self, tenant: &str) -> Vec<ServiceName> {
        let mut let_in = vec![];
        while let Some((who, key)) = self.first_held(tenant) {
            if !self.decide(key) {
                break;
            }
            self.forget_held(&who, key);
            let_in.push(who);
        }
        let_in
    }

    fn first_held(&self, tenant: &str) -> Option<(ServiceName, ServiceKey)> {
        let (who, keys) = self.held.get(tenant)?.first_key_value()?;
        Some((who.clone(), *keys.first()?))
    }

    /// Serves what is wanted there, or what of it has room; says whether that is all.
    fn decide(&mut self, key: ServiceKey) -> bool {
        let (Some((who, service)), Some(share)) = (self.wishes.get(&key), &mut self.share) else {
            return true;
        };
        if share.take(tenant_prefix(&who.network), key, service) {
            let service = service.clone();
            self.forget_wish(key);
            self.served.put(key, Some(service));
            return true;
        }
        let places = share.places(&key);
        let part = self.served.now.get(&key).map(|now| part_of(service, now, places));
        let who = who.clone();
        if part.is_some() {
            self.served.put(key, part);
        }
        self.hold(&who, key);
        false
    }

    fn hold(&mut self, who: &ServiceName, key: ServiceKey) {
        let tenant = tenant_prefix(&who.network);
        let held = self.held.entry(tenant.to_owned()).or_default();
        held.entry(who.clone()).or_default().insert(key);
        let told = self.told.entry(tenant.to_owned()).or_default();
        if told.len() < MOST_TOLD {
            told.insert(who.clone());
        }
    }

    /// Nobody waits there any more.
    fn forget_wish(&mut self, key: ServiceKey) {
        self.unsettled.remove(&key);
        if let Some((who, _)) = self.wishes.remove(&key) {
            self.forget_held(&who, key);
        }
    }

    fn forget_held(&mut self, who: &ServiceName, key: ServiceKey) {
        let tenant = tenant_prefix(&who.network);
        let Some(held) = self.held.get_mut(tenant) else { return };
        let Some(keys) = held.get_mut(who) else { return };
        keys.remove(&key);
        if keys.is_empty() {
            held.remove(who);
            self.told.entry(tenant.to_owned()).or_default().remove(who);
        }
        if held.is_empty() {
            self.held.remove(tenant);
            self.told.remove(tenant);
        }
    }
}

/// The service with as many backends as there are places: those that it has already, then others.
fn part_of(wanted: &Service, now: &Service, places: usize) -> Service {
    let kept = wanted.backends.intersection(&now.backends);
    let backends = kept.chain(wanted.backends.difference(&now.backends)).take(places);
    let sources = wanted.sources.intersection(&now.sources).copied().collect();
    Service { backends: backends.copied().collect(), affinity: wanted.affinity, sources }
}
