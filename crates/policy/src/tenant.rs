//! One tenant: its world, its identities, and its sets of rules, kept up to date event by event.
//!
//! The rule kept here: an event costs what it touches. A pod that is like another costs one entry; a
//! new kind of pod is tested once by each distinct selector that can find it; a changed policy
//! rebuilds the sets of its own subjects.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use atoll_types::{Cidr, Label, NetAddr, NetworkId, PodRef};

use crate::facts::{Interface, Labels, NamedPort, Node, Pod};
use crate::identity::{Identity, Profile, Test, Who};
use crate::numbers::Numbers;
use crate::policy::{Direction, Namespaces, Policy, PolicyKey, Rule, Subject, Tier};
use crate::ranges::Ranges;
use crate::sets::{Ink, OtherEnd, RuleSet, SetKey};
use crate::tables::{IdentityEntry, OutsideKey};

/// Where a policy stands among the others.
type Rank = (Tier, u16, PolicyKey);

/// A policy in force. Each version has a revision of its own.
#[derive(Clone, Debug)]
pub(crate) struct Installed {
    pub(crate) revision: u64,
    pub(crate) policy: Arc<Policy>,
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
}

const DIRECTIONS: [Direction; 2] = [Direction::Ingress, Direction::Egress];

// What happens.
impl Tenant {
    pub(crate) fn new(name: Label, number: u32) -> Self {
        Tenant {
            name,
            number,
            namespaces: BTreeMap::new(),
            pods: BTreeMap::new(),
            owners: BTreeMap::new(),
            addresses: BTreeSet::new(),
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
        }
    }

    /// Whether nothing of its own is left.
    pub(crate) fn is_empty(&self) -> bool {
        let own = |key: &PolicyKey| key.tenant.is_some();
        self.namespaces.is_empty() && self.pods.is_empty() && !self.ranks.keys().any(own)
    }

    /// The tenant's number.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// The keys of every policy that is in force here.
    pub(crate) fn policy_keys(&self) -> Vec<PolicyKey> {
        self.ranks.keys().cloned().collect()
    }

    /// The policies in force here.
    pub(crate) fn installed(&self) -> impl Iterator<Item = &Installed> {
        self.policies.values()
    }

    /// The pods with their addresses.
    pub(crate) fn pods(&self) -> impl Iterator<Item = (&PodRef, &Pod)> {
        self.pods.iter()
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
        let first = PodRef::new(name, "");
        let pods = self.pods.range(first..).take_while(|(pod, _)| pod.namespace == name);
        let addresses: Vec<NetAddr> = pods.flat_map(|(_, pod)| addresses_of(pod)).collect();
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
}

// Addresses and their identities.
impl Tenant {
    fn disown(&mut self, address: NetAddr, pod: &PodRef) {
        let Some(owners) = self.owners.get_mut(&address) else { return };
        owners.remove(pod);
        if owners.is_empty() {
            self.owners.remove(&address);
            self.addresses.remove(&(address.ip, address.network));
        }
    }

    /// Gives an address of a pod the identity it has now.
    fn refresh_endpoint(&mut self, shared: &mut Shared, address: NetAddr) {
        let before = shared.ink.tables.endpoints.get(&address).copied();
        match self.identity_of(address) {
            Some(identity) => {
                let number = self.hold(shared, &identity);
                shared.ink.tables.endpoints.put(address, number);
            }
            None => shared.ink.tables.endpoints.remove(&address),
        }
        if let Some(before) = before {
            self.release(shared, before);
        }
    }

