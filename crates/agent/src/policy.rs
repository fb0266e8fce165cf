//! Policy on this node: what was seen of tenants becomes facts for the compiler, and what the
//! compiler says becomes entries of the kernel.
//!
//! The rules of this file: the kernel's tables stay as they are until everything has been seen once.
//! A pod is told to the compiler only when every policy that could be about it has been listed, so
//! whoever has an identity has its policies. A pod without one is unknown, and unknown means no.

mod ends;
mod guests;
pub(crate) mod held;
mod report;
#[cfg(test)]
mod tests;
mod ward;
pub(crate) mod watch;

use std::collections::{BTreeMap, BTreeSet};

use atoll_policy::{Changes, Compiler, Event, PolicyKey, Read, Room};
use atoll_types::{Label, NetworkId, PodRef};

use self::ends::Ends;
use self::guests::Guests;
use self::held::Held;
use self::ward::WardSeen;
use crate::kernel::Kernel;
use crate::seen::{Change, Delta, Scope, Seen, SeenNode};

/// A namespace as a part of a tenant.
pub(crate) type Ward = (Label, String);

/// A change that policy alone has to know of.
#[derive(Clone, Debug)]
pub(crate) enum News {
    /// Pods of a ward.
    Pods(Ward, Delta<String, SeenPod>),
    /// `NetworkPolicy` objects of a ward.
    Policies(Ward, Delta<String, Box<Read>>),
    /// A ward is being deleted, and its policies go in no order with its pods.
    Ending(Ward),
    /// `ClusterNetworkPolicy` objects.
    Cluster(Delta<String, Box<Read>>),
}

/// A pod, and which of those that had its name it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SeenPod {
    /// Its UID.
    pub(crate) uid: String,
    /// What policy knows of it, without interfaces.
    pub(crate) pod: atoll_policy::Pod,
}

/// What was seen of policy, and what the kernel has of it.
#[derive(Debug, Default)]
pub(crate) struct Policies {
    compiler: Compiler,
    /// The namespaces of tenants that are here, by name.
    wards: BTreeMap<String, WardSeen>,
    cluster: Option<BTreeMap<String, PolicyKey>>,
    nodes: Option<BTreeSet<String>>,
    ends: Ends,
    guests: Guests,
    held: Held,
    /// All namespaces have been listed.
    is_whole: bool,
    /// The networks of each tenant that are present here.
    networks: BTreeMap<Label, BTreeSet<NetworkId>>,
    /// The kernel has the compiler's tables, but for what is pending.
    is_written: bool,
    pending: Vec<Changes>,
    /// Networks whose connections must be decided anew once the kernel has what is pending.
    touched: BTreeSet<NetworkId>,
}

impl Policies {
    /// Policies for a kernel that has so much room.
    pub(crate) fn within(room: Option<Room>) -> Self {
        let compiler = room.map_or_else(Compiler::new, Compiler::within);
        Policies { compiler, ..Policies::default() }
    }

    /// Keeps exactly the wards and networks of this scope.
    pub(crate) fn follow(&mut self, scope: &Scope, seen: &Seen) {
        self.is_whole = scope.is_whole;
        self.networks = scope.networks_of_tenants();
        let all = self.wards.iter().map(|(name, known)| (known.tenant.clone(), name.clone()));
        let left: Vec<Ward> = all.filter(|ward| !scope.wards.contains(ward)).collect();
        left.into_iter().for_each(|ward| self.leave(ward));
        self.follow_guests(scope, seen);
        for ward in &scope.wards {
            self.follow_ward(ward, seen);
        }
        let present = scope.all().map(|(_, presence)| presence.id).collect();
        for pod in self.ends.keep(&present) {
            self.tell_pod(&pod);
        }
    }

    fn follow_ward(&mut self, ward: &Ward, seen: &Seen) {
        let Some(namespace) = seen.namespace(&ward.1) else { return };
        let (tenant, name) = ward.clone();
        let is_new = !self.wards.contains_key(&name);
        let known = self.wards.entry(name.clone());
        let known = known.or_insert_with(|| WardSeen::begin(&tenant, namespace.is_ending));
        let labels = std::mem::replace(&mut known.labels, namespace.labels.clone());
        let begins_to_end = namespace.is_ending && !known.is_ending;
        known.is_ending |= namespace.is_ending;
        if is_new || labels != namespace.labels {
            let labels = Some(namespace.labels.clone());
            self.apply(Some(&ward.0), Event::Namespace(tenant.clone(), name.clone(), labels));
        }
        if begins_to_end {
            self.apply(Some(&ward.0), Event::Ending(tenant, name));
        }
    }

    fn ward(&mut self, (tenant, name): &Ward) -> Option<&mut WardSeen> {
        self.wards.get_mut(name).filter(|known| known.tenant == *tenant)
    }

