//! From events to tables: the one place that the rest of Atoll speaks to.
//!
//! The rule kept here: what the tables mean depends on what is true, never on the order in which it
//! was learned.

mod held;

use std::collections::{BTreeMap, BTreeSet};

use atoll_types::{Label, NetAddr, PodRef};
use k8s_openapi::api::networking::v1::NetworkPolicy;

use self::held::Held;
use crate::cluster_policy::ClusterNetworkPolicy;
use crate::decision::{Decision, Explanation};
use crate::facts::{Interface, Labels, Node, Pod, Protocol};
use crate::numbers::Numbers;
use crate::policy::PolicyKey;
use crate::read::{read_cluster_policy, read_network_policy};
use crate::report::{Read, Report};
use crate::room::Room;
use crate::tables::{Changes, Tables};
use crate::tenant::{Installed, Shared, Tenant};

/// Something that came, changed, or (without a value) went.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A namespace of a tenant, with its labels.
    Namespace(Label, String, Option<Labels>),
    /// A namespace of a tenant is being deleted. Its policies are deleted in no order with its pods,
    /// so they stay in force until the namespace itself went.
    Ending(Label, String),
    /// A pod of a tenant.
    Pod(Label, PodRef, Option<Pod>),
    /// An address of a pod of a tenant of which nothing else is known here, in a network that is open
    /// to several tenants; whether it is there. To others it is an address and no more, and its own
    /// policies are asked where it runs. A tenant of which pods are told has no guests.
    Guest(Label, NetAddr, bool),
    /// A node of the cluster.
    Node(String, Option<Node>),
    /// A policy, read from its object.
    Policy(PolicyKey, Option<Box<Read>>),
}

impl Event {
    /// A `NetworkPolicy` of a tenant came or changed.
    pub fn network_policy(tenant: &Label, object: &NetworkPolicy) -> Self {
        Event::read(read_network_policy(tenant, object))
    }

    /// A `ClusterNetworkPolicy` came or changed. One whose tenant changed goes first.
    pub fn cluster_policy(object: &ClusterNetworkPolicy) -> Self {
        Event::read(read_cluster_policy(object))
    }

    fn read(read: Read) -> Self {
        Event::Policy(read.policy.key.clone(), Some(Box::new(read)))
    }
}

/// How much there is, and how much work it was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Addresses of pods.
    pub endpoints: usize,
    /// Distinct identities.
    pub identities: usize,
    /// Distinct sets of rules.
    pub sets: usize,
    /// Distinct tests that rules do.
    pub tests: usize,
    /// Rows of sets.
    pub peers: usize,
    /// Distinct columns.
    pub columns: usize,
    /// Entries of columns.
    pub ports: usize,
    /// Numbered rules.
    pub rules: usize,
    /// Identities tested, ever.
    pub tests_done: u64,
    /// Columns worked out, ever.
    pub columns_made: u64,
}

/// The policies of a cluster, compiled and kept compiled.
#[derive(Clone, Debug, Default)]
pub struct Compiler {
    tenants: BTreeMap<Label, Tenant>,
    tenant_numbers: Numbers<Label>,
    cluster: BTreeMap<PolicyKey, Installed>,
    read: BTreeMap<PolicyKey, Read>,
    /// Namespaces that are being deleted, with the policies that stay until they are gone.
    ending: BTreeMap<(Label, String), BTreeSet<PolicyKey>>,
    shared: Shared,
    revision: u64,
    /// How much the kernel's tables hold, where that is known.
    room: Option<Room>,
    held: Held,
}

impl Compiler {
    /// A compiler that has seen nothing. Every address is unknown to it.
    pub fn new() -> Self {
        Compiler::default()
    }

    /// Takes an event in, and says what the tables of the kernel need.
    pub fn apply(&mut self, event: Event) -> Changes {
        match event {
            Event::Namespace(tenant, name, labels) => {
                let gone = labels.is_none();
                self.place_namespace(&tenant, &name, labels);
                if gone {
                    self.namespace_gone(tenant, name);
                }
            }
            Event::Ending(tenant, name) => {
                self.ending.entry((tenant, name)).or_default();
            }
            Event::Pod(tenant, name, pod) => self.place_pod(tenant, name, pod),
            Event::Guest(tenant, address, is_there) => self.place_guest(&tenant, address, is_there),
            Event::Node(name, node) => self.set_node(&name, node.as_ref()),
            Event::Policy(key, None) if self.stays(&key) => {}
            Event::Policy(key, read) => self.set_policy(&key, read.map(|read| *read)),
        }
        self.try_held();
        self.settle()
    }

    /// The tables of the kernel.
    pub fn tables(&self) -> &Tables {
        &self.shared.ink.tables
    }

    /// What is not enforced as written.
    pub fn reports(&self) -> impl Iterator<Item = &Report> {
        self.read.values().flat_map(|read| &read.reports).chain(self.held.reports())
    }

    /// What becomes of traffic, and who decides it.
    pub fn explain(
        &self,
        from: NetAddr,
        to: NetAddr,
        protocol: Protocol,
        port: u16,
    ) -> Explanation {
        let Explanation { egress, ingress } = self.tables().explain(from, to, protocol, port);
        let own_node = self.runs_at(to).is_some_and(|node| node.ips.contains(&from.ip))
            && self.tables().endpoints.get(&from).is_none();
        let ingress = match own_node {
            true => ingress.beyond_network_policy(Decision::OwnNode),
            false => ingress,
        };
        Explanation { egress, ingress }
    }