    /// Who is at an address. An address with two owners is nobody's, and so is one of a pod whose
    /// namespace is not known.
    fn identity_of(&self, address: NetAddr) -> Option<Identity> {
        let mut owners = self.owners.get(&address)?.iter();
        let owner = owners.next().filter(|_| owners.next().is_none())?;
        let pod = self.pods.get(owner)?;
        let interface = pod.interfaces.iter().find(|interface| holds(interface, address))?;
        let profile = Profile {
            namespace: owner.namespace.clone(),
            namespace_labels: self.namespaces.get(&owner.namespace)?.clone(),
            labels: pod.labels.clone(),
            ports: pod.ports.clone(),
            network: interface.network.clone(),
        };
        Some(self.seen(Who::Pod(Arc::new(profile)), address.ip))
    }

    fn seen(&self, who: Who, ip: IpAddr) -> Identity {
        Identity { tenant: self.name.clone(), who, range: self.ranges.around(ip) }
    }

    /// Gives a range outside of pods the identity it has now.
    fn refresh_outside(&mut self, shared: &mut Shared, range: Cidr) {
        let before = self.outside.remove(&range);
        let key = OutsideKey { tenant: self.number, range };
        match self.identity_outside(shared, range) {
            Some(identity) => {
                let number = self.hold(shared, &identity);
                self.outside.insert(range, number);
                shared.ink.tables.outside.put(key, number);
            }
            None => shared.ink.tables.outside.remove(&key),
        }
        if let Some(before) = before {
            self.release(shared, before);
        }
    }

    fn identity_outside(&self, shared: &Shared, range: Cidr) -> Option<Identity> {
        let ip = range.first();
        let node = shared.nodes.values().find(|node| node.ips.contains(&ip));
        match node.filter(|_| self.policies_on_nodes > 0 && range.size() == 1) {
            Some(node) => Some(self.seen(Who::Node(node.labels.clone()), ip)),
            None if self.named_ranges.contains(&range) => Some(self.outside_within(range)),
            None => None,
        }
    }

    fn outside_within(&self, range: Cidr) -> Identity {
        Identity { tenant: self.name.clone(), who: Who::Outside, range: Some(range) }
    }

    fn hold_ranges(&mut self, shared: &mut Shared, policy: &Policy) {
        for range in policy.ranges() {
            if self.ranges.hold(range) {
                self.named_ranges.insert(range);
                self.range_changed(shared, range);
            }
        }
        if policy.names_nodes() {
            self.policies_on_nodes += 1;
            self.nodes_changed(shared, &all_addresses(&shared.nodes));
        }
    }

    fn release_ranges(&mut self, shared: &mut Shared, policy: &Policy) {
        for range in policy.ranges() {
            if self.ranges.release(range) {
                self.named_ranges.remove(&range);
                self.range_changed(shared, range);
            }
        }
        if policy.names_nodes() {
            self.policies_on_nodes -= 1;
            self.nodes_changed(shared, &all_addresses(&shared.nodes));
        }
    }

    /// A range began or ceased to be told apart from what is around it.
    fn range_changed(&mut self, shared: &mut Shared, range: Cidr) {
        self.refresh_outside(shared, range);
        let (first, last) = ((range.first(), NetworkId::MIN), (range.last(), NetworkId::MAX));
        let pods: Vec<_> = self.addresses.range(first..=last).copied().collect();
        for (ip, network) in pods {
            self.refresh_endpoint(shared, NetAddr::new(network, ip));
        }
        let hosts = self.outside.keys().filter(|host| host.size() == 1 && **host != range);
        let hosts: Vec<Cidr> = hosts.filter(|host| range.contains_cidr(host)).copied().collect();
        for host in hosts {
            self.refresh_outside(shared, host);
        }
    }

    fn hold(&mut self, shared: &mut Shared, identity: &Identity) -> u32 {
        let (number, new) = shared.identities.hold(identity);
        if new {
            self.begin(shared, number, identity);
        }
        number
    }

