//! One tenant: its world, its identities, and its sets of rules, kept up to date event by event.
//!
//! The rule kept here: an event costs what it touches. A pod that is like another costs one entry; a
//! new kind of pod is tested once by each distinct selector that can find it; a changed policy
//! rebuilds the sets of its own subjects.

mod addresses;
mod identities;
mod policies;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use atoll_types::{Cidr, Label, NetAddr, NetworkId, PodRef};

use self::addresses::{addresses_of, host};
use crate::facts::{Labels, Node, Pod};
use crate::identity::{Identity, Test};
use crate::numbers::Numbers;
use crate::policy::{Policy, PolicyKey, Tier};
use crate::ranges::Ranges;
use crate::room::Room;
use crate::sets::{Ink, RuleSet, SetKey};

/// Where a policy stands among the others.
type Rank = (Tier, u16, PolicyKey);

/// A policy in force. Each version has a revision of its own.
#[derive(Clone, Debug)]
pub(crate) struct Installed {
    pub(crate) revision: u64,
    pub(crate) policy: Arc<Policy>,
    /// It stands for one that has no room: whoever it is about has nothing but it.
    pub(crate) is_closed: bool,
}

/// What all tenants share: numbers, tables, and the nodes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shared {
    pub(crate) ink: Ink,
    pub(crate) identities: Numbers<Identity>,
    pub(crate) sets: Numbers<SetKey>,
    pub(crate) nodes: BTreeMap<String, Node>,
    /// How many times an identity was tested.
    pub(crate) tests_done: u64,
}

impl Shared {
    /// The end of a change: numbers that were given back may be given anew.
    pub(crate) fn settle(&mut self) {
        self.identities.settle();
        self.sets.settle();
        self.ink.columns.settle();
        self.ink.rules.settle();
    }
}

/// An identity in use.
#[derive(Clone, Debug, Default)]
struct Live {
    found_by: BTreeSet<u32>,
    subject_of: BTreeSet<Rank>,
    sets: [u32; 2],
}

/// A test in use: whom it finds, and which sets ask it.
#[derive(Clone, Debug, Default)]
struct Found {
    identities: BTreeSet<u32>,
    sets: BTreeSet<u32>,
}

/// Everything of one tenant.
#[derive(Clone, Debug)]
pub(crate) struct Tenant {
    name: Label,
    number: u32,
    namespaces: BTreeMap<String, Labels>,
    pods: BTreeMap<PodRef, Pod>,
    owners: BTreeMap<NetAddr, BTreeSet<PodRef>>,
    addresses: BTreeSet<(IpAddr, NetworkId)>,
    guests: BTreeSet<NetAddr>,
    ranks: BTreeMap<PolicyKey, Rank>,
    policies: BTreeMap<Rank, Installed>,
    policies_in: BTreeMap<Option<String>, BTreeSet<Rank>>,
    subjects: BTreeMap<Rank, BTreeSet<u32>>,
    ranges: Ranges,
    named_ranges: BTreeSet<Cidr>,
    outside: BTreeMap<Cidr, u32>,
    policies_on_nodes: usize,
    live: BTreeMap<u32, Live>,
    live_in: BTreeMap<String, BTreeSet<u32>>,
    tests: Numbers<Test>,
    tests_in: BTreeMap<Option<String>, BTreeSet<u32>>,
    found: BTreeMap<u32, Found>,
    sets: BTreeMap<u32, RuleSet>,
    /// What all sets take together.
    weight: Room,
}

impl Tenant {
    pub(crate) fn new(name: Label, number: u32) -> Self {
        Tenant {
            name,
            number,
            namespaces: BTreeMap::new(),
            pods: BTreeMap::new(),
            owners: BTreeMap::new(),
            addresses: BTreeSet::new(),
            guests: BTreeSet::new(),
            ranks: BTreeMap::new(),
            policies: BTreeMap::new(),
            policies_in: BTreeMap::new(),
            subjects: BTreeMap::new(),
            ranges: Ranges::default(),
            named_ranges: BTreeSet::new(),
            outside: BTreeMap::new(),
            policies_on_nodes: 0,
            live: BTreeMap::new(),
            live_in: BTreeMap::new(),
            tests: Numbers::default(),
            tests_in: BTreeMap::new(),
            found: BTreeMap::new(),
            sets: BTreeMap::new(),
            weight: Room::default(),
        }
    }

    /// Whether nothing of its own is left.
    pub(crate) fn is_empty(&self) -> bool {
        let own = |key: &PolicyKey| key.tenant.is_some();
        let nobody = self.namespaces.is_empty() && self.pods.is_empty() && self.guests.is_empty();
        nobody && !self.ranks.keys().any(own)
    }

    /// The tenant's number.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// The keys of every policy that is in force here.
    pub(crate) fn policy_keys(&self) -> Vec<PolicyKey> {
        self.ranks.keys().cloned().collect()
    }