    /// Every address of every pod, with its tenant and pod.
    pub fn endpoints(&self) -> impl Iterator<Item = (&Label, &PodRef, NetAddr)> {
        let pods = self
            .tenants
            .iter()
            .flat_map(|(label, tenant)| tenant.pods().map(move |(name, pod)| (label, name, pod)));
        let known = |address: &NetAddr| self.tables().endpoints.get(address).is_some();
        pods.flat_map(move |(tenant, name, pod)| {
            let addresses = pod.interfaces.iter().flat_map(Interface::addresses);
            addresses.filter(known).map(move |address| (tenant, name, address))
        })
    }

    /// How much there is.
    pub fn counts(&self) -> Counts {
        let (tables, ink) = (self.tables(), &self.shared.ink);
        let sizes = self.tenants.values().map(Tenant::sizes);
        let (tests, sets) = sizes.fold((0, 0), |sum, size| (sum.0 + size.0, sum.1 + size.1));
        Counts {
            endpoints: tables.endpoints.len(),
            identities: self.shared.identities.len(),
            sets,
            tests,
            peers: tables.peers.len(),
            columns: ink.columns.len(),
            ports: tables.ports.len(),
            rules: tables.rules.len(),
            tests_done: self.shared.tests_done,
            columns_made: ink.columns_made,
        }
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    pub(crate) fn tenant_named(&self, number: u32) -> Option<&Label> {
        self.tenant_numbers.key(number)
    }

    /// The policy behind each revision in force.
    pub(crate) fn revisions(&self) -> BTreeMap<u64, PolicyKey> {
        let installed = self.tenants.values().flat_map(Tenant::installed);
        installed.map(|found| (found.revision, found.policy.key.clone())).collect()
    }

    fn runs_at(&self, address: NetAddr) -> Option<&Node> {
        let identity = self.tables().endpoints.get(&address)?;
        let tenant = self.tables().identities.get(identity)?.tenant;
        let tenant = self.tenants.get(self.tenant_numbers.key(tenant)?)?;
        self.shared.nodes.get(tenant.owner(address)?.node.as_ref()?)
    }

    fn with(&mut self, name: &Label, change: impl FnOnce(&mut Tenant, &mut Shared)) {
        if !self.tenants.contains_key(name) {
            self.welcome(name);
        }
        if let Some(tenant) = self.tenants.get_mut(name) {
            change(tenant, &mut self.shared);
            if tenant.is_empty() {
                self.dismiss(name);
            }
        }
    }

    /// A tenant of whom nothing was known: the cluster's policies are its policies.
    fn welcome(&mut self, name: &Label) {
        let (number, _) = self.tenant_numbers.hold(name);
        let mut tenant = Tenant::new(name.clone(), number);
        for (key, installed) in &self.cluster {
            tenant.set_policy(&mut self.shared, key, Some(installed));
        }
        self.tenants.insert(name.clone(), tenant);
    }

    fn dismiss(&mut self, name: &Label) {
        let Some(mut tenant) = self.tenants.remove(name) else { return };
        for key in tenant.policy_keys() {
            tenant.set_policy(&mut self.shared, &key, None);
        }
        self.tenant_numbers.release(tenant.number());
    }

    fn set_node(&mut self, name: &str, node: Option<&Node>) {
        let before = match node {
            Some(node) => self.shared.nodes.insert(name.to_owned(), node.clone()),
            None => self.shared.nodes.remove(name),
        };
        let ips: BTreeSet<_> =
            before.iter().chain(node).flat_map(|node| &node.ips).copied().collect();
        for tenant in self.tenants.values_mut() {
            tenant.nodes_changed(&mut self.shared, &ips);
        }
    }

    /// Whether a deleted policy stays in force for now, because its namespace is being deleted.
    fn stays(&mut self, key: &PolicyKey) -> bool {
        let home = key.tenant.clone().zip(key.namespace.clone());
        let staying = home.and_then(|home| self.ending.get_mut(&home));
        staying.map(|staying| staying.insert(key.clone())).is_some()
    }

    fn namespace_gone(&mut self, tenant: Label, name: String) {
        let staying = self.ending.remove(&(tenant, name)).unwrap_or_default();
        for key in staying {
            self.set_policy(&key, None);
        }
    }

    fn set_policy(&mut self, key: &PolicyKey, read: Option<Read>) {
        if read.is_some() {
            self.ending.values_mut().for_each(|staying| drop(staying.take(key)));
        }
        let same = |old: &Read| read.as_ref().is_some_and(|new| new.policy == old.policy);
        let unchanged = self.read.get(key).is_some_and(same);
        let policy = read.as_ref().map(|read| read.policy.clone());
        match read {
            Some(read) => self.read.insert(key.clone(), read),
            None => self.read.remove(key),
        };
        if !unchanged {
            self.place_policy(key, policy);
        }
    }

    /// Puts a policy of a tenant in force as it is, or ends it.
    fn install(&mut self, owner: &Label, key: &PolicyKey, new: Option<&Installed>) {
        self.with(owner, |tenant, shared| tenant.set_policy(shared, key, new));
    }

    /// The same with a policy of the cluster's administrators.
    fn install_for_all(&mut self, key: &PolicyKey, new: Option<Installed>) {
        for tenant in self.tenants.values_mut() {
            tenant.set_policy(&mut self.shared, key, new.as_ref());
        }
        match new {
            Some(new) => self.cluster.insert(key.clone(), new),
            None => self.cluster.remove(key),
        };
    }

    fn settle(&mut self) -> Changes {
        self.tenants.values_mut().for_each(Tenant::settle);
        self.tenant_numbers.settle();
        self.shared.settle();
        self.shared.ink.tables.changes()
    }
}