    fn release(&mut self, shared: &mut Shared, number: u32) {
        if let Some(identity) = shared.identities.release(number) {
            self.end(shared, number, &identity);
        }
    }
}

// Identities that begin and end.
impl Tenant {
    fn begin(&mut self, shared: &mut Shared, number: u32, identity: &Identity) {
        let namespace = identity.profile().map(|profile| profile.namespace.clone());
        let found_by = self.tests_finding(shared, identity, namespace.as_deref());
        for test in &found_by {
            self.found.entry(*test).or_default().identities.insert(number);
        }
        let ranks = self.ranks_about(identity, namespace.as_deref());
        for rank in &ranks {
            self.subjects.entry(rank.clone()).or_default().insert(number);
        }
        if let Some(namespace) = namespace {
            self.live_in.entry(namespace).or_default().insert(number);
        }
        let asked = self.sets_asking(&found_by);
        self.live.insert(number, Live { found_by, subject_of: ranks, sets: [0, 0] });
        for set in asked {
            self.write_row(shared, set, number);
        }
        self.reseat(shared, number);
    }

    fn end(&mut self, shared: &mut Shared, number: u32, identity: &Identity) {
        let Some(live) = self.live.remove(&number) else { return };
        for set in self.sets_asking(&live.found_by) {
            if let Some(rules) = self.sets.get_mut(&set) {
                rules.erase(set, number, &mut shared.ink);
            }
        }
        for test in &live.found_by {
            if let Some(found) = self.found.get_mut(test) {
                found.identities.remove(&number);
            }
        }
        for rank in &live.subject_of {
            remove_from(&mut self.subjects, rank, &number);
        }
        if let Some(profile) = identity.profile() {
            remove_from(&mut self.live_in, &profile.namespace, &number);
        }
        shared.ink.tables.identities.remove(&number);
        for set in live.sets {
            self.release_set(shared, set);
        }
    }

    fn tests_finding(
        &self,
        shared: &mut Shared,
        identity: &Identity,
        namespace: Option<&str>,
    ) -> BTreeSet<u32> {
        let own = namespace.and_then(|name| self.tests_in.get(&Some(name.to_owned())));
        let tests = own.into_iter().chain(self.tests_in.get(&None)).flatten();
        let found = tests.filter(|test| {
            shared.tests_done += 1;
            self.tests.key(**test).is_some_and(|test| test.finds(identity))
        });
        found.copied().collect()
    }

    fn ranks_about(&self, identity: &Identity, namespace: Option<&str>) -> BTreeSet<Rank> {
        let own = namespace.and_then(|name| self.policies_in.get(&Some(name.to_owned())));
        let ranks = own.into_iter().chain(self.policies_in.get(&None)).flatten();
        let about = |rank: &&Rank| {
            self.policies.get(*rank).is_some_and(|found| identity.is_subject_of(&found.policy))
        };
        ranks.filter(about).cloned().collect()
    }

    fn sets_asking(&self, tests: &BTreeSet<u32>) -> BTreeSet<u32> {
        let found = tests.iter().filter_map(|test| self.found.get(test));
        found.flat_map(|found| found.sets.iter().copied()).collect()
    }

    fn write_row(&mut self, shared: &mut Shared, set: u32, identity: u32) {
        let none = BTreeSet::new();
        let (Some(rules), Some(live)) = (self.sets.get_mut(&set), self.live.get(&identity)) else {
            return;
        };
        let profile = shared.identities.key(identity).and_then(Identity::profile);
        let ports = profile.map_or(&none, |profile| &profile.ports);
        let other = OtherEnd { found_by: &live.found_by, ports };
        rules.write(set, identity, other, &mut shared.ink);
    }
}

// Policies and the sets they make.
impl Tenant {
    fn withdraw(&mut self, rank: &Rank) -> Option<Installed> {
        let old = self.policies.remove(rank)?;
        self.ranks.remove(&old.policy.key);
        remove_from(&mut self.policies_in, &home(&old.policy), rank);
        Some(old)
    }

    fn free_subjects(&mut self, subjects: BTreeSet<u32>, rank: &Rank) -> BTreeSet<u32> {
        for identity in &subjects {
            if let Some(live) = self.live.get_mut(identity) {
                live.subject_of.remove(rank);
            }
        }
        subjects
    }