    /// Pods go before the policies that were about them.
    fn leave(&mut self, (tenant, name): Ward) {
        let Some(left) = self.wards.remove(&name) else { return };
        for pod in left.told {
            let pod = PodRef::new(&name, pod);
            self.apply(Some(&tenant), Event::Pod(tenant.clone(), pod, None));
        }
        for key in left.policies.into_iter().flat_map(BTreeMap::into_values) {
            self.apply(Some(&tenant), Event::Policy(key, None));
        }
        self.apply(Some(&tenant), Event::Namespace(tenant.clone(), name, None));
    }

    /// Takes in what a change says of policy. What is not followed is passed over.
    pub(crate) fn absorb(&mut self, change: &Change) {
        match change {
            Change::Nodes(delta) => self.absorb_nodes(delta),
            Change::NetworkPorts(network, delta) => {
                for pod in self.ends.absorb(*network, delta) {
                    self.tell_pod(&pod);
                }
            }
            Change::Policy(News::Pods(ward, delta)) => self.absorb_pods(ward, delta),
            Change::Policy(News::Policies(ward, delta)) => self.absorb_policies(ward, delta),
            Change::Policy(News::Cluster(delta)) => self.absorb_cluster(delta),
            Change::Policy(News::Ending(ward)) => self.absorb_ending(ward),
            _ => {}
        }
    }

    fn absorb_ending(&mut self, ward: &Ward) {
        let Some(known) = self.ward(ward) else { return };
        known.is_ending = true;
        let (tenant, name) = ward.clone();
        self.apply(Some(&ward.0), Event::Ending(tenant, name));
    }

    fn absorb_nodes(&mut self, delta: &Delta<String, SeenNode>) {
        let known = self.nodes.take();
        let put =
            |name: &String, node: &SeenNode| Event::Node(name.clone(), Some(node.facts.clone()));
        let events: Vec<Event> = match (delta, &known) {
            (Delta::All(all), known) => {
                let gone = known.iter().flatten().filter(|name| !all.contains_key(*name));
                let gone = gone.map(|name| Event::Node(name.clone(), None));
                all.iter().map(|(name, node)| put(name, node)).chain(gone).collect()
            }
            (Delta::Put(name, node), Some(_)) => vec![put(name, node)],
            (Delta::Gone(name), Some(_)) => vec![Event::Node(name.clone(), None)],
            (Delta::Put(..) | Delta::Gone(_), None) => return,
        };
        self.nodes = match (delta, known) {
            (Delta::All(all), _) => Some(all.keys().cloned().collect()),
            (Delta::Put(name, _), Some(mut known)) => {
                known.insert(name.clone());
                Some(known)
            }
            (Delta::Gone(name), Some(mut known)) => {
                known.remove(name);
                Some(known)
            }
            (_, None) => None,
        };
        events.into_iter().for_each(|event| self.apply(None, event));
    }

    fn absorb_pods(&mut self, ward: &Ward, delta: &Delta<String, SeenPod>) {
        let Some(known) = self.ward(ward) else { return };
        for pod in known.absorb_pods(delta) {
            self.tell_pod(&PodRef::new(&ward.1, pod));
        }
    }

    /// What is new comes before what is gone. The first list makes the ward's pods known.
    fn absorb_policies(&mut self, ward: &Ward, delta: &Delta<String, Box<Read>>) {
        let Some(known) = self.ward(ward) else { return };
        let is_first = known.policies.is_none();
        for event in policy_events(&mut known.policies, delta) {
            self.apply(Some(&ward.0), event);
        }
        if is_first {
            self.tell_ward(&ward.1);
        }
    }

    fn absorb_cluster(&mut self, delta: &Delta<String, Box<Read>>) {
        let is_first = self.cluster.is_none();
        let mut known = self.cluster.take();
        let events = policy_events(&mut known, delta);
        self.cluster = known;
        events.into_iter().for_each(|event| self.apply(None, event));
        if is_first {
            let wards: Vec<String> = self.wards.keys().cloned().collect();
            wards.iter().for_each(|ward| self.tell_ward(ward));
        }
    }

    fn tell_ward(&mut self, ward: &str) {
        let pods = self.wards.get(ward).and_then(|known| known.pods.as_ref());
        let names: Vec<String> = pods.into_iter().flat_map(BTreeMap::keys).cloned().collect();
        for name in names {
            self.tell_pod(&PodRef::new(ward, name));
        }
    }

    /// Tells the compiler what is so of a pod: nothing, before its policies are known.
    fn tell_pod(&mut self, name: &PodRef) {
        let listed = self.cluster.is_some();
        let Some(known) = self.wards.get_mut(&name.namespace) else { return self.tell_guest(name) };
        let seen = known.tellable(&name.name).filter(|_| listed);
        let pod = seen.map(|seen| self.ends.attach(name, seen));
        let was_told = match &pod {
            Some(_) => !known.told.insert(name.name.clone()),
            None => known.told.remove(&name.name),
        };
        if pod.is_some() || was_told {
            let tenant = known.tenant.clone();
            self.apply(Some(&tenant), Event::Pod(tenant.clone(), name.clone(), pod));
        }
    }