    /// The policy of this key, as it is in force.
    pub(crate) fn in_force(&self, key: &PolicyKey) -> Option<&Installed> {
        self.policies.get(self.ranks.get(key)?)
    }

    /// The policies in force here.
    pub(crate) fn installed(&self) -> impl Iterator<Item = &Installed> {
        self.policies.values()
    }

    /// The pods with their addresses.
    pub(crate) fn pods(&self) -> impl Iterator<Item = (&PodRef, &Pod)> {
        self.pods.iter()
    }

    /// The pods of a namespace.
    pub(crate) fn pods_in<'a>(
        &'a self,
        namespace: &'a str,
    ) -> impl Iterator<Item = (&'a PodRef, &'a Pod)> {
        let first = PodRef::new(namespace, "");
        self.pods.range(first..).take_while(move |(pod, _)| pod.namespace == namespace)
    }

    /// The only pod that has an address.
    pub(crate) fn owner(&self, address: NetAddr) -> Option<&Pod> {
        let mut owners = self.owners.get(&address)?.iter();
        let owner = owners.next().filter(|_| owners.next().is_none())?;
        self.pods.get(owner)
    }

    /// A namespace came, changed or went.
    pub(crate) fn set_namespace(
        &mut self,
        shared: &mut Shared,
        name: &str,
        labels: Option<Labels>,
    ) {
        match labels {
            Some(labels) => self.namespaces.insert(name.to_owned(), labels),
            None => self.namespaces.remove(name),
        };
        let addresses: Vec<NetAddr> =
            self.pods_in(name).flat_map(|(_, pod)| addresses_of(pod)).collect();
        for address in addresses {
            self.refresh_endpoint(shared, address);
        }
    }

    /// A pod came, changed or went.
    pub(crate) fn set_pod(&mut self, shared: &mut Shared, name: &PodRef, pod: Option<&Pod>) {
        let before = match pod {
            Some(pod) => self.pods.insert(name.clone(), pod.clone()),
            None => self.pods.remove(name),
        };
        let before: BTreeSet<NetAddr> = before.iter().flat_map(addresses_of).collect();
        let after: BTreeSet<NetAddr> = pod.into_iter().flat_map(addresses_of).collect();
        for address in before.difference(&after) {
            self.disown(*address, name);
        }
        for address in after.difference(&before) {
            self.owners.entry(*address).or_default().insert(name.clone());
            self.addresses.insert((address.ip, address.network));
        }
        for address in before.union(&after) {
            self.refresh_endpoint(shared, *address);
        }
    }

    /// A guest came or went.
    pub(crate) fn set_guest(&mut self, shared: &mut Shared, address: NetAddr, is_there: bool) {
        let changed =
            if is_there { self.guests.insert(address) } else { self.guests.remove(&address) };
        if changed {
            self.refresh_endpoint(shared, address);
        }
    }

    /// A policy came, changed or went. What is new is in place before what is old is gone.
    pub(crate) fn set_policy(
        &mut self,
        shared: &mut Shared,
        key: &PolicyKey,
        new: Option<&Installed>,
    ) {
        if let Some(new) = new {
            self.hold_ranges(shared, &new.policy);
        }
        let old_rank = self.ranks.get(key).cloned();
        let old = old_rank.as_ref().and_then(|rank| self.withdraw(rank));
        let mut touched: BTreeSet<u32> = old_rank
            .and_then(|rank| Some((self.subjects.remove(&rank)?, rank)))
            .map(|(subjects, rank)| self.free_subjects(subjects, &rank))
            .unwrap_or_default();
        if let Some(new) = new {
            touched.extend(self.enact(shared, new));
        }
        for identity in touched {
            self.reseat(shared, identity);
        }
        if let Some(old) = old {
            self.release_ranges(shared, &old.policy);
        }
    }

    /// Addresses at which a node came, changed or went.
    pub(crate) fn nodes_changed(&mut self, shared: &mut Shared, ips: &BTreeSet<IpAddr>) {
        for range in ips.iter().filter_map(|ip| host(*ip)) {
            self.refresh_outside(shared, range);
        }
    }

    /// The end of a change.
    pub(crate) fn settle(&mut self) {
        self.tests.settle();
    }

    /// How many distinct tests and sets are in use.
    pub(crate) fn sizes(&self) -> (usize, usize) {
        (self.tests.len(), self.sets.len())
    }

    /// How much of the kernel's tables it has. Verdicts are counted for each set that reads them.
    pub(crate) fn used(&self) -> Room {
        Room {
            endpoints: self.addresses.len() + self.guests.len(),
            outside: self.outside.len(),
            identities: self.live.len(),
            ..self.weight
        }
    }
}

fn remove_from<K: Ord + Clone, V: Ord>(map: &mut BTreeMap<K, BTreeSet<V>>, key: &K, value: &V) {
    let Some(values) = map.get_mut(key) else { return };
    values.remove(value);
    if values.is_empty() {
        map.remove(key);
    }
}