    /// Puts a policy in force, and says whom it is about.
    fn enact(&mut self, shared: &mut Shared, new: &Installed) -> BTreeSet<u32> {
        let policy = &new.policy;
        let rank = (policy.tier, policy.priority, policy.key.clone());
        let home = home(policy);
        self.ranks.insert(policy.key.clone(), rank.clone());
        self.policies.insert(rank.clone(), new.clone());
        let candidates: Vec<u32> = match &home {
            Some(namespace) => self.live_in.get(namespace).into_iter().flatten().copied().collect(),
            None => self.live.keys().copied().collect(),
        };
        self.policies_in.entry(home).or_default().insert(rank.clone());
        let about = |number: &u32| {
            shared.tests_done += 1;
            shared.identities.key(*number).is_some_and(|identity| identity.is_subject_of(policy))
        };
        let subjects: BTreeSet<u32> = candidates.into_iter().filter(about).collect();
        for number in &subjects {
            if let Some(live) = self.live.get_mut(number) {
                live.subject_of.insert(rank.clone());
            }
        }
        if !subjects.is_empty() {
            self.subjects.insert(rank, subjects.clone());
        }
        subjects
    }

    /// Points an identity at the sets of rules it is subject to now.
    fn reseat(&mut self, shared: &mut Shared, number: u32) {
        let sets = DIRECTIONS.map(|direction| self.hold_set(shared, number, direction));
        let [ingress, egress] = sets;
        let entry = IdentityEntry { tenant: self.number, ingress, egress };
        shared.ink.tables.identities.put(number, entry);
        let Some(live) = self.live.get_mut(&number) else { return };
        for set in std::mem::replace(&mut live.sets, sets) {
            self.release_set(shared, set);
        }
    }

    /// Holds the set that an identity is subject to, and builds it where nobody has it yet.
    fn hold_set(&mut self, shared: &mut Shared, number: u32, direction: Direction) -> u32 {
        let ranks = self.live.get(&number).into_iter().flat_map(|live| &live.subject_of);
        let installed = ranks.filter_map(|rank| self.policies.get(rank));
        let speaking: Vec<&Installed> =
            installed.filter(|found| found.policy.rules(direction).is_some()).collect();
        if speaking.is_empty() {
            return 0;
        }
        let policies: Vec<Arc<Policy>> =
            speaking.iter().map(|found| found.policy.clone()).collect();
        let names = match (direction, shared.identities.key(number).and_then(Identity::profile)) {
            (Direction::Ingress, Some(profile)) => names_asked(&policies, &profile.ports),
            _ => BTreeSet::new(),
        };
        let key = SetKey {
            tenant: self.name.clone(),
            direction,
            policies: speaking.iter().map(|found| found.revision).collect(),
            names,
        };
        let (set, new) = shared.sets.hold(&key);
        if new {
            self.build_set(shared, set, key, &policies);
        }
        set
    }

    fn build_set(&mut self, shared: &mut Shared, set: u32, key: SetKey, policies: &[Arc<Policy>]) {
        let mut held = BTreeSet::new();
        let mut new = Vec::new();
        let mut rules = RuleSet::new(key, policies, |test| {
            if let Some(number) = self.tests.find(test).filter(|number| held.contains(number)) {
                return number;
            }
            let (number, fresh) = self.tests.hold(test);
            held.insert(number);
            if fresh {
                new.push(number);
            }
            number
        });
        rules.write_other(set, &mut shared.ink);
        for test in new {
            self.begin_test(shared, test);
        }
        let mut rows = BTreeSet::new();
        for test in &held {
            let found = self.found.entry(*test).or_default();
            found.sets.insert(set);
            rows.extend(found.identities.iter().copied());
        }
        self.sets.insert(set, rules);
        for identity in rows {
            self.write_row(shared, set, identity);
        }
    }

