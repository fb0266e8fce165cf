//! What the services of each tenant take of a node's maps.
//!
//! The rules: a tenant takes more only while it has no more than it leaves free
//! ([`ServiceRoom::fits`]). What the kernel has already is never refused, whoever has grown meanwhile.
//! What nobody wants any more counts until the kernel has forgotten it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use atoll_abi::{BACKENDS_PER_PAGE, SLOTS_PER_PAGE, slots_for};
use atoll_plan::{Service, ServiceKey, ServiceRoom};

/// The accounts of all tenants.
#[derive(Debug)]
pub(super) struct Share {
    whole: ServiceRoom,
    taken: BTreeMap<ServiceKey, Account>,
    tenants: BTreeMap<String, ServiceRoom>,
    /// What the kernel has of nobody's.
    lingering: BTreeMap<ServiceKey, ServiceRoom>,
    all: ServiceRoom,
}

/// What one address and port takes.
#[derive(Debug)]
struct Account {
    tenant: String,
    /// The most backends since there was none: pages of slots do not become fewer before.
    backends: usize,
    sources: usize,
}

impl Account {
    fn room(&self) -> ServiceRoom {
        ServiceRoom {
            services: 1,
            slots: slots_for(self.backends) / SLOTS_PER_PAGE,
            backends: self.backends.div_ceil(BACKENDS_PER_PAGE),
            sources: self.sources,
        }
    }

    fn next(former: Option<&Account>, tenant: &str, service: &Service) -> Account {
        let before = former.map_or(0, |former| former.backends);
        let backends = match service.backends.len() {
            0 => 0,
            some => some.max(before),
        };
        Account { tenant: tenant.to_owned(), backends, sources: service.sources.len() }
    }
}

impl Share {
    /// Nothing is taken of all this.
    pub(super) fn of(whole: ServiceRoom) -> Self {
        Share {
            whole,
            taken: BTreeMap::new(),
            tenants: BTreeMap::new(),
            lingering: BTreeMap::new(),
            all: ServiceRoom::default(),
        }
    }

    /// Takes what the service needs there, if its tenant may have it; says so.
    pub(super) fn take(&mut self, tenant: &str, key: ServiceKey, service: &Service) -> bool {
        if self.taken.get(&key).is_some_and(|former| former.tenant != tenant) {
            self.release(key);
        }
        let former = self.taken.get(&key);
        let account = Account::next(former, tenant, service);
        let before = former.map(Account::room).or(self.lingering.get(&key).copied());
        let (before, after) = (before.unwrap_or_default(), account.room());
        let own = self.tenants.get(tenant).copied().unwrap_or_default();
        if !self.whole.fits(self.all, own, after.beyond(before)) {
            return false;
        }
        self.release(key);
        self.gone(key);
        self.all += after;
        *self.tenants.entry(tenant.to_owned()).or_default() += after;
        self.taken.insert(key, account);
        true
    }

    /// Nobody wants what is there any more.
    pub(super) fn release(&mut self, key: ServiceKey) {
        let Some(account) = self.taken.remove(&key) else { return };
        if let Some(own) = self.tenants.get_mut(&account.tenant) {
            *own -= account.room();
            if *own == ServiceRoom::default() {
                self.tenants.remove(&account.tenant);
            }
        }
        self.lingering.insert(key, account.room());
    }

    /// The kernel has nothing there any more, of nobody's.
    pub(super) fn gone(&mut self, key: ServiceKey) {
        if let Some(room) = self.lingering.remove(&key) {
            self.all -= room;
        }
    }

    /// The kernel has this.
    pub(super) fn look(&mut self, there: &BTreeMap<ServiceKey, Service>) {
        let gone: Vec<ServiceKey> =
            self.lingering.keys().filter(|key| !there.contains_key(key)).copied().collect();
        gone.into_iter().for_each(|key| self.gone(key));
        for (key, service) in there.iter().filter(|(key, _)| !self.taken.contains_key(key)) {
            let room = Account::next(None, "", service).room();
            if let Entry::Vacant(free) = self.lingering.entry(*key) {
                free.insert(room);
                self.all += room;
            }
        }
    }

    /// For how many backends there is room in what was taken there.
    pub(super) fn places(&self, key: &ServiceKey) -> usize {
        self.taken.get(key).map_or(0, |account| account.room().backends * BACKENDS_PER_PAGE)
    }
}