    /// What an event of a tenant, or of everybody, changes is kept for the kernel.
    fn apply(&mut self, tenant: Option<&Label>, event: Event) {
        let changes = self.compiler.apply(event);
        if changes.is_empty() {
            return;
        }
        let touched = self.touched_by(tenant, &changes);
        self.touched.extend(touched);
        if self.is_written {
            self.pending.push(changes);
        }
    }

    /// The networks in which a connection may be judged otherwise than before.
    fn touched_by(&self, tenant: Option<&Label>, changes: &Changes) -> BTreeSet<NetworkId> {
        let ends = &changes.endpoints;
        let put = ends.put.iter().map(|(address, _)| address.network);
        let mut touched: BTreeSet<NetworkId> =
            put.chain(ends.removed.iter().map(|address| address.network)).collect();
        let rules = changes.ports.len() + changes.peers.len();
        if rules + changes.identities.len() + changes.outside.len() > 0 {
            let of_tenant = self.networks.iter();
            let of_tenant =
                of_tenant.filter(|(name, _)| tenant.is_none_or(|tenant| tenant == *name));
            touched.extend(of_tenant.flat_map(|(_, networks)| networks));
        }
        touched
    }

    /// Whether everything that concerns this node has been listed once.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_whole
            && self.nodes.is_some()
            && self.cluster.is_some()
            && self.wards.values().all(WardSeen::is_listed)
    }

    /// Whether the kernel has an identity for each of these addresses.
    pub(crate) fn knows(&self, mut addresses: impl Iterator<Item = atoll_types::NetAddr>) -> bool {
        let known = &self.compiler.tables().endpoints;
        self.is_written
            && self.pending.is_empty()
            && addresses.all(|address| known.get(&address).is_some())
    }

    /// The rule of this number, in words that name tier, policy and rule.
    pub(crate) fn rule(&self, number: u32) -> Option<String> {
        self.compiler.tables().rules.get(&number).map(ToString::to_string)
    }

    /// Brings the kernel to what was seen: whole tables at first and after a failure, else what
    /// changed. What got in before a failure counts for the connections that are there, too. Says
    /// whether all of it succeeded.
    pub(crate) fn publish(&mut self, kernel: &mut impl Kernel) -> bool {
        let written = self.write(kernel);
        let decided = kernel.decide_anew(&self.touched);
        match written.and(decided) {
            Ok(()) => {
                self.held.succeeded();
                self.is_written = true;
                self.touched.clear();
                true
            }
            Err(error) => {
                tracing::error!(error = format!("{error:#}"), "cannot write policy");
                self.held.failed(format!("{error:#}"));
                self.is_written = false;
                self.touched.extend(self.networks.values().flatten());
                false
            }
        }
    }

    fn write(&mut self, kernel: &mut impl Kernel) -> anyhow::Result<()> {
        let pending = std::mem::take(&mut self.pending);
        if !self.is_written {
            self.touched.extend(self.networks.values().flatten());
            return kernel.replace_policy(self.compiler.tables());
        }
        pending.iter().try_for_each(|changes| kernel.change_policy(changes))
    }
}

/// The events by which known policies become those of a delta; what is new comes first.
fn policy_events(
    known: &mut Option<BTreeMap<String, PolicyKey>>,
    delta: &Delta<String, Box<Read>>,
) -> Vec<Event> {
    let put = |read: &Read| Event::Policy(read.policy.key.clone(), Some(Box::new(read.clone())));
    let gone = |key: PolicyKey| Event::Policy(key, None);
    match (delta, known) {
        (Delta::All(all), known) => {
            let keys = all.iter().map(|(name, read)| (name.clone(), read.policy.key.clone()));
            let now: BTreeMap<String, PolicyKey> = keys.collect();
            let before = known.replace(now.clone()).unwrap_or_default();
            let stays: BTreeSet<&PolicyKey> = now.values().collect();
            let gone = before.into_values().filter(|key| !stays.contains(key)).map(gone);
            all.values().map(|read| put(read)).chain(gone.collect::<Vec<_>>()).collect()
        }
        (Delta::Put(name, read), Some(known)) => {
            let before = known.insert(name.clone(), read.policy.key.clone());
            let moved = before.filter(|key| *key != read.policy.key);
            std::iter::once(put(read)).chain(moved.map(gone)).collect()
        }
        (Delta::Gone(name), Some(known)) => known.remove(name).map(gone).into_iter().collect(),
        (Delta::Put(..) | Delta::Gone(_), None) => vec![],
    }
}