    fn release_set(&mut self, shared: &mut Shared, set: u32) {
        if set == 0 || shared.sets.release(set).is_none() {
            return;
        }
        let Some(rules) = self.sets.remove(&set) else { return };
        for test in &rules.tests {
            if let Some(found) = self.found.get_mut(test) {
                found.sets.remove(&set);
            }
            if let Some(gone) = self.tests.release(*test) {
                self.end_test(*test, &gone);
            }
        }
        rules.erase_all(set, &mut shared.ink);
    }

    /// Finds out once whom a test finds.
    fn begin_test(&mut self, shared: &mut Shared, number: u32) {
        let Some(test) = self.tests.key(number) else { return };
        let namespace = namespace_of(test);
        let candidates: Vec<u32> = match &namespace {
            Some(name) => self.live_in.get(name).into_iter().flatten().copied().collect(),
            None => self.live.keys().copied().collect(),
        };
        let finds = |identity: &u32| {
            shared.tests_done += 1;
            shared.identities.key(*identity).is_some_and(|identity| test.finds(identity))
        };
        let identities: BTreeSet<u32> = candidates.into_iter().filter(finds).collect();
        for identity in &identities {
            if let Some(live) = self.live.get_mut(identity) {
                live.found_by.insert(number);
            }
        }
        self.tests_in.entry(namespace).or_default().insert(number);
        self.found.insert(number, Found { identities, sets: BTreeSet::new() });
    }

    fn end_test(&mut self, number: u32, test: &Test) {
        remove_from(&mut self.tests_in, &namespace_of(test), &number);
        let found = self.found.remove(&number).unwrap_or_default();
        for identity in found.identities {
            if let Some(live) = self.live.get_mut(&identity) {
                live.found_by.remove(&number);
            }
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
}

fn addresses_of(pod: &Pod) -> Vec<NetAddr> {
    let interfaces = pod.interfaces.iter().filter(|_| !pod.host_network);
    interfaces.flat_map(Interface::addresses).collect()
}

fn holds(interface: &Interface, address: NetAddr) -> bool {
    interface.id == address.network && interface.ips.contains(&address.ip)
}

fn host(ip: IpAddr) -> Option<Cidr> {
    let length = if ip.is_ipv4() { 32 } else { 128 };
    format!("{ip}/{length}").parse().ok()
}

fn all_addresses(nodes: &BTreeMap<String, Node>) -> BTreeSet<IpAddr> {
    nodes.values().flat_map(|node| node.ips.iter().copied()).collect()
}

/// The namespace that a policy stands in.
fn home(policy: &Policy) -> Option<String> {
    named(&policy.subject)
}

fn namespace_of(test: &Test) -> Option<String> {
    match test {
        Test::Pods(subject) => named(subject),
        Test::Block(..) | Test::Nodes(_) | Test::PortName(_) => None,
    }
}

fn named(subject: &Subject) -> Option<String> {
    match &subject.namespaces {
        Namespaces::Named(name) => Some(name.clone()),
        Namespaces::Labelled(_) => None,
    }
}

/// The ports of a pod that the ingress rules of its policies call by name.
fn names_asked(policies: &[Arc<Policy>], ports: &BTreeSet<NamedPort>) -> BTreeSet<NamedPort> {
    let rules = policies.iter().flat_map(|policy| policy.ingress.iter().flatten());
    let asked: BTreeSet<&String> = rules.flat_map(Rule::port_names).collect();
    ports.iter().filter(|port| asked.contains(&port.name)).cloned().collect()
}

fn remove_from<K: Ord + Clone, V: Ord>(map: &mut BTreeMap<K, BTreeSet<V>>, key: &K, value: &V) {
    let Some(values) = map.get_mut(key) else { return };
    values.remove(value);
    if values.is_empty() {
        map.remove(key);
    }
}
